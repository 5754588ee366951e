# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Facts about a workload's class on every accelerator, and its objective's slowdown there.

Equal workloads share one entry, so profiles are read once per class. Latency and throughput
objectives are converted to slowdowns, or to a refusal with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from operator import is_
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.schedulingpolicy import Knowledge
from ullage.cluster.records.profile import ProfileRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.filters import check_profile
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.admission.query import Account
from ullage.engines.admission.records import ClassProfile, Fingerprint, Refusal, ShareCurve, Tenant
from ullage.scheduling.inventory.held_shares import scaled_share
from ullage.scheduling.inventory.inventory import Inventory, utilisation
from ullage.scheduling.model.view import Class, Isolation
from ullage.scheduling.prediction.knowledge import named
from ullage.scheduling.prediction.latency import Unmeasured, latency_limit, planned_load
from ullage.scheduling.prediction.rows import class_profile, class_profiles

_MICROS = 1e6
SPARE: Final = 1_000
"""Obsolete entries, beyond those that exist, before a new start."""
_ALL = 2**62
"""More rows than any class has, so that none of them refills the budget."""


class _Asks(Enum):
    """The purpose of a query for the limit of a service."""

    STARTS = auto()
    """To start a replica on its own."""
    JOINED = auto()
    """To admit a newcomer beside a replica."""
    AHEAD = auto()
    """To evaluate the present neighbours of a replica."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Facts about a class of work; tuples are by model index of the inventory.

    Its representation is part of the digest of decisions: a renamed field changes all digests.
    """

    tenants: tuple[Tenant, ...]
    """Name and percent are placeholders."""
    barred: Mapping[int, Refusal]
    unmeasured: Mapping[int, str]
    """By model: text of figures that must be measured alone on a device first."""
    solo_micros: tuple[int, ...]
    """Step time alone on the whole device, 0 = unknown."""
    account: Account | None
    """Cost of the class's trials so far; ``None`` without a class."""

    def tenant(self, name: str, model: int, percent: int, *, probation: bool = False) -> Tenant:
        """A workload of the class with a name and a share."""
        base = self.tenants[model]
        return Tenant(
            name=name,
            percent=percent,
            utilisation=base.utilisation,
            max_slowdown=base.max_slowdown,
            latency=base.latency,
            probation=probation,
            profile=base.profile,
        )


@dataclass(slots=True, kw_only=True)
class _ClassAnswers:
    """Answers kept over cycles while their inputs do not change; they affect only the cost."""

    profiles: tuple[ProfileRecord, ...] = ()
    models: tuple[str, ...] = ()
    knowledge: Knowledge = field(default_factory=Knowledge)
    isolated: Mapping[Class, Isolation] = field(default_factory=dict)
    by_key: dict[tuple[object, ...], Known] = field(default_factory=dict)
    workloads: dict[str, tuple[WorkloadRecord, tuple[int, float, _Asks], Known]] = field(
        default_factory=dict
    )
    """By uid: the last record, the replicas, seconds of trial and purpose of the query, the
    answer."""
    interned: dict[ClassProfile, ClassProfile] = field(default_factory=dict)
    """One object for equal profiles, so that identity distinguishes them."""
    by_model: dict[str, dict[str, ClassProfile]] = field(default_factory=dict)
    by_class: dict[tuple[str, str], ProfileRecord] | None = None

    def rests_on(
        self,
        profiles: tuple[ProfileRecord, ...],
        models: tuple[str, ...],
        knowledge: Knowledge,
        isolated: Mapping[Class, Isolation],
        workloads: int,
    ) -> bool:
        """True when the answers follow from these inputs, and most of the workloads still exist."""
        return (
            max(len(self.workloads), len(self.by_key)) < 2 * workloads + SPARE
            and (self.models, self.knowledge, self.isolated) == (models, knowledge, isolated)
            and len(self.profiles) == len(profiles)
            and all(map(is_, self.profiles, profiles))
        )


@dataclass(slots=True)
class ClassCache:
    """Answers about classes, kept from cycle to cycle."""

    kept: _ClassAnswers = field(default_factory=_ClassAnswers)


