# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ends of probations, and evictions requested by a node's guard.

A probation succeeds when every objective on the device was met through its windows: the slice loses
its mark, and nothing restarts. It fails when an objective was broken, or too few windows were
observed in time: the tenant leaves the device, and its class has spent its budget, which its
profile records. Level-triggered: both follow from the current state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, ObservedSlice, SliceKey, SlicePhase
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.profile import ProfileRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.device_ref import DeviceRef
from ullage.engines.admission.probation import (
    LEAST_WINDOWS,
    OF_WINDOWS,
    ProbationOutcome,
    Trial,
    end_of_trial,
)
from ullage.engines.admission.query import Account
from ullage.engines.admission.times import PROBATION_LEAST_S, PROBATION_MOST_S
from ullage.scheduling.inventory.exclusions import active_exclusions
from ullage.scheduling.model.lifecycle_step import earliest
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import Emit
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import Class, PendingEviction, View

_INTERFERING: Final = Reason.INTERFERING
_SEEN: Final = (SlicePhase.ATTACHED, SlicePhase.VIOLATING, SlicePhase.FROZEN)


@dataclass(frozen=True, slots=True)
class Probations:
    """Probations of a cycle: tenants that leave, and those that stay permanently."""

    evictions: Mapping[str, PendingEviction] = field(default_factory=dict)
    """Pods that have to leave, by uid."""
    committed: tuple[tuple[str, DesiredSlice], ...] = ()
    """(node, slice) of successful trials."""
    violating: tuple[str, ...] = ()
    """Nodes that report a broken objective."""
    wake_at: float = 0.0


def judge_probations(view: View) -> Probations:
    """Evaluate every slice on probation, and collect the evictions requested by guards."""
    evictions: dict[str, PendingEviction] = {}
    committed: list[tuple[str, DesiredSlice]] = []
    moments: list[float] = []
    violating: set[str] = set()
    for name in sorted(view.tried):
        record = view.snapshot.gpu_nodes[name]
        for seen in record.observed:
            if seen.phase is SlicePhase.VIOLATING:
                violating.add(name)
            if seen.reason == _INTERFERING and seen.phase.started:
                device = DeviceRef(name, seen.gpu)
                text = f"{device}: {seen.message or 'it interferes'}"
                evictions[seen.key.pod_uid] = PendingEviction(Reason.INTERFERING, text, device)
        for wanted in record.desired:
            if not wanted.probation:
                continue
            pod = view.snapshot.pods.get(wanted.key.pod_uid)
            if pod is None or pod.deleting or pod.stage is not PodStage.RUNNING:
                continue
            since = max(pod.stage_since, record.desired_since.get(wanted.key, 0.0))
            elapsed_s = view.now - since
            if elapsed_s < PROBATION_LEAST_S and name not in violating:
                moments += [
                    since + PROBATION_LEAST_S,
                    since + PROBATION_MOST_S,
                ]  # it continues
                continue
            outcome, text = _outcome(record, wanted, elapsed_s)
            if outcome is ProbationOutcome.COMMIT:
                committed.append((name, wanted))
            elif outcome is ProbationOutcome.ROLL_BACK:
                device = DeviceRef(name, wanted.gpu)
                reason = Reason.PROBATION_ROLLED_BACK
                eviction = PendingEviction(reason, f"{device}: {text}", device)
                evictions.setdefault(pod.uid, eviction)
            else:
                moments += [since + PROBATION_LEAST_S, since + PROBATION_MOST_S]
    wake_at = earliest(*(moment for moment in moments if moment > view.now))
    return Probations(evictions, tuple(committed), tuple(sorted(violating)), wake_at)


def _outcome(
    record: GPUNodeRecord, wanted: DesiredSlice, elapsed_s: float
) -> tuple[ProbationOutcome, str]:
    """The state of a trial, and the reason as text."""
    reports = {part.key: part for part in record.observed if part.gpu == wanted.gpu}
    bound = [part for part in record.desired if part.gpu == wanted.gpu and _binds(part, wanted)]
    broken = [part for part in bound if _is_broken(part.key, wanted.key, reports)]
    counted = all(_has_counted(reports.get(part.key)) for part in bound)
    attached = wanted.key in reports and reports[wanted.key].phase in _SEEN
    windows: list[bool | None] = []
    if broken:
        windows = [True] * OF_WINDOWS
    elif counted and attached:
        windows = [False] * LEAST_WINDOWS
    trial = Trial(percent=wanted.percent, seconds=PROBATION_MOST_S)
    outcome = end_of_trial(windows, elapsed_s=elapsed_s, trial=trial)
    if broken:
        names = ", ".join(_by_how_much(part, reports.get(part.key)) for part in broken)
        return outcome, f"on trial for {elapsed_s:.0f} s, and the objective of {names} was broken"
    return outcome, (
        f"on trial for {elapsed_s:.0f} s, and too few windows were seen to tell whether every"
        " objective is kept"
    )


