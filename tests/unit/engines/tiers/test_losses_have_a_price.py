# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Lost work with a copy and with checkpoints, and the overhead of the copy."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bench.tiers_losses import (
    Pace,
    lost_with_checkpoints_s,
    lost_with_copy_s,
    overhead,
    push_s,
    times_less,
)
from ullage.engines.tiers.flush import Link

WAY = 200e6 / 8
LINK = Link(
    state_bytes=50_000_000,
    dirty_bytes_per_step=50_000_000,
    host_bytes_per_s=WAY,
    state_store_bytes_per_s=WAY,
)


def test_a_push_slower_than_its_interval_sets_the_pace() -> None:
    travel_s = push_s(LINK, owners=3, state_stores=1)
    assert travel_s == pytest.approx(2.0)
    assert overhead(Pace(step_s=2.5), every_steps=1, travel_s=travel_s) == pytest.approx(0.0)
    assert overhead(Pace(step_s=1.0), every_steps=1, travel_s=travel_s) == pytest.approx(1.0)
    assert overhead(Pace(step_s=1.0), every_steps=2, travel_s=travel_s) == pytest.approx(0.0)


def test_a_push_costs_its_pause() -> None:
    assert overhead(Pace(step_s=2.5, pause_s=0.1), every_steps=2, travel_s=1) == pytest.approx(0.02)


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


@pytest.mark.parametrize("wrong", [{"step_s": 0.0}, {"pause_s": -1.0}, {"notified": 1.5}])
def test_paces_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Pace(**({"step_s": 1.0} | wrong))


def test_no_interval_no_owner_no_keeper_are_refused() -> None:
    with pytest.raises(ValueError, match="interval"):
        lost_with_checkpoints_s(Pace(step_s=1), interval_s=0, losses_per_hour=1)
    with pytest.raises(ValueError, match="owner"):
        push_s(LINK, owners=0, state_stores=1)
