# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The learned rule: the risk of breaking anyone's objective first, then what the place is worth.

Asks the engine for its prediction alone and reads its verdict: memory, contexts and trust are
judged before, for all devices at once, and are no part of the question. What nothing certifies yet
may be tried out, and stands behind every place that needs no trial.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.schedulingpolicy import RiskSettings as RiskTerms
from ullage.cluster.values.bounded import MIB, Memo
from ullage.engines.admission.decision import predict
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.admission.margin import margin
from ullage.engines.admission.model import LearnedModel
from ullage.engines.admission.probation import may_probe, needs_trial
from ullage.engines.admission.query import AdmissionQuery
from ullage.engines.admission.records import TOLERANCE, ClassProfile, Forecast, Refusal, Tenant
from ullage.engines.admission.verdict import Basis, RiskSettings, Verdict
from ullage.scheduling.prediction.verdicts import MICROS, Admission

_FORECASTS_BYTES: Final = 64 * MIB
"""Of the forecasts of one model: about 100,000."""
_FORECAST_BYTES: Final = 600
"""What one takes with its key (derived): mixtures are small, and weighing costs time."""
_PROFILES_BYTES: Final = 64 * MIB

Forecasts = Memo[tuple[tuple[int, float, int], ...], Forecast]
"""By share, utilisation and number of profile of every tenant."""


