# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Decides on replicas: forecast, cheapest number that meets the objective, hysteresis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ullage.engines.scaling.configurations import Configuration, Demand, ReplicaOption, ranked
from ullage.engines.scaling.forecast import FIRST_CAUTION, LoadForecast, forecast
from ullage.engines.scaling.pooled_queue import LatencyTarget, PooledLoad
from ullage.engines.scaling.season import expected
from ullage.engines.scaling.stabilisation import ReplicaNeed, desired_replicas
from ullage.engines.scaling.times import SCALE_DOWN_HOLD_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingTerms:
    """Terms of a service for its autoscaler.

    Attributes:
        target: Latency target.
        least: Minimum of replicas, 1 or more.
        most: Maximum of replicas.
        bin_s: Length of a bin of measured load, seconds.
        launch_s: Time from a replica's creation until it serves, seconds.
        hold_s: Time for which fewer replicas must have been enough, seconds.
        season_s: Length of a season, seconds; 0 = none.
        cv2: Squared coefficient of variation of the times between arrivals.
        pooled: True when the replicas share a queue.
    """

    target: LatencyTarget
    least: int
    most: int
    bin_s: float
    launch_s: float
    hold_s: float = SCALE_DOWN_HOLD_S
    season_s: float = 0.0
    cv2: float = 1.0
    pooled: bool = True

    @property
    def bins_ahead(self) -> int:
        """Bins until a replica requested now serves, and until the next decision."""
        return math.ceil(self.launch_s / self.bin_s) + 1

    def demand(self, load_per_s: float) -> Demand:
        """Demand under a load, in requests per second; at least one replica."""
        return Demand(
            target=self.target,
            load=PooledLoad(requests_per_s=load_per_s, cv2=self.cv2, pooled=self.pooled),
            least=max(1, self.least),
            most=self.most,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """Desired number of replicas, and the reason."""

    replicas: int
    forecast: LoadForecast
    load_per_s: float
    """Planned load: the forecast, and the waiting requests."""
    chosen: ReplicaOption
    need: ReplicaNeed


def decide_replicas(
    rates: Sequence[float],
    needs: Sequence[ReplicaNeed],
    configuration: Configuration,
    terms: ScalingTerms,
    *,
    now_s: float,
    current: int,
    waiting: int = 0,
    caution: float = FIRST_CAUTION,
    season: Sequence[float] = (),
) -> ScalingDecision:
    """The desired replicas of a configuration from now on.

    Args:
        rates: Requests per second to the service in bins of ``terms.bin_s``, the oldest first.
        needs: Earlier needs, in order of time.
        configuration: Configuration of each replica.
        terms: Terms of the service.
        now_s: The current time on the clock of ``needs``, seconds.
        current: Desired replicas so far.
        waiting: Waiting requests; they are to be served within the target's time or a bin.
        caution: Caution of the forecast; :func:`adapted` after each bin.
        season: Requests per second by slot of a season; ``now_s`` 0 = start of one.

    Raises:
        ValueError: a rate is negative or not finite, or there is none.
    """
    expected_rates = expected(
        season,
        now_s=now_s,
        bin_s=terms.bin_s,
        season_s=terms.season_s,
        bins=len(rates),
        ahead=terms.bins_ahead,
    )
    ahead = forecast(rates, terms.bins_ahead, expected=expected_rates, caution=caution)
    drain_s = max(terms.target.limit_s, terms.bin_s)
    load = ahead.ahead + waiting / drain_s
    (chosen,) = ranked([configuration], terms.demand(load))
    need = ReplicaNeed(at_s=now_s, replicas=chosen.replicas)
    return ScalingDecision(
        replicas=desired_replicas([*needs, need], now_s, terms.hold_s, current),
        forecast=ahead,
        load_per_s=load,
        chosen=chosen,
        need=need,
    )
