# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What must hold on a toy cluster, worked out from its objects alone.

Nothing of the deciding code is used here, so that it cannot excuse itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set

from fakes.toy_cluster import ToyCluster, is_exclusive, is_training
from ullage.api.labels import GATE
from ullage.api.slices import DesiredSlice, ObservedSlice, SliceKey, SlicePhase
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.model.plan import Action, CreatePod, SetStatus, UngatePod

Taken = dict[tuple[str, str], dict[SliceKey, DesiredSlice | ObservedSlice]]


def taken(gpu_nodes: dict[str, GPUNodeRecord]) -> Taken:
    """Who counts on which device: all that stands in a spec or, not refused, in a status."""
    found: Taken = defaultdict(dict)
    for name, record in gpu_nodes.items():
        refused = {
            (one.key, one.gpu, one.epoch)
            for one in record.observed
            if one.phase is SlicePhase.REFUSED
        }
        for seen in record.observed:
            if seen.phase.holds_capacity:
                found[name, seen.gpu][seen.key] = seen
        for wanted in record.desired:
            if (wanted.key, wanted.gpu, wanted.epoch) not in refused:
                found[name, wanted.gpu][wanted.key] = wanted
    return found


def check_devices(toy: ToyCluster) -> None:
    """No device is given more than it has, or to people who do not trust each other."""
    limit = toy.shape.policy.max_percent_sum
    for (name, gpu), slices in taken(toy.gpu_nodes).items():
        where = f"{name}/{gpu}"
        percent = sum(one.percent for one in slices.values())
        memory = sum(one.memory_mib + toy.shape.overhead_mib for one in slices.values())
        assert len(slices) <= toy.shape.contexts, f"{where}: {len(slices)} contexts"
        assert memory <= toy.shape.memory_mib, f"{where}: {memory} MiB"
        pods = [toy.pods[key.pod_uid] for key in slices if key.pod_uid in toy.pods]
        owners = [toy.workloads[pod.owner.uid] for pod in pods if pod.owner.uid in toy.workloads]
        whole = any(is_exclusive(owner) for owner in owners)
        assert percent <= max(limit, 100 if whole else limit), f"{where}: {percent} %"
        agreed = len(slices) == 2 and all(owner.sharing.allow_packing for owner in owners)
        assert not (whole and len(slices) > 1) or agreed, f"{where}: whole and shared"
        domains = {owner.trust_domain for owner in owners}
        assert len(domains) <= 1, f"{where}: shared by {domains}"


def check_actions(snapshot: Snapshot, actions: Sequence[Action]) -> None:
    """No gang is half started, no name is created twice, every refusal says something."""
    names = {(pod.namespace, pod.name) for pod in snapshot.pods.values()}
    ungated: dict[str, list[UngatePod]] = defaultdict(list)
    for action in actions:
        if isinstance(action, UngatePod):
            ungated[action.owner.uid].append(action)
        elif isinstance(action, CreatePod):
            assert (action.owner.namespace, action.name) not in names
            names.add((action.owner.namespace, action.name))
        elif isinstance(action, SetStatus):
            _check_status(action)
    for uid, patches in ungated.items():
        workload = snapshot.workloads[uid]
        for patch in patches:
            assert _reserved(snapshot, patch.pod.uid, workload.gpu.count, patch.node)
        if is_training(workload):
            members = [pod for pod in snapshot.pods.values() if pod.owner.uid == uid]
            patched = {patch.pod.uid for patch in patches}
            if _are_enough(workload, members, patched):
                continue
            assert len(members) == workload.replicas, "ungated before all members exist"
            for pod in members:
                assert pod.uid in patched or GATE not in pod.gates, "a member is left behind"


