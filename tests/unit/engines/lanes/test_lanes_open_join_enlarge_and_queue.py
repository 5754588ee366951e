# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from ullage.engines.lanes.records import (
    Answer,
    Change,
    Enlarged,
    Granted,
    JobDemand,
    JobRefused,
    Joined,
    Moved,
    Opened,
    Queued,
    Resized,
    TableRefusal,
    Waits,
)
from ullage.engines.lanes.safety import UnsafeLanes
from ullage.engines.lanes.settings import EXACT, LaneAim, LaneSettings
from ullage.engines.lanes.table import LaneTable


def a_table(capacity_mib: int = 16_000, *, aim: LaneAim = LaneAim.RESIDENTS) -> LaneTable:
    return LaneTable(settings=LaneSettings(capacity_mib=capacity_mib, margins=EXACT, aim=aim))


def arrives(
    table: LaneTable, name: str, persistent: int, ephemeral: int, *, own: bool = False
) -> Answer:
    demand = JobDemand(name=name, persistent_mib=persistent, ephemeral_mib=ephemeral, own_lane=own)
    return table.arrive(demand, 0.0)[0]


def lease_of(changes: tuple[Change | Waits, ...], job: str) -> int:
    (lease,) = (one.lease.lease for one in changes if isinstance(one, Granted) and one.job == job)
    return lease


def runs(table: LaneTable, job: str) -> int:
    turn, _ = table.acquire(job, 0.0)
    assert isinstance(turn, Granted)
    return turn.lease.lease


def sizes(table: LaneTable) -> dict[int, int]:
    return {one.lane: one.size_mib for one in table.memory.lanes.values()}


def homes(table: LaneTable) -> dict[str, int]:
    return {name: one.lane for name, one in table.memory.residents.items()}


def test_the_first_rule_opens_a_lane_as_long_as_all_of_it_fits() -> None:
    table = a_table()
    assert isinstance(arrives(table, "a", 1000, 6000), Opened)
    assert isinstance(arrives(table, "b", 1000, 6000), Opened)
    assert sizes(table) == {1: 6000, 2: 6000}
    assert table.memory.free_mib == 2000


def test_the_second_rule_joins_the_smallest_lane_that_is_large_enough() -> None:
    table = a_table()
    arrives(table, "a", 500, 8000)
    arrives(table, "b", 500, 5000)
    arrives(table, "c", 100, 1500)
    assert arrives(table, "d", 100, 4000) == Joined(
        job="d", lane=2, size_mib=5000, epoch=1, persistent_mib=100
    )


def test_the_third_rule_enlarges_the_smallest_lane_by_no_more_than_is_free() -> None:
    table = a_table(aim=LaneAim.RULES_ALONE)
    arrives(table, "a", 1000, 6000)
    arrives(table, "b", 1000, 5000)
    found = arrives(table, "c", 1000, 6500)
    assert isinstance(found, Enlarged)
    assert (found.lane, found.size_mib) == (2, 6500)
    assert sizes(table) == {1: 6000, 2: 6500}
    assert table.memory.free_mib == 500


def test_a_larger_lane_is_never_made_smaller_by_a_newcomer() -> None:
    """Comparing with E instead of max(L, E) once broke safety in nearly every random run."""
    table = a_table(10_000, aim=LaneAim.RULES_ALONE)
    arrives(table, "a", 500, 8000)
    answer = arrives(table, "b", 1000, 600)
    assert isinstance(answer, Joined)
    assert sizes(table) == {1: 8000}


def test_what_fits_by_no_rule_waits_in_order_of_arrival() -> None:
    table = a_table(10_000, aim=LaneAim.RULES_ALONE)
    arrives(table, "a", 3000, 4000)
    assert arrives(table, "b", 4000, 4000) == Queued(job="b", place=1, waiting=1, missing_mib=1000)
    assert isinstance(arrives(table, "c", 10, 10), Queued), "no one passes the first"
    assert list(table.queue) == ["b", "c"]
    changes = table.leave("a", 1.0)
    assert [type(one) for one in changes] == [Resized, Opened, Opened]


