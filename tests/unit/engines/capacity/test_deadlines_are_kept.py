# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Uniform Progress: the line, the safety net, the public rules, whole gangs on one kind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.capacity_deadline import play, public_rules
from ullage.api.words import CostObjective
from ullage.api.words import SpendMode as Mode
from ullage.engines.capacity.cost import CostTerms
from ullage.engines.capacity.deadline import (
    DeadlineProgress,
    ProgressLine,
    infeasible,
    next_in_s,
    uniform_progress,
)
from ullage.engines.capacity.decide import Due, decide
from ullage.engines.capacity.records import Ask, CapacityType, CapacityWhy, Pool, PoolHolding

H = 3600
LINE = ProgressLine(work_s=48 * H, deadline_s=60 * H, changeover_s=720, tick_s=600)
RECORDED = Path(__file__).parents[3] / "data" / "capacity" / "public_rules.json"


def at(
    elapsed_h: float, done_h: float, running: Mode = Mode.IDLE, **more: object
) -> DeadlineProgress:
    return DeadlineProgress(
        elapsed_s=round(elapsed_h * H),
        done_s=round(done_h * H),
        running=running,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("where", "mode", "why"),
    [
        (at(10, 8.1), Mode.IDLE, CapacityWhy.AHEAD),
        (at(10, 7.9), Mode.ON_DEMAND, CapacityWhy.BEHIND),
        (at(10, 7.9, spot_available=True), Mode.SPOT, CapacityWhy.ON_SPOT),
        (at(59, 47.5, Mode.SPOT), Mode.SPOT, CapacityWhy.STAYS_ON_SPOT),
        (at(30, 18.3, spot_available=True), Mode.ON_DEMAND, CapacityWhy.SAFETY_NET),
        (at(10, 8.1, Mode.ON_DEMAND), Mode.ON_DEMAND, CapacityWhy.ON_DEMAND_HELD),
        (
            at(10, 8.3, Mode.ON_DEMAND, spot_available=True),
            Mode.ON_DEMAND,
            CapacityWhy.ON_DEMAND_HELD,
        ),
        (at(10, 8.4, Mode.ON_DEMAND, spot_available=True), Mode.SPOT, CapacityWhy.ON_SPOT),
        (at(10, 8.4, spot_available=True, committed=True), Mode.ON_DEMAND, CapacityWhy.SAFETY_NET),
        (at(55, 48), Mode.IDLE, CapacityWhy.FINISHED),
    ],
)
def test_what_to_run_on(where: DeadlineProgress, mode: Mode, why: CapacityWhy) -> None:
    found = uniform_progress(LINE, where)
    assert (found.mode, found.reason) == (mode, why)
    assert found.committed is (why is CapacityWhy.SAFETY_NET)


def test_near_the_end_on_demand_is_not_left_for_spot_that_may_not_last() -> None:
    # the line alone would allow it; a lost tick would not leave time for a second start
    short = replace(LINE, changeover_s=120)
    near = at(59.8, 47.9, Mode.ON_DEMAND, spot_available=True)
    assert uniform_progress(short, near).mode is Mode.ON_DEMAND
    ample = at(50, 47.0, Mode.ON_DEMAND, spot_available=True)
    assert uniform_progress(short, ample).mode is Mode.SPOT


def test_the_net_keeps_a_tick_where_decisions_are_further_apart_than_a_start() -> None:
    assert LINE.reserve_s == 1440
    assert replace(LINE, changeover_s=120).reserve_s == 840


def test_a_deadline_that_cannot_be_kept_is_refused_with_the_numbers() -> None:
    assert infeasible(LINE, allow_spot=True, allow_on_demand=True) is None
    tight = replace(LINE, deadline_s=48 * H + 1439)
    said = infeasible(tight, allow_spot=True, allow_on_demand=True)
    assert said is not None
    assert "48.40 h" in said
    exact = replace(LINE, deadline_s=48 * H + 1440)
    assert infeasible(exact, allow_spot=True, allow_on_demand=True) is None
    spot_only = infeasible(LINE, allow_spot=True, allow_on_demand=False)
    assert spot_only is not None
    assert "spot-only" in spot_only


@pytest.mark.parametrize("field", ["work_s", "deadline_s", "changeover_s", "tick_s"])
def test_times_are_whole_seconds(field: str) -> None:
    with pytest.raises(ValueError, match="whole seconds"):
        replace(LINE, **{field: 0.5})
    with pytest.raises(ValueError, match="above 0"):
        replace(LINE, **{field: -1})


