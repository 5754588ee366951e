# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Inputs and result of a decision: the same frozen record for operator, node and people.

A verdict carries every figure that it was made from, so that anyone can check it. Values only;
nothing is decided here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ullage.api.reasons import Reason
from ullage.engines.admission.calibration import Band, Threshold
from ullage.engines.admission.filters import Newcomer
from ullage.engines.admission.prediction import Forecaster
from ullage.engines.admission.records import Group, Rung


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskSettings:
    """``SchedulingPolicy.spec.risk``, and two weights that simulations sweep.

    Raises:
        ValueError: a figure is out of its range.
    """

    eps_percent: float = 5.0
    """Allowed share of violations among the admitted."""
    confidence_percent: float = 80.0
    min_combined_percent: float = 100.0
    """Least sum of normalised throughputs of two or more tenants."""
    probation_seconds_per_class: float = 60.0
    fragmentation_weight: float = 1.0
    eviction_weight: float = 1.0

    def __post_init__(self) -> None:
        for name in ("eps_percent", "confidence_percent"):
            if not 0 < getattr(self, name) < 100:
                raise ValueError(f"risk: {name} must lie between 0 and 100")
        for name in (
            "min_combined_percent",
            "probation_seconds_per_class",
            "fragmentation_weight",
            "eviction_weight",
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"risk: {name} must be a number of at least 0, not {value:g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A known class as it usually arrives, and how often beside the others."""

    newcomer: Newcomer
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """Everything a decision rests on beside the device and the newcomer."""

    forecaster: Forecaster
    thresholds: Mapping[tuple[Group, Band], Threshold]
    settings: RiskSettings = RiskSettings()
    arrivals: tuple[Arrival, ...] = ()
    """Known classes, for the price of room that no one can use afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """One tenant of the mixture that was decided on.

    ``mean`` and ``sd`` are of log slowdown against a whole device of its own, ``predicted`` its
    median, ``upper`` its one-sided 90 % bound; ``z`` is its margin (``inf`` without an objective).
    """

    name: str
    percent: int
    mean: float
    sd: float
    predicted: float
    upper: float
    allowed: float | None
    z: float
    utilisation_sum: float
    """Slowdown that the baseline predicts, always beside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """One share that keeps every objective, and what it is worth.

    All in units of one tenant's normalised throughput: ``gain`` over the device without the
    newcomer, ``fragmentation`` and ``eviction_risk`` as they count against it.
    """

    percent: int
    value: float
    gain: float
    fragmentation: float
    eviction_risk: float

    @property
    def net(self) -> float:
        """What placing it here is worth."""
        return self.gain - self.fragmentation - self.eviction_risk


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a newcomer may join a device, at which share, and all figures behind the answer.

    A refusal has a ``reason`` and no share; its ``tenants``, ``z`` and ``required`` are those of
    the share that misses by least (empty where a rule refused before any forecast). ``required``
    is the margin asked for (``lambda``), ``missing_points`` how far the binding tenant's objective
    is exceeded, in points of slowdown (1 point = 0.01x), its required margin included.
    """

    device: str
    newcomer: str
    percent: int
    reason: Reason | None
    text: str
    binding: str = ""
    missing_points: float = 0.0
    tenants: tuple[Outlook, ...] = ()
    z: float = math.inf
    required: float = math.inf
    rows: int = 0
    rows_needed: int = 0
    group: Group | None = None
    band: Band | None = None
    rung: Rung | None = None
    chosen: Weighed | None = None
    runner_up: Weighed | None = None

    @property
    def admitted(self) -> bool:
        """Whether it may join."""
        return self.reason is None

    @property
    def risk(self) -> float:
        """P(an objective is broken) by the margin alone, before calibration: Phi(-z)."""
        return 0.5 * math.erfc(self.z / math.sqrt(2))