def test_a_job_that_never_fits_is_refused_at_once_with_its_numbers() -> None:
    answer = arrives(a_table(), "a", 8000, 8001)
    assert answer == JobRefused(
        job="a", reason=TableRefusal.EXCEEDS_DEVICE, needs_mib=16_001, usable_mib=16_000
    )


def test_a_lane_that_runs_grows_at_its_next_boundary_alone() -> None:
    table = a_table(10_000, aim=LaneAim.RULES_ALONE)
    arrives(table, "a", 500, 6000)
    lease = runs(table, "a")
    assert isinstance(arrives(table, "b", 500, 8000), Enlarged)
    assert sizes(table) == {1: 6000}
    assert table.memory.free_mib == 1000, "what it will take is reserved at once"
    assert isinstance(table.acquire("b", 1.0)[0], Waits)
    changes = table.release(lease, 2.0)
    assert changes[0] == Resized(lane=1, size_mib=8000, epoch=2)
    assert lease_of(changes, "b")


def test_a_lane_shrinks_at_its_next_boundary_alone() -> None:
    table = a_table(10_000)
    arrives(table, "a", 100, 9000)
    arrives(table, "b", 100, 100)
    arrives(table, "c", 500, 2000)
    assert homes(table) == {"a": 1, "b": 2, "c": 1}
    lease = runs(table, "c")
    table.leave("a", 1.0)
    assert sizes(table)[1] == 9000
    table.release(lease, 2.0)
    assert sizes(table)[1] == 2000


def test_lanes_merge_for_the_first_that_waits_and_split_when_none_does() -> None:
    table = a_table(10_000)
    arrives(table, "a", 500, 4000)
    arrives(table, "b", 500, 4000)
    found = arrives(table, "c", 2000, 3000)
    assert isinstance(found, Opened | Joined)
    assert len(set(homes(table).values())) == 2, "no more lanes merge than must"
    table.leave("c", 1.0)
    assert len(set(homes(table).values())) == 2


def test_a_merge_waits_for_the_smaller_lane_to_hold_nothing() -> None:
    table = a_table(10_000)
    arrives(table, "a", 500, 5000)
    arrives(table, "b", 500, 3500)
    lease = runs(table, "b")
    assert isinstance(arrives(table, "c", 2000, 1000), Queued)
    assert homes(table) == {"a": 1, "b": 2}
    changes = table.release(lease, 1.0)
    assert Moved(jobs=("b",), lane=2, into=1) in changes
    assert "c" in table.memory.residents


def test_no_lane_merges_where_even_one_lane_would_be_too_much() -> None:
    table = a_table(10_000)
    arrives(table, "a", 1000, 4000)
    arrives(table, "b", 1000, 4000)
    assert isinstance(arrives(table, "c", 5000, 4000), Queued)
    assert homes(table) == {"a": 1, "b": 2}


@pytest.mark.parametrize(("duty", "merged"), [(1.0, False), (0.3, True)])
def test_lanes_for_throughput_lose_none(duty: float, merged: bool) -> None:
    """Busy jobs keep their lanes and the newcomer waits; jobs that pause lose nothing."""
    table = a_table(10_000, aim=LaneAim.THROUGHPUT)
    for name, persistent, ephemeral in (("a", 500, 4000), ("b", 500, 4000), ("c", 4500, 3000)):
        table.arrive(
            JobDemand(name=name, persistent_mib=persistent, ephemeral_mib=ephemeral, duty=duty),
            0.0,
        )
    assert ("c" in table.memory.residents) == merged
    assert (len(table.memory.lanes) == 1) == merged


def test_a_job_with_its_own_lane_shares_it_with_no_one() -> None:
    table = a_table(10_000)
    arrives(table, "slo", 1000, 5000, own=True)
    assert isinstance(arrives(table, "a", 1000, 4000), Queued)
    table.leave("a", 0.0)
    assert isinstance(arrives(table, "b", 1000, 2000), Opened)
    assert isinstance(arrives(table, "c", 500, 1500), Joined)
    assert homes(table)["c"] == homes(table)["b"]


