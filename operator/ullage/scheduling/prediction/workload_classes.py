# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What is known of a workload's class on every accelerator, and what its objective means there.

Workloads that are alike are one entry, so a large cluster asks profiles once a class. Latency and
throughput objectives become slowdowns here; where that cannot be, it is said why, and nothing is
guessed.
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
from ullage.cluster.records.snapshot import Snapshot, WorkloadRecord
from ullage.engines.admission.filters import check_profile
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.admission.query import Account
from ullage.engines.admission.records import ClassProfile, Fingerprint, Refusal, Tenant
from ullage.scheduling.inventory.held_shares import scaled_share
from ullage.scheduling.inventory.inventory import Inventory, utilisation
from ullage.scheduling.model.view import Class, Isolation
from ullage.scheduling.prediction.knowledge import named
from ullage.scheduling.prediction.latency import Unmeasured, latency_limit
from ullage.scheduling.prediction.planned_load import planned_load
from ullage.scheduling.prediction.rows import class_profile, class_profiles

_MICROS = 1e6
SPARE: Final = 1_000
"""Workloads and classes that are gone, beyond as many as exist, before all is computed again."""
_ALL = 2**62
"""More rows than any class has: none of them fills the budget again."""


class _Asks(Enum):
    """For whom the limit of a service is asked."""

    STARTS = auto()
    """A replica of its own."""
    JOINED = auto()
    """Who would join a replica."""
    AHEAD = auto()
    """Who is beside a replica already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A class of work as admission sees it; tuples go by model index of the inventory."""

    tenants: tuple[Tenant, ...]
    """Name and percent are placeholders."""
    barred: Mapping[int, Refusal]
    unmeasured: Mapping[int, str]
    """By model: what must be measured alone before anyone else may be there, in words."""
    solo_micros: tuple[int, ...]
    """Step time alone on the whole device, 0 = not known."""
    account: Account | None
    """What trials of the class have cost so far; without a class no one could remember."""

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
class _Kept:
    """What was found out, kept over cycles while nothing that it rests on changes.

    A pure function's answers: they change nothing but its cost.
    """

    profiles: tuple[ProfileRecord, ...] = ()
    models: tuple[str, ...] = ()
    knowledge: Knowledge = field(default_factory=Knowledge)
    isolated: Mapping[Class, Isolation] = field(default_factory=dict)
    known: dict[tuple[object, ...], Known] = field(default_factory=dict)
    workloads: dict[str, tuple[WorkloadRecord, tuple[int, float, _Asks], Known]] = field(
        default_factory=dict
    )
    """By uid: the record that was asked about last, with so many replicas and seconds of trial, and
    for whom."""
    interned: dict[ClassProfile, ClassProfile] = field(default_factory=dict)
    """One object for equal profiles, so that identity tells them apart."""
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
        """Whether all this was found out from just these records, and most of it still exists."""
        return (
            max(len(self.workloads), len(self.known)) < 2 * workloads + SPARE
            and (self.models, self.knowledge, self.isolated) == (models, knowledge, isolated)
            and len(self.profiles) == len(profiles)
            and all(map(is_, self.profiles, profiles))
        )


@dataclass(slots=True)
class ClassCache:
    """What the last cycle found out of classes; changes nothing but the cost of the next."""

    kept: _Kept = field(default_factory=_Kept)


