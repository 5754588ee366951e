# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.lanes.records import JobDemand, JobRefused, Opened, Queued
from ullage.engines.lanes.rules import (
    LaneFit,
    LaneNeed,
    LaneRule,
    LaneSize,
    fit,
    merges,
    missing_mib,
    split,
)
from ullage.engines.lanes.settings import EXACT, LaneSettings
from ullage.engines.lanes.state import LaneResident
from ullage.engines.lanes.table import LaneTable

CAPACITY = 24
SMALL = st.integers(0, 5)
STEPS = st.integers(0, 12)
JOBS = st.lists(st.tuples(SMALL, STEPS), min_size=1, max_size=6)


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """All ways to put items into lanes."""
    if not items:
        yield []
        return
    for rest in partitions(items[1:]):
        yield [[items[0]], *rest]
        for at, part in enumerate(rest):
            yield [*rest[:at], [items[0], *part], *rest[at + 1 :]]


def a_demand(name: str, persistent: int, ephemeral: int) -> JobDemand:
    return JobDemand(name=name, persistent_mib=persistent, ephemeral_mib=ephemeral)


def a_table() -> LaneTable:
    return LaneTable(settings=LaneSettings(capacity_mib=CAPACITY, margins=EXACT))


@given(jobs=JOBS)
def test_a_job_waits_only_where_no_choice_of_lanes_has_room_for_it(
    jobs: list[tuple[int, int]],
) -> None:
    table = a_table()
    here: list[tuple[int, int]] = []
    for at, (persistent, ephemeral) in enumerate(jobs):
        answer, _ = table.arrive(a_demand(f"j{at}", persistent, ephemeral), 0.0)
        tried = [*here, (persistent, ephemeral)]
        fits = any(
            sum(p for p, _ in tried) + sum(max(tried[i][1] for i in lane) for lane in lanes)
            <= CAPACITY
            for lanes in partitions(list(range(len(tried))))
        )
        assert isinstance(answer, Queued | JobRefused) == (not fits)
        if not fits:
            table.leave(f"j{at}", 0.0)
        else:
            here = tried


@given(
    lanes=st.lists(STEPS, max_size=5),
    persistent=SMALL,
    ephemeral=STEPS,
    own=st.booleans(),
    free=st.integers(0, 12),
)
def test_rules_hold_as_they_are_written(
    lanes: list[int], persistent: int, ephemeral: int, own: bool, free: int
) -> None:
    seen = [LaneSize(lane=at, size_mib=size, duty=1, shared=True) for at, size in enumerate(lanes)]
    seen.sort(key=lambda one: (one.size_mib, one.lane))
    need = LaneNeed(persistent_mib=persistent, ephemeral_mib=ephemeral, own=own)
    used, device = sum(lanes), sum(lanes) + free
    expected: LaneFit | None = None
    if used + persistent + ephemeral <= device:
        expected = LaneFit(rule=LaneRule.OPEN)
    elif not own:
        joins = [one for one in seen if one.size_mib >= ephemeral]
        grows = [
            one
            for one in seen
            if used - one.size_mib + max(one.size_mib, ephemeral) + persistent <= device
        ]
        if joins and used + persistent <= device:
            expected = LaneFit(rule=LaneRule.JOIN, lane=joins[0].lane)
        elif grows:
            expected = LaneFit(rule=LaneRule.ENLARGE, lane=grows[0].lane)
    assert fit(need, seen, free) == expected
    missing = missing_mib(need, seen, free)
    assert (missing == 0) == (expected is not None)
    assert fit(need, seen, free + missing) is not None
    assert missing == 0 or fit(need, seen, free + missing - 1) is None


@given(
    lanes=st.lists(st.tuples(STEPS, st.sampled_from((0.1, 0.5, 1.0, 2.0))), max_size=5),
    persistent=SMALL,
    ephemeral=STEPS,
    free=st.integers(0, 6),
)
def test_lanes_merge_exactly_where_that_makes_room_and_no_further(
    lanes: list[tuple[int, float]], persistent: int, ephemeral: int, free: int
) -> None:
    seen = [
        LaneSize(lane=at, size_mib=size, duty=duty, shared=True)
        for at, (size, duty) in enumerate(lanes)
    ]
    seen.sort(key=lambda one: (one.size_mib, one.lane))
    need = LaneNeed(persistent_mib=persistent, ephemeral_mib=ephemeral)
    found = merges(need, seen, free)
    left = {one.lane: one.size_mib for one in seen}
    freed = []
    for one in found:
        assert left[one.lane] <= left[one.into], "the smaller one goes"
        freed.append(left.pop(one.lane))
    after = missing_mib(need, [one for one in seen if one.lane in left], free + sum(freed))
    whole = missing_mib(need, seen[-1:], free + sum(one.size_mib for one in seen[:-1]))
    assert bool(found) == (missing_mib(need, seen, free) > 0 and whole == 0)
    assert after == 0 or not found
    if found:
        assert missing_mib(need, seen, free + sum(freed[:-1])) > 0, "the last merge was needed"


@given(
    steps=st.lists(st.tuples(STEPS, st.sampled_from((0.1, 0.5, 1.0))), min_size=2, max_size=6),
    free=st.integers(0, 12),
)
def test_a_split_gains_as_much_as_any_choice_of_residents(
    steps: list[tuple[int, float]], free: int
) -> None:
    """Any part may go; with equal duties the smallest ones are as good as any."""
    duty = steps[0][1]
    residents = [
        LaneResident(
            demand=JobDemand(name=f"j{at}", persistent_mib=0, ephemeral_mib=step, duty=duty),
            persistent_mib=0,
            ephemeral_mib=step,
            number=at,
            since_s=0.0,
        )
        for at, (step, _) in enumerate(steps)
    ]
    best = 0.0
    largest, count = max(step for step, _ in steps), len(steps)
    for chosen in range(1, 2**count - 1):
        goes = [steps[at][0] for at in range(count) if chosen >> at & 1]
        stays = [steps[at][0] for at in range(count) if not chosen >> at & 1]
        if max(goes) + max(stays) <= largest + free:
            parted = min(1.0, duty * len(goes)) + min(1.0, duty * len(stays))
            best = max(best, parted - min(1.0, duty * count))
    found = split(residents, free)
    assert abs((found.gain if found else 0.0) - best) < 1e-6


@given(jobs=JOBS)
def test_jobs_that_fit_side_by_side_each_have_a_lane(jobs: list[tuple[int, int]]) -> None:
    """However they came and went: when the others leave, what is left is parted again."""
    table = a_table()
    for at, (persistent, ephemeral) in enumerate(jobs):
        table.arrive(a_demand(f"j{at}", persistent, ephemeral), 0.0)
    for at in range(2, len(jobs)):
        table.leave(f"j{at}", 0.0)
    left = list(table.memory.residents.values())
    if sum(one.whole_mib for one in left) <= CAPACITY and not table.queue:
        assert len(table.memory.lanes) == len(left)


def test_a_lane_of_one_job_is_opened_where_it_is_alone() -> None:
    answer, changes = a_table().arrive(a_demand("a", 4, 20), 0.0)
    assert answer == Opened(job="a", lane=1, size_mib=20, epoch=1, persistent_mib=4)
    assert changes == ()