def test_one_step_at_a_time_runs_in_a_lane_and_lanes_run_side_by_side() -> None:
    table = a_table(10_000, aim=LaneAim.RULES_ALONE)
    arrives(table, "a", 500, 4000)
    arrives(table, "b", 500, 4000)
    arrives(table, "c", 500, 4000)
    assert homes(table)["c"] == 1
    lease = runs(table, "a")
    runs(table, "b")
    turn, _ = table.acquire("c", 0.0)
    assert turn == Waits(job="c", lane=1, others=0)
    assert lease_of(table.release(lease, 1.0), "c")


def test_a_job_that_dies_with_its_lease_keeps_the_lane_until_it_is_gone() -> None:
    table = a_table(10_000, aim=LaneAim.RULES_ALONE)
    arrives(table, "a", 500, 8000)
    arrives(table, "b", 500, 8000)
    runs(table, "a")
    table.acquire("b", 1.0)
    table.withdraw("a", 2.0)
    assert table.acquire("b", 3.0)[0] == Waits(job="b", lane=1, others=0)
    assert lease_of(table.leave("a", 4.0), "b")


def test_a_lease_is_released_once() -> None:
    table = a_table()
    arrives(table, "a", 500, 8000)
    lease = runs(table, "a")
    table.release(lease, 1.0)
    runs(table, "a")
    assert table.release(lease, 2.0) == ()
    assert table.memory.lanes[1].holder == "a"


def test_asking_twice_is_asking_once_and_asking_while_running_is_refused() -> None:
    table = a_table(10_000, aim=LaneAim.RULES_ALONE)
    arrives(table, "a", 500, 8000)
    arrives(table, "b", 500, 8000)
    lease = runs(table, "a")
    for _ in range(2):
        table.acquire("b", 0.0)
    turn, _ = table.acquire("a", 0.0)
    assert isinstance(turn, JobRefused)
    assert turn.reason is TableRefusal.HOLDS_LEASE
    lease = lease_of(table.release(lease, 1.0), "b")
    assert table.release(lease, 2.0) == ()


def test_a_grant_is_overdue_after_twice_the_expected_step() -> None:
    table = a_table()
    demand = JobDemand(name="a", persistent_mib=1, ephemeral_mib=1, step_s=3.0)
    table.arrive(demand, 0.0)
    runs(table, "a")
    assert table.overdue(6.0) == ()
    assert [one.job for one in table.overdue(6.1)] == ["a"]
    assert isinstance(table.acquire("a", 7.0)[0], JobRefused), "being overdue frees nothing"


@pytest.mark.parametrize("wild", [-1, 2**50, True, 1.5])
def test_wild_figures_are_refused_before_they_count(wild: object) -> None:
    with pytest.raises(ValueError, match="MiB"):
        JobDemand(name="a", persistent_mib=wild, ephemeral_mib=1)  # type: ignore[arg-type]
    table = a_table()
    arrives(table, "a", 1, 1)
    with pytest.raises(ValueError, match="MiB"):
        table.acquire("a", 0.0, wild)  # type: ignore[arg-type]


def test_a_full_queue_refuses() -> None:
    table = LaneTable(settings=LaneSettings(capacity_mib=1000, margins=EXACT, most_queued=2))
    arrives(table, "a", 900, 100)
    answers = [arrives(table, name, 900, 100) for name in "bcd"]
    assert [type(one) for one in answers] == [Queued, Queued, JobRefused]


def test_an_unsafe_state_is_an_error_and_never_a_grant() -> None:
    table = a_table()
    arrives(table, "a", 1000, 6000)
    arrives(table, "b", 1000, 6000)
    table.memory.lanes[1].residents["a"].persistent_mib = 9000
    with pytest.raises(UnsafeLanes, match="promised"):
        table.acquire("b", 1.0)
