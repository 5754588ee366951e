# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the rest of the work should save against on-demand stands beside the pools, and is quiet."""

from __future__ import annotations

import pytest

from builders import WorkloadBuilder, a_job
from fakes.toy_pools import PoolPlay, a_pool, aim

HOUR = 3600.0
WORK = aim(estimated_work_s=10 * HOUR)


def job(**changes: object) -> WorkloadBuilder:
    built = a_job().exclusive(1).checkpointed().with_(work_steps=3600, cost=WORK)
    return built.with_(**changes)


def play(*pools: object) -> PoolPlay:
    found = PoolPlay({one.name: one for one in pools})  # type: ignore[attr-defined]
    for one in found.pools:
        found.give(one)
    return found


def said(toy: PoolPlay) -> str:
    spend = toy.job().status.spend
    assert spend is not None
    return spend.expected_savings


def test_the_rest_on_spot_with_its_losses_against_the_rest_on_on_demand() -> None:
    # ten hours at 3 $, against 10 / (1 - .1 x .2) hours at 1 $
    toy = play(a_pool("spot-a", 1.0, hazard=0.1), a_pool("od", 3.0, spot=False))
    toy.add(job())
    toy.settle()
    assert toy.on() == {"spot-a"}
    assert float(said(toy)) == pytest.approx(10 * 3.0 - 10 / (1 - 0.1 * 0.2) * 1.0, abs=1e-3)


def test_it_shrinks_with_the_work_that_is_left_and_is_gone_at_the_end() -> None:
    toy = play(a_pool("spot-a", 1.0, hazard=0.0), a_pool("od", 3.0, spot=False))
    toy.add(job())
    toy.run(5 * HOUR, step_s=600)
    assert float(said(toy)) == pytest.approx(10.0, rel=0.05)
    toy.run(6 * HOUR, step_s=600)
    assert toy.job().status.phase == "Succeeded"
    assert said(toy) == ""


def test_it_is_no_reason_to_write() -> None:
    toy = play(a_pool("spot-a", 1.0, hazard=0.0), a_pool("od", 3.0, spot=False))
    toy.add(job(work_steps=360_000, cost=aim(estimated_work_s=1000 * HOUR)))
    toy.run(2 * HOUR, step_s=600)
    before, writes = said(toy), toy.writes()
    toy.pass_time(45)
    toy.settle()
    assert toy.writes() == writes
    assert said(toy) == before


def test_a_dearer_pool_costs_more_than_on_demand() -> None:
    toy = play(a_pool("spot-a", 4.0, hazard=0.0), a_pool("od", 3.0, spot=False))
    toy.add(job(cost=aim(estimated_work_s=10 * HOUR, on_demand_fallback=False)))
    toy.settle()
    assert said(toy) == "-10"


def test_on_demand_saves_nothing_against_itself() -> None:
    toy = play(a_pool("od", 3.0, spot=False))
    toy.add(job())
    toy.settle()
    assert said(toy) == "0"


@pytest.mark.parametrize(
    ("pools", "changes"),
    [
        ([a_pool("spot-a", 1.0), a_pool("od", 3.0, spot=False)], {"cost": aim(), "work_steps": 0}),
        ([a_pool("spot-a", 1.0)], {}),
        ([a_pool("spot-a", 1.0), a_pool("od", 3.0, spot=False)], {"checkpoint": False}),
    ],
    ids=["how long it takes is not known", "no on-demand price", "a loss has no bound"],
)
def test_what_is_not_known_is_not_said(pools: list[object], changes: dict[str, object]) -> None:
    toy = play(*pools)
    toy.add(job(**changes))
    toy.settle()
    assert toy.on() == {"spot-a"}
    assert said(toy) == ""
