# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator's knowledge of the cluster, as small immutable records.

``decide`` may read only these records; raw JSON is projected to them at once and dropped. Times are
seconds since the epoch, memory is bytes or MiB as the name says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage.api.reasons import Reason
from ullage.cluster.records.node import GPUNodeRecord, NodeRecord
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.pod_rules import AlikePods, ClaimRecord, Labels
from ullage.cluster.records.pod_shape import Resources
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.profile import DeviceProfileRecord, ProfileRecord
from ullage.cluster.records.router import RouterLoad
from ullage.cluster.records.status import Condition
from ullage.cluster.records.straggler import StragglerRecord
from ullage.cluster.records.tier import CoordinatorReport
from ullage.cluster.records.trace import LastTrace
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.model import LearnedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRecord:
    """A Deployment that an InferenceDeployment owns."""

    namespace: str
    name: str
    uid: str
    owner_uid: str
    """uid of the controller owner, empty when it has none."""
    replicas: int
    ready: int
    updated: int
    template_hash: str
    max_surge: int
    max_unavailable: int
    settled: bool
    """Observed generation is current and every replica is updated and ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRecord:
    """A Service with one of our names."""

    namespace: str
    name: str
    uid: str
    owner_uid: str
    ports: tuple[int, ...] = ()
    routed: bool = False
    """It selects a router, not the pods of its owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """An object of ours, not a workload, whose newest version is unreadable: the last good is used.

    ``text`` has the problem and its place, empty if the object is readable again and still has the
    ``condition``.
    """

    ref: ObjectRef
    generation: int
    text: str
    condition: Condition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedWrite:
    """Refusal of an object by the API: a reason of ours, and the API's own text."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One immutable snapshot of the cluster, observed and assumed.

    Pods that were requested and not yet observed are in ``creating`` as (namespace, name); pods
    whose ungating was sent and not yet observed have no gate; deleted ones are ``deleting``.
    """

    version: int
    taken_at: float
    nodes: Mapping[str, NodeRecord] = field(default_factory=dict)
    gpu_nodes: Mapping[str, GPUNodeRecord] = field(default_factory=dict)
    pods: Mapping[str, PodRecord] = field(default_factory=dict)
    foreign_use: Mapping[str, Resources] = field(default_factory=dict)
    """Requests of foreign bound pods, by node."""
    slot_holders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Some of the foreign bound pods that hold device slots, by node."""
    pods_around: Mapping[str, tuple[AlikePods, ...]] = field(default_factory=dict)
    """Foreign bound pods by node; while none of our pods has rules about others, only those with
    anti-affinity against others."""
    namespaces: Mapping[str, Labels] = field(default_factory=dict)
    """Labels of namespaces, while there are rules about pods."""
    claims: Mapping[tuple[str, str], ClaimRecord] = field(default_factory=dict)
    """PersistentVolumeClaims of our pods, by namespace and name."""
    workloads: Mapping[str, WorkloadRecord] = field(default_factory=dict)
    deployments: Mapping[tuple[str, str], DeploymentRecord] = field(default_factory=dict)
    services: Mapping[tuple[str, str], ServiceRecord] = field(default_factory=dict)
    profiles: Mapping[tuple[str, str], ProfileRecord] = field(default_factory=dict)
    device_profiles: Mapping[str, DeviceProfileRecord] = field(default_factory=dict)
    pools: Mapping[str, PoolRecord] = field(default_factory=dict)
    """CapacityPools by name, with their current known state."""
    leads: Mapping[str, CoordinatorReport] = field(default_factory=dict)
    """Reports of coordinators, by uid of the job."""
    routers: Mapping[str, RouterLoad] = field(default_factory=dict)
    """Loads by routers of services that may have no replica, by uid of the service."""
    router_faults: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Reason why a router does not run, by namespace and name of its service."""
    stragglers: Mapping[str, StragglerRecord] | None = None
    """Slow ranks by uid of the job; ``None`` = this process has not looked for long enough."""
    models: Mapping[str, LearnedModel] = field(default_factory=dict)
    """Learned model of each accelerator; a missing one has no history."""
    policy: PolicyRecord = field(default_factory=PolicyRecord)
    idle_policies: tuple[PolicyRecord, ...] = ()
    """SchedulingPolicies not in force, because of their name; sorted by it."""
    unread: tuple[Unread, ...] = ()
    """Policies, profiles and pools that are or were unreadable."""
    creating: frozenset[tuple[str, str]] = frozenset()
    refused_writes: Mapping[tuple[str, str, str], RefusedWrite] = field(default_factory=dict)
    """Writes rejected by the API that wait for a retry, by (kind, namespace, name)."""
    node_refusals: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)
    """Times at which this process observed a refused slice, by uid of the pod and device."""
    refused_starts: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)
    """The same by namespace and name of the pod, for any pod with that name."""
    traces: Mapping[tuple[str, str], LastTrace] = field(default_factory=dict)
    """The newest finished trace of TrainingJobs, by namespace and name; no decision needs them."""
