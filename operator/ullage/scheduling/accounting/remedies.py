# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Remedies for unused device time, each with the command that applies it where there is one.

Nothing here acts: users run the command themselves, with their own rights. Names of workloads of
other namespaces are never shown.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ullage.api.devices import GPUMode
from ullage.api.rebalancing import StragglerPolicy
from ullage.api.slices import DesiredSlice
from ullage.api.words import EfficiencyRule
from ullage.cluster.records.efficiency import FindingRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Placement
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord

RESOURCES: Final[Mapping[WorkloadKind, str]] = {
    WorkloadKind.TRAINING_JOB: "trainingjob",
    WorkloadKind.INFERENCE_DEPLOYMENT: "inferencedeployment",
}
_OBJECTIVE_WITHOUT_TURNS: Final = "FIFO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """Advice on one finding.

    Attributes:
        text: One sentence.
        command: A command that applies it; empty = there is none.
    """

    text: str
    command: str = ""


def remedy(snapshot: Snapshot, workload: WorkloadRecord, finding: FindingRecord) -> Remedy:
    """The remedy for one finding.

    Args:
        snapshot: The cluster, for the place beside other work.
        workload: The workload.
        finding: The finding.
    """
    match finding.rule:
        case EfficiencyRule.IDLE:
            return _stopped(workload)
        case EfficiencyRule.OVERSIZED_SHARE:
            return _smaller_share(snapshot, workload, finding)
        case EfficiencyRule.MEMORY_UNUSED:
            memory = {"memory": {"limit": f"{finding.memory_mib}Mi"}}
            text = f"{finding.memory_mib} MiB are enough: the rest of the memory becomes free"
            return Remedy(text=text, command=_resized(workload, memory))
        case EfficiencyRule.SMALL_BATCH:
            return _packed(snapshot, workload, "a larger batch fills the device")
        case EfficiencyRule.HOST_BOUND:
            return _packed(snapshot, workload, "CUDA graphs or torch.compile fill the gaps")
        case EfficiencyRule.WAITS_FOR_DATA:
            return _tuned(workload)
        case EfficiencyRule.CPU_THROTTLED:
            text = "raise the CPU limit of the device container in the template"
            return Remedy(text=f"{text}, or lower the workers of its data loader")
        case EfficiencyRule.SLOW_RANK:
            return _rebalanced(workload)
        case EfficiencyRule.EXPOSED_COMMUNICATION:
            text = "larger or earlier buckets overlap communication with computation"
            return _packed(snapshot, workload, text)
        case EfficiencyRule.SHORT_KERNELS:
            text = "torch.compile, fused kernels or a larger batch make longer kernels"
            return _packed(snapshot, workload, text)
        case EfficiencyRule.SYNCHRONISES_OFTEN:
            text = "read values such as loss.item() every hundred steps, not in each"
            return _packed(snapshot, workload, text)
        case EfficiencyRule.ALLOCATES_IN_STEPS:
            text = "fixed shapes, or PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, let the"
            return Remedy(text=f"{text} allocator reuse memory")
        case EfficiencyRule.PAGEABLE_COPIES:
            text = "pin_memory=True in the data loader and non_blocking=True in copies hide them"
            return _packed(snapshot, workload, text)
        case EfficiencyRule.BETWEEN_STEPS:
            text = "more loader workers and asynchronous checkpoints shorten the pauses"
            return _packed(snapshot, workload, text)


def _stopped(workload: WorkloadRecord) -> Remedy:
    """Give the devices back."""
    if workload.kind is WorkloadKind.TRAINING_JOB:
        text = "suspend it: its devices go to others, and it continues when resumed"
        return Remedy(text=text, command=_patch(workload, {"suspend": True}))
    if workload.kind is WorkloadKind.POD:
        return Remedy(text="delete the pods, or scale their controller down")
    batching = workload.batching
    if workload.scaling is not None and batching is not None and batching.hold_s > 0:
        text = "let it scale to zero: the router holds the next request while a replica starts"
        return Remedy(text=text, command=_patch(workload, {"scaling": {"minReplicas": 0}}))
    return Remedy(text="remove its replicas", command=_patch(workload, {"replicas": 0}))


def _tuned(workload: WorkloadRecord) -> Remedy:
    """Let the workers of the data loader be tuned."""
    if workload.kind is not WorkloadKind.TRAINING_JOB:
        return Remedy(text="raise num_workers of the data loader")
    text = "let Ullage tune the workers of its data loader, from its next start on"
    return Remedy(text=text, command=_patch(workload, {"data": {"io": {"autotune": True}}}))


def _rebalanced(workload: WorkloadRecord) -> Remedy:
    """Give a slow rank a smaller batch."""
    text = "kubectl ullage why shows all ranks"
    if workload.kind is not WorkloadKind.TRAINING_JOB:
        return Remedy(text=text)
    if workload.stragglers is StragglerPolicy.REBALANCE:
        return Remedy(text=f"{text}, and why batches stay even")
    return Remedy(
        text=f"{text}; from its next start on, a slow rank can get a smaller batch",
        command=_patch(workload, {"stragglers": {"policy": StragglerPolicy.REBALANCE.value}}),
    )


def _smaller_share(snapshot: Snapshot, workload: WorkloadRecord, finding: FindingRecord) -> Remedy:
    percent, gpu = finding.percent, workload.gpu
    own = workload.status.placement
    place = next(_places(snapshot, workload, finding), "") if own else ""
    text = f"fits {percent} % of a device{f' {place}' if place else ''}: set share {percent}"
    if workload.kind is WorkloadKind.POD:
        return Remedy(text=f"{text} (label ullage.dev/share in the template of the pods)")
    least = min(percent, gpu.share.min_percent) if gpu.share is not None else percent
    change: dict[str, object] = {"share": {"minPercent": least, "maxPercent": percent}}
    if not gpu.memory_mib or gpu.mode is GPUMode.EXCLUSIVE:
        # without it, the memory would shrink with the share
        if not finding.memory_mib:
            return Remedy(text=f"{text}, and spec.gpu.memory to what it needs")
        change |= {"memory": {"limit": f"{finding.memory_mib}Mi"}}
    if gpu.mode is GPUMode.EXCLUSIVE:
        change |= {"mode": GPUMode.FRACTIONAL.value}
    return Remedy(text=text, command=_resized(workload, change))


def _packed(snapshot: Snapshot, workload: WorkloadRecord, advice: str) -> Remedy:
    """Let another job use the gaps, where jobs take turns."""
    gpu, policy = workload.gpu, snapshot.policy
    may = (
        workload.kind is WorkloadKind.TRAINING_JOB
        and policy.objective != _OBJECTIVE_WITHOUT_TURNS
        and not workload.sharing.allow_packing
        and gpu.mode is GPUMode.EXCLUSIVE
        and (gpu.count, workload.replicas) == (1, 1)
        and gpu.memory_mib > 0
        and workload.checkpoint
        and workload.elasticity is None
    )
    if not may:
        return Remedy(text=advice)
    text = f"{advice}; until then another job can share its turns"
    return Remedy(text=text, command=_patch(workload, {"sharing": {"allowPacking": True}}))


def _resized(workload: WorkloadRecord, gpu: Mapping[str, object]) -> str:
    """The command that changes share or memory; the work restarts with it."""
    same_mode = "mode" not in gpu
    if workload.kind is WorkloadKind.INFERENCE_DEPLOYMENT:
        spec: dict[str, object] = {"gpu": gpu}
        if not workload.sharing.resizable:
            spec["sharing"] = {"resizable": "Restart"}
        return _patch(workload, spec)
    if workload.kind is WorkloadKind.POD:
        return ""
    if workload.sharing.resizable and same_mode:
        return _patch(workload, {"gpu": gpu})
    # the API server takes another share only while the job is suspended
    suspended = _patch(workload, {"suspend": True})
    return f"{suspended} && {_patch(workload, {'suspend': False, 'gpu': gpu})}"


def _patch(workload: WorkloadRecord, spec: Mapping[str, object]) -> str:
    body = json.dumps({"spec": spec}, separators=(",", ":"))
    ref = workload.ref
    return (
        f"kubectl patch {RESOURCES[workload.kind]} {ref.name} -n {ref.namespace} --type merge"
        f" -p {shlex.quote(body)}"
    )


def _places(snapshot: Snapshot, workload: WorkloadRecord, finding: FindingRecord) -> Iterator[str]:
    """Devices of the same type with room beside work of the same trust domain, fullest first."""
    own = {(part.node, part.gpu) for part in workload.status.placement}
    models = _models(snapshot, workload.status.placement)
    rooms: list[tuple[int, str, str, str]] = []
    for node in snapshot.gpu_nodes.values():
        by_gpu: dict[str, list[DesiredSlice]] = {}
        for part in node.desired:
            by_gpu.setdefault(part.gpu, []).append(part)
        for device in node.devices:
            beside = by_gpu.get(device.uuid, [])
            if device.model not in models or (node.name, device.uuid) in own or not beside:
                continue
            if any(part.lane or part.trust_domain != workload.trust_domain for part in beside):
                continue
            left = 100 - sum(part.percent for part in beside)
            free_mib = device.memory_mib - sum(part.memory_mib for part in beside)
            if left >= finding.percent and free_mib >= finding.memory_mib:
                rooms.append((left, node.name, device.uuid, _company(workload, beside)))
    for _, name, gpu, company in sorted(rooms):
        yield f"beside {company} on {name}/{gpu}"


def _company(workload: WorkloadRecord, beside: list[DesiredSlice]) -> str:
    own = [part for part in beside if part.pod_namespace == workload.ref.namespace]
    named = sorted({part.workload_class for part in own if part.workload_class})
    return f"class {named[0]}" if named else "other work"


def _models(snapshot: Snapshot, placement: tuple[Placement, ...]) -> frozenset[str]:
    devices = {(part.node, part.gpu) for part in placement}
    return frozenset(
        device.model
        for node in snapshot.gpu_nodes.values()
        for device in node.devices
        if (node.name, device.uuid) in devices
    )
