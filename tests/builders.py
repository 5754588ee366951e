# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Small builders of the operator's records, so that a test states only what it is about.

Plain functions return records; ``a_job()`` and ``a_service()`` return a builder whose methods
read like the manifest and whose ``build()`` gives the record. ``a_snapshot`` takes any mixture of
records and builders and files each where the snapshot keeps it. Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from builders_nodes import CONTAINER as CONTAINER
from builders_nodes import DEVICE_MEMORY_MIB as DEVICE_MEMORY_MIB
from builders_nodes import EPOCH as EPOCH
from builders_nodes import MODEL as MODEL
from builders_nodes import NOW as NOW
from builders_nodes import TEMPLATE_HASH as TEMPLATE_HASH
from builders_nodes import a_device as a_device
from builders_nodes import a_gpu_node as a_gpu_node
from builders_nodes import a_node as a_node
from builders_nodes import a_slice as a_slice
from builders_nodes import gpu as gpu
from builders_nodes import reported as reported
from builders_nodes import resources as resources
from ullage.api.devices import GPUMode
from ullage.api.gpurequest import GPURequest, LaneMemory, Share
from ullage.api.labels import GATE
from ullage.api.schedulingpolicy import RiskSettings
from ullage.api.slices import default_trust_domain
from ullage.api.trainingjob import FailurePolicy
from ullage.cluster.records.node import GPUNodeRecord, NodeRecord
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.pod_shape import (
    NodeAffinity,
    PodShape,
    Requirement,
    Resources,
    SelectorTerm,
    Toleration,
)
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.profile import DeviceProfileRecord, ProfileRecord, SoloEntry
from ullage.cluster.records.router import RouterLoad
from ullage.cluster.records.snapshot import DeploymentRecord, RefusedWrite, ServiceRecord, Snapshot
from ullage.cluster.records.spec_fields import Elasticity
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.records.straggler import StragglerRecord
from ullage.cluster.records.workload import AdoptedMember, WorkloadKind, WorkloadRecord


def a_shape(
    *,
    cpu: float = 1,
    gib: float = 1,
    slots: int = 1,
    node_selector: Mapping[str, str] | None = None,
    affinity: NodeAffinity | None = None,
    tolerations: Sequence[Toleration] = (),
    cpu_limit: float = 0,
    container: str = CONTAINER,
) -> PodShape:
    """What one pod asks of a node."""
    return PodShape(
        device_container=container,
        requests=resources(cpu, gib, 1, slots),
        node_selector=tuple(sorted((node_selector or {}).items())),
        affinity=affinity or NodeAffinity(),
        tolerations=tuple(tolerations),
        cpu_limit_milli=round(cpu_limit * 1000),
    )


def an_owner(
    name: str = "train",
    namespace: str = "default",
    kind: WorkloadKind = WorkloadKind.TRAINING_JOB,
) -> ObjectRef:
    """Reference of a workload; uids are ``uid-<namespace>-<name>``."""
    return ObjectRef(kind=kind.value, namespace=namespace, name=name, uid=f"uid-{namespace}-{name}")


