# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The learned admission rule: the risk of breaking an objective first, then the value of a place.

It requests a prediction from the engine and reads its verdict. Memory, contexts and trust are
checked before, for all devices at once. A place without certified evidence may be tried on
probation, and ranks after every place that needs no trial.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.values.bounded import MIB, Memo
from ullage.engines.admission.decision import predict
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.admission.margin import margin
from ullage.engines.admission.model import LearnedModel
from ullage.engines.admission.predictors import PREDICTORS
from ullage.engines.admission.probation import may_probe, needs_trial
from ullage.engines.admission.query import AdmissionQuery
from ullage.engines.admission.records import TOLERANCE, ClassProfile, Forecast, Refusal, Tenant
from ullage.engines.admission.verdict import Basis, RiskSettings, Verdict
from ullage.scheduling.prediction.verdicts import MICROS, Admission, AdmissionRule, SumRule

_FORECASTS_BYTES: Final = 64 * MIB
"""For the forecasts of one model: about 100,000."""
_FORECAST_BYTES: Final = 600
"""A forecast with its key (derived): mixtures are small, and weighing each costs time."""
_PROFILES_BYTES: Final = 64 * MIB

Forecasts = Memo[tuple[tuple[int, float, int], ...], Forecast]
"""By share, utilisation and number of profile of every tenant."""


