# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lost work with a copy and with checkpoints, and the overhead of the copy."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ullage.engines.tiers.flush import Link
from ullage.engines.tiers.losses import (
    OVERHEAD_LIMIT,
    Pace,
    best_interval_s,
    fewest_steps,
    lost_with_checkpoints_s,
    lost_with_copy_s,
    overhead,
    push_s,
    times_less,
)

WAY = 200e6 / 8
LINK = Link(
    state_bytes=50_000_000,
    dirty_bytes_per_step=50_000_000,
    host_bytes_per_s=WAY,
    keeper_bytes_per_s=WAY,
)


def test_a_push_slower_than_its_interval_sets_the_pace() -> None:
    travel_s = push_s(LINK, owners=3, keepers=1)
    assert travel_s == pytest.approx(2.0)
    assert overhead(Pace(step_s=2.5), every_steps=1, travel_s=travel_s) == pytest.approx(0.0)
    assert overhead(Pace(step_s=1.0), every_steps=1, travel_s=travel_s) == pytest.approx(1.0)
    assert overhead(Pace(step_s=1.0), every_steps=2, travel_s=travel_s) == pytest.approx(0.0)


def test_a_push_costs_its_pause() -> None:
    assert overhead(Pace(step_s=2.5, pause_s=0.1), every_steps=2, travel_s=1) == pytest.approx(0.02)


@pytest.mark.parametrize("step_s", [0.1, 0.4, 1.0, 1.82, 2.5])
@pytest.mark.parametrize("dirty", [1_000_000, 20_000_000, 50_000_000])
@pytest.mark.parametrize("pause_s", [0.0, 0.3])
def test_the_shortest_interval_within_the_limit_equals_trying_all(
    step_s: float, dirty: int, pause_s: float
) -> None:
    pace = Pace(step_s=step_s, pause_s=pause_s)
    link = replace(LINK, dirty_bytes_per_step=dirty)

    def fits(steps: int) -> bool:
        every = replace(link, every_steps=steps, max_lag_steps=steps)
        travel_s = push_s(every, owners=2, keepers=1)
        return overhead(pace, every_steps=steps, travel_s=travel_s) <= OVERHEAD_LIMIT + 1e-9

    assert fewest_steps(pace, link, owners=2, keepers=1) == next(n for n in range(1, 99) if fits(n))


def test_checkpoints_lose_half_their_interval_when_losses_are_rare() -> None:
    rare = lost_with_checkpoints_s(Pace(step_s=1), interval_s=60, losses_per_hour=1e-6)
    assert rare == pytest.approx(30.0)
    restart = lost_with_checkpoints_s(
        Pace(step_s=1, restart_s=40), interval_s=60, losses_per_hour=1e-6
    )
    assert restart == pytest.approx(70.0)


@pytest.mark.parametrize("losses_per_hour", [0.01, 1.0, 30.0, 600.0])
def test_the_closed_form_equals_the_mean_age_at_a_loss(losses_per_hour: float) -> None:
    rate, interval, cuts = losses_per_hour / 3600, 60.0, 20_000
    ages = [interval * (cut + 0.5) / cuts for cut in range(cuts)]
    weights = [math.exp(-rate * age) for age in ages]
    mean = sum(age * weight for age, weight in zip(ages, weights, strict=True)) / sum(weights)
    found = lost_with_checkpoints_s(
        Pace(step_s=1), interval_s=interval, losses_per_hour=losses_per_hour
    )
    assert found == pytest.approx(mean, rel=1e-6)


def test_announced_losses_cost_their_recovery_only() -> None:
    told = Pace(step_s=2.5, recover_s=1.5, notified=1.0)
    assert lost_with_copy_s(told, every_steps=1, travel_s=2.0) == pytest.approx(1.5)
    untold = replace(told, notified=0.0)
    assert lost_with_copy_s(untold, every_steps=1, travel_s=2.0) == pytest.approx(1.25 + 2 + 1.5)


def test_the_copy_loses_over_four_times_less_than_a_checkpoint_each_minute() -> None:
    pace = Pace(step_s=2.5, recover_s=3.0)
    found = times_less(pace, LINK, travel_s=2.0, interval_s=60, losses_per_hour=1)
    assert found == pytest.approx((30 - 60 / 12 / 60) / 6.25, rel=1e-4)
    assert found > 4


def test_the_best_interval_of_checkpoints_is_youngs() -> None:
    assert best_interval_s(10.0, 1.0) == pytest.approx(math.sqrt(2 * 10 * 3600))
    assert math.isinf(best_interval_s(10.0, 0.0))

    def waste(interval_s: float) -> float:
        """Part lost to writing and to losses, for rare losses."""
        lost = lost_with_checkpoints_s(Pace(step_s=1), interval_s=interval_s, losses_per_hour=1)
        return 10.0 / interval_s + lost / 3600

    best = best_interval_s(10.0, 1.0)
    assert waste(best) < min(waste(best * 0.8), waste(best * 1.25))


@pytest.mark.parametrize("wrong", [{"step_s": 0.0}, {"pause_s": -1.0}, {"notified": 1.5}])
def test_paces_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Pace(**({"step_s": 1.0} | wrong))


def test_no_interval_no_owner_no_keeper_are_refused() -> None:
    with pytest.raises(ValueError, match="interval"):
        lost_with_checkpoints_s(Pace(step_s=1), interval_s=0, losses_per_hour=1)
    with pytest.raises(ValueError, match="owner"):
        push_s(LINK, owners=0, keepers=1)