def a_pod(
    name: str = "train-0",
    *,
    owner: ObjectRef | WorkloadRecord | None = None,
    rank: int | None = None,
    uid: str = "",
    stage: PodStage = PodStage.GATED,
    since: float = NOW,
    created: float = NOW - 60,
    node: str = "",
    ready: bool | None = None,
    deleting: bool = False,
    priority: int = 0,
    disrupted: bool = False,
    lost_race: bool = False,
    exit_code: int | None = None,
    waiting: tuple[str, str] = ("", ""),
    scheduling_message: str = "",
    shape: PodShape | None = None,
    template_hash: str = TEMPLATE_HASH,
) -> PodRecord:
    """A pod of ours, gated unless told otherwise; rank follows from the name's ending."""
    stem, _, ending = name.rpartition("-")
    ref = (owner.ref if isinstance(owner, WorkloadRecord) else owner) or an_owner(stem or name)
    if rank is None:
        serving = ref.kind != WorkloadKind.TRAINING_JOB.value
        rank = -1 if serving or not ending.isdigit() else int(ending)
    return PodRecord(
        uid=uid or f"uid-{name}",
        namespace=ref.namespace,
        name=name,
        owner=ref,
        created=created,
        stage=stage,
        stage_since=since,
        shape=shape or (owner.shape if isinstance(owner, WorkloadRecord) else a_shape()),
        rank=rank,
        gates=(GATE,) if stage is PodStage.GATED else (),
        node=node,
        ready=stage is PodStage.RUNNING if ready is None else ready,
        deleting=deleting,
        priority=priority,
        disrupted=disrupted,
        lost_race=lost_race,
        exit_code=exit_code,
        waiting_reason=waiting[0],
        waiting_message=waiting[1],
        scheduling_message=scheduling_message,
        template_hash=template_hash,
    )


@dataclass(frozen=True, slots=True)
class WorkloadBuilder:
    """A workload under construction; every method returns a changed copy."""

    record: WorkloadRecord

    def build(self) -> WorkloadRecord:
        return self.record

    def with_(self, **changes: object) -> WorkloadBuilder:
        """Replace any field of the record by name."""
        return WorkloadBuilder(replace(self.record, **changes))  # type: ignore[arg-type]

    def gang(self, replicas: int) -> WorkloadBuilder:
        return self.with_(replicas=replicas)

    replicas = gang

    def elastic(self, least: int, most: int, **said: object) -> WorkloadBuilder:
        """Between so many members, by restarts at a checkpoint."""
        bounds = Elasticity(min_replicas=least, max_replicas=most, **said)  # type: ignore[arg-type]
        return self.with_(elasticity=bounds, replicas=least, checkpoint=True)

    def exclusive(self, count: int = 1) -> WorkloadBuilder:
        shape = replace(self.record.shape, requests=resources(1, 1, 1, count))
        return self.with_(gpu=GPURequest(count=count), shape=shape)

    def fractional(
        self, minimum: int, maximum: int | None = None, *, memory_mib: int = 0
    ) -> WorkloadBuilder:
        share = Share(min_percent=minimum, max_percent=100 if maximum is None else maximum)
        return self.with_(
            gpu=GPURequest(mode=GPUMode.FRACTIONAL, share=share, memory_mib=memory_mib)
        )

    def in_lanes(
        self, persistent_mib: int, ephemeral_mib: int, *, leaves: bool = False
    ) -> WorkloadBuilder:
        """Takes turns with others; call it after the share was said. It may be suspended if so."""
        lane = LaneMemory(
            persistent_mib=persistent_mib, ephemeral_mib=ephemeral_mib, cooperative=not leaves
        )
        memory_mib = persistent_mib + ephemeral_mib
        return self.with_(gpu=replace(self.record.gpu, lane=lane, memory_mib=memory_mib))

    def on(self, *accelerators: str) -> WorkloadBuilder:
        return self.with_(accelerators=accelerators)

    def slowdown(self, most: float) -> WorkloadBuilder:
        return self.with_(max_slowdown=most)

    def priority(self, value: int) -> WorkloadBuilder:
        return self.with_(priority=value)

    def aged(self, seconds: float) -> WorkloadBuilder:
        return self.with_(created=NOW - seconds)

    def checkpointed(self) -> WorkloadBuilder:
        return self.with_(checkpoint=True)

    def suspended(self) -> WorkloadBuilder:
        return self.with_(suspend=True)

    def deleting(self) -> WorkloadBuilder:
        return self.with_(deleting=True)

    def profile(self, name: str) -> WorkloadBuilder:
        return self.with_(profile_ref=name)

    def trusting(self, domain: str) -> WorkloadBuilder:
        return self.with_(trust_domain=domain)

    def shaped(self, shape: PodShape) -> WorkloadBuilder:
        return self.with_(shape=shape)

    def failure(self, restarts: int = 3, *codes: int) -> WorkloadBuilder:
        policy = FailurePolicy(max_restarts=restarts, retry_exit_codes=frozenset(codes))
        return self.with_(failure=policy)

    def status(self, **fields: object) -> WorkloadBuilder:
        return self.with_(status=replace(self.record.status, **fields))  # type: ignore[arg-type]

    def pods(self, stage: PodStage = PodStage.GATED, **fields: object) -> tuple[PodRecord, ...]:
        """One pod per replica of a TrainingJob, all in this stage."""
        ref = self.record.ref
        return tuple(
            a_pod(f"{ref.name}-{rank}", owner=self.record, stage=stage, **fields)  # type: ignore[arg-type]
            for rank in range(self.record.replicas)
        )