def no_forecasts() -> Forecasts:
    """None are known yet."""
    return Memo(_FORECASTS_BYTES, weigh=lambda _: _FORECAST_BYTES // 2)


@dataclass(slots=True)
class ProfileNumbers:
    """A number for every profile that was met: hashing one costs as much as a forecast."""

    _known: Memo[ClassProfile, int] = field(default_factory=lambda: Memo(_PROFILES_BYTES))
    _next: Iterator[int] = field(default_factory=lambda: count(1))
    """Numbers are never given twice, though profiles are forgotten."""

    def of(self, profile: ClassProfile) -> int:
        """The number of a profile; equal profiles have the same."""
        number = self._known.get(profile)
        if number is None:
            number = next(self._next)
            self._known.put(profile, number)
        return number


@dataclass(slots=True)
class Numbers:
    """Numbers of the profiles of one cycle, looked up by identity."""

    _known: ProfileNumbers = field(default_factory=ProfileNumbers)
    _by_identity: dict[int, tuple[ClassProfile, int]] = field(default_factory=dict)
    """Holds the profile itself, or its identity could be that of another later."""

    def of(self, profile: ClassProfile | None) -> int:
        """The number of a profile; 0 = none."""
        if profile is None:
            return 0
        known = self._by_identity.get(id(profile))
        if known is None:
            known = self._by_identity[id(profile)] = (profile, self._known.of(profile))
        return known[1]


@dataclass(slots=True)
class Recall:
    """Forecasts of one model, each made once."""

    model: LearnedModel
    numbers: Numbers
    known: Forecasts

    def forecast(self, accelerator: str, tenants: Sequence[Tenant]) -> Forecast:
        """Log slowdown of every tenant of a mixture, each at its own share.

        Raises:
            ValueError: there is no tenant, a share is not 1..100, or a profile is no number.
        """
        number = self.numbers.of
        key = tuple(
            (tenant.percent, tenant.utilisation, number(tenant.profile)) for tenant in tenants
        )
        found = self.known.get(key)
        if found is None:
            found = self.model.forecast(tenants)
            self.known.put(key, found)
        return found


def settings_of(terms: RiskTerms) -> RiskSettings:
    """The policy's risk budget in the engine's words."""
    return RiskSettings(
        eps_percent=terms.eps_percent,
        confidence_percent=terms.confidence_percent,
        min_combined_percent=terms.min_combined_percent,
        probation_seconds_per_class=terms.probation_seconds_per_class,
    )


@dataclass(frozen=True, slots=True)
class Usual:
    """The classes that ask for an accelerator or a share of it, as often as they are there.

    ``weights`` by trust domain and least percent; a whole device (100) must be empty. Counts are
    rounded down to powers of two, so that one job more or less changes no price.
    """

    weights: tuple[tuple[tuple[str, int], int], ...] = ()

    def lost(self, query: AdmissionQuery, percent: int) -> float:
        """Share of them that find room on the device before a placement and none after it, 0..1.

        By shares and trust alone: to ask the risk of each as well would cost more than all
        decisions together (derived).
        """
        used = sum(tenant.percent for tenant in query.residents)
        total = lost = 0
        for (domain, least), weight in self.weights:
            total += weight
            mine = domain == query.domain and least < WHOLE_PERCENT
            if (mine or not query.residents) and used + least <= query.percent_limit:
                lost += weight * (not mine or used + percent + least > query.percent_limit)
        return lost / total if total else 0.0


Answers = Memo[tuple[object, ...], Admission | Refusal]
"""By everything of a case that matters."""
_ANSWERS_BYTES: Final = 64 * MIB
"""Of one accelerator: about 20,000."""


def _weigh_answer(_: object) -> int:
    """Half of what an answer takes with its key (derived): weighing each would cost more."""
    return 1_500


@dataclass(slots=True)
class _Memo:
    """What holds as long as the model is the same; answers also ask for settings and usual."""

    model: LearnedModel | None
    settings: RiskSettings
    usual: Usual
    forecasts: Forecasts = field(default_factory=no_forecasts)
    answers: Answers = field(default_factory=lambda: Memo(_ANSWERS_BYTES, _weigh_answer))


@dataclass(slots=True)
class JudgementCache:
    """Forecasts and answers, kept over cycles: a pure function's, they change nothing but its cost.

    Attributes:
        memos: By accelerator of the nodes.
        numbers: Of the profiles that forecasts are kept by.
    """

    memos: dict[str, _Memo] = field(default_factory=dict)
    numbers: ProfileNumbers = field(default_factory=ProfileNumbers)


@dataclass(slots=True)
class RiskRule:
    """Judges by the engine; one per cycle."""

    models: Mapping[str, LearnedModel]
    settings: RiskSettings
    usual: Mapping[str, Usual] = field(default_factory=dict)
    """By accelerator."""
    by_worth: bool = True
    cache: JudgementCache = field(default_factory=JudgementCache)
    _numbers: Numbers = field(init=False)
    _ready: dict[str, tuple[_Memo, Recall]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = Numbers(self.cache.numbers)

    def judge(self, query: AdmissionQuery) -> Admission | Refusal:
        """The share of largest net value within the risk, a trial, or what stands in the way.

        The names in the answer may be those of other tenants, alike in all that matters.
        """
        if query.least >= WHOLE_PERCENT and not query.residents:
            return _whole()
        answers = self._at(query.accelerator)[0].answers
        key = (
            *map(self._likeness, (query.newcomer, *query.residents)),
            query.least,
            query.most,
            query.percent_limit,
            query.account,
            query.domain,
        )
        found = answers.get(key)
        if found is None:
            found = self.explain(query)
            answers.put(key, found)
        return found

    def explain(self, query: AdmissionQuery) -> Admission | Refusal:
        """The same, always judged again, with the names of just these tenants."""
        usual = self.usual.get(query.accelerator, Usual())
        recall = self._at(query.accelerator)[1]
        most = self._best_alone(query, usual)
        settings = replace(self.settings, min_combined_percent=self._floor_percent(query))
        basis = Basis(
            forecaster=recall,
            thresholds=recall.model.thresholds,
            settings=settings,
        )
        verdict = predict(replace(query, most=most), basis)
        if not verdict.admitted and most < query.most:
            verdict = predict(query, basis)
        on_trial = query.residents and query.account is not None and query.account.faults
        if verdict.chosen is not None and not on_trial:
            price = self.settings.fragmentation_weight * usual.lost(query, verdict.percent)
            net = verdict.chosen.net - price
            return Admission(
                verdict.percent, verdict.tenants[-1].predicted, _micros(net), verdict=verdict
            )
        if not query.residents:
            return self._alone_at_most(query, most, usual) or _breach(verdict)
        return self._trial(query, verdict) or _breach(verdict)

    def _alone_at_most(self, query: AdmissionQuery, percent: int, usual: Usual) -> Admission | None:
        """A place alone that needs no margin: a whole device, or a share judged at its worst."""
        for share in dict.fromkeys((percent, query.most)):
            if self.alone(query, share) is None:
                speed = self._speed(query.accelerator, query.newcomer.at(share))
                price = self.settings.fragmentation_weight * usual.lost(query, share)
                return Admission(share, 1 / speed, _micros(speed - price))
        return None

    def _at(self, accelerator: str) -> tuple[_Memo, Recall]:
        """What is kept of an accelerator, looked up once a cycle."""
        ready = self._ready.get(accelerator)
        if ready is None:
            model, usual = self.models.get(accelerator), self.usual.get(accelerator, Usual())
            memo = self.cache.memos.get(accelerator)
            if memo is None or memo.model is not model:
                memo = self.cache.memos[accelerator] = _Memo(model, self.settings, usual)
            elif (memo.settings, memo.usual) != (self.settings, usual):
                memo.settings, memo.usual = self.settings, usual
                memo.answers.clear()
            learned_model = model if model is not None else LearnedModel(accelerator=accelerator)
            ready = memo, Recall(learned_model, self._numbers, memo.forecasts)
            self._ready[accelerator] = ready
        return ready

    def _forecast(self, accelerator: str, tenants: Sequence[Tenant]) -> Forecast:
        return self._at(accelerator)[1].forecast(accelerator, tenants)

    def _likeness(self, tenant: Tenant) -> tuple[object, ...]:
        """All of a tenant that matters to a judgement: everything but its name."""
        return (
            tenant.percent,
            tenant.utilisation,
            tenant.max_slowdown,
            tenant.weight,
            tenant.latency,
            tenant.probation,
            self._numbers.of(tenant.profile),
        )

    def _best_alone(self, query: AdmissionQuery, usual: Usual) -> int:
        """The most to ask for: beyond it, the room that others lose is worth more than speed.

        By the newcomer's speed alone, which its speed beside others follows.
        """
        weight = self.settings.fragmentation_weight
        shares = sorted({query.least, query.most, *range(10, WHOLE_PERCENT, 10)})
        inside: list[int] = [share for share in shares if query.least <= share <= query.most]
        lost = [weight * usual.lost(query, one) for one in inside]
        if lost[0] == lost[-1]:
            return query.most
        worth = [
            _micros(self._speed(query.accelerator, query.newcomer.at(one)) - price)
            for one, price in zip(inside, lost, strict=True)
        ]
        return inside[worth.index(max(worth))]

    def alone(self, query: AdmissionQuery, percent: int) -> Refusal | None:
        """Whether the newcomer keeps its own objective alone on a device at this share."""
        if percent >= WHOLE_PERCENT and _keeps_alone(query):
            return None
        tenants = (query.newcomer.at(percent),)
        forecast = self._forecast(query.accelerator, tenants)
        found = margin(tenants, forecast, {})
        if found.passes or (found.z >= -TOLERANCE and _at_its_worst(query.newcomer)):
            return None
        predicted = math.exp(found.reach(found.required))
        return Refusal(
            Reason.PREDICTED_SLO_BREACH,
            binding=query.newcomer.name,
            percent=percent,
            predicted=predicted,
            allowed=found.allowed,
        )

    def slowdowns(self, accelerator: str, tenants: Sequence[Tenant]) -> tuple[float, ...]:
        """Predicted slowdown (median) of everyone on a device, each at its own share."""
        found = self._forecast(accelerator, tenants)
        return tuple(math.exp(mean) for mean in found.mean)

    def _trial(self, query: AdmissionQuery, verdict: Verdict) -> Admission | Refusal | None:
        """A place on probation: too little was seen, or what was seen is in doubt after a fault."""
        if query.account is None or not needs_trial(verdict, query.account):
            return None
        if query.newcomer.latency:
            text = "and no one is tried out who has a latency objective"
            return _breach(verdict, Reason.NEED_PROFILE, f"{verdict.text}; {text}")
        found = may_probe(verdict, query, query.account, self.settings)
        if isinstance(found, Refusal):
            return _breach(verdict, found.reason, f"{verdict.text}; {found.text}")
        own = verdict.tenants[-1]
        worth = 1 / own.predicted - verdict.risk
        return Admission(found.percent, own.predicted, _micros(worth), trial=True, verdict=verdict)

    def _floor_percent(self, query: AdmissionQuery) -> float:
        """Least sum of speeds: what the tenants would reach one after the other, as they are.

        Of whole devices that is one device's worth; tenants that may never have more than a part of
        one are measured by the largest part that any of them has (derived).
        """
        if not query.residents:
            return self.settings.min_combined_percent
        everyone = query.mixture(query.most)
        best = max(self._speed(query.accelerator, tenant) for tenant in everyone)
        return self.settings.min_combined_percent * best

    def _speed(self, accelerator: str, tenant: Tenant) -> float:
        """Normalised throughput alone at its share."""
        return math.exp(-self._forecast(accelerator, (tenant,)).mean[0])


def _keeps_alone(query: AdmissionQuery) -> bool:
    """Whether an undivided device is enough: there the slowdown is 1, by what the word means."""
    return query.newcomer.max_slowdown is None or query.newcomer.max_slowdown >= 1


def _at_its_worst(tenant: Tenant) -> bool:
    """Whether its time at a share is taken as compute-bound, than which nothing is slower."""
    curve = tenant.profile.curve if tenant.profile is not None else None
    return curve is None or curve.fixed_s == 0


def _whole() -> Admission:
    return Admission(WHOLE_PERCENT, 1.0, MICROS)


def _micros(worth: float) -> int:
    return round(worth * MICROS)


def _breach(verdict: Verdict, reason: Reason | None = None, text: str = "") -> Refusal:
    """A refusal in the words of the caller."""
    bound: Sequence[float] = [
        tenant.predicted for tenant in verdict.tenants if tenant.name == verdict.binding
    ]
    allowed = next(
        (outlook.allowed for outlook in verdict.tenants if outlook.name == verdict.binding), None
    )
    percent = verdict.tenants[-1].percent if verdict.tenants else 0
    return Refusal(
        reason or verdict.reason or Reason.PREDICTED_SLO_BREACH,
        text or verdict.text,
        verdict.binding,
        percent,
        bound[0] if bound else 0.0,
        allowed or 0.0,
    )