def _by_how_much(part: DesiredSlice, seen: ObservedSlice | None) -> str:
    """A tenant, and its objective compared with the observation of its node."""
    name = f"{part.pod_namespace}/{part.pod_name}"
    if seen is None:
        return name
    if part.slo is not None and seen.latency_micros:
        took = f"p{part.slo.percentile} {seen.latency_micros / 1000:.0f} ms"
        return f"{name} ({took}, {part.slo.latency_ms} ms allowed)"
    solo = part.solo_step_micros or seen.solo_step_micros
    if part.max_slowdown_percent and solo and seen.step_micros:
        took = f"{seen.step_micros / solo:.2f}x"
        return f"{name} ({took}, {part.max_slowdown_percent / 100:.2f}x allowed)"
    return name


def _binds(desired_slice: DesiredSlice, trial: DesiredSlice) -> bool:
    """True if a slice's objective may end a trial: the trial's own, or that of a neighbour.

    A neighbour that only requests an alert (``onViolation: Alert``) ends none.
    """
    return desired_slice.protected and (
        desired_slice.key == trial.key or not desired_slice.alert_only
    )


def _is_broken(key: SliceKey, trial: SliceKey, reports: Mapping[SliceKey, ObservedSlice]) -> bool:
    """True if an objective is broken, and not by the neighbour's own load."""
    seen = reports.get(key)
    if seen is None or seen.phase is not SlicePhase.VIOLATING:
        return False
    return key == trial or seen.reason != Reason.SELF_VIOLATING


def _has_counted(seen: ObservedSlice | None) -> bool:
    return seen is not None and seen.windows >= LEAST_WINDOWS


def commit(view: View, probations: Probations, ledger: Ledger) -> list[Emit]:
    """Clear the mark of every successful trial; share, device and memory do not change.

    The slice has this leader's epoch: a node rejects changes of an older one.
    """
    news: list[Emit] = []
    epoch = view.settings.epoch
    for node, wanted in probations.committed:
        device = DeviceRef(node, wanted.gpu)
        ledger.add(node, replace(wanted, probation=False, epoch=epoch))
        owner = _owner(view, view.snapshot.pods.get(wanted.key.pod_uid))
        if owner is not None:
            news.append(
                Emit(
                    target=owner.ref,
                    warning=False,
                    epoch=epoch,
                    reason=Reason.PROBATION_COMMITTED,
                    text=f"{wanted.pod_name} stays on {device}: every objective was kept",
                )
            )
    return news


def spent(view: View, probations: Probations) -> dict[Class, float]:
    """Seconds of trial used by classes: all of them after a failed trial."""
    budget = float(view.snapshot.policy.risk.probation_seconds_per_class)
    spent_s: dict[Class, float] = {}
    for uid, eviction in probations.evictions.items():
        owner = _owner(view, view.snapshot.pods.get(uid))
        if (
            owner is not None
            and owner.workload_class
            and eviction.reason is Reason.PROBATION_ROLLED_BACK
        ):
            spent_s[owner.ref.namespace, owner.workload_class] = budget
    for _, owner in view.index.those(view.index.excluding):
        if not owner.workload_class:
            continue
        if any(
            exclusion.reason is Reason.PROBATION_ROLLED_BACK
            for exclusion in active_exclusions(view, owner)
        ):
            spent_s[owner.ref.namespace, owner.workload_class] = budget
    return spent_s


def bookings(
    spent_s: Mapping[Class, float], profiles: Sequence[ProfileRecord]
) -> dict[Class, Account]:
    """Accounts that are not yet recorded in the profiles of these classes.

    A later row fills the budget again.
    """
    by_class = {(profile.namespace, profile.workload_class): profile for profile in profiles}
    accounts: dict[Class, Account] = {}
    for at, seconds in spent_s.items():
        profile = by_class.get(at)
        status = profile.status if profile is not None else None
        if status is not None and status.trial_s >= seconds:
            continue
        rows = sum(1 for row in profile.rows if row.partners) if profile is not None else 0
        accounts[at] = Account(workload_class=at[1], spent_s=seconds, rows=rows)
    return accounts


def _owner(view: View, pod: PodRecord | None) -> WorkloadRecord | None:
    owner = view.snapshot.workloads.get(pod.owner.uid) if pod is not None else None
    return owner if owner is not None and owner.status.phase != Phase.RESTARTING else None
