# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Admission rules: they evaluate a device for a request class, after the hard limits.

There are two: the utilisation sum in this module, and the learned risk in :mod:`risk`; the
SchedulingPolicy chooses. A rule is pure and knows neither nodes nor pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ullage.api.reasons import Reason
from ullage.engines.admission.query import AdmissionQuery
from ullage.engines.admission.records import TOLERANCE, Refusal, Tenant
from ullage.engines.admission.utilisation import Predictor
from ullage.engines.admission.verdict import Verdict

MICROS: Final = 1_000_000
"""Resolution of worth: millionths of one tenant's normalised throughput, as whole numbers."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A share that keeps every objective, or may be tried on probation."""

    percent: int
    predicted: float
    """Slowdown of the newcomer against a whole device of its own."""
    net: int = 0
    """Net value of the placement, millionths."""
    trial: bool = False
    """True when it is not certified, and starts on probation."""
    verdict: Verdict | None = None


class AdmissionRule(Protocol):
    """Evaluates devices that pass the hard limits."""

    @property
    def by_worth(self) -> bool:
        """True when devices are ordered by net value, False when by the granted share."""
        ...

    def judge(self, query: AdmissionQuery) -> Admission | Refusal:
        """The share of the newcomer, or a refusal."""
        ...

    def explain(self, query: AdmissionQuery) -> Admission | Refusal:
        """The answer of :meth:`judge`, with the names of these tenants."""
        ...

    def alone(self, query: AdmissionQuery, percent: int) -> Refusal | None:
        """``None`` when the newcomer meets its own objective alone on a device at this share."""
        ...

    def slowdowns(self, accelerator: str, tenants: Sequence[Tenant]) -> tuple[float, ...]:
        """Predicted slowdown of every tenant of a device, each at its own share."""
        ...


@dataclass(frozen=True, slots=True)
class SumRule:
    """Grants the largest share at which a predictor sees every objective met."""

    predictor: Predictor
    by_worth: bool = False

    def judge(self, query: AdmissionQuery) -> Admission | Refusal:
        """The largest whole percent in the bounds that meets every objective."""
        if all(tenant.max_slowdown is None for tenant in (*query.residents, query.newcomer)):
            return Admission(query.most, 0.0)
        bounds = query.least, query.most
        return largest_share(query.newcomer, query.residents, bounds, self.predictor)

    explain = judge

    def alone(self, query: AdmissionQuery, percent: int) -> Refusal | None:
        """``None`` when the newcomer meets its own objective alone on a device at this share."""
        answer = largest_share(query.newcomer, (), (percent, percent), self.predictor)
        return answer if isinstance(answer, Refusal) else None

    def slowdowns(self, accelerator: str, tenants: Sequence[Tenant]) -> tuple[float, ...]:
        """Predicted slowdown of every tenant of a device, each at its own share."""
        return self.predictor.predict(tenants[:-1], tenants[-1], tenants[-1].percent)


def largest_share(
    newcomer: Tenant, tenants: Sequence[Tenant], bounds: tuple[int, int], predictor: Predictor
) -> Admission | Refusal:
    """The largest whole percent in the bounds that meets every objective, by prediction.

    Raises:
        ValueError: the bounds include no whole percent.
    """
    least, most = bounds
    nearest: Refusal | None = None
    for percent in range(most, least - 1, -1):
        slowdowns = predictor.predict(tenants, newcomer, percent)
        violation = _worst_breach((*tenants, newcomer), slowdowns, percent)
        if violation is None:
            return Admission(percent, slowdowns[-1])
        if nearest is None or violation.excess < nearest.excess - TOLERANCE:
            nearest = violation
    if nearest is None:
        raise ValueError(f"no whole percent between {least} and {most}")
    return nearest


def _worst_breach(
    tenants: Sequence[Tenant], slowdowns: Sequence[float], percent: int
) -> Refusal | None:
    worst: Refusal | None = None
    for tenant, predicted in zip(tenants, slowdowns, strict=True):
        allowed = tenant.max_slowdown
        if allowed is None or predicted <= allowed + TOLERANCE:
            continue
        text = (
            f"at {percent} % {tenant.name} would run {predicted:.2f} times slower than alone, its"
            f" objective allows {allowed:g} (predicted)"
        )
        violation = Refusal(
            Reason.PREDICTED_SLO_BREACH, text, tenant.name, percent, predicted, allowed
        )
        if worst is None or violation.excess > worst.excess:
            worst = violation
    return worst
