# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Follows a service bin by bin: memory, inputs and decisions of a scaler.

Operator, simulator and bench all use :func:`follow`, so the simulator shows the operator's
behaviour. The memory is small enough for a status, and so survives every restart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from ullage.engines.scaling.autoscaler import ScalingDecision, ScalingTerms, decide_replicas
from ullage.engines.scaling.configurations import Configuration
from ullage.engines.scaling.forecast import FIRST_CAUTION, adapted
from ullage.engines.scaling.pooled_queue import LatencyTarget
from ullage.engines.scaling.season import learned
from ullage.engines.scaling.service_times import ServiceTime
from ullage.engines.scaling.stabilisation import ReplicaNeed

KEPT_BINS: Final = 80
"""Bins in memory: as many as the errors of a forecast use, and a slot of a season."""
REACH: Final = 1.05
"""A target below this many service times at its quantile cannot be met."""
RELAXED: Final = 2.0
"""The target used instead, in these service times: as long a wait as the service."""
GAP_BINS: Final = 3
"""Bins without data after which earlier needs are discarded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingMemory:
    """Memory of a scaler from earlier bins.

    Attributes:
        rates: Requests per second by bin, the oldest first.
        needs: Replicas needed, in order of time, over the hold.
        caution: Of the forecast, 0..1.
        as_of_s: End of the last bin, on the clock of the needs.
        season: Requests per second by slot of a season.
    """

    rates: tuple[float, ...] = ()
    needs: tuple[ReplicaNeed, ...] = ()
    caution: float = FIRST_CAUTION
    as_of_s: float = 0.0
    season: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Measurements of the bin that ends now.

    Attributes:
        now_s: End of the bin, seconds.
        requests_per_s: To all replicas.
        late: The fraction of the requests that ended beyond the limit, 0..1.
        ended: Number of ended requests.
        waiting: Waiting requests.
        current: Desired replicas so far.
    """

    now_s: float
    requests_per_s: float
    late: float
    ended: float
    waiting: int
    current: int


def reachable(target: LatencyTarget, service: ServiceTime) -> LatencyTarget:
    """The target, or a feasible one instead.

    More replicas shorten only the wait. Where the service itself takes longer than the target
    allows, no number meets it, and the maximum of replicas would be wasted (derived).

    Args:
        target: Latency target.
        service: Of one replica.
    """
    served_s = service.quantile_s(target.quantile)
    kept = REACH * served_s <= target.limit_s
    return target if kept else replace(target, limit_s=RELAXED * served_s)


def follow(
    memory: ScalingMemory, heard: Heard, configuration: Configuration, terms: ScalingTerms
) -> tuple[ScalingDecision, ScalingMemory]:
    """Decide at the end of a bin, and update the memory.

    An unmeasured bin is left out. After a gap, or a clock that went back, needs start again, so
    that nothing is removed because of one bin.

    Args:
        memory: Memory after the bin before.
        heard: Measurements of the bin.
        configuration: Configuration of each replica.
        terms: Terms of the service.

    Raises:
        ValueError: a rate is negative or not finite.
    """
    terms = replace(terms, target=reachable(terms.target, configuration.service))
    rates = (*memory.rates, heard.requests_per_s)[-KEPT_BINS:]
    usual = max(1.0, sum(rates) / len(rates) * terms.bin_s)
    weight = heard.ended / usual
    caution = adapted(memory.caution, heard.late, weight, terms.target.quantile)
    gap_s = heard.now_s - memory.as_of_s
    follows = 0 <= gap_s < GAP_BINS * terms.bin_s
    needs = memory.needs if follows else ()
    season = memory.season
    if follows:
        season = learned(
            season, rates, now_s=heard.now_s, bin_s=terms.bin_s, season_s=terms.season_s
        )
    decided = decide_replicas(
        rates,
        needs,
        configuration,
        terms,
        now_s=heard.now_s,
        current=heard.current,
        waiting=heard.waiting,
        caution=caution,
        season=season,
    )
    kept = max(2, math.ceil(terms.hold_s / terms.bin_s) + 2)
    return decided, replace(
        memory,
        rates=rates,
        needs=(*needs, decided.need)[-kept:],
        caution=caution,
        as_of_s=heard.now_s,
        season=season,
    )
