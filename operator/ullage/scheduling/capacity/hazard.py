# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Hazard, launches and availability of a pool, learned from the changes of its instances.

The status is the only state: after a restart learning continues from it. A loss event counts once
however many instances it takes, exposure counts while the pool has at least one. Changes in one
observation have no order: losses come first, then warnings, then gains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

from ullage.api.spot import SpotTerms
from ullage.cluster.records.pool import (
    CapacityType,
    LaunchRecord,
    LossRecord,
    PoolRecord,
    PoolStatus,
)
from ullage.engines.capacity.hazard import Hazard, Launches, Prior, prior
from ullage.engines.capacity.times import BULK_LOSS_H, HAZARD_HALF_LIFE_H, HAZARD_PRIOR_H
from ullage.scheduling.inventory.instances import Sighting
from ullage.scheduling.times import BULK_LOSS_S, HOUR_S, LAUNCH_RETRY_FIRST_S

RELIABLE_PER_HOUR: Final = 1e-4
"""Prior of on-demand and reserved capacity: one failure of a machine a year (derived)."""
LEAST_SUCCESS: Final = 0.05
"""Minimum expected success rate of launches; it bounds the wait after failures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """Half-life and weight of the prior, from ``SchedulingPolicy.spec.spot``."""

    half_life_h: float = HAZARD_HALF_LIFE_H
    prior_hours: float = HAZARD_PRIOR_H

    @classmethod
    def of(cls, terms: SpotTerms) -> Self:
        """The settings of the policy."""
        return cls(
            half_life_h=terms.hazard_half_life_s / HOUR_S, prior_hours=float(terms.prior_hours)
        )


def prior_of(pool: PoolRecord, learning: Learning) -> Prior:
    """Prior of a pool without observations."""
    reliable = pool.capacity_type is not CapacityType.SPOT
    if pool.advisor_band is None and reliable:
        hours = learning.prior_hours
        return Prior(events=RELIABLE_PER_HOUR * hours, hours=hours)
    return prior(pool.advisor_band, hours=learning.prior_hours)


def hazard_of(pool: PoolRecord, status: PoolStatus, learning: Learning) -> Hazard:
    """The posterior recorded in a status, as of ``observed_at_s``."""
    loss = status.last_loss
    draining_h = None
    if loss is not None and loss.open:
        draining_h = max(0.0, status.observed_at_s - loss.at_s) / HOUR_S
    return Hazard(
        prior=prior_of(pool, learning),
        events=status.loss_events,
        hours=status.exposure_hours,
        lost_sum=status.loss_events * (status.mean_lost_fraction or 0.0),
        draining_h=draining_h,
    )


def launches_of(pool: PoolRecord, status: PoolStatus) -> Launches:
    """The launches recorded in a status, as of ``observed_at_s``."""
    return Launches(
        started=status.launches.succeeded,
        failed=status.launches.failed,
        in_a_row=status.launch_failures,
        score=pool.placement_score,
    )


def observed(
    pool: PoolRecord, status: PoolStatus, seen: Sighting, now: float, learning: Learning
) -> PoolStatus:
    """The status after an observation.

    Args:
        pool: The pool; its own status is not used.
        status: The status after the last observation.
        seen: Changes since.
        now: Seconds since the epoch.
        learning: Half-life and weight of the prior.
    """
    now = max(now, status.observed_at_s)  # clocks of two leaders may differ slightly
    held_s = _held_s(status, seen, now)
    idle_s = (now - status.observed_at_s if status.observed_at_s else 0.0) - held_s
    half_life_h = learning.half_life_h
    hazard = hazard_of(pool, status, learning)
    hazard = hazard.after(max(0.0, idle_s) / HOUR_S, held=False, half_life_h=half_life_h)
    hazard = hazard.after(held_s / HOUR_S, held=True, half_life_h=half_life_h)
    hazard, loss = _lost(hazard, status.last_loss, seen, now)
    warned_at_s = status.warned_at_s
    if seen.warned and (warned_at_s is None or now - warned_at_s > BULK_LOSS_S):
        hazard, warned_at_s = hazard.warned(), now
    if seen.gained:
        hazard = hazard.gained()
        loss = None if loss is None else replace(loss, open=False)
    launches, failed_at_s = _launched(launches_of(pool, status), status, seen, now, learning)
    after = replace(
        status,
        hazard_per_hour=hazard.rate_per_hour,
        exposure_hours=hazard.hours,
        loss_events=hazard.events,
        mean_lost_fraction=min(1.0, hazard.lost_sum / hazard.events) if hazard.events else None,
        launch_failures=launches.in_a_row,
        nodes=seen.nodes,
        launching=seen.launching,
        launches=LaunchRecord(
            succeeded=launches.started, failed=launches.failed, failed_at_s=failed_at_s
        ),
        last_loss=loss,
        warned_at_s=warned_at_s,
        observed_at_s=now,
    )
    return replace(after, available=_available(pool, after, launches, seen, now))


def _held_s(status: PoolStatus, seen: Sighting, now: float) -> float:
    """Seconds since the last observation in which the pool had an instance."""
    if not status.observed_at_s:
        return 0.0  # the time before the first observation is unknown
    since = status.observed_at_s
    if not seen.gap:
        return now - since if status.nodes else 0.0
    if seen.held_since_s is None:
        return 0.0
    return max(0.0, now - max(since, seen.held_since_s))


def _lost(
    hazard: Hazard, loss: LossRecord | None, seen: Sighting, now: float
) -> tuple[Hazard, LossRecord | None]:
    """Count lost instances, as a new event or as part of the last one."""
    if not seen.lost:
        return hazard, loss
    same = hazard.draining_h is not None and hazard.draining_h <= BULK_LOSS_H and loss is not None
    whole = loss.nodes if same and loss is not None else max(seen.before, seen.lost)
    took = (loss.lost if same and loss is not None else 0) + seen.lost
    whole = max(whole, took)
    hazard = hazard.lost(min(1.0, seen.lost / whole))
    return hazard, LossRecord(at_s=now, nodes=whole, lost=took)


def _launched(
    launches: Launches, status: PoolStatus, seen: Sighting, now: float, learning: Learning
) -> tuple[Launches, float | None]:
    passed_h = (now - status.observed_at_s) / HOUR_S if status.observed_at_s else 0.0
    launches = launches.after(passed_h, half_life_h=learning.half_life_h)
    failed_at_s = status.launches.failed_at_s
    for _ in range(seen.failed):
        launches, failed_at_s = launches.launched(ok=False), now
    for _ in range(seen.launched):
        launches = launches.launched(ok=True)
    return launches, failed_at_s


def _available(
    pool: PoolRecord, status: PoolStatus, launches: Launches, seen: Sighting, now: float
) -> bool:
    """True unless new instances are known to be unavailable.

    A spot loss may be followed by more; a failed machine of other capacity says nothing about the
    next.
    """
    if seen.advised:
        return False
    loss, failed_at_s = status.last_loss, status.launches.failed_at_s
    spot = pool.capacity_type is CapacityType.SPOT
    if spot and loss is not None and loss.open and now - loss.at_s <= BULK_LOSS_S:
        return False
    if failed_at_s is None or not launches.in_a_row:
        return True
    wait_s = launches.wait_s(first_s=LAUNCH_RETRY_FIRST_S / max(launches.success, LEAST_SUCCESS))
    return now - failed_at_s >= wait_s
