# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Losses of a pool: a Gamma posterior over events per pool-hour, with forgetting.

Losses inside a zone are bulk, so an event counts once however many instances it takes, and exposure
is counted in pool-hours, never in instance-hours. A hazard is never 0: a young pool without losses
has its prior. Providers' hints are weak priors; they must never outweigh observations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from ullage.engines.capacity.times import BULK_LOSS_H, HAZARD_HALF_LIFE_H, HAZARD_PRIOR_H, MONTH_H

DEFAULT_PRIOR_PER_HOUR: Final = 0.01
"""Rate without provider data: one event in 100 hours."""
REBALANCE_WEIGHT: Final = 0.1
"""Weight of a rebalance recommendation, in events (derived: often without a loss)."""


class AdvisorBand(StrEnum):
    """Fraction of instances interrupted per month, as the AWS Spot Advisor publishes it."""

    UNDER_5 = "<5%"
    FROM_5_TO_10 = "5-10%"
    FROM_10_TO_15 = "10-15%"
    FROM_15_TO_20 = "15-20%"
    OVER_20 = ">20%"


_MIDDLE: Final = {
    AdvisorBand.UNDER_5: 0.025,
    AdvisorBand.FROM_5_TO_10: 0.075,
    AdvisorBand.FROM_10_TO_15: 0.125,
    AdvisorBand.FROM_15_TO_20: 0.175,
    # an open band: half of the rest, until data is published
    AdvisorBand.OVER_20: 0.3,
}


def band_rate_per_hour(band: AdvisorBand) -> float:
    """Events per hour of a band: -ln(1 - middle) / 730 (derived)."""
    return -math.log1p(-_MIDDLE[band]) / MONTH_H


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Belief before any observation.

    Attributes:
        events: Pseudo-events, above 0.
        hours: Equivalent pool-hours, above 0.
    """

    events: float
    hours: float = HAZARD_PRIOR_H

    def __post_init__(self) -> None:
        """Keep the posterior above 0.

        Raises:
            ValueError: events or hours are not above 0.
        """
        if not (self.events > 0 and self.hours > 0):
            raise ValueError(f"a prior has events and hours above 0, not {self}")


def prior(band: AdvisorBand | None = None, *, hours: float = HAZARD_PRIOR_H) -> Prior:
    """The prior of a pool.

    Args:
        band: Band published by the provider; ``None`` = none.
        hours: Its weight in pool-hours.
    """
    rate = DEFAULT_PRIOR_PER_HOUR if band is None else band_rate_per_hour(band)
    return Prior(events=rate * hours, hours=hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """The posterior of one pool.

    Attributes:
        prior: Never forgotten.
        events: Loss events seen, forgotten by half-lives.
        hours: Pool-hours seen, forgotten likewise.
        lost_sum: Sum of the fractions lost in those events, forgotten likewise.
        draining_h: Hours since the last loss, while nothing was gained; ``None`` = no loss since.
    """

    prior: Prior
    events: float = 0.0
    hours: float = 0.0
    lost_sum: float = 0.0
    draining_h: float | None = None

    @property
    def rate_per_hour(self) -> float:
        """Expected loss events per pool-hour; above 0."""
        return (self.prior.events + self.events) / (self.prior.hours + self.hours)

    @property
    def mean_lost_fraction(self) -> float:
        """Mean fraction of the instances that an event took; 1 without events."""
        return self.lost_sum / self.events if self.events > 0 else 1.0

    def after(
        self, hours: float, *, held: bool, half_life_h: float | None = HAZARD_HALF_LIFE_H
    ) -> Hazard:
        """The posterior some hours later.

        Args:
            hours: Number of hours; not below 0.
            held: The pool held instances of ours, or a probe, all that time.
            half_life_h: Hours in which a count halves; ``None`` = no forgetting.

        Raises:
            ValueError: the hours are negative.
        """
        if hours < 0:
            raise ValueError(f"time runs forward, not by {hours} h")
        kept = 1.0 if half_life_h is None else 2 ** (-hours / half_life_h)
        return replace(
            self,
            events=self.events * kept,
            hours=self.hours * kept + (hours if held else 0.0),
            lost_sum=self.lost_sum * kept,
            draining_h=None if self.draining_h is None else self.draining_h + hours,
        )

    def gained(self) -> Hazard:
        """The posterior after instances were added: the next loss is a separate event."""
        return self if self.draining_h is None else replace(self, draining_h=None)

    def lost(self, fraction: float = 1.0) -> Hazard:
        """The posterior after a loss, which is a new event or part of the last one.

        Args:
            fraction: Fraction of the pool's instances lost, above 0 to 1.

        Raises:
            ValueError: nothing was lost, or more than all.
        """
        if not 0 < fraction <= 1:
            raise ValueError(f"an event takes more than none and at most all, not {fraction}")
        same = self.draining_h is not None and self.draining_h <= BULK_LOSS_H
        return replace(
            self,
            events=self.events + (0 if same else 1),
            lost_sum=min(self.lost_sum + fraction, self.events + (0 if same else 1)),
            draining_h=0.0,
        )

    def warned(self, weight: float = REBALANCE_WEIGHT) -> Hazard:
        """The posterior after a rebalance recommendation: weak evidence, no event.

        Args:
            weight: See ``REBALANCE_WEIGHT``.
        """
        return replace(
            self,
            events=self.events + weight,
            lost_sum=self.lost_sum + weight * self.mean_lost_fraction,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """Successful and failed instance starts of a pool, forgotten like losses.

    Attributes:
        started: Launches and probes that succeeded.
        failed: Launches and probes that found no capacity.
        in_a_row: Consecutive failures.
        score: The provider's placement score, 1 to 10; ``None`` = none is published.
    """

    started: float = 0.0
    failed: float = 0.0
    in_a_row: int = 0
    score: int | None = None

    @property
    def success(self) -> float:
        """Expected fraction of launches that succeed: a score weighs as two launches (derived)."""
        hint = 0.5 if self.score is None else self.score / 10
        return (self.started + 2 * hint) / (self.started + self.failed + 2)

    def wait_s(self, *, first_s: float = 60.0, longest_s: float = 1800.0) -> float:
        """Seconds of back-off after the last failure; doubles with each consecutive one.

        Args:
            first_s: Seconds after one failure.
            longest_s: Most seconds.
        """
        if not self.in_a_row:
            return 0.0
        return min(longest_s, first_s * 2.0 ** min(self.in_a_row - 1, 30))

    def launched(self, *, ok: bool) -> Launches:
        """The record after a launch or a probe."""
        if ok:
            return replace(self, started=self.started + 1, in_a_row=0)
        return replace(self, failed=self.failed + 1, in_a_row=self.in_a_row + 1)

    def after(self, hours: float, *, half_life_h: float = HAZARD_HALF_LIFE_H) -> Launches:
        """The record some hours later: counts halve in every half-life.

        Args:
            hours: Hours since these counts.
            half_life_h: Hours in which a count halves.
        """
        kept = 2 ** (-hours / half_life_h)
        return replace(self, started=self.started * kept, failed=self.failed * kept)
