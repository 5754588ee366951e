# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Re-evaluation of work that was edited while it runs: its share, and its objective.

Work that no longer fits restarts where that loses nothing (a job at its checkpoint, a replica
beside its replacement), where its owner allows it, and where a predicted place exists; else its
status has the reason why it stays. A drifting prediction moves nothing: only an edit does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import ConditionType, Reason, Standing, standing_of
from ullage.api.slices import DesiredSlice
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import MadeRoom
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.cluster.values.device_ref import DeviceRef
from ullage.engines.admission.records import TOLERANCE
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.inventory.held_shares import accelerators_asked, scaled_share
from ullage.scheduling.model.view import Held, Member, PendingEviction, View
from ullage.scheduling.placement.predicted_figures import Predictions

_WHOLE_PERCENT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Running work that no longer fits, and the reason."""

    reason: Reason
    """Shown while it stays as it is."""
    text: str
    because: Reason
    """Shown when it restarts."""
    pods: frozenset[str] = frozenset()
    """uids of the pods that may improve by a restart."""
    stays: str = ""
    """The reason why it stays as it is, if already known."""
    here_too: bool = False
    """Another share of its current device may suffice."""
    device: DeviceRef | None = None
    """Excluded at its next start."""
    made_room: MadeRoom | None = None
    """It restarts in place with at most this share."""
    waits: bool = False
    """It leaves although no other place is known."""


def reevaluate(
    view: View,
    requests: ResourceRequests,
    predictions: Predictions,
    judged: Collection[str],
    restated: frozenset[str],
) -> dict[str, Finding]:
    """Find running work that no longer fits, by uid of the workload.

    Args:
        view: The cycle's snapshot.
        requests: Requests and allowed slowdowns of workloads.
        predictions: Predicted slowdowns of residents.
        judged: uids of the workloads to check.
        restated: uids of workloads with an objective not yet known to the nodes.
    """
    findings: dict[str, Finding] = {}
    for uid in judged:
        workload = view.snapshot.workloads[uid]
        finding = _share(view, workload) or _accelerator(view, requests, workload)
        if finding is None and (uid in restated or _is_news(workload) or _shown(workload)):
            finding = _objective(view, requests, predictions, workload)
        if finding is not None:
            findings[uid] = finding
    return findings


def evictions_of(findings: Mapping[str, Finding], snapshot: Snapshot) -> dict[str, PendingEviction]:
    """Replicas of services that may improve by a restart, by uid of the pod."""
    return {
        pod: PendingEviction(finding.because, finding.text, finding.device)
        for uid, finding in findings.items()
        if not finding.stays and snapshot.workloads[uid].kind is WorkloadKind.INFERENCE_DEPLOYMENT
        for pod in sorted(finding.pods)
    }


def _is_news(workload: WorkloadRecord) -> bool:
    """True if the object was edited since its last status."""
    return 0 < workload.status.observed_generation < workload.generation


def _shown(workload: WorkloadRecord) -> bool:
    """True if its status has the condition; bad conditions come last."""
    return any(
        condition.type == ConditionType.DEGRADED
        and Standing.OF_THE_OBJECTIVE in standing_of(condition.reason)
        for condition in workload.status.conditions[-2:]
    )


def _share(view: View, workload: WorkloadRecord) -> Finding | None:
    """Finding if its pods have shares that its request no longer allows.

    The API allows a change of a running job's request only if it may be restarted for it.
    """
    resizable = workload.sharing.resizable
    if workload.kind is WorkloadKind.TRAINING_JOB and not resizable:
        return None
    odd = [
        (member, held)
        for member, held in _running(view, workload)
        if not _fits(workload, held.slice)
    ]
    if not odd:
        return None
    member, held = odd[0]
    return Finding(
        reason=Reason.RESIZE_PENDING,
        text=f"{member.pod.name} has {_has(held.slice)}, {_asks(workload)}",
        because=Reason.RESIZING,
        pods=frozenset(member.pod.uid for member, _ in odd),
        stays="" if resizable else "it keeps that until its next start (sharing.resizable: Never)",
        here_too=True,
    )


def _accelerator(
    view: View, requests: ResourceRequests, workload: WorkloadRecord
) -> Finding | None:
    """Finding if its pods run on an accelerator other than the one chosen for its objective."""
    asked = accelerators_asked(workload)
    inventory = requests.occupancy.inventory
    if asked == workload.accelerators or not inventory.models.keys() & set(asked):
        return None
    odd: dict[str, str] = {}
    for member, held in _running(view, workload):
        site = inventory.site_index.get((held.node, held.slice.gpu))
        if site is not None and inventory.sites[site].device.model not in asked:
            odd[member.pod.uid] = f"{member.pod.name} runs on {inventory.sites[site].device.model}"
    if not odd:
        return None
    return Finding(
        reason=Reason.RESIZE_PENDING,
        text=f"{next(iter(odd.values()))}, its objective asks for {', '.join(asked)}"
        " (status.scaling.share)",
        because=Reason.RESIZING,
        pods=frozenset(odd),
    )


def _fits(workload: WorkloadRecord, held: DesiredSlice) -> bool:
    share, memory = scaled_share(workload) or workload.gpu.share, workload.gpu.memory_mib
    if memory and held.memory_mib != memory:
        return False
    if share is None:
        return held.percent == _WHOLE_PERCENT or workload.sharing.allow_packing
    return share.min_percent <= held.percent <= share.max_percent


def _has(held: DesiredSlice) -> str:
    return f"{held.percent} % and {held.memory_mib} MiB"


def _asks(workload: WorkloadRecord) -> str:
    chosen, share = scaled_share(workload), workload.gpu.share
    if chosen is not None:
        return f"its objective asks for {chosen.max_percent} % (status.scaling.share)"
    memory = f" and {workload.gpu.memory_mib} MiB" if workload.gpu.memory_mib else ""
    percent = f"{share.min_percent} to {share.max_percent} %" if share else "whole devices"
    return f"spec.gpu asks for {percent}{memory}"


def _objective(
    view: View, requests: ResourceRequests, predictions: Predictions, workload: WorkloadRecord
) -> Finding | None:
    """The worst of its members; ``None`` where all meet the objective, or none runs."""
    worst, text = 0.0, ""
    pods: set[str] = set()
    known = requests.classes.of(workload)
    inventory = requests.occupancy.inventory
    for member, held in _running(view, workload):
        site = inventory.site_index.get((held.node, held.slice.gpu))
        if site is None:
            continue
        model = inventory.model.item(site)
        barred = known.barred.get(model)
        if barred is not None:
            stays = "no other place changes that: loosen the objective"
            return Finding(
                reason=barred.reason, text=barred.text, because=barred.reason, stays=stays
            )
        allowed = known.tenants[model].max_slowdown
        predicted = predictions.of(held.node, held.slice.gpu, member.pod.uid)
        if allowed is None or predicted <= allowed + TOLERANCE:
            continue
        pods.add(member.pod.uid)
        if predicted / allowed > worst:
            worst = predicted / allowed
            text = (
                f"at {held.slice.percent} % of {inventory.place_name(site)} {member.pod.name} would"
                f" run {predicted:.2f} times slower than alone, its edited objective allows"
                f" {allowed:g} (predicted)"
            )
    if not pods:
        return None
    reason = Reason.PREDICTED_SLO_BREACH
    return Finding(
        reason=reason,
        text=text,
        because=reason,
        pods=frozenset(pods),
        here_too=workload.sharing.resizable,
    )


def _running(view: View, workload: WorkloadRecord) -> list[tuple[Member, Held]]:
    return [
        (member, held)
        for member in view.members_of(workload)
        if member.pod.stage is PodStage.RUNNING and not member.pod.deleting
        for held in member.held
        if not held.slice.probation
    ]