def test_idle_time_is_decided_again_when_the_line_or_the_net_is_reached() -> None:
    where = at(10, 8.1)
    wait_s = next_in_s(LINE, where, uniform_progress(LINE, where))
    assert 0 < wait_s <= 600
    later = replace(where, elapsed_s=where.elapsed_s + wait_s)
    assert uniform_progress(LINE, later).mode is Mode.ON_DEMAND
    sooner = replace(where, elapsed_s=where.elapsed_s + wait_s - 1)
    assert uniform_progress(LINE, sooner).mode is Mode.IDLE
    wide = replace(LINE, tick_s=10 * H)
    net = at(11.5, 0.0)
    assert next_in_s(wide, net, uniform_progress(wide, replace(net, done_s=11 * H))) >= 1


def test_decisions_equal_the_recorded_ones_of_the_public_rules() -> None:
    cases = json.loads(RECORDED.read_text(encoding="utf-8"))["cases"]
    assert len(cases) == 24
    for case in cases:
        line = ProgressLine(**{key: case[key] for key in ProgressLine.__dataclass_fields__})
        up = [bool(value) for value, ticks in case["up"] for _ in range(ticks)]
        expected = "".join(run[0] * int(run[1:]) for run in case["decisions"])
        found: list[str] = []

        def rule(line: ProgressLine, at: DeadlineProgress, found: list[str] = found) -> object:
            verdict = public_rules(line, at)
            found.append(verdict.mode.value[0])
            return verdict

        play(rule, line, up)  # type: ignore[arg-type]
        assert "".join(found) == expected


SPOT = Pool(name="spot", price_per_hour=1.0, hazard_per_hour=0.1)
OTHER = Pool(name="spot-b", price_per_hour=1.5, hazard_per_hour=0.1)
SURE = Pool(name="sure", price_per_hour=3.0, capacity_type=CapacityType.ON_DEMAND)
GANG = Ask(objective=CostObjective.DEADLINE, least=4, most=4, gang=4)


def due(elapsed_h: float, done_h: float, *, committed: bool = False) -> Due:
    return Due(
        line=LINE, elapsed_s=round(elapsed_h * H), done_s=round(done_h * H), committed=committed
    )


def test_the_cheapest_spot_pool_takes_the_whole_gang() -> None:
    found = decide(GANG, [SPOT, OTHER, SURE], CostTerms(), due=due(0, 0))
    assert [(one.pool, one.instances) for one in found.chosen.shares] == [("spot", 4)]
    assert found.reason is CapacityWhy.ON_SPOT
    assert found.runner_up is not None
    assert found.runner_up.shares[0].pool == "sure"
    assert "0.00 h done" in found.text


def test_spot_for_a_part_of_the_gang_is_no_spot() -> None:
    part = replace(SPOT, most=3)
    found = decide(GANG, [part, SURE], CostTerms(), due=due(10, 7.9))
    assert found.chosen.shares[0].pool == "sure"
    assert found.reason is CapacityWhy.BEHIND
    waits = decide(GANG, [part, SURE], CostTerms(), due=due(10, 8.1))
    assert waits.reason is CapacityWhy.AHEAD
    assert not waits.chosen.shares
    assert 0 < waits.next_in_s <= 60


def test_a_gang_on_spot_stays_although_another_pool_is_cheaper() -> None:
    ask = replace(GANG, held=(PoolHolding(pool="spot-b", instances=4, held_s=9e9),))
    found = decide(ask, [SPOT, OTHER, SURE], CostTerms(), due=due(10, 7))
    assert found.chosen.shares[0].pool == "spot-b"
    assert found.reason is CapacityWhy.STAYS_ON_SPOT


def test_a_gang_that_lost_a_member_counts_as_taken() -> None:
    ask = replace(GANG, held=(PoolHolding(pool="spot", instances=3),))
    found = decide(ask, [replace(SPOT, available=False), SURE], CostTerms(), due=due(10, 7))
    assert [(one.pool, one.instances) for one in found.chosen.shares] == [("sure", 4)]


def test_the_safety_net_commits_and_stays_committed() -> None:
    found = decide(GANG, [SPOT, SURE], CostTerms(), due=due(30, 18.3))
    assert found.committed
    assert found.chosen.shares[0].pool == "sure"
    again = decide(GANG, [SPOT, SURE], CostTerms(), due=due(31, 30, committed=True))
    assert again.chosen.shares[0].pool == "sure"


def test_spot_is_better_than_nothing_where_on_demand_is_missing() -> None:
    found = decide(GANG, [SPOT], CostTerms(), due=due(30, 18.3))
    assert found.reason is CapacityWhy.NO_ON_DEMAND
    assert found.chosen.shares[0].pool == "spot"
    assert found.committed
