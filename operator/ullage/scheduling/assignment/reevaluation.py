# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Work that was edited while it runs is judged again where it is: its share, and its objective.

What no longer fits starts again where that loses nothing (a job at its checkpoint, a replica beside
its replacement), where its owner allows it, and where a place is predicted to serve it; else its
owner is told why it stays. No one is moved because a prediction drifted: only an edit asks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import ConditionType, Reason, Standing, standing_of
from ullage.api.slices import DesiredSlice
from ullage.cluster.records.snapshot import PodStage, Snapshot, WorkloadKind, WorkloadRecord
from ullage.cluster.records.status import MadeRoom
from ullage.cluster.values.device_ref import DeviceRef
from ullage.engines.admission.records import TOLERANCE
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.inventory.held_shares import accelerators_asked, scaled_share
from ullage.scheduling.model.view import Held, Member, PendingEviction, View
from ullage.scheduling.placement.predicted_figures import Predictions

_WHOLE_PERCENT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Why work does not fit any more as it runs."""

    reason: Reason
    """Told while it stays as it is."""
    text: str
    because: Reason
    """Told when it starts again."""
    pods: frozenset[str] = frozenset()
    """uids of the pods that a new start may serve better."""
    stays: str = ""
    """Why it is left as it is, where that is known already."""
    here_too: bool = False
    """Whether another share of a device that it has now may do."""
    device: DeviceRef | None = None
    """Left out for it at its next start."""
    made_room: MadeRoom | None = None
    """It starts again where it is, with no more than this."""
    waits: bool = False
    """It goes though no other place is known."""


def reevaluate(
    view: View,
    requests: ResourceRequests,
    predictions: Predictions,
    judged: Collection[str],
    restated: frozenset[str],
) -> dict[str, Finding]:
    """What does not fit any more, by uid of the workload.

    Args:
        view: the cycle's snapshot.
        requests: knows what each objective allows.
        predictions: what sharing does to each.
        judged: uids of the workloads to look at.
        restated: uids of workloads whose objective the nodes did not know yet.
    """
    found: dict[str, Finding] = {}
    for uid in judged:
        workload = view.snapshot.workloads[uid]
        finding = _share(view, workload) or _accelerator(view, requests, workload)
        if finding is None and (uid in restated or _is_news(workload) or _shown(workload)):
            finding = _objective(view, requests, predictions, workload)
        if finding is not None:
            found[uid] = finding
    return found


def evictions_of(findings: Mapping[str, Finding], snapshot: Snapshot) -> dict[str, PendingEviction]:
    """Replicas of services that a new start may serve better, by uid of the pod."""
    return {
        pod: PendingEviction(finding.because, finding.text, finding.device)
        for uid, finding in findings.items()
        if not finding.stays and snapshot.workloads[uid].kind is WorkloadKind.INFERENCE_DEPLOYMENT
        for pod in sorted(finding.pods)
    }


def _is_news(workload: WorkloadRecord) -> bool:
    """Whether the object was edited since its status was last written."""
    return 0 < workload.status.observed_generation < workload.generation


def _shown(workload: WorkloadRecord) -> bool:
    """Whether its owner is being told; the bad conditions stand last."""
    return any(
        condition.type == ConditionType.DEGRADED
        and Standing.OF_THE_OBJECTIVE in standing_of(condition.reason)
        for condition in workload.status.conditions[-2:]
    )


def _share(view: View, workload: WorkloadRecord) -> Finding | None:
    """Whether its pods have other shares than may be given to it now.

    The API lets a job's request change while it runs only where it may be restarted for it.
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
        pods=frozenset(one.pod.uid for one, _ in odd),
        stays="" if resizable else "it keeps that until its next start (sharing.resizable: Never)",
        here_too=True,
    )


def _accelerator(
    view: View, requests: ResourceRequests, workload: WorkloadRecord
) -> Finding | None:
    """Whether its pods run on another accelerator than was chosen for its objective."""
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
    """The worst of its members; ``None`` where all keep the objective, or none runs."""
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