def _are_enough(workload: WorkloadRecord, members: Sequence[PodRecord], patched: Set[str]) -> bool:
    """Whether a gang in place can train with those who are there or are let go together."""
    bounds = workload.elasticity
    if bounds is None or not bounds.in_place:
        return False
    there = [
        pod
        for pod in members
        if (GATE not in pod.gates or pod.uid in patched)
        and pod.stage is not PodStage.FAILED
        and not pod.deleting
    ]
    return len(there) >= bounds.min_replicas


def _reserved(snapshot: Snapshot, pod_uid: str, count: int, node: str) -> bool:
    record = snapshot.gpu_nodes[node]
    held = {
        one.key: (one.gpu, one.percent, one.epoch)
        for one in record.observed
        if one.key.pod_uid == pod_uid and one.phase.holds_capacity
    }
    wanted = {
        one.key: (one.gpu, one.percent, one.epoch)
        for one in record.desired
        if one.key.pod_uid == pod_uid
    }
    return len(wanted) == count and wanted == held


def _check_status(action: SetStatus) -> None:
    decision = action.status.decision
    if decision is not None:
        assert decision.message
        assert all(line.message and line.devices > 0 for line in decision.refusals)
        assert len(decision.refusals) <= 8
    for condition in action.status.conditions:
        assert condition.reason
    if action.status.conditions and action.status.conditions[0].status == "False":
        assert action.status.conditions[0].reason


def check_rest(toy: ToyCluster) -> None:
    """At rest: slices are those of live pods, gangs stand whole or not at all."""
    owned: dict[str, int] = defaultdict(int)
    for record in toy.gpu_nodes.values():
        for one in record.desired:
            pod = toy.pods.get(one.key.pod_uid)
            assert pod is not None, f"leaked slice of a pod that is gone on {record.name}"
            assert not pod.stage.finished, f"leaked slice of finished {pod.name}"
            assert pod.node in ("", record.name), f"slice of {pod.name} on another node"
            owned[pod.uid] += 1
        if not toy.agents[record.name].up:
            continue
        spec = {one.key for one in record.desired}
        assert {one.key for one in record.observed} <= spec, f"leaked in status of {record.name}"
    for pod in toy.pods.values():
        owner = toy.workloads.get(pod.owner.uid)
        assert owner is not None, f"orphan {pod.name}"
        assert not pod.deleting, f"{pod.name} hangs"
        if pod.uid in toy.edited_out and not toy.agents[pod.node].up:
            continue  # what was edited out is given back once its agent answers again
        if pod.stage in (PodStage.RUNNING, PodStage.BOUND, PodStage.UNSCHEDULED):
            assert owned[pod.uid] == owner.gpu.count, f"{pod.name} runs without its slices"
            assert pod.stage is PodStage.RUNNING, f"{pod.name} is stuck {pod.stage}"
    for uid, owner in toy.workloads.items():
        members = toy.members(uid)
        if is_training(owner):
            running = sum(pod.stage is PodStage.RUNNING for pod in members)
            ended = sum(pod.stage.finished for pod in members)
            assert running == 0 or running + ended == owner.replicas, f"{owner.ref.name} is partial"
            gated_with = [pod for pod in members if GATE in pod.gates and owned[pod.uid]]
            assert not gated_with, f"{owner.ref.name} holds slices and does not run"
        assert owner.status.restarts <= owner.failure.max_restarts
    _check_someone_runs(toy)


def _check_someone_runs(toy: ToyCluster) -> None:
    """An empty cluster in which someone waits, though it could run, has a deadlock."""
    if any(record.desired for record in toy.gpu_nodes.values()):
        return
    if not all(agent.up for agent in toy.agents.values()):
        return
    for owner in toy.workloads.values():
        waits = [pod for pod in toy.members(owner.ref.uid) if GATE in pod.gates]
        decision = owner.status.decision
        never = decision is not None and decision.reason in (
            "GangTooLarge",
            "MemoryWouldOverflow",
            "UnknownAccelerator",
            "PredictedSLOBreach",
            "NoNodeMatches",
        )
        assert not waits or never, f"{owner.ref.name} waits in an empty cluster"