@dataclass(slots=True)
class Classes:
    """Facts about classes, computed once each while profiles do not change."""

    snapshot: Snapshot
    inventory: Inventory
    spent_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Seconds of trial used by classes; profiles may lag behind."""
    serving: Mapping[str, int] = field(default_factory=dict)
    """By uid: replicas that carry a service's load now, where they differ from the desired
    number."""
    cache: ClassCache = field(default_factory=ClassCache)
    isolated: Mapping[Class, Isolation] = field(default_factory=dict)
    """Classes whose programs caused a device fault."""
    _kept: _ClassAnswers = field(init=False)

    def __post_init__(self) -> None:
        profiles, models = tuple(self.snapshot.profiles.values()), tuple(self.inventory.models)
        knowledge = self.snapshot.policy.knowledge
        workloads = len(self.snapshot.workloads)
        if not self.cache.kept.rests_on(profiles, models, knowledge, self.isolated, workloads):
            self.cache.kept = _ClassAnswers(
                profiles=profiles, models=models, knowledge=knowledge, isolated=self.isolated
            )
        self._kept = self.cache.kept

    @property
    def rests_on(self) -> object:
        """An object that stays the same as long as the inputs of all answers do."""
        return self._kept

    def of(self, workload: WorkloadRecord) -> Known:
        """Facts about the class of a workload to be placed; equal workloads get the same object.

        A load is divided among all desired replicas: at the load that the first ones carry until
        the others serve, none could start.
        """
        return self._of(workload, _wanted(workload), _Asks.STARTS)

    def seated(self, workload: WorkloadRecord) -> Known:
        """Facts to admit newcomers beside a running workload: by the load of its replicas now.

        A service with a forecast is evaluated at the highest recent load.
        """
        return self._of(workload, self._serving(workload), _Asks.JOINED)

    def ahead(self, workload: WorkloadRecord) -> Known:
        """Facts to evaluate the neighbours of a running workload: by the forecast alone."""
        return self._of(workload, self._serving(workload), _Asks.AHEAD)

    def _serving(self, workload: WorkloadRecord) -> int:
        return self.serving.get(workload.ref.uid, _wanted(workload))

    def _of(self, workload: WorkloadRecord, replicas: int, asks: _Asks) -> Known:
        kept, uid = self._kept, workload.ref.uid
        spent_s = 0.0
        if self.spent_s:
            spent_s = self.spent_s.get((workload.ref.namespace, workload.workload_class), 0.0)
        if workload.load is not None and workload.scaling is None:
            asks = _Asks.JOINED  # a declared load is the same for every purpose
        question = replicas, spent_s, asks
        last = kept.workloads.get(uid)
        if last is not None and last[0] is workload and last[1] == question:
            return last[2]
        planned = planned_load(workload)
        load_varies = workload.load is None or workload.scaling is not None
        key = (
            workload.ref.namespace,
            workload.profile_ref,
            workload.workload_class,
            workload.family,
            workload.max_slowdown,
            workload.min_throughput,
            workload.slo,
            workload.load,
            replicas if workload.load is not None else 0,
            planned.of_each(replicas, recent=asks is _Asks.JOINED) if planned is not None else None,
            (asks, _most(workload)) if workload.slo is not None and load_varies else None,
            spent_s,
        )
        answer = kept.by_key.get(key)
        if answer is None:
            answer = kept.by_key[key] = self._make(workload, replicas, asks)
        kept.workloads[uid] = (workload, question, answer)
        return answer

    def _make(self, workload: WorkloadRecord, replicas: int, asks: _Asks) -> Known:
        tenants: list[Tenant] = []
        solo: list[int] = []
        barred: dict[int, Refusal] = {}
        unmeasured: dict[int, str] = {}
        learner = self._own(workload)
        profile = learner
        if workload.profile_ref:
            profile = self.snapshot.profiles.get((workload.ref.namespace, workload.profile_ref))
        for at, model in enumerate(self.inventory.models):
            curve = _curve(learner, profile, model)
            alone_s = curve.seconds(1.0) if curve is not None else 0.0
            admitted_as = self._profile(workload, profile, model)
            latency = latency_limit(
                workload,
                profile,
                learner,
                (alone_s, model),
                replicas,
                starts_at=_share_slowdown(workload, curve) if asks is _Asks.STARTS else 0.0,
                recent=asks is _Asks.JOINED,
            )
            allowed = _broken(admitted_as) or _allowed(workload, latency, alone_s, model)
            if isinstance(allowed, Refusal):
                barred[at], allowed = allowed, 1.0
                if admitted_as is not None:
                    admitted_as = ClassProfile(workload_class=admitted_as.workload_class)
            elif isinstance(latency, Unmeasured):
                unmeasured[at] = latency.text
            solo.append(round(alone_s * _MICROS))
            tenants.append(
                Tenant(
                    name="",
                    percent=1,
                    utilisation=utilisation(profile, model),
                    max_slowdown=allowed,
                    latency=workload.slo is not None,
                    profile=admitted_as,
                )
            )
        status = learner.status if learner is not None else None
        isolated = self.isolated.get((workload.ref.namespace, workload.workload_class))
        now_s = self.spent_s.get((workload.ref.namespace, workload.workload_class), 0.0)
        spent = Account(
            workload_class=workload.workload_class,
            spent_s=max(now_s, status.trial_s if status else 0.0),
            rows=_ALL if now_s else status.trial_rows if status else 0,
            faults=isolated.faults if isolated is not None else 0,
        )
        return Known(
            tenants=tuple(tenants),
            barred=barred,
            unmeasured=unmeasured,
            solo_micros=tuple(solo),
            account=spent if workload.workload_class else None,
        )

    def _own(self, workload: WorkloadRecord) -> ProfileRecord | None:
        """The profile that learns for the workload's own class."""
        kept = self._kept
        if kept.by_class is None:
            kept.by_class = {}
            profiles = self.snapshot.profiles.values()
            # of several profiles of a class the one with the most rows is kept
            for profile in sorted(profiles, key=lambda profile: (len(profile.rows), profile.name)):
                kept.by_class[profile.namespace, profile.workload_class] = profile
        return kept.by_class.get((workload.ref.namespace, workload.workload_class))

    def _profile(
        self, workload: WorkloadRecord, profile: ProfileRecord | None, model: str
    ) -> ClassProfile | None:
        """Rows and curve of the class; the named profile fills gaps."""
        workload_class = workload.workload_class or (
            profile.workload_class if profile is not None else ""
        )
        if not workload_class:
            return None
        knowledge, namespace = self.snapshot.policy.knowledge, workload.ref.namespace
        by_model = self._kept.by_model
        if model not in by_model:
            by_model[model] = class_profiles(self.snapshot, model)
        key = named(workload_class, namespace, knowledge)
        measured = by_model[model].get(key) or ClassProfile(workload_class=key)
        declared = ClassProfile(workload_class=key)
        if profile is not None:
            declared = class_profile(profile, model, knowledge)
        family = named(workload.family, namespace, knowledge)
        made = replace(
            measured,
            family=family or measured.family or declared.family,
            fingerprint=(
                declared.fingerprint
                if measured.fingerprint == Fingerprint()
                else measured.fingerprint
            ),
            curve=measured.curve or declared.curve,
        )
        return self._kept.interned.setdefault(made, made)


