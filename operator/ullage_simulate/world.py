# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A simulated cluster as seen by the operator: records that its actions change.

Simulates the API server, node agents, kubelet and kube-scheduler without faults: a slice is
reserved as soon as it is desired, an ungated pod starts. It never decides anything, and it stores
what a real API stores: gates, slices, statuses, the accounts of fairness.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.devices import Health
from ullage.api.labels import GATE
from ullage.api.observations import Observation
from ullage.api.slices import ObservedSlice
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.profile import ProfileRecord
from ullage.cluster.records.snapshot import DeploymentRecord, ServiceRecord, Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.model.plan import (
    Action,
    ApplyDeployment,
    ApplyGPUNode,
    ApplyService,
    CreatePod,
    CreateProfile,
    DeletePod,
    DeleteWorkload,
    EvictPod,
    SetConditions,
    SetProfile,
    SetQuotaStatus,
    SetStatus,
    UngatePod,
)
from ullage_simulate import motions

_ON_NODES: Final = (PodStage.BOUND, PodStage.RUNNING)


@dataclass(slots=True)
class World:
    """The operator's inputs; changed by its actions and by the loop's events.

    Attributes:
        base: Initial snapshot; kinds of records that never change stay as they are.
        now: Seconds since the epoch.
        start_s: Time of a pod from its gate to running.
    """

    base: Snapshot
    now: float
    start_s: float = 0.0
    gpu_nodes: dict[str, GPUNodeRecord] = field(default_factory=dict)
    pods: dict[str, PodRecord] = field(default_factory=dict)
    workloads: dict[str, WorkloadRecord] = field(default_factory=dict)
    services: dict[tuple[str, str], ServiceRecord] = field(default_factory=dict)
    profiles: dict[tuple[str, str], ProfileRecord] = field(default_factory=dict)
    pods_of: dict[str, dict[str, None]] = field(default_factory=dict)
    version: int = 0
    starting: dict[str, float] = field(default_factory=dict)
    """Start time of each bound pod that is starting, by uid."""
    gone: list[str] = field(default_factory=list)
    """Owners of pods that ran and were removed since the last call."""

    def __post_init__(self) -> None:
        self.version = self.base.version
        self.gpu_nodes = dict(self.base.gpu_nodes)
        self.workloads = dict(self.base.workloads)
        self.services = dict(self.base.services)
        self.profiles = dict(self.base.profiles)
        for pod in self.base.pods.values():
            self._keep(pod)

    def snapshot(self) -> Snapshot:
        """The current snapshot; every agent has just reported."""
        self.version += 1
        return replace(
            self.base,
            version=self.version,
            taken_at=self.now,
            gpu_nodes={
                name: replace(record, heartbeat=self.now) for name, record in self.gpu_nodes.items()
            },
            pods=dict(self.pods),
            workloads=dict(self.workloads),
            services=dict(self.services),
            profiles=dict(self.profiles),
            creating=frozenset(),
            refused_writes={},
        )

    def members(self, uid: str) -> list[PodRecord]:
        """Pods of a workload."""
        return [self.pods[pod_uid] for pod_uid in self.pods_of.get(uid, ())]

    def bound(self, uid: str) -> bool:
        """True if all its workers have their devices, and are starting or running."""
        job = self.workloads[uid]
        members = self.members(uid)
        return len(members) == job.replicas and all(
            member.stage in _ON_NODES and not member.deleting for member in members
        )

    def next_start(self) -> float:
        """Time at which the next pod runs; infinite where none starts."""
        return min(self.starting.values(), default=float("inf"))

    def start(self) -> None:
        """Run pods whose start is over."""
        for uid in [uid for uid, at in self.starting.items() if at <= self.now]:
            del self.starting[uid]
            pod = self.pods[uid]
            self.pods[uid] = motions.running(pod, self.now)
            self.gpu_nodes[pod.node] = motions.attached(self.gpu_nodes[pod.node], uid)

    def apply(self, actions: Iterable[Action]) -> None:
        """Execute all actions at once."""
        for action in actions:
            match action:
                case ApplyGPUNode():
                    self._reserve(action)
                case CreatePod():
                    self._create(action)
                case UngatePod():
                    self._start(action)
                case DeletePod() | EvictPod():
                    self.remove_pod(action.pod.uid)
                case ApplyService():
                    self._serve(action)
                case ApplyDeployment():
                    self._deploy(action)
                case SetStatus():
                    self._tell(action)
                case DeleteWorkload():
                    self.forget(action.owner.uid)
                case CreateProfile() | SetProfile():
                    self._learn(action)
                case SetConditions() if action.target.kind == "SchedulingPolicy":
                    self._tell_policy(action)
                case SetQuotaStatus():
                    policy = replace(self.base.policy, quota_status=action.status)
                    self.base = replace(self.base, policy=policy)
                case _:
                    pass

    def finish(self, uid: str) -> None:
        """End all workers successfully; their nodes release the slices."""
        for pod in self.members(uid):
            self._end(pod, PodStage.SUCCEEDED, 0)

    def lose(self, uid: str) -> None:
        """Fail a device under a gang: its pods are disrupted, through no fault of theirs."""
        for pod in self.members(uid):
            if pod.stage in _ON_NODES:
                self._end(pod, PodStage.FAILED, None)
                self.pods[pod.uid] = replace(self.pods[pod.uid], disrupted=True)

    def set_health(self, node: str, gpu: str, health: Health) -> None:
        """Fail or repair a device."""
        record = self.gpu_nodes[node]
        devices = tuple(
            replace(device, health=health) if device.uuid == gpu else device
            for device in record.devices
        )
        self.gpu_nodes[node] = replace(record, devices=devices)

    def forget(self, uid: str) -> None:
        """Remove the workload and its pods."""
        self.workloads.pop(uid, None)
        for pod_uid in list(self.pods_of.pop(uid, ())):
            self.pods.pop(pod_uid, None)
            self.starting.pop(pod_uid, None)
        self.services = {
            key: service for key, service in self.services.items() if service.owner_uid != uid
        }

    def remove_pod(self, uid: str) -> None:
        """Remove a pod's object, and its slices."""
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        self.pods_of[pod.owner.uid].pop(uid, None)
        self.starting.pop(uid, None)
        if pod.stage in _ON_NODES:
            self.gone.append(pod.owner.uid)
        self._let_go(pod)

    def slices(self, uid: str) -> list[tuple[str, ObservedSlice]]:
        """Node and slice of all slices of a job's workers."""
        own = self.pods_of.get(uid, {})
        nodes = {self.pods[pod_uid].node for pod_uid in own} - {""}
        return [
            (node, seen)
            for node in sorted(nodes)
            for seen in self.gpu_nodes[node].observed
            if seen.key.pod_uid in own
        ]

    def report_steps(self, uid: str, steps: int, step_s: float, saved_s: int = 0) -> None:
        """Report the steps of a job's workers as agents do; saved_s 0 = it never saved."""
        own = self.pods_of.get(uid, {})
        for node in {self.pods[pod_uid].node for pod_uid in own} - {""}:
            record = self.gpu_nodes[node]
            observed = tuple(
                replace(
                    part,
                    steps=steps,
                    step_micros=round(step_s * 1e6),
                    checkpoint_age_s=saved_s,
                )
                if part.key.pod_uid in own
                else part
                for part in record.observed
            )
            self.gpu_nodes[node] = replace(record, observed=observed)

    def _keep(self, pod: PodRecord) -> None:
        self.pods[pod.uid] = pod
        self.pods_of.setdefault(pod.owner.uid, {})[pod.uid] = None

    def _reserve(self, action: ApplyGPUNode) -> None:
        name, slices = action.name, action.slices
        record = self.gpu_nodes.get(name)
        if record is None:
            record = GPUNodeRecord(
                name=name, uid=f"uid-gn-{name}", epoch=action.epoch, retire=False, desired=()
            )
        held = {part.key: part for part in record.observed}
        kept = {part.key: held.get(part.key) or motions.reserved(part) for part in slices}
        for key, observed in held.items():
            # A started slice stays until its pod is deleted, whatever the spec says.
            if observed.phase.started and key.pod_uid in self.pods:
                kept.setdefault(key, observed)
        since = record.desired_since
        self.gpu_nodes[name] = replace(
            record,
            epoch=action.epoch,
            desired=slices,
            observed=tuple(kept[key] for key in sorted(kept)),
            observations=_after(record.observations, action.observations_read),
            observations_read=action.observations_read,
            lane_policy=action.lane_policy,
            io_fairness=action.io_fairness,
            desired_since={part.key: since.get(part.key, self.now) for part in slices},
        )

    def _create(self, action: CreatePod) -> None:
        job = self.workloads.get(action.owner.uid)
        if job is None:
            return
        self._keep(motions.created(action, job, f"pod-{action.name}-{self.version}", self.now))

    def _start(self, action: UngatePod) -> None:
        pod = self.pods.get(action.pod.uid)
        if pod is None or GATE not in pod.gates:
            return
        self.pods[pod.uid] = motions.bound(pod, action.node, self.now)
        self.starting[pod.uid] = self.now + self.start_s
        self.start()

    def _end(self, pod: PodRecord, stage: PodStage, code: int | None) -> None:
        self.starting.pop(pod.uid, None)
        self.pods[pod.uid] = motions.ended(pod, stage, code, self.now)
        self._let_go(pod)

    def _let_go(self, pod: PodRecord) -> None:
        """Release the slices of a finished pod."""
        if pod.node:
            self.gpu_nodes[pod.node] = motions.freed(self.gpu_nodes[pod.node], pod.uid)

    def _serve(self, action: ApplyService) -> None:
        key = (action.owner.namespace, action.name)
        self.services[key] = ServiceRecord(
            namespace=key[0],
            name=key[1],
            uid=f"uid-{key[0]}-{key[1]}",
            owner_uid=action.owner.uid,
        )

    def _deploy(self, action: ApplyDeployment) -> None:
        """Apply a Deployment; its existing pods stay, since services are not simulated."""
        key = (action.owner.namespace, action.name)
        made = DeploymentRecord(
            namespace=key[0],
            name=key[1],
            uid=f"uid-{key[0]}-{key[1]}",
            owner_uid=action.owner.uid,
            replicas=action.replicas,
            ready=action.replicas,
            updated=action.replicas,
            template_hash=action.template_hash,
            max_surge=action.max_surge,
            max_unavailable=action.max_unavailable,
            settled=True,
        )
        self.base = replace(self.base, deployments={**self.base.deployments, key: made})

    def _tell(self, action: SetStatus) -> None:
        job = self.workloads.get(action.owner.uid)
        if job is not None:
            bounds, replicas = job.elasticity, action.status.replicas
            self.workloads[job.ref.uid] = replace(
                job,
                replicas=bounds.within(replicas) if bounds is not None else job.replicas,
                status=as_stored(job.kind, action.status),
                resource_version=str(int(job.resource_version or "0") + 1),
            )

    def _tell_policy(self, action: SetConditions) -> None:
        policy = self.base.policy
        if action.target.name == policy.name:
            updated = replace(policy, conditions=action.conditions, last_solve=action.last_solve)
            self.base = replace(self.base, policy=updated)

    def _learn(self, action: CreateProfile | SetProfile) -> None:
        at = (action.target.namespace, action.target.name)
        if isinstance(action, SetProfile):
            if at in self.profiles:
                self.profiles[at] = replace(self.profiles[at], status=action.status)
            return
        made = ProfileRecord(
            namespace=at[0],
            name=at[1],
            workload_class=action.workload_class,
            uid=f"uid-wp-{at[0]}-{at[1]}",
        )
        self.profiles.setdefault(at, made)


def _after(observations: tuple[Observation, ...], newest_read: str) -> tuple[Observation, ...]:
    """Observations that a node still reports after an acknowledgement."""
    ids = [observation.id for observation in observations]
    return observations[ids.index(newest_read) + 1 :] if newest_read in ids else observations
