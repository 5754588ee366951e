# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A large cluster for measuring decisions: it carries out actions at once and without faults.

Everything is records, as the operator's picture holds them; records that did not change stay the
same objects from one picture to the next, as they do in the operator.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ullage.api.devices import Backend, GPUMode, Health, ObservedDevice
from ullage.api.gpurequest import GPURequest, Share
from ullage.api.labels import SLOT_RESOURCE
from ullage.api.slices import EMULATED_MODEL, DesiredSlice
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.node import GPUNodeRecord, NodeRecord
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.pod_shape import PodShape, Resources
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.profile import ProfileRecord, SoloEntry
from ullage.cluster.records.snapshot import ServiceRecord, Snapshot
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.model.plan import (
    Action,
    ApplyGPUNode,
    ApplyService,
    CreatePod,
    DeletePod,
    EvictPod,
    SetConditions,
    SetStatus,
    UngatePod,
)
from ullage_simulate import motions

START = 1_700_000_000.0
GIB = 2**30
NAMESPACES = 20
CLASSES = 20
"""Of work; as many as the mixture has kinds."""
MEMORY_MIB = 81_920
GRANTED = {f"team-{number}": frozenset({"*"}) for number in range(5)}
"""Trust domains of the jobs that share."""


@dataclass(slots=True)
class World:
    """Nodes, jobs and pods; time moves with every picture."""

    nodes: dict[str, NodeRecord] = field(default_factory=dict)
    gpu_nodes: dict[str, GPUNodeRecord] = field(default_factory=dict)
    pods: dict[str, PodRecord] = field(default_factory=dict)
    workloads: dict[str, WorkloadRecord] = field(default_factory=dict)
    profiles: dict[tuple[str, str], ProfileRecord] = field(default_factory=dict)
    services: dict[tuple[str, str], ServiceRecord] = field(default_factory=dict)
    pods_of: dict[str, set[str]] = field(default_factory=dict)
    now: float = START
    version: int = 0
    jobs_made: int = 0
    policy: PolicyRecord = field(default_factory=lambda: PolicyRecord(trust_domains=GRANTED))
    own_objectives: bool = False
    """Every job is a class of its own with an objective of its own: no two questions are alike."""
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def snapshot(self) -> Snapshot:
        """The picture as it is now."""
        self.version += 1
        self.now += 1.0
        return Snapshot(
            version=self.version,
            taken_at=self.now,
            nodes=dict(self.nodes),
            gpu_nodes=dict(self.gpu_nodes),
            pods=dict(self.pods),
            workloads=dict(self.workloads),
            services=dict(self.services),
            profiles=dict(self.profiles),
            policy=self.policy,
        )

    def add_nodes(self, count: int, devices: int) -> None:
        """Nodes of ours with healthy devices of two models."""
        allocatable = Resources(
            cpu_milli=128_000,
            memory_bytes=1024 * GIB,
            pods=250,
            extended=((SLOT_RESOURCE, 8 * devices),),
        )
        for index in range(count):
            name = f"node-{index:04d}"
            model = EMULATED_MODEL if index % 4 else "nvidia-h100-80gb-hbm3"
            self.nodes[name] = NodeRecord(
                name=name,
                uid=f"uid-{name}",
                labels={"kubernetes.io/hostname": name, "zone": f"z{index % 3}"},
                taints=(),
                allocatable=allocatable,
                ready=True,
                managed=True,
            )
            self.gpu_nodes[name] = GPUNodeRecord(
                name=name,
                uid=f"uid-gn-{name}",
                epoch=1,
                retire=False,
                desired=(),
                devices=tuple(_device(name, at, model) for at in range(devices)),
                heartbeat=self.now,
                slots=8 * devices,
            )

    def add_job(self, *, gpu: GPURequest, replicas: int = 1, **fields: object) -> WorkloadRecord:
        """A new TrainingJob."""
        number = self.jobs_made
        self.jobs_made += 1
        namespace, name = f"team-{number % NAMESPACES}", f"job-{number}"
        base = WorkloadRecord(
            ref=ObjectRef(kind="TrainingJob", namespace=namespace, name=name, uid=f"uid-{name}"),
            kind=WorkloadKind.TRAINING_JOB,
            generation=1,
            resource_version="1",
            created=self.now,
            deleting=False,
            shape=_SHAPES[gpu.count],
            template_hash="0123456789ab",
            replicas=replicas,
            gpu=gpu,
            trust_domain=f"namespace/{namespace}",
            workload_class=f"class-{number % CLASSES}",
        )
        if self.own_objectives:
            most = 1.5 + number % 100_000 * 1e-4
            fields |= {"workload_class": f"class-{number}", "max_slowdown": most}
        job = replace(base, **fields)  # type: ignore[arg-type]
        self.workloads[job.ref.uid] = job
        return job

    def carry_out(self, actions: Iterable[Action]) -> None:
        """Do what the actions say, all of it, at once; agents answer and pods start."""
        for action in actions:
            match action:
                case ApplyGPUNode():
                    self._set_slices(action.name, action.slices)
                case CreatePod():
                    self._create(action)
                case UngatePod():
                    self._run(action)
                case DeletePod() | EvictPod():
                    self.end_pod(action.pod.uid)
                case ApplyService():
                    key = (action.owner.namespace, action.name)
                    self.services[key] = ServiceRecord(
                        namespace=key[0],
                        name=key[1],
                        uid=f"uid-{key[1]}",
                        owner_uid=action.owner.uid,
                    )
                case SetStatus():
                    job = self.workloads[action.owner.uid]
                    self.workloads[job.ref.uid] = replace(
                        job,
                        status=as_stored(job.kind, action.status),
                        resource_version=str(int(job.resource_version) + 1),
                    )
                case SetConditions():
                    self.policy = replace(
                        self.policy, conditions=action.conditions, last_solve=action.last_solve
                    )
                case _:
                    pass

    def finish(self, job: WorkloadRecord) -> None:
        """All pods of a job end well; their nodes let the slices go."""
        for uid in self.pods_of.get(job.ref.uid, ()):
            pod = self.pods[uid]
            self.pods[uid] = motions.ended(pod, PodStage.SUCCEEDED, 0, self.now)
            if pod.node:
                self.gpu_nodes[pod.node] = motions.freed(self.gpu_nodes[pod.node], uid)

    def forget(self, job: WorkloadRecord) -> None:
        """The job and its pods are gone."""
        del self.workloads[job.ref.uid]
        for uid in list(self.pods_of.pop(job.ref.uid, ())):
            self.pods.pop(uid, None)

    def end_pod(self, uid: str) -> None:
        """A pod's object goes."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self.pods_of[pod.owner.uid].discard(uid)

    def beat(self, names: Iterable[str]) -> None:
        """Heartbeats of some nodes."""
        for name in names:
            self.gpu_nodes[name] = replace(self.gpu_nodes[name], heartbeat=self.now)

    def _set_slices(self, name: str, slices: tuple[DesiredSlice, ...]) -> None:
        record = self.gpu_nodes[name]
        known = {one.key: one for one in record.observed}
        observed = tuple(known.get(one.key) or motions.reserved(one) for one in slices)
        since = record.desired_since
        self.gpu_nodes[name] = replace(
            record,
            desired=slices,
            observed=observed,
            desired_since={one.key: since.get(one.key, self.now) for one in slices},
        )

    def _create(self, action: CreatePod) -> None:
        job = self.workloads[action.owner.uid]
        uid = f"pod-{action.owner.uid}-{action.rank}-{self.version}"
        self.pods[uid] = motions.created(action, job, uid, self.now)
        self.pods_of.setdefault(job.ref.uid, set()).add(uid)

    def _run(self, action: UngatePod) -> None:
        pod = self.pods[action.pod.uid]
        bound = motions.bound(pod, action.node, self.now)
        self.pods[pod.uid] = motions.running(bound, self.now)
        self.gpu_nodes[action.node] = motions.attached(self.gpu_nodes[action.node], pod.uid)


def a_mixture(world: World, number: int) -> None:
    """Add a job of one of many classes: whole devices, gangs, shares with and without objective."""
    kind = number % 20
    priority = (number // 20) % 3
    if kind < 9:
        world.add_job(gpu=GPURequest(), priority=priority, checkpoint=bool(number % 2))
    elif kind < 11:
        world.add_job(gpu=GPURequest(count=2 if kind == 9 else 4), priority=priority)
    elif kind < 12:
        world.add_job(gpu=GPURequest(), replicas=8, priority=priority)
    else:
        least = (20, 25, 30, 40)[number % 4]
        share = Share(min_percent=least, max_percent=least * 2)
        world.add_job(
            gpu=GPURequest(mode=GPUMode.FRACTIONAL, share=share),
            trust_domain=f"team-{number % 5}",
            max_slowdown=4.0 if kind < 16 else None,
            priority=priority,
            profile_ref="half" if kind % 2 else "",
        )


def add_profiles(world: World) -> None:
    """The profile that the mixture names, in every namespace."""
    rows = (SoloEntry(device=EMULATED_MODEL, share=100, sm_util=0.5),)
    for index in range(NAMESPACES):
        one = ProfileRecord(
            namespace=f"team-{index}", name="half", workload_class="half", solo=rows
        )
        world.profiles[one.namespace, one.name] = one


def _device(node: str, index: int, model: str) -> ObservedDevice:
    return ObservedDevice(
        uuid=f"GPU-{node}-{index}",
        model=model,
        product_name=model,
        memory_mib=MEMORY_MIB,
        contexts=44,
        modes=(GPUMode.EXCLUSIVE, GPUMode.FRACTIONAL),
        health=Health.HEALTHY,
        backend=Backend.EMULATED,
    )


def _shape(slots: int) -> PodShape:
    return PodShape(
        device_container="main",
        requests=Resources(
            cpu_milli=4000, memory_bytes=16 * GIB, pods=1, extended=((SLOT_RESOURCE, slots),)
        ),
    )


_SHAPES = {count: _shape(count) for count in (1, 2, 4, 8)}
