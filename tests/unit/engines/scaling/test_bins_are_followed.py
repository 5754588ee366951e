# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One step for operator, simulator and bench: what is remembered, and what a gap means."""

from __future__ import annotations

import pytest

from ullage.engines.scaling.autoscaler import ScalingTerms
from ullage.engines.scaling.configurations import Configuration
from ullage.engines.scaling.following import KEPT_BINS, Heard, ScalingMemory, follow, reachable
from ullage.engines.scaling.pooled_queue import LatencyTarget
from ullage.engines.scaling.service_times import ServiceTime
from ullage.engines.scaling.simulator import ScalerView
from ullage_simulate.serving import objective_scaler

ONE = Configuration(
    accelerator="l4", share_percent=50, service=ServiceTime(mean_s=0.4, sigma=0.6), cost=1.0
)
TERMS = ScalingTerms(
    target=LatencyTarget(limit_s=2.0, quantile=0.99), least=1, most=50, bin_s=15.0, launch_s=45.0
)


def heard(at: int, rate: float, current: int) -> Heard:
    return Heard(
        now_s=15.0 * (at + 1),
        requests_per_s=rate,
        late=0.0,
        ended=rate * 15,
        waiting=0,
        current=current,
    )


def test_the_simulator_drives_the_very_step() -> None:
    scaler, memory, rates, current = objective_scaler(ONE, TERMS), ScalingMemory(), [], 2
    for at in range(200):
        rate = 3.0 + at % 40
        rates.append(rate)
        seen = ScalerView(
            now_s=15.0 * (at + 1),
            rates=tuple(rates),
            busy=1.0,
            late=0.0,
            ended=round(rate * 15),
            waiting=0,
            ready=current,
            current=current,
        )
        found, memory = follow(memory, heard(at, rate, current), ONE, TERMS)
        assert scaler(seen) == found.replicas
        current = found.replicas


def test_a_memory_stays_small() -> None:
    memory = ScalingMemory()
    for at in range(500):
        _, memory = follow(memory, heard(at, 5.0, 3), ONE, TERMS)
    assert len(memory.rates) == KEPT_BINS
    assert len(memory.needs) <= 16
    assert memory.needs[0].at_s <= memory.as_of_s - TERMS.hold_s


@pytest.mark.parametrize("gap", [100, -100])
def test_after_a_gap_nothing_is_taken_away_at_once(gap: int) -> None:
    memory = ScalingMemory()
    for at in range(200, 260):
        found, memory = follow(memory, heard(at, 0.1, 9), ONE, TERMS)
    assert found.replicas < 9
    late, _ = follow(memory, heard(260 + gap, 0.1, 9), ONE, TERMS)
    assert late.replicas == 9


def test_a_target_below_the_service_time_itself_is_relaxed() -> None:
    near = LatencyTarget(limit_s=5.0)
    assert reachable(near, ONE.service) is near
    far = reachable(LatencyTarget(limit_s=0.1), ONE.service)
    assert far.limit_s == pytest.approx(2 * ONE.service.quantile_s(0.99))