def _wanted(workload: WorkloadRecord) -> int:
    """Replicas that carry a service's load once all desired ones serve."""
    planned = planned_load(workload)
    return planned.replicas if planned is not None else workload.replicas


def _most(workload: WorkloadRecord) -> int:
    """Largest share of a device that a member may have, percent."""
    share = scaled_share(workload) or workload.gpu.share
    return share.max_percent if share is not None else WHOLE_PERCENT


def _curve(
    learner: ProfileRecord | None, named: ProfileRecord | None, model: str
) -> ShareCurve | None:
    """Time of a step, or of serving one request, by share; the learner's before the named one's."""
    for profile in (learner, named):
        curve = class_profile(profile, model).curve if profile is not None else None
        if curve is not None:
            return curve
    return None


def _share_slowdown(workload: WorkloadRecord, curve: ShareCurve | None) -> float:
    """Slowdown alone at the largest share that a member may have; without a curve the worst."""
    part = _most(workload) / WHOLE_PERCENT
    return max(1.0, curve.seconds(part) / curve.seconds(1.0)) if curve is not None else 1 / part


def _allowed(
    workload: WorkloadRecord,
    latency: float | Refusal | Unmeasured | None,
    alone_s: float,
    model: str,
) -> float | Refusal | None:
    """Largest slowdown that keeps every objective of the workload on an accelerator.

    An objective that cannot be evaluated yet sets no limit: the workload is alone until it can.
    """
    limits = [workload.max_slowdown] if workload.max_slowdown is not None else []
    for limit in (_throughput(workload, alone_s, model), latency):
        if isinstance(limit, Refusal):
            return limit
        if limit is not None and not isinstance(limit, Unmeasured):
            limits.append(limit)
    return min(limits, default=None)


def _broken(profile: ClassProfile | None) -> Refusal | None:
    """Reject a profile with impossible figures: no prediction could use it."""
    if profile is None:
        return None
    try:
        check_profile(profile)
    except ValueError as error:
        return Refusal(reason=Reason.NEED_PROFILE, text=str(error))
    return None


def _throughput(workload: WorkloadRecord, alone_s: float, model: str) -> float | Refusal | None:
    """Slowdown at which the minimum throughput is still reached; ``None`` without a minimum."""
    least = workload.min_throughput
    if least is None or least <= 0:
        return None
    if not alone_s:
        return Refusal(
            reason=Reason.NEED_PROFILE,
            text=(
                f"slo.minThroughput needs the speed alone on a whole {model}: declare"
                f" stepsPerSecond for {model} in a WorkloadProfile (spec.solo, share 100)"
            ),
        )
    if alone_s * least > 1:
        return Refusal(
            reason=Reason.SLO_INFEASIBLE,
            text=(
                f"cannot be met even alone on a whole {model}: solo {1 / alone_s:.4g} steps/s <"
                f" {least:.4g} steps/s"
            ),
        )
    return 1 / (alone_s * least)
