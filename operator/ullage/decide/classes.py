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

from ullage.api.contract import Reason
from ullage.decide.ground import Ground, utilisation
from ullage.decide.learning_rows import class_profile, class_profiles, solo_rows
from ullage.engines.admission.filters import check_profile
from ullage.engines.admission.probation import Account
from ullage.engines.admission.queue_map import (
    Infeasible,
    Objective,
    Service,
    largest_slowdown,
    replica_load,
)
from ullage.engines.admission.records import ClassProfile, Fingerprint, Tenant
from ullage.state.profile_records import ProfileRecord, SoloEntry
from ullage.state.records import Snapshot, WorkloadKind, WorkloadRecord

_MICROS = 1e6
_ALL = 2**62
"""More rows than any class has: none of them fills the budget again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Barred:
    """Why a workload's objective cannot be kept, or not be judged, on an accelerator."""

    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A class of work as admission sees it; tuples go by model index of the ground."""

    tenants: tuple[Tenant, ...]
    """Name and percent are placeholders."""
    barred: Mapping[int, Barred]
    solo_micros: tuple[int, ...]
    """Step time alone on the whole device, 0 = not known."""
    account: Account | None
    """What trials of the class have cost so far; without a class nobody could remember."""

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


@dataclass(slots=True)
class Classes:
    """Answers by class, once each a cycle."""

    snapshot: Snapshot
    ground: Ground
    spent_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Seconds of trial that classes have used up, which profiles may not say yet."""
    _known: dict[tuple[object, ...], Known] = field(default_factory=dict)
    _profiles: dict[str, dict[str, ClassProfile]] = field(default_factory=dict)
    _by_class: dict[tuple[str, str], ProfileRecord] | None = None

    def of(self, workload: WorkloadRecord) -> Known:
        """What is known of a workload's class; equal ones get the same object."""
        key = (
            workload.ref.namespace,
            workload.profile_ref,
            workload.klass,
            workload.family,
            workload.max_slowdown,
            workload.min_throughput,
            workload.slo,
            workload.load,
            workload.replicas if workload.load is not None else 0,
        )
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._make(workload)
        return known

    def _make(self, workload: WorkloadRecord) -> Known:
        tenants: list[Tenant] = []
        solo: list[int] = []
        barred: dict[int, Barred] = {}
        own = self._own(workload)
        profile = own
        if workload.profile_ref:
            profile = self.snapshot.profiles.get((workload.ref.namespace, workload.profile_ref))
        for at, model in enumerate(self.ground.models):
            rows = _rows(profile, own, model)
            alone_s = _alone_s(profile, own, model)
            known = self._profile(workload, profile, model)
            allowed = _broken(known) or _allowed(workload, rows, alone_s, model)
            if isinstance(allowed, Barred):
                barred[at], allowed = allowed, 1.0
                known = ClassProfile(klass=known.klass) if known is not None else None
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
        now_s = self.spent_s.get((workload.ref.namespace, workload.klass), 0.0)
        spent = Account(
            klass=workload.klass,
            spent_s=max(now_s, status.trial_s if status else 0.0),
            rows=_ALL if now_s else status.trial_rows if status else 0,
            faults=status.faults if status else 0,
        )
        return Known(
            tenants=tuple(tenants),
            barred=barred,
            solo_micros=tuple(solo),
            account=spent if workload.klass else None,
        )

    def _own(self, workload: WorkloadRecord) -> ProfileRecord | None:
        """The profile that learns for the workload's own class."""
        if self._by_class is None:
            self._by_class = {}
            for one in sorted(self.snapshot.profiles.values(), key=_knowledge):
                self._by_class[one.namespace, one.klass] = one
        return self._by_class.get((workload.ref.namespace, workload.klass))

    def _profile(
        self, workload: WorkloadRecord, named: ProfileRecord | None, model: str
    ) -> ClassProfile | None:
        """Rows and curve of the class; what it lacks, the profile that the workload names has."""
        klass = workload.klass or (named.klass if named is not None else "")
        if not klass:
            return None
        if model not in self._profiles:
            self._profiles[model] = class_profiles(self.snapshot, model)
        found = self._profiles[model].get(klass) or ClassProfile(klass=klass)
        said = class_profile(named, model) if named is not None else ClassProfile(klass=klass)
        return replace(
            found,
            family=workload.family or found.family or said.family,
            fingerprint=(
                said.fingerprint if found.fingerprint == Fingerprint() else found.fingerprint
            ),
            curve=found.curve or said.curve,
        )


def _knowledge(profile: ProfileRecord) -> tuple[int, str]:
    """What makes one profile of a class answer before another: the later in this order does."""
    return len(profile.rows), profile.name


