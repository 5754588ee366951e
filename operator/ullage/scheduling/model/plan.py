# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The plan, which is the desired state, and the actions towards it.

Plain values. ``decide`` makes plans, ``diff`` makes actions, the writer executes them; bodies of
pods, Deployments and Services are built from the template only when they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage.api.batching import Batching
from ullage.api.dataio import IoFairness
from ullage.api.lanes import IterationPolicy
from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice
from ullage.api.traces import DesiredTrace
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod_shape import NodeAffinity
from ullage.cluster.records.pool import PoolStatus
from ullage.cluster.records.profile import DeviceModel, DeviceRates, ProfileStatus
from ullage.cluster.records.status import Condition, QuotaStatus, SolveRecord, WorkloadStatus
from ullage.cluster.records.trace import ProfileRequestStatus
from ullage.cluster.records.tuning import TuningStatus
from ullage.scheduling.model.faults import Fault
from ullage.scheduling.times import HEARTBEAT_MAX_AGE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyGPUNode:
    """Write a GPUNode's whole ``spec`` (slice list and epoch); creates the object if needed.

    ``node_uid`` is the owner reference's; ``uid`` is the GPUNode's own, empty when it is new.
    """

    name: str
    uid: str
    node_uid: str
    epoch: int
    slices: tuple[DesiredSlice, ...]
    observations_read: str = ""
    """Id of the newest observation that the node need not report again."""
    lane_policy: IterationPolicy = IterationPolicy.FAIR
    """Order of steps in the node's lanes."""
    io_fairness: IoFairness = IoFairness.OBSERVE
    """Answer to containers that take too much of a volume."""
    retire: bool = False
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A node requested by a placeholder pod: labels of its pool, and needs of its members."""

    pool: str
    node_selector: tuple[tuple[str, str], ...]
    cpu_milli: int = 0
    memory_bytes: int = 0


Labels = tuple[tuple[str, str], ...]
"""Labels of a node, sorted by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorStart:
    """Parameters of a tiered job's coordinator that are not in its spec."""

    members: int
    """Initial number."""
    notice_s: float | None = None
    """The shortest notice that a pool declares; ``None`` = none declares any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatePod:
    """Create the gated pod of one rank of a TrainingJob, from its template of this hash."""

    owner: ObjectRef
    name: str
    rank: int
    template_hash: str
    world_size: int = 0
    """Members of its gang, where that may change; 0 = by the object."""
    bounds: tuple[int, int] | None = None
    """Minimum and maximum members of a gang in place."""
    order: Order | None = None
    """It is no member: it requests a node."""
    lead: CoordinatorStart | None = None
    """It is no member: it coordinates a job in tiers."""
    on: tuple[Labels, ...] = ()
    """It may run only on nodes with all labels of one of these; empty = on any."""
    hold: bool = False
    """Autoscalers must not remove its node to save cost."""
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateReservedPod(CreatePod):
    """Create the pod without a gate, pinned to the node that has reserved its slices."""

    reservation: str
    """Reservation that it takes."""
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletePod:
    """Delete one of our pods, only if it still has this uid."""

    pod: ObjectRef
    owner: ObjectRef
    at_once: bool = False
    """Its node does not answer: the object is deleted without grace period."""
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictPod:
    """Evict a pod through the Eviction API (honours budgets; SIGTERM, then the grace period)."""

    pod: ObjectRef
    owner: ObjectRef
    grace_s: int | None = None
    """Grace period of its containers, seconds; ``None`` = that of the pod."""
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UngatePod:
    """Remove our gate and pin the pod to its node, in one JSON patch."""

    pod: ObjectRef
    owner: ObjectRef
    node: str
    gate_index: int
    affinity: NodeAffinity
    labels: Labels = ()
    """Labels for the pod about its machine."""
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyService:
    """Apply the Service of a workload: headless for a gang, else the serving ports."""

    owner: ObjectRef
    name: str
    headless: bool
    lead: bool = False
    """It selects the coordinator of a job in tiers, not its members."""
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRoutedService(ApplyService):
    """Apply the Service of an InferenceDeployment so that it selects the router."""

    grpc_port: int = 0
    """Port of the Service for the router's gRPC; 0 = none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyDeployment:
    """Apply the gated Deployment of an InferenceDeployment."""

    owner: ObjectRef
    name: str
    replicas: int
    max_surge: int
    max_unavailable: int
    template_hash: str
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleWorkload:
    """Set the replicas of an InferenceDeployment, if it has not changed since it was read."""

    owner: ObjectRef
    resource_version: str
    replicas: int
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRouter:
    """Apply the Deployment that routes the requests of a service to its replicas."""

    owner: ObjectRef
    name: str
    image: str
    batching: Batching
    objective_ms: int
    """Default deadline of requests; for generative servers, of their first token."""
    version: str
    """Hash of all inputs of its pods but the service's own template."""
    epoch: int
    reason: Reason
    text: str
    inter_token_ms: int = 0
    """Time between tokens that a replica's requests allow; 0 = any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteChild:
    """Delete one of our obsolete Deployments or Services, only with this uid."""

    child: ObjectRef
    owner: ObjectRef
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteWorkload:
    """Delete a TrainingJob or ProfileRequest: its TTL expired, or a search goes on without it."""

    owner: ObjectRef
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTrial:
    """Create the TrainingJob that runs a trial of a TuningJob up to an epoch."""

    owner: ObjectRef
    """The TuningJob."""
    name: str
    trial: int
    until_epoch: int
    parameters: tuple[tuple[str, str], ...]
    """Text values, by name."""
    percent: int = 0
    """Share of a device, 100 for each whole one; 0 = that of its template."""
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTuningStatus:
    """Apply the whole status of a TuningJob, if it has not changed since it was read."""

    target: ObjectRef
    resource_version: str
    status: TuningStatus
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProfileRequestStatus:
    """Apply the whole status of a ProfileRequest, if it has not changed since it was read."""

    target: ObjectRef
    resource_version: str
    status: ProfileRequestStatus
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateProfileRequest:
    """Create the ProfileRequest that traces a job of the policy's sample."""

    owner: ObjectRef
    """The TrainingJob."""
    name: str
    steps: int
    ttl_s: int
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderTraces:
    """Apply the orders of step traces of a GPUNode, under a separate field manager.

    Slices and epoch stay: the orders of traces are nothing that decisions make.
    """

    node: ObjectRef
    orders: tuple[DesiredTrace, ...]
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStatus:
    """Apply the whole status of a workload."""

    owner: ObjectRef
    resource_version: str
    status: WorkloadStatus
    epoch: int
    reason: Reason
    text: str
    passing: bool = False
    """It is only a progress update, and the next is expected soon: it may be skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TellPod(SetStatus):
    """Apply the status of adopted pods to one of them, which is the owner in this action."""

    unit: str
    """uid of the workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetConditions:
    """Apply our conditions to an object that is no workload (policy, profile)."""

    target: ObjectRef
    generation: int
    conditions: tuple[Condition, ...]
    last_solve: SolveRecord | None = None
    """Of a SchedulingPolicy: part of the same apply, or the API would remove it."""
    reading: bool = False
    """For an unreadable object, under a separate field manager: the rest of its status stays, and
    none of these conditions removes the reported one."""
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetQuotaStatus:
    """Apply the quota usage of tenants to the status of the SchedulingPolicy.

    Under a separate field manager: conditions and division are unchanged.
    """

    target: ObjectRef
    status: QuotaStatus | None
    """``None`` = no tenant has quota any more."""
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateProfile:
    """Create the WorkloadProfile of a class; ``target`` has no uid yet."""

    target: ObjectRef
    workload_class: str
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetProfile:
    """Apply the whole status of a WorkloadProfile."""

    target: ObjectRef
    status: ProfileStatus
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDeviceProfile:
    """Create the DeviceProfile of an undeclared type; ``target`` has no uid yet.

    ``rates`` are those of the type if it is a known one.
    """

    target: ObjectRef
    memory_mib: int
    rates: DeviceRates | None = None
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDeviceModel:
    """Apply the learned values of a type of device to its DeviceProfile's status."""

    target: ObjectRef
    generation: int
    model: DeviceModel | None
    conditions: tuple[Condition, ...] = ()
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPoolStatus:
    """Apply the whole status of a CapacityPool."""

    target: ObjectRef
    status: PoolStatus
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaintNode:
    """Set our taint on a Node to ``value``, or remove it (empty); taints of others stay."""

    node: ObjectRef
    value: str
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterNode:
    """Label a Node as counted, so that it satisfies no node request."""

    node: ObjectRef
    epoch: int
    reason: Reason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit:
    """One Event on the user's own object; aggregated by (object, reason)."""

    target: ObjectRef
    warning: bool
    epoch: int
    reason: Reason
    text: str