def pinned(pod: PodRecord, node: str) -> PodShape:
    """The shape of a pod that was let go: bound to a node by every term of its affinity."""
    pin = Requirement(key="metadata.name", operator="In", values=(node,))
    terms = pod.shape.affinity.required or (SelectorTerm(),)
    required = tuple(replace(one, fields=(*one.fields, pin)) for one in terms)
    affinity = NodeAffinity(has_affinity=True, has_node_affinity=True, required=required)
    return replace(pod.shape, affinity=affinity)


def _workload(name: str, namespace: str, kind: WorkloadKind) -> WorkloadRecord:
    return WorkloadRecord(
        ref=an_owner(name, namespace, kind),
        kind=kind,
        generation=1,
        resource_version="1",
        created=NOW - 100,
        deleting=False,
        shape=a_shape(),
        template_hash=TEMPLATE_HASH,
        trust_domain=default_trust_domain(namespace),
        workload_class=name,
        status=WorkloadStatus(),
    )


def a_job(name: str = "train", namespace: str = "default") -> WorkloadBuilder:
    """A TrainingJob of one replica that wants one whole device."""
    return WorkloadBuilder(_workload(name, namespace, WorkloadKind.TRAINING_JOB))


def an_adopted(name: str = "web", namespace: str = "default") -> WorkloadBuilder:
    """A pod of others that shares devices by its label, and wants one whole device."""
    record = _workload(name, namespace, WorkloadKind.POD)
    pod = replace(record.ref, uid=f"uid-{name}-0", name=f"{name}-0")
    return WorkloadBuilder(replace(record, adopted=(AdoptedMember(pod=pod, is_current=False),)))


def a_service(name: str = "serve", namespace: str = "default") -> WorkloadBuilder:
    """An InferenceDeployment of one replica that wants one whole device."""
    return WorkloadBuilder(_workload(name, namespace, WorkloadKind.INFERENCE_DEPLOYMENT))


def a_deployment(
    owner: WorkloadRecord,
    *,
    replicas: int | None = None,
    ready: int = 0,
    updated: int = 0,
    surge: int = 0,
    unavailable: int = 1,
    settled: bool = False,
    template_hash: str = TEMPLATE_HASH,
) -> DeploymentRecord:
    """The Deployment of an InferenceDeployment."""
    return DeploymentRecord(
        namespace=owner.ref.namespace,
        name=owner.ref.name,
        uid=f"uid-deployment-{owner.ref.name}",
        owner_uid=owner.ref.uid,
        replicas=owner.replicas if replicas is None else replicas,
        ready=ready,
        updated=updated,
        template_hash=template_hash,
        max_surge=surge,
        max_unavailable=unavailable,
        settled=settled,
    )


def a_kube_service(
    owner: WorkloadRecord, name: str = "", ports: Sequence[int] = (80,)
) -> ServiceRecord:
    """A Kubernetes Service that a workload owns."""
    chosen = name or owner.ref.name
    return ServiceRecord(
        namespace=owner.ref.namespace,
        name=chosen,
        uid=f"uid-service-{chosen}",
        owner_uid=owner.ref.uid,
        ports=tuple(ports),
    )