def _rows(
    named: ProfileRecord | None, own: ProfileRecord | None, model: str
) -> tuple[SoloEntry, ...]:
    """Rows alone on an accelerator, by rising share: of the profile named, else of the class."""
    for one in (named, own):
        rows = solo_rows(one, model) if one is not None else ()
        if rows:
            return rows
    return ()


def _alone_s(named: ProfileRecord | None, own: ProfileRecord | None, model: str) -> float:
    """Seconds of a step (or of serving one request) alone on the whole device; 0 = not known."""
    for one in (own, named):
        curve = class_profile(one, model).curve if one is not None else None
        if curve is not None:
            return curve.seconds(1.0)
    return 0.0


def _allowed(
    workload: WorkloadRecord, rows: tuple[SoloEntry, ...], alone_s: float, model: str
) -> float | Barred | None:
    """Largest slowdown that keeps every objective of the workload on an accelerator."""
    limits = [workload.max_slowdown] if workload.max_slowdown is not None else []
    for found in (_throughput(workload, alone_s, model), _latency(workload, rows, alone_s, model)):
        if isinstance(found, Barred):
            return found
        if found is not None:
            limits.append(found)
    return min(limits, default=None)


def _broken(profile: ClassProfile | None) -> Barred | None:
    """A profile with figures that no measurement gives; beside others it could hide anything."""
    if profile is None:
        return None
    try:
        check_profile(profile)
    except ValueError as error:
        return Barred(reason=Reason.NEED_PROFILE, text=str(error))
    return None


def _throughput(workload: WorkloadRecord, alone_s: float, model: str) -> float | Barred | None:
    """Slowdown that leaves the least steps per second."""
    least = workload.min_throughput
    if least is None or least <= 0:
        return None
    if not alone_s:
        return Barred(
            reason=Reason.NEED_PROFILE,
            text=(
                f"slo.minThroughput needs the speed alone on a whole {model}: declare"
                f" stepsPerSecond for {model} in a WorkloadProfile (spec.solo, share 100)"
            ),
        )
    if alone_s * least > 1:
        return Barred(
            reason=Reason.SLO_INFEASIBLE,
            text=(
                f"cannot be met even alone on a whole {model}: solo {1 / alone_s:.4g} steps/s <"
                f" {least:.4g} steps/s"
            ),
        )
    return 1 / (alone_s * least)


def _latency(
    workload: WorkloadRecord, rows: tuple[SoloEntry, ...], alone_s: float, model: str
) -> float | Barred | None:
    """Slowdown at which the queue of one replica still keeps the latency.

    Each of the replicas that are wanted carries its part of the load: those that are ready carry
    more while others start, but judged by that nobody could ever start.
    """
    slo, load = workload.slo, workload.load
    if slo is None or workload.kind is not WorkloadKind.INFERENCE_SERVICE:
        return None
    times = _service(rows, alone_s, slo.quantile)
    if times is None:
        return Barred(
            reason=Reason.NEED_PROFILE,
            text=(
                f"slo.latencyMs needs the time to serve one request alone on a whole {model}:"
                f" declare stepsPerSecond and latencyP99Seconds for {model} in a WorkloadProfile"
                " (spec.solo, share 100)"
            ),
        )
    if load is None:
        return Barred(
            reason=Reason.NEED_PROFILE,
            text=(
                "slo.latencyMs means nothing without the load: declare"
                " spec.load.requestsPerSecond, of all replicas together"
            ),
        )
    share = replica_load(load.requests_per_s, max(1, workload.replicas), cv2=load.cv2)
    objective = Objective(latency_s=slo.latency_ms / 1000, quantile=slo.quantile)
    try:
        found = largest_slowdown(times, share, objective)
    except ValueError as error:
        text = f"{error}; correct the WorkloadProfile or spec.load (on {model})"
        return Barred(reason=Reason.NEED_PROFILE, text=text)
    if isinstance(found, Infeasible):
        return Barred(reason=found.reason, text=f"{found.text} (on {model})")
    return found


def _service(rows: tuple[SoloEntry, ...], alone_s: float, quantile: float) -> Service | None:
    """Service time alone on the whole device; ``None`` where it is not known.

    From the row nearest to the whole device, scaled to the whole by the curve. Of its quantiles
    the next one above the objective's counts, and the highest where none is.
    """
    row = next((one for one in reversed(rows) if one.latency), None)
    if row is None:
        return None
    above = [seconds for at, seconds in row.latency if at >= quantile - 1e-9]
    quantile_s = above[0] if above else row.latency[-1][1]
    mean_s = alone_s or row.latency[0][1]
    scale = alone_s / row.step_s if alone_s and row.step_s else 1.0
    cv2 = 1.0 if row.cs2 is None else row.cs2
    return Service(mean_s=mean_s, quantile_s=max(mean_s, quantile_s * scale), cv2=cv2)
