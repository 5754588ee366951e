# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Inputs and result of a decision, and its text: the same record for operator, node and users.

A verdict includes every figure it was made from, so that it can be verified. Nothing is decided in
this module.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from ullage.api.reasons import Reason
from ullage.engines.admission.calibration import Band, Threshold
from ullage.engines.admission.margin import Margin
from ullage.engines.admission.records import Forecast, Group, Rung, Tenant
from ullage.engines.admission.utilisation import UtilisationSum

UPPER_Z: Final = 1.2816
"""One-sided 90 % bound of a normal."""
POINTS: Final = 100


class Forecaster(Protocol):
    """Predicts slowdowns with their uncertainty, on one type of accelerator.

    Used on the decision path: table look-ups only, no factorisation, no I/O.
    """

    def forecast(self, accelerator: str, tenants: Sequence[Tenant]) -> Forecast:
        """Log slowdown of every tenant of a mixture, each at its own share.

        Args:
            accelerator: Type of the device.
            tenants: The mixture, each tenant at its own share (percent).

        Raises:
            ValueError: there is no tenant, or a share is not positive.
        """
        ...


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
class Basis:
    """The inputs of a decision beside the query."""

    forecaster: Forecaster
    thresholds: Mapping[tuple[Group, Band], Threshold]
    settings: RiskSettings = RiskSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """One tenant of the mixture of a verdict.

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
    """Slowdown that the baseline predicts, for comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """A share that keeps every objective, and its worth.

    All in units of one tenant's normalised throughput: ``gain`` over the device without the
    newcomer, less ``eviction_risk``.
    """

    percent: int
    value: float
    gain: float
    eviction_risk: float

    @property
    def net(self) -> float:
        """Net value of the placement."""
        return self.gain - self.eviction_risk


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The decision about a newcomer on a device, with all its figures.

    A refusal has a ``reason`` and no share; its ``tenants``, ``z`` and ``required`` are those of
    the closest miss (empty where a limit refused before any forecast). ``required`` is the required
    margin (``lambda``), ``missing_points`` the excess over the binding tenant's objective in points
    of slowdown (1 point = 0.01x), the required margin included.
    """

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
        """True when the newcomer may join."""
        return self.reason is None

    @property
    def risk(self) -> float:
        """P(an objective is broken) by the margin alone, before calibration: Phi(-z)."""
        return 0.5 * math.erfc(self.z / math.sqrt(2))


def outlooks(draft: Verdict, margin: Margin) -> Verdict:
    """Complete a verdict with every figure of its mixture, in which the newcomer comes last."""
    *present, newcomer = margin.tenants
    sums = UtilisationSum().predict(present, newcomer, newcomer.percent)
    forecast, threshold = margin.forecast, margin.threshold
    rows = zip(margin.tenants, forecast.mean, forecast.sd, margin.margins, sums, strict=True)
    return replace(
        draft,
        tenants=tuple(
            Outlook(
                name=tenant.name,
                percent=tenant.percent,
                mean=mean,
                sd=sd,
                predicted=math.exp(mean),
                upper=math.exp(mean + UPPER_Z * sd),
                allowed=tenant.max_slowdown,
                z=z,
                utilisation_sum=total,
            )
            for tenant, mean, sd, z, total in rows
        ),
        binding=margin.tenants[margin.binding].name if margin.binding >= 0 else "",
        z=margin.z,
        required=margin.required,
        rows=threshold.rows if threshold else 0,
        rows_needed=threshold.needed if threshold else 0,
        group=forecast.group,
        band=margin.band,
        rung=forecast.rung,
    )


def refused(draft: Verdict, nearest: tuple[int, Margin]) -> Verdict:
    """Complete a refusal with the binding tenant and the excess over its objective.

    Args:
        draft: The verdict to complete.
        nearest: The share (percent) with the closest miss, and its margins.
    """
    percent, margin = nearest
    described = outlooks(draft, margin)
    name, allowed = described.binding, margin.allowed
    predicted = math.exp(margin.reach(0.0))
    if math.isfinite(margin.required):
        points = POINTS * (math.exp(margin.reach(margin.required)) - allowed)
        beside = (
            ""
            if predicted > allowed
            else f" ({math.exp(margin.reach(margin.required)):.2f}x with its margin)"
        )
        text = (
            f"{name} predicted {predicted:.2f}x{beside} > {allowed:.2f}x at {percent} %; "
            f"needs {math.ceil(points - 1e-6)} points more"
        )
        reason = Reason.PREDICTED_SLO_BREACH
    elif predicted > allowed:
        points = POINTS * (predicted - allowed)
        text = (
            f"{name} predicted {predicted:.2f}x > {allowed:.2f}x at {percent} %; "
            f"needs {math.ceil(points - 1e-6)} points more"
        )
        reason = Reason.PREDICTED_SLO_BREACH
    else:
        points = 0.0
        text = (
            f"{name} predicted {predicted:.2f}x <= {allowed:.2f}x at {percent} %, but no margin "
            f"is certified for {described.group} and objectives {described.band}: {_rows(margin)}"
        )
        reason = Reason.NEED_PROFILE
    return replace(described, reason=reason, text=text, missing_points=max(0.0, points))


def _rows(margin: Margin) -> str:
    threshold = margin.threshold
    if threshold is None:
        return "no rows"
    if threshold.needed:
        return f"rows {threshold.rows} of {threshold.needed}"
    return f"none of {threshold.rows} rows' margins keeps the risk budget"


def admitted_text(verdict: Verdict, percent: int) -> str:
    """The text of an admission: share of the newcomer, forecast, margin, and the baseline."""
    newcomer = verdict.tenants[-1]
    upper, total = newcomer.upper, newcomer.utilisation_sum
    text = f"{percent} %: {newcomer.name} predicted {newcomer.predicted:.2f}x (upper {upper:.2f}x)"
    if verdict.binding:
        text += f", {verdict.binding} binds: z {verdict.z:.2f} >= {verdict.required:.2f}"
    return f"{text}, {verdict.group} by {verdict.rung}; utilisation sum {total:.2f}x"
