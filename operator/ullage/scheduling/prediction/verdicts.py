# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How a device is judged for a class of request, once the hard limits leave it a share.

Two rules answer the same question: the utilisation sum here, the learned risk in :mod:`risk`; the
SchedulingPolicy says which. A rule is pure and knows neither nodes nor pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ullage.api.reasons import Reason
from ullage.engines.admission.prediction import Predictor
from ullage.engines.admission.query import AdmissionQuery
from ullage.engines.admission.records import TOLERANCE, Refusal, Tenant
from ullage.engines.admission.verdict import Verdict

MICROS: Final = 1_000_000
"""Worth is compared in millionths of one tenant's normalised throughput, as whole numbers."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A share that keeps everyone's objective, or may be tried out."""

    percent: int
    predicted: float
    """Slowdown of the newcomer against a whole device of its own."""
    net: int = 0
    """What placing it here is worth, millionths."""
    trial: bool = False
    """Nothing certifies it: it starts on probation."""
    verdict: Verdict | None = None


class AdmissionRule(Protocol):
    """Judges devices that pass the hard limits."""

    @property
    def by_worth(self) -> bool:
        """Whether devices stand in order of worth, not of the share that they give."""
        ...

    def judge(self, query: AdmissionQuery) -> Admission | Refusal:
        """The share that the newcomer gets, or why it gets none."""
        ...

    def explain(self, query: AdmissionQuery) -> Admission | Refusal:
        """The same answer, with the names of just these tenants."""
        ...

    def alone(self, query: AdmissionQuery, percent: int) -> Refusal | None:
        """Whether the newcomer keeps its own objective alone on a device at this share."""
        ...

    def slowdowns(self, accelerator: str, tenants: Sequence[Tenant]) -> tuple[float, ...]:
        """Predicted slowdown of everyone on a device, each at its own share."""
        ...


@dataclass(frozen=True, slots=True)
class SumRule:
    """The largest share at which a predictor breaks no one's objective."""

    predictor: Predictor
    by_worth: bool = False

    def judge(self, query: AdmissionQuery) -> Admission | Refusal:
        """The largest whole percent in the bounds that breaks no one's objective."""
        if all(tenant.max_slowdown is None for tenant in (*query.residents, query.newcomer)):
            return Admission(query.most, 0.0)
        bounds = query.least, query.most
        return largest_share(query.newcomer, query.residents, bounds, self.predictor)

    explain = judge

    def alone(self, query: AdmissionQuery, percent: int) -> Refusal | None:
        """Whether the newcomer keeps its own objective alone on a device at this share."""
        found = largest_share(query.newcomer, (), (percent, percent), self.predictor)
        return found if isinstance(found, Refusal) else None

    def slowdowns(self, accelerator: str, tenants: Sequence[Tenant]) -> tuple[float, ...]:
        """Predicted slowdown of everyone on a device, each at its own share."""
        return self.predictor.predict(tenants[:-1], tenants[-1], tenants[-1].percent)


def largest_share(
    newcomer: Tenant, tenants: Sequence[Tenant], bounds: tuple[int, int], predictor: Predictor
) -> Admission | Refusal:
    """The largest whole percent in the bounds that breaks no one's objective, by prediction."""
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
    everyone: Sequence[Tenant], slowdowns: Sequence[float], percent: int
) -> Refusal | None:
    worst: Refusal | None = None
    for tenant, predicted in zip(everyone, slowdowns, strict=True):
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