def a_profile(
    name: str = "profile", *solo: SoloEntry, namespace: str = "default", workload_class: str = ""
) -> ProfileRecord:
    """A WorkloadProfile with declared rows."""
    return ProfileRecord(
        namespace=namespace, name=name, workload_class=workload_class or name, solo=tuple(solo)
    )


def a_device_profile(
    name: str = MODEL, memory_mib: int = DEVICE_MEMORY_MIB, context_overhead_mib: int = 0
) -> DeviceProfileRecord:
    """A DeviceProfile."""
    return DeviceProfileRecord(
        name=name, memory_mib=memory_mib, context_overhead_mib=context_overhead_mib
    )


def a_policy(*, learned: bool = False, **fields: object) -> PolicyRecord:
    """The binding SchedulingPolicy: by the utilisation sum, unless the learned rule is asked for.

    Most tests are about hard limits, and shares that follow from one sum are easy to foretell.
    """
    risk = RiskSettings(predictor="Learned" if learned else "UtilisationSum")
    return PolicyRecord(risk=risk, **fields)  # type: ignore[arg-type]


Part = (
    NodeRecord
    | GPUNodeRecord
    | PodRecord
    | WorkloadRecord
    | WorkloadBuilder
    | DeploymentRecord
    | ServiceRecord
    | ProfileRecord
    | DeviceProfileRecord
    | PolicyRecord
    | PoolRecord
)


def a_snapshot(
    *parts: Part,
    version: int = 1,
    now: float = NOW,
    foreign_use: Mapping[str, Resources] | None = None,
    slot_holders: Mapping[str, tuple[str, ...]] | None = None,
    creating: Sequence[tuple[str, str]] = (),
    refused_writes: Mapping[tuple[str, str, str], RefusedWrite] | None = None,
    routers: Mapping[str, RouterLoad] | None = None,
    router_faults: Mapping[tuple[str, str], str] | None = None,
    stragglers: Mapping[str, StragglerRecord] | None = None,
) -> Snapshot:
    """A snapshot of these records; each GPUNode without a node of its name brings one."""
    built = [part.build() if isinstance(part, WorkloadBuilder) else part for part in parts]
    nodes = {part.name: part for part in built if isinstance(part, NodeRecord)}
    gpu_nodes = {part.name: part for part in built if isinstance(part, GPUNodeRecord)}
    for name in gpu_nodes:
        nodes.setdefault(name, a_node(name))
    policies = [part for part in built if isinstance(part, PolicyRecord)]
    return Snapshot(
        version=version,
        taken_at=now,
        nodes=nodes,
        gpu_nodes=gpu_nodes,
        pods={part.uid: part for part in built if isinstance(part, PodRecord)},
        foreign_use=dict(foreign_use or {}),
        slot_holders=dict(slot_holders or {}),
        workloads={part.ref.uid: part for part in built if isinstance(part, WorkloadRecord)},
        deployments={
            (part.namespace, part.name): part
            for part in built
            if isinstance(part, DeploymentRecord)
        },
        services={
            (part.namespace, part.name): part for part in built if isinstance(part, ServiceRecord)
        },
        profiles={
            (part.namespace, part.name): part for part in built if isinstance(part, ProfileRecord)
        },
        device_profiles={
            part.name: part for part in built if isinstance(part, DeviceProfileRecord)
        },
        pools={part.name: part for part in built if isinstance(part, PoolRecord)},
        policy=policies[-1] if policies else a_policy(),
        creating=frozenset(creating),
        refused_writes=dict(refused_writes or {}),
        routers=dict(routers or {}),
        router_faults=dict(router_faults or {}),
        stragglers=stragglers,
    )