def no_forecasts() -> Forecasts:
    """An empty memo of forecasts."""
    return Memo(_FORECASTS_BYTES, weigh=lambda _: _FORECAST_BYTES // 2)


@dataclass(slots=True)
class ProfileNumbers:
    """A number for every profile seen: hashing a profile costs as much as a forecast."""

    _known: Memo[ClassProfile, int] = field(default_factory=lambda: Memo(_PROFILES_BYTES))
    _next: Iterator[int] = field(default_factory=lambda: count(1))
    """Numbers are not reused when profiles are forgotten."""

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
    """Holds the profile too, so that its identity is not reused."""

    def of(self, profile: ClassProfile | None) -> int:
        """The number of a profile; 0 = none."""
        if profile is None:
            return 0
        entry = self._by_identity.get(id(profile))
        if entry is None:
            entry = self._by_identity[id(profile)] = (profile, self._known.of(profile))
        return entry[1]


@dataclass(slots=True)
class Recall:
    """Memoised forecasts of one model."""

    model: LearnedModel
    numbers: Numbers
    known: Forecasts

    def forecast(self, accelerator: str, tenants: Sequence[Tenant]) -> Forecast:
        """Log slowdown of every tenant of a mixture, each at its own share.

        Raises:
            ValueError: there is no tenant, a share is not 1..100, or a profile has an invalid
                number.
        """
        number = self.numbers.of
        key = tuple(
            (tenant.percent, tenant.utilisation, number(tenant.profile)) for tenant in tenants
        )
        forecast = self.known.get(key)
        if forecast is None:
            forecast = self.model.forecast(tenants)
            self.known.put(key, forecast)
        return forecast


@dataclass(frozen=True, slots=True)
class Usual:
    """The usual requests for an accelerator, each weighted by its number of workloads.

    Attributes:
        weights: By trust domain and least percent; a whole device (100) must be empty. Counts are
            rounded down to powers of two, so that single jobs change no price.
    """

    weights: tuple[tuple[tuple[str, int], int], ...] = ()

    def lost(self, query: AdmissionQuery, percent: int) -> float:
        """Share of the requests, 0..1, that fit on the device before a placement but not after.

        By shares and trust alone: evaluating the risk of each as well would cost more than all
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
"""By all relevant parts of a query."""
_ANSWERS_BYTES: Final = 64 * MIB
"""For the answers of one accelerator: about 20,000."""
_ANSWER_BYTES: Final = 3_000
"""An answer with its key (derived); weighing each costs time."""


@dataclass(slots=True)
class _Memo:
    """Results of one model; the answers depend on settings and usual requests, too."""

    model: LearnedModel | None
    settings: RiskSettings
    usual: Usual
    forecasts: Forecasts = field(default_factory=no_forecasts)
    answers: Answers = field(
        default_factory=lambda: Memo(_ANSWERS_BYTES, weigh=lambda _: _ANSWER_BYTES // 2)
    )


@dataclass(slots=True)
class JudgementCache:
    """Forecasts and answers kept over cycles; the cache affects only the cost of a cycle.

    Attributes:
        memos: By accelerator of the nodes.
        numbers: Numbers of the profiles in the memos' keys.
    """

    memos: dict[str, _Memo] = field(default_factory=dict)
    numbers: ProfileNumbers = field(default_factory=ProfileNumbers)


@dataclass(slots=True)
class RiskRule:
    """Decides with the admission engine; created once per cycle."""

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
        """The share of largest net value within the risk, a trial, or a refusal.

        The names in the answer may be those of other tenants that are equal in all relevant
        respects.
        """
        if query.least >= WHOLE_PERCENT and not query.residents:
            return Admission(WHOLE_PERCENT, 1.0, MICROS)
        answers = self._at(query.accelerator)[0].answers
        key = (
            *map(self._key, (query.newcomer, *query.residents)),
            query.least,
            query.most,
            query.percent_limit,
            query.account,
            query.domain,
        )
        answer = answers.get(key)
        if answer is None:
            answer = self.explain(query)
            answers.put(key, answer)
        return answer

    def explain(self, query: AdmissionQuery) -> Admission | Refusal:
        """Evaluate a query again without the cache, so that the answer names its tenants."""
        usual = self.usual.get(query.accelerator, Usual())
        recall = self._at(query.accelerator)[1]
        most = self._best_alone(query, usual)
        settings = self.settings
        if query.residents:
            # Least sum of speeds: that of the tenants one after the other, each at its share. For
            # tenants that never have more than a part of a device, the largest part is the measure
            # (derived).
            tenants = query.mixture(query.most)
            best = max(self._speed(query.accelerator, tenant) for tenant in tenants)
            settings = replace(settings, min_combined_percent=settings.min_combined_percent * best)
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
        """A place alone on a device that meets the newcomer's objective; ``None`` = none does."""
        for share in dict.fromkeys((percent, query.most)):
            if self.alone(query, share) is None:
                speed = self._speed(query.accelerator, query.newcomer.at(share))
                price = self.settings.fragmentation_weight * usual.lost(query, share)
                return Admission(share, 1 / speed, _micros(speed - price))
        return None

    def _at(self, accelerator: str) -> tuple[_Memo, Recall]:
        """The memo and the forecasts of an accelerator, looked up once per cycle."""
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

    def _key(self, tenant: Tenant) -> tuple[object, ...]:
        """All relevant facts of a tenant: everything but its name."""
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
        """The largest share to request: above it, the room lost for others outweighs the speed.

        Evaluated by the newcomer's speed alone, which its speed beside others follows.
        """
        weight = self.settings.fragmentation_weight
        shares = sorted({query.least, query.most, *range(10, WHOLE_PERCENT, 10)})
        inside: list[int] = [share for share in shares if query.least <= share <= query.most]
        lost = [weight * usual.lost(query, share) for share in inside]
        if lost[0] == lost[-1]:
            return query.most
        worth = [
            _micros(self._speed(query.accelerator, query.newcomer.at(share)) - price)
            for share, price in zip(inside, lost, strict=True)
        ]
        return inside[worth.index(max(worth))]

    def alone(self, query: AdmissionQuery, percent: int) -> Refusal | None:
        """``None`` when the newcomer meets its own objective alone on a device at this share."""
        newcomer = query.newcomer
        if percent >= WHOLE_PERCENT and (
            newcomer.max_slowdown is None or newcomer.max_slowdown >= 1
        ):
            return None  # alone on a whole device the slowdown is 1, by definition
        tenants = (newcomer.at(percent),)
        forecast = self._forecast(query.accelerator, tenants)
        outlook = margin(tenants, forecast, {})
        # a curve without a fixed part is the compute-bound worst case, which needs no margin
        curve = newcomer.profile.curve if newcomer.profile is not None else None
        at_its_worst = curve is None or curve.fixed_s == 0
        if outlook.passes or (outlook.z >= -TOLERANCE and at_its_worst):
            return None
        return Refusal(
            Reason.PREDICTED_SLO_BREACH,
            binding=newcomer.name,
            percent=percent,
            predicted=math.exp(outlook.reach(outlook.required)),
            allowed=outlook.allowed,
        )

    def slowdowns(self, accelerator: str, tenants: Sequence[Tenant]) -> tuple[float, ...]:
        """Predicted slowdown (median) of every tenant of a device, each at its own share."""
        forecast = self._forecast(accelerator, tenants)
        return tuple(math.exp(mean) for mean in forecast.mean)

    def _trial(self, query: AdmissionQuery, verdict: Verdict) -> Admission | Refusal | None:
        """A place on probation, for a mixture with few measurements or a class after a fault."""
        if query.account is None or not needs_trial(verdict, query.account):
            return None
        if query.newcomer.latency:
            text = "and no one is tried out who has a latency objective"
            return _breach(verdict, Reason.NEED_PROFILE, f"{verdict.text}; {text}")
        trial = may_probe(verdict, query, query.account, self.settings)
        if isinstance(trial, Refusal):
            return _breach(verdict, trial.reason, f"{verdict.text}; {trial.text}")
        newcomer = verdict.tenants[-1]
        worth = 1 / newcomer.predicted - verdict.risk
        return Admission(
            trial.percent, newcomer.predicted, _micros(worth), trial=True, verdict=verdict
        )

    def _speed(self, accelerator: str, tenant: Tenant) -> float:
        """Normalised throughput alone at its share."""
        return math.exp(-self._forecast(accelerator, (tenant,)).mean[0])


def _micros(worth: float) -> int:
    return round(worth * MICROS)


def _breach(verdict: Verdict, reason: Reason | None = None, text: str = "") -> Refusal:
    """The refusal of a verdict, with its reason and text unless others are given."""
    binding = next(
        (outlook for outlook in verdict.tenants if outlook.name == verdict.binding), None
    )
    return Refusal(
        reason or verdict.reason or Reason.PREDICTED_SLO_BREACH,
        text or verdict.text,
        verdict.binding,
        verdict.tenants[-1].percent if verdict.tenants else 0,
        binding.predicted if binding is not None else 0.0,
        (binding.allowed if binding is not None else None) or 0.0,
    )


def rule_of(snapshot: Snapshot, usual: Mapping[str, Usual], cache: JudgementCache) -> AdmissionRule:
    """The rule selected by the policy's predictor.

    Args:
        snapshot: Policy and models of accelerators.
        usual: The usual requests by name of the accelerator.
        cache: Results of earlier cycles.
    """
    risk = snapshot.policy.risk
    predictor = PREDICTORS[risk.predictor]
    if not issubclass(predictor, LearnedModel):
        return SumRule(predictor())
    settings = RiskSettings(
        eps_percent=risk.eps_percent,
        confidence_percent=risk.confidence_percent,
        min_combined_percent=risk.min_combined_percent,
        probation_seconds_per_class=risk.probation_seconds_per_class,
    )
    return RiskRule(models=snapshot.models, settings=settings, usual=usual, cache=cache)
