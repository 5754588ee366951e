# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Limits of hogs, played against a volume that divides its rate by how much each asks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.engines.dataio.fairness import VolumeUse, judge
from ullage.engines.dataio.limits import FLOOR_BYTES, next_limits
from ullage.engines.dataio.starvation import StarvationWatch

MB = 1e6
VOLUME = "7:0"


def served(
    capacity: float,
    wanted: Mapping[str, float],
    depth: Mapping[str, float],
    limits: Mapping[object, float],
) -> list[VolumeUse]:
    """One window of a volume that serves in proportion to requests in flight."""
    most = {key: min(want, limits.get(key, want)) for key, want in wanted.items()}
    got = dict.fromkeys(wanted, 0.0)
    open_ = {key for key, want in most.items() if want > 0}
    left = capacity
    while open_ and left > 1e-6 * capacity:
        total = sum(depth[key] for key in open_)
        part = {key: min(most[key] - got[key], left * depth[key] / total) for key in open_}
        for key, amount in part.items():
            got[key] += amount
        left -= sum(part.values())
        open_ = {key for key in open_ if got[key] < most[key] * (1 - 1e-9)}
    return [
        VolumeUse(
            key=key,
            bytes_per_s=got[key],
            requests_per_s=got[key] / 131072,
            stalled=max(0.0, 1 - got[key] / want) if want else 0.0,
        )
        for key, want in wanted.items()
    ]


def play(
    windows: int,
    capacity: float,
    wanted: Mapping[str, float],
    depth: Mapping[str, float],
    limits: dict[object, float] | None = None,
    watch: StarvationWatch | None = None,
) -> tuple[dict[object, float], list[VolumeUse]]:
    watch, limits, uses = watch or StarvationWatch(), dict(limits or {}), []
    for _ in range(windows):
        uses = served(capacity, wanted, depth, limits)
        starving = watch.take({VOLUME: uses})
        starved = {case.newest.victim for case in starving}
        limits = next_limits(limits, uses, watch.judgements[VOLUME], starved)
    return limits, uses


WANTED = {"etl": 2000 * MB, "train": 400 * MB}
DEPTH = {"etl": 16.0, "train": 1.0}


def test_two_greedy_readers_end_with_equal_parts() -> None:
    before = judge(served(100 * MB, WANTED, DEPTH, {})).jain
    limits, uses = play(8, 100 * MB, WANTED, DEPTH)
    assert before < 0.7
    assert judge(uses).jain > 0.95
    assert limits.keys() == {"etl"}


def test_limits_follow_the_volume() -> None:
    watch = StarvationWatch()
    limits, _ = play(8, 100 * MB, WANTED, DEPTH, watch=watch)
    _, uses = play(20, 300 * MB, WANTED, DEPTH, limits, watch)
    assert {item.key: round(item.bytes_per_s / MB) for item in uses}["etl"] == pytest.approx(
        150, abs=15
    )


def test_limits_go_when_no_one_waits() -> None:
    watch = StarvationWatch()
    limits, _ = play(8, 100 * MB, WANTED, DEPTH, watch=watch)
    assert limits
    alone = {"etl": 2000 * MB, "train": 0.0}
    limits, uses = play(12, 100 * MB, alone, DEPTH, limits, watch)
    assert limits == {}
    assert uses[0].bytes_per_s == pytest.approx(100 * MB)


def test_a_container_that_is_gone_has_no_limit() -> None:
    limits, _ = play(8, 100 * MB, WANTED, DEPTH)
    uses = served(100 * MB, {"train": 400 * MB}, DEPTH, {})
    assert next_limits(limits, uses, judge(uses), set()) == {}


def test_exempt_containers_are_left_alone() -> None:
    uses = served(100 * MB, WANTED, DEPTH, {})
    assert next_limits({}, uses, judge(uses), {"train"}, exempt={"etl"}) == {}


@settings(max_examples=60)
@given(
    st.floats(5 * MB, 500 * MB),
    st.lists(st.tuples(st.floats(1 * MB, 2000 * MB), st.floats(1, 64)), min_size=2, max_size=5),
)
def test_no_one_falls_below_the_floor_or_an_equal_part(
    capacity: float, readers: list[tuple[float, float]]
) -> None:
    wanted = {f"c{at}": want for at, (want, _) in enumerate(readers)}
    depth = {f"c{at}": deep for at, (_, deep) in enumerate(readers)}
    before = judge(served(capacity, wanted, depth, {})).jain
    limits, uses = play(25, capacity, wanted, depth)
    assert all(limit >= FLOOR_BYTES for limit in limits.values())
    assert judge(uses).jain >= min(before, 0.9) - 0.02
    assert sum(item.bytes_per_s for item in uses) >= 0.75 * min(capacity, sum(wanted.values()))