Action = (
    ApplyGPUNode
    | CreatePod
    | DeletePod
    | EvictPod
    | UngatePod
    | ApplyService
    | ApplyDeployment
    | ScaleWorkload
    | ApplyRouter
    | DeleteChild
    | DeleteWorkload
    | SetStatus
    | SetConditions
    | SetQuotaStatus
    | CreateProfile
    | SetProfile
    | CreateDeviceProfile
    | SetDeviceModel
    | TaintNode
    | RegisterNode
    | SetPoolStatus
    | CreateTrial
    | SetTuningStatus
    | SetProfileRequestStatus
    | CreateProfileRequest
    | OrderTraces
    | Emit
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Desired state of the whole cluster.

    ``slices`` has the desired slices of every GPUNode (new ones included); ``steps`` the one-time
    actions on pods and children, each with its reason; ``wake_at`` the time of the next cycle
    without changes before (a timeout or a back-off), 0 = never.
    """

    version: int
    """Version of the snapshot it was made from."""
    epoch: int
    inputs_hash: str
    slices: Mapping[str, tuple[DesiredSlice, ...]] = field(default_factory=dict)
    steps: tuple[Action, ...] = ()
    observations_read: Mapping[str, str] = field(default_factory=dict)
    """Newest observation to acknowledge, by node, where due."""
    statuses: Mapping[str, WorkloadStatus] = field(default_factory=dict)
    """By workload uid, only changed statuses."""
    events: tuple[Emit, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Number of unusable observations in the snapshot, by reason."""
    requeues: Mapping[str, int] = field(default_factory=dict)
    """Number of workloads without a place, by the event that they wait for."""
    wake_at: float = 0.0
    faults: tuple[Fault, ...] = ()
    """Objects that were set aside, because decisions about them failed."""
    division_seconds: float = 0.0
    """Duration of dividing the cluster's time, recorded by the caller of the decision; 0 = not
    done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideSettings:
    """Inputs of a decision beside the snapshot: epoch, timeouts and back-offs."""

    epoch: int
    seed: int = 0
    reserve_timeout_s: float = 30.0
    schedule_timeout_s: float = 60.0
    start_timeout_s: float = 60.0
    backpressure_ended_at: float = 0.0
    """Time since which the API server keeps up and few of our writes are pending, seconds since the
    epoch: waits for nodes and pods start here at the earliest."""
    heartbeat_max_age_s: float = HEARTBEAT_MAX_AGE_S
    restart_backoff_s: float = 10.0
    restart_backoff_max_s: float = 300.0
    preemption_backoff_s: float = 10.0
    preemption_backoff_max_s: float = 300.0
    progress_period_s: float = 60.0
    reserve_first: bool = False
    """Slices of jobs are reserved before their pods exist."""
    pre_stop_sleep_s: int = 5
    aside: tuple[Fault, ...] = ()
    """Objects that are set aside from the beginning."""
    router_image: str = ""
    """Image and settings of services' routers; empty = services have none."""
    orders: bool = False
    """Nodes of pools are requested by placeholder pods, for an autoscaler to buy."""