@dataclass(slots=True)
class Classes:
    """Answers by class, once each while profiles stay as they are."""

    snapshot: Snapshot
    inventory: Inventory
    spent_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Seconds of trial that classes have used up, which profiles may not say yet."""
    serving: Mapping[str, int] = field(default_factory=dict)
    """By uid: replicas that carry a service's load now, where not as many as wanted."""
    cache: ClassCache = field(default_factory=ClassCache)
    isolated: Mapping[Class, Isolation] = field(default_factory=dict)
    """Classes whose programs faulted a device."""
    _kept: _Kept = field(init=False)

    def __post_init__(self) -> None:
        profiles, models = tuple(self.snapshot.profiles.values()), tuple(self.inventory.models)
        knowledge = self.snapshot.policy.knowledge
        kept = self.cache.kept
        many = len(self.snapshot.workloads)
        if not kept.rests_on(profiles, models, knowledge, self.isolated, many):
            kept = _Kept(
                profiles=profiles, models=models, knowledge=knowledge, isolated=self.isolated
            )
            self.cache.kept = kept
        self._kept = kept

    @property
    def rests_on(self) -> object:
        """Another object as soon as something that answers follow from is another one."""
        return self._kept

    @property
    def remembered(self) -> int:
        """Workloads that something is kept of, those that are gone included."""
        return len(self._kept.workloads)

    def of(self, workload: WorkloadRecord) -> Known:
        """What is known of a workload's class; equal ones get the same object.

        A declared load is divided among the replicas that are wanted, a forecast among those that
        it asks for: judged by what the first ones carry until then, no one could ever start.
        """
        return self._of(workload, _wanted(workload), _Asks.STARTS)

    def seated(self, workload: WorkloadRecord) -> Known:
        """The same of one who is there, for those who would join: by what its replicas carry now.

        Of a service with a forecast by the most that its load was lately.
        """
        return self._of(workload, self._serving(workload), _Asks.JOINED)

    def ahead(self, workload: WorkloadRecord) -> Known:
        """The same of one who is there, for those who are there too: by the forecast alone."""
        return self._of(workload, self._serving(workload), _Asks.AHEAD)

    def _serving(self, workload: WorkloadRecord) -> int:
        return self.serving.get(workload.ref.uid, _wanted(workload))

    def _of(self, workload: WorkloadRecord, replicas: int, asks: _Asks) -> Known:
        kept, uid = self._kept, workload.ref.uid
        spent_s = 0.0
        if self.spent_s:
            spent_s = self.spent_s.get((workload.ref.namespace, workload.workload_class), 0.0)
        if workload.load is not None and workload.scaling is None:
            asks = _Asks.JOINED  # a declared load means the same to all
        which = replicas, spent_s, asks
        last = kept.workloads.get(uid)
        if last is not None and last[0] is workload and last[1] == which:
            return last[2]
        planned = planned_load(workload)
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
            (asks, _most(workload)) if _follows(workload) else None,
            spent_s,
        )
        known = kept.known.get(key)
        if known is None:
            known = kept.known[key] = self._make(workload, replicas, asks)
        kept.workloads[uid] = (workload, which, known)
        return known

    def _make(self, workload: WorkloadRecord, replicas: int, asks: _Asks) -> Known:
        tenants: list[Tenant] = []
        solo: list[int] = []
        barred: dict[int, Refusal] = {}
        unmeasured: dict[int, str] = {}
        own = self._own(workload)
        profile = own
        if workload.profile_ref:
            profile = self.snapshot.profiles.get((workload.ref.namespace, workload.profile_ref))
        for at, model in enumerate(self.inventory.models):
            alone_s = _alone_s(profile, own, model)
            known = self._profile(workload, profile, model)
            starts = asks is _Asks.STARTS
            latency = latency_limit(
                workload,
                profile,
                own,
                (alone_s, model),
                replicas,
                starts_at=_by_share(workload, profile, own, model) if starts else 0.0,
                recent=asks is _Asks.JOINED,
            )
            allowed = _broken(known) or _allowed(workload, latency, alone_s, model)
            if isinstance(allowed, Refusal):
                barred[at], allowed = allowed, 1.0
                known = (
                    ClassProfile(workload_class=known.workload_class) if known is not None else None
                )
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
                    profile=known,
                )
            )
        status = own.status if own is not None else None
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
            for profile in sorted(self.snapshot.profiles.values(), key=_knowledge):
                kept.by_class[profile.namespace, profile.workload_class] = profile
        return kept.by_class.get((workload.ref.namespace, workload.workload_class))

    def _profile(
        self, workload: WorkloadRecord, profile: ProfileRecord | None, model: str
    ) -> ClassProfile | None:
        """Rows and curve of the class; what it lacks, the profile that the workload names has."""
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
        found = by_model[model].get(key) or ClassProfile(workload_class=key)
        said = ClassProfile(workload_class=key)
        if profile is not None:
            said = class_profile(profile, model, knowledge)
        family = named(workload.family, namespace, knowledge)
        made = replace(
            found,
            family=family or found.family or said.family,
            fingerprint=(
                said.fingerprint if found.fingerprint == Fingerprint() else found.fingerprint
            ),
            curve=found.curve or said.curve,
        )
        return self._kept.interned.setdefault(made, made)


def _wanted(workload: WorkloadRecord) -> int:
    """Replicas that carry a service's load once all are there that are asked for."""
    planned = planned_load(workload)
    return planned.replicas if planned is not None else workload.replicas


def _follows(workload: WorkloadRecord) -> bool:
    """Whether a latency is judged at a load that is measured or forecast, not declared."""
    return workload.slo is not None and (workload.load is None or workload.scaling is not None)


def _knowledge(profile: ProfileRecord) -> tuple[int, str]:
    """What makes one profile of a class answer before another: the later in this order does."""
    return len(profile.rows), profile.name


def _most(workload: WorkloadRecord) -> int:
    """Most percent of a device that a member may have."""
    share = scaled_share(workload) or workload.gpu.share
    return share.max_percent if share is not None else WHOLE_PERCENT


def _by_share(
    workload: WorkloadRecord, named: ProfileRecord | None, own: ProfileRecord | None, model: str
) -> float:
    """Slowdown alone at the largest share that it may have; its part of a device at worst."""
    part = _most(workload) / WHOLE_PERCENT
    for profile in (own, named):
        curve = class_profile(profile, model).curve if profile is not None else None
        if curve is not None:
            return max(1.0, curve.seconds(part) / curve.seconds(1.0))
    return 1 / part


def _alone_s(named: ProfileRecord | None, own: ProfileRecord | None, model: str) -> float:
    """Seconds of a step (or of serving one request) alone on the whole device; 0 = not known."""
    for profile in (own, named):
        curve = class_profile(profile, model).curve if profile is not None else None
        if curve is not None:
            return curve.seconds(1.0)
    return 0.0


def _allowed(
    workload: WorkloadRecord,
    latency: float | Refusal | Unmeasured | None,
    alone_s: float,
    model: str,
) -> float | Refusal | None:
    """Largest slowdown that keeps every objective of the workload on an accelerator.

    One that cannot be judged yet limits nothing here: its work is alone until it can.
    """
    limits = [workload.max_slowdown] if workload.max_slowdown is not None else []
    for found in (_throughput(workload, alone_s, model), latency):
        if isinstance(found, Refusal):
            return found
        if found is not None and not isinstance(found, Unmeasured):
            limits.append(found)
    return min(limits, default=None)


def _broken(profile: ClassProfile | None) -> Refusal | None:
    """A profile with figures that no measurement gives; beside others it could hide anything."""
    if profile is None:
        return None
    try:
        check_profile(profile)
    except ValueError as error:
        return Refusal(reason=Reason.NEED_PROFILE, text=str(error))
    return None


def _throughput(workload: WorkloadRecord, alone_s: float, model: str) -> float | Refusal | None:
    """Slowdown that leaves the least steps per second."""
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
