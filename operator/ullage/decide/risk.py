# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The learned rule: the risk of breaking anybody's objective first, then what the place is worth.

Hands the engine what it needs and reads its verdict. Memory, contexts and trust are judged before,
for all devices at once, so the engine is told of a device on which they cannot bind. What nothing
certifies yet may be tried out, and stands behind every place that needs no trial.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.contract import Reason
from ullage.decide.judging import MICROS, Breach, Case, Grant
from ullage.engines.admission.calibration import TightSLO
from ullage.engines.admission.decision import admit
from ullage.engines.admission.filters import WHOLE_PERCENT, Device, Newcomer, Resident
from ullage.engines.admission.margin import margin
from ullage.engines.admission.model import LearnedModel, Models
from ullage.engines.admission.probation import NoTrial, may_probe
from ullage.engines.admission.records import Tenant
from ullage.engines.admission.verdict import Arrival, Basis, RiskSettings, Verdict
from ullage.state.terms import RiskSettings as RiskTerms

_ROOMY_MIB: Final = 2**40
_ROOMY_CONTEXTS: Final = 2**20
_PLACE: Final = "the device"


def settings_of(terms: RiskTerms) -> RiskSettings:
    """The policy's risk budget in the engine's words."""
    return RiskSettings(
        eps_percent=terms.eps_percent,
        confidence_percent=terms.confidence_percent,
        min_combined_percent=terms.min_combined_percent,
        tight_slo=TightSLO.CONFORMAL if terms.conformal else TightSLO.REFUSE,
        probation_seconds_per_class=terms.probation_seconds_per_class,
    )


@dataclass(slots=True)
class RiskRule:
    """Judges by the engine; one per cycle."""

    models: Mapping[str, LearnedModel]
    settings: RiskSettings
    arrivals: Mapping[str, tuple[Arrival, ...]] = field(default_factory=dict)
    """By accelerator: the usual classes."""
    by_worth: bool = True
    _forecaster: Models = field(init=False)

    def __post_init__(self) -> None:
        self._forecaster = Models(by_accelerator=self.models)

    def judge(self, case: Case) -> Grant | Breach:
        """The share of largest net value within the risk, a trial, or what stands in the way."""
        if case.least >= WHOLE_PERCENT and not case.tenants:
            return _whole()
        device, newcomer = _device(case), _newcomer(case)
        settings = replace(self.settings, min_combined_percent=self._floor_percent(case))
        basis = Basis(
            forecaster=self._forecaster,
            thresholds=self._forecaster.of(case.accelerator).thresholds,
            settings=settings,
            arrivals=self.arrivals.get(case.accelerator, ()),
        )
        verdict = admit(device, newcomer, basis)
        if verdict.chosen is not None:
            predicted = verdict.tenants[-1].predicted
            return Grant(verdict.percent, predicted, _micros(verdict.chosen.net), verdict=verdict)
        if not case.tenants and case.most >= WHOLE_PERCENT and _keeps_alone(case):
            return _whole()
        return self._trial(case, verdict) or _breach(verdict)

    def alone(self, case: Case, percent: int) -> Breach | None:
        """Whether the newcomer keeps its own objective alone on a device at this share."""
        if percent >= WHOLE_PERCENT and _keeps_alone(case):
            return None
        tenants = (_newcomer(case).at(percent),)
        forecast = self._forecaster.forecast(case.accelerator, tenants)
        found = margin(tenants, forecast, {})
        if found.passes:
            return None
        predicted = math.exp(found.reach(found.required))
        return Breach(percent, case.newcomer.name, predicted, found.allowed)

    def _trial(self, case: Case, verdict: Verdict) -> Grant | Breach | None:
        """A place on probation for what is refused only because too little was seen."""
        if verdict.reason is not Reason.NEED_PROFILE or case.account is None:
            return None
        if case.newcomer.latency:
            text = "and nobody is tried out who has a latency objective"
            return _breach(verdict, Reason.NEED_PROFILE, f"{verdict.text}; {text}")
        found = may_probe(verdict, _device(case), _newcomer(case), case.account, self.settings)
        if isinstance(found, NoTrial):
            return _breach(verdict, found.reason, f"{verdict.text}; {found.text}")
        own = verdict.tenants[-1]
        worth = 1 / own.predicted - verdict.risk
        return Grant(found.percent, own.predicted, _micros(worth), trial=True, verdict=verdict)

    def _floor_percent(self, case: Case) -> float:
        """Least sum of speeds: what the tenants would reach one after the other, as they are.

        Of whole devices that is one device's worth; whoever may never have more than a part of one
        is measured by the largest part that any of them has (derived).
        """
        if not case.tenants:
            return self.settings.min_combined_percent
        newcomer = _newcomer(case).at(case.most)
        best = max(self._speed(case.accelerator, one) for one in (*case.tenants, newcomer))
        return self.settings.min_combined_percent * best

    def _speed(self, accelerator: str, tenant: Tenant) -> float:
        """Normalised throughput alone at its share."""
        return math.exp(-self._forecaster.forecast(accelerator, (tenant,)).mean[0])


def _keeps_alone(case: Case) -> bool:
    """Whether an undivided device is enough: there the slowdown is 1, by what the word means."""
    return case.newcomer.max_slowdown is None or case.newcomer.max_slowdown >= 1


def _whole() -> Grant:
    return Grant(WHOLE_PERCENT, 1.0, MICROS)


def _device(case: Case) -> Device:
    """The device as the engine must see it: only shares, objectives and trials can bind."""
    return Device(
        uuid=_PLACE,
        accelerator=case.accelerator,
        memory_mib=_ROOMY_MIB,
        contexts=_ROOMY_CONTEXTS,
        context_overhead_mib=0,
        percent_limit=max(case.percent_limit, sum(one.percent for one in case.tenants)),
        residents=tuple(
            Resident(tenant=one, memory_mib=0, trust_domain=case.domain) for one in case.tenants
        ),
    )


def _newcomer(case: Case) -> Newcomer:
    return newcomer_of(case.newcomer, (case.least, case.most), case.domain)


def newcomer_of(tenant: Tenant, bounds: tuple[int, int], domain: str) -> Newcomer:
    """Somebody who may have a share within these bounds, memory apart."""
    least, most = bounds
    return Newcomer(
        tenant=tenant, min_percent=least, max_percent=most, memory_mib=1, trust_domain=domain
    )


def _micros(worth: float) -> int:
    return round(worth * MICROS)


def _breach(verdict: Verdict, reason: Reason | None = None, text: str = "") -> Breach:
    """A refusal in the words of the caller."""
    bound: Sequence[float] = [
        one.predicted for one in verdict.tenants if one.name == verdict.binding
    ]
    allowed = next((one.allowed for one in verdict.tenants if one.name == verdict.binding), None)
    percent = verdict.tenants[-1].percent if verdict.tenants else 0
    return Breach(
        percent,
        verdict.binding,
        bound[0] if bound else 0.0,
        allowed or 0.0,
        reason=reason or verdict.reason or Reason.PREDICTED_SLO_BREACH,
        text=text or verdict.text,
    )
