# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which windows are planned, what is dropped for lack of time, and that seeds decide all of it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from bench.gpu.plan import REFERENCE_EVERY, Name, make_plan
from bench.gpu.rig import MPS_LIMIT

PLENTY_S = 1e9


@pytest.mark.parametrize("name", ["r1", "r2"])
def test_all_workers_of_a_run_fit_one_server(name: Name) -> None:
    plan = make_plan(name, 0, seconds=PLENTY_S)
    assert len(plan.keys) <= MPS_LIMIT
    assert not plan.dropped


def test_the_first_run_has_its_blocks() -> None:
    counts = Counter(one.block for one in make_plan("r1", 0, seconds=PLENTY_S).windows)
    assert counts == {"solo": 92, "probe": 60, "pair": 135, "noise": 60, "reference": 10}


def test_the_second_run_has_its_blocks() -> None:
    counts = Counter(one.block for one in make_plan("r2", 0, seconds=PLENTY_S).windows)
    assert set(counts) == {
        "solo", "probe", "pair", "noise", "reference", "open", "freeze", "triple", "priority",
    }  # fmt: skip
    assert counts["triple"] == 40
    assert counts["priority"] == 20


def test_the_seed_decides_everything() -> None:
    one, same, other = (make_plan("r2", seed, seconds=PLENTY_S) for seed in (1, 1, 2))
    assert one == same
    assert one.windows != other.windows


def test_what_does_not_fit_is_dropped_from_the_bottom_and_never_the_repeats() -> None:
    full = Counter(one.block for one in make_plan("r2", 0, seconds=PLENTY_S).windows)
    short = make_plan("r2", 0, seconds=500.0)
    counts = Counter(one.block for one in short.windows)
    assert counts["noise"] == full["noise"]
    assert counts["solo"] == full["solo"]
    assert not counts["priority"]
    assert counts["pair"] > 0
    reference_s = counts["reference"] * 1.8
    assert sum(one.seconds for one in short.windows) <= 500.0 + reference_s


def test_the_reference_pair_runs_first_last_and_every_forty_windows() -> None:
    windows = make_plan("r1", 3, seconds=PLENTY_S).windows
    places = [one.id for one in windows if one.block == "reference"]
    assert places[0] == 0
    assert places[-1] == len(windows) - 1
    gaps = [b - a for a, b in pairwise(places[:-1])]
    assert set(gaps) == {REFERENCE_EVERY + 1}


def test_parts_of_a_run_share_its_windows_out() -> None:
    def counted(*parts: tuple[int, int]) -> Counter[tuple[str, object]]:
        plans = [make_plan("r1", 5, seconds=PLENTY_S, part=part) for part in parts]
        windows = [one for plan in plans for one in plan.windows if one.block != "reference"]
        return Counter((one.block, one.members) for one in windows)

    assert counted((1, 2), (2, 2)) == counted((1, 1))
