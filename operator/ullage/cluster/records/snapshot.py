# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator's knowledge of the cluster, as small immutable records.

Everything ``decide`` may look at stands here; raw JSON is projected to these records at once and
dropped. Times are seconds since the epoch, memory is bytes or MiB as the name says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from ullage.api.batching import Batching
from ullage.api.devices import ObservedDevice
from ullage.api.faults import DeviceFault
from ullage.api.gpurequest import GPURequest
from ullage.api.interruptions import Interruption as Interruption
from ullage.api.interruptions import InterruptionKind as InterruptionKind
from ullage.api.lanes import IterationPolicy
from ullage.api.observations import LatencyObjective, Observation
from ullage.api.reasons import Reason
from ullage.api.schedulingpolicy import FaultTerms, Knowledge, ReconsiderTerms, RiskSettings, Tenant
from ullage.api.sharing import OfferedLoad, SharingRules
from ullage.api.slices import DesiredSlice, ObservedSlice, SliceKey
from ullage.api.spot import SpotTerms
from ullage.api.trainingjob import CostAim, FailurePolicy
from ullage.cluster.records.metrics import EpochValue
from ullage.cluster.records.pod_rules import AlikePods, ClaimRecord, Labels, PodRules, PodTraits
from ullage.cluster.records.pod_shape import PodShape, Resources, Taint
from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.profile import DeviceProfileRecord as DeviceProfileRecord
from ullage.cluster.records.profile import ProfileRecord as ProfileRecord
from ullage.cluster.records.profile import SoloEntry as SoloEntry
from ullage.cluster.records.router import RouterLoad
from ullage.cluster.records.spec_fields import Elasticity, ReplicaBounds
from ullage.cluster.records.status import Condition, QuotaStatus, SolveRecord, WorkloadStatus
from ullage.cluster.records.tier import CoordinatorReport
from ullage.engines.admission.model import LearnedModel
from ullage.engines.allocation.policies import POLICIES

_NO_RULES = PodRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """Names one object of one kind."""

    kind: str
    namespace: str
    name: str
    uid: str


class PodStage(StrEnum):
    """Stage of a pod of ours; ``GATED`` by us, by others, or both."""

    GATED = "Gated"
    UNSCHEDULED = "Unscheduled"
    BOUND = "Bound"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    """It ended with exit code 0 before anything asked it to end."""
    STOPPED = "Stopped"
    """It ended with exit code 0 after its deletion or disruption began: its work may go on."""
    FAILED = "Failed"

    @property
    def finished(self) -> bool:
        """True when no process of the pod will run again."""
        return self in (PodStage.SUCCEEDED, PodStage.STOPPED, PodStage.FAILED)


_PLAIN_ENDS: Final = ("", "Error", "Completed")
"""Kubelet's words that say no more than the exit code."""


def end_text(code: int | None, reason: str, line: str) -> str:
    """The end of a container in words: exit code, kubelet's word for it, the last line."""
    status = "no exit code" if code is None else f"exit code {code}"
    word = f" ({reason})" if reason not in _PLAIN_ENDS else ""
    return f"{status}{word}" + (f": {line}" if line else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """A pod of ours (label ``ullage.dev/managed=true``).

    ``owner`` is the TrainingJob or InferenceDeployment named by our labels; its uid is empty when
    the pod belongs to a ReplicaSet, and ``ClusterState`` fills it from the name.
    ``stage_since`` is when this process first saw the stage.
    """

    uid: str
    namespace: str
    name: str
    owner: ObjectRef
    created: float
    stage: PodStage
    stage_since: float
    shape: PodShape
    rank: int = -1
    gates: tuple[str, ...] = ()
    node: str = ""
    ready: bool = False
    ready_since: float = 0.0
    """Time of the last change of ``ready``, seconds since the epoch; 0 = unknown."""
    deleting: bool = False
    priority: int = 0
    disrupted: bool = False
    """Condition ``DisruptionTarget``, lost to an admission race, or failed once it was deleted."""
    lost_race: bool = False
    """Failed at kubelet's admission (``UnexpectedAdmissionError``, ``OutOf*``)."""
    exit_code: int | None = None
    end_reason: str = ""
    """Kubelet's word for the end that ``exit_code`` is of, such as OOMKilled."""
    last_line: str = ""
    """The last line that a failed container left, in its termination message or log."""
    last_end: str = ""
    """End of the device container before kubelet started it again, in words."""
    container_restarts: int = 0
    """Restarts of the device container in this pod."""
    waiting_reason: str = ""
    waiting_message: str = ""
    scheduling_message: str = ""
    template_hash: str = ""
    order: str = ""
    """Pool that it orders a node of; such a pod is no member of its owner."""
    lead: bool = False
    """It leads a job in tiers; such a pod is no member of its owner."""
    address: str = ""
    """Address of a coordinator."""
    grace_s: int = 30
    """Seconds between SIGTERM and SIGKILL."""
    world_size: int = 0
    """Members of the elastic gang that it was made for; 0 = its gang is not elastic."""
    controlled: bool = False
    """A controller of others creates another one in its place, of an adopted pod."""
    controller: str = ""
    """uid of that controller."""
    report: tuple[EpochValue, ...] = ()
    """Report of the program by epoch, of a trial's pod that has ended."""
    labels: Labels = ()
    rules: PodRules | None = None
    """Demands on other pods, ports and volumes; ``None`` = none."""
    ended_at: float = 0.0
    """End of the last container of a pod that has ended, by its node's clock; 0 = unknown."""
    stop_asked: float = 0.0
    """Start of its deletion or disruption, by the API's clock, of a pod that has ended; 0 =
    never, or at a time that cannot be read."""

    @property
    def traits(self) -> PodTraits:
        """The part of the pod that rules of other pods look at."""
        rules = self.rules or _NO_RULES
        return PodTraits(
            namespace=self.namespace,
            labels=self.labels,
            anti_affinity=rules.anti_affinity,
            ports=rules.ports,
            claims=rules.claims,
            leaving=self.deleting,
            assumed=not self.node,
        )

    @property
    def stopped(self) -> bool:
        """True when others ended it, whatever its exit code."""
        return self.stage is PodStage.STOPPED or (self.stage is PodStage.FAILED and self.disrupted)

    @property
    def how_it_ended(self) -> str:
        """The end in words: exit code, kubelet's word for it, the last line."""
        return end_text(self.exit_code, self.end_reason, self.last_line)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignPod:
    """A pod with our label that no workload of ours created; nothing is ever done to it.

    Attributes:
        namespace: Its own.
        name: Its own.
        claims: The workload that it names, in its own namespace.
        why: Contradiction to the claim.
    """

    namespace: str
    name: str
    claims: ObjectRef
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A Kubernetes node."""

    name: str
    uid: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: Resources
    ready: bool
    unschedulable: bool = False
    managed: bool = False
    """Label ``ullage.dev/node=true``."""
    created: float = 0.0
    ready_since: float = 0.0
    """Time of the last change of ``ready``, seconds since the epoch; 0 = unknown."""
    deleting: bool = False
    interruption: Interruption | None = None
    """The notice that its taints give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUNodeRecord:
    """A GPUNode: desired slices (with what was assumed) and what the agent reports."""

    name: str
    uid: str
    epoch: int
    retire: bool
    desired: tuple[DesiredSlice, ...]
    devices: tuple[ObservedDevice, ...] = ()
    observed: tuple[ObservedSlice, ...] = ()
    heartbeat: float = 0.0
    """Last heartbeat of its agent: by our clock once we saw one come, by its own before; 0 =
    never."""
    conditions: tuple[Condition, ...] = ()
    slots: int = 0
    observations: tuple[Observation, ...] = ()
    """Recent observations of the node about classes of work, oldest first."""
    observations_read: str = ""
    """Id of the newest observation that was acknowledged to the node."""
    lane_policy: IterationPolicy = IterationPolicy.FAIR
    """Policy for the next step in its lanes, as its spec has it."""
    unreadable_observations: int = 0
    """Observations that could not be read; they cost nothing else of the record."""
    faults: tuple[DeviceFault, ...] = ()
    """Faults of its devices that the agent reports, oldest first."""
    interruption: Interruption | None = None
    """The provider's notice, as the agent reports it."""
    desired_since: Mapping[SliceKey, float] = field(default_factory=dict)
    """Time at which this process first saw (or assumed) each desired slice."""


class WorkloadKind(StrEnum):
    """The kinds that are placed."""

    TRAINING_JOB = "TrainingJob"
    INFERENCE_DEPLOYMENT = "InferenceDeployment"
    POD = "Pod"
    """Pods of other controllers that share devices by their labels: one, or a gang of them."""


def ended_in_wave(size: int, ended: Iterable[str], live: Collection[str]) -> int:
    """Pods of a gang that have ended well and count as its members still.

    A controller may run a gang again and again: pods of a controller none of whose pods lives
    belong to a run that is over, and as many pods as the gang counts are a whole wave.

    Args:
        size: Pods of the gang.
        ended: Controllers (uid) of its pods that ended well, one for each pod.
        live: Controllers of its pods that have not ended.
    """
    return sum(controller in live for controller in ended) % size


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedMember:
    """A pod that a workload of kind Pod consists of."""

    pod: ObjectRef
    told: bool
    """Its own status says what that of the workload says, or that it is one too many."""
    too_many: bool = False
    """The gang has all its pods without this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOf:
    """The trial that a TrainingJob runs, up to an epoch."""

    tuning_uid: str
    """uid of the TuningJob that controls it."""
    trial: int
    until_epoch: int
    parameters: tuple[tuple[str, str], ...] = ()
    """As texts, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRecord:
    """A TrainingJob, InferenceDeployment or adopted pods: spec, and the status that was read back.

    Fields that only one kind has keep their neutral value on the other. The pod template itself
    is not here (``ClusterState`` keeps it for the writer); ``template_hash`` names it.
    """

    ref: ObjectRef
    kind: WorkloadKind
    generation: int
    resource_version: str
    created: float
    deleting: bool
    shape: PodShape
    template_hash: str
    replicas: int = 1
    """Members; of an elastic job as many as are wanted now."""
    elasticity: Elasticity | None = None
    gpu: GPURequest = field(default_factory=GPURequest)
    accelerators: tuple[str, ...] = ()
    mixed_accelerators: bool = False
    """A gang may be on devices of several types."""
    trust_domain: str
    profile_ref: str = ""
    weight: int = 1
    """Part of the cluster's time against others of its tenant."""
    tenant: str = ""
    """Party that its time is booked to."""
    priority: int = 0
    """From the template's ``priority`` if it states one, else 0; pods know the real one."""
    suspend: bool = False
    max_slowdown: float | None = None
    min_throughput: float | None = None
    """Least steps per second of each member."""
    slo: LatencyObjective | None = None
    batching: Batching | None = None
    """The router before the replicas of a service."""
    load: OfferedLoad | None = None
    scaling: ReplicaBounds | None = None
    """Bounds of a service whose replicas follow its objective; ``None`` = others scale it."""
    sharing: SharingRules = field(default_factory=SharingRules)
    workload_class: str = ""
    """Key of its class of work."""
    family: str = ""
    """Model family of the class."""
    work_steps: int = 0
    cost: CostAim | None = None
    checkpoint: bool = False
    failure: FailurePolicy = field(default_factory=FailurePolicy)
    ttl_seconds_after_finished: int | None = None
    has_port: bool = True
    """The device container names a port (needed by an InferenceDeployment)."""
    invalid: str = ""
    """Error of the object's newest generation; the rest is the last good record."""
    aside: bool = False
    """It is set aside: nothing is decided about it, and what it holds stays."""
    status: WorkloadStatus = field(default_factory=WorkloadStatus)
    trial: TrialOf | None = None
    """The trial that it runs, of a TrainingJob that a TuningJob created."""
    adopted: tuple[AdoptedMember, ...] = ()
    """Pods that it consists of, of kind Pod: its status stands in each of them."""

    @property
    def is_gang(self) -> bool:
        """True when its members get their devices together or not at all."""
        return self.kind is not WorkloadKind.INFERENCE_DEPLOYMENT

    @property
    def may_sleep(self) -> bool:
        """True when the operator may leave the service without a replica."""
        return self.scaling is not None and not self.scaling.min_replicas

    @property
    def in_place(self) -> bool:
        """True when members come and go while the others run on."""
        return self.elasticity is not None and self.elasticity.in_place


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
    """It leads to a router, not to the pods of its owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRecord:
    """A SchedulingPolicy; the one named ``default`` binds, without it these defaults do."""

    name: str = "default"
    uid: str = ""
    generation: int = 0
    objective: str = "FIFO"
    """A word of ``POLICIES``."""
    max_percent_sum: int = 100
    lane_policy: IterationPolicy = IterationPolicy.FAIR
    """Policy for the next step in a lane."""
    round_seconds: int = 360
    gang_skip_limit: int = 1
    min_service_percent: int = 10
    """Floor under the objectives that weigh cost, percent of a proportional part."""
    risk: RiskSettings = field(default_factory=RiskSettings)
    faults: FaultTerms = field(default_factory=FaultTerms)
    spot: SpotTerms = field(default_factory=SpotTerms)
    reconsider: ReconsiderTerms = field(default_factory=ReconsiderTerms)
    tenants: tuple[Tenant, ...] = ()
    """Parties by name; empty = jobs share the cluster directly."""
    trust_domains: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Namespaces that may share devices across their borders, by name of the trust domain."""
    knowledge: Knowledge = field(default_factory=Knowledge)
    """Namespaces that learn from one another."""
    last_solve: SolveRecord | None = None
    """The division in force, from the status."""
    quota_status: QuotaStatus | None = None
    """Use of quota by tenants, from the status."""
    conditions: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        if self.objective not in POLICIES:
            raise ValueError(f"objective {self.objective!r} is none of {', '.join(POLICIES)}")

    def rules(self) -> PolicyRecord:
        """The policy without its status, which changes all the time."""
        return replace(self, last_solve=None, quota_status=None, conditions=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """An object of ours, no workload, whose newest version cannot be read: the last good stands.

    ``text`` says what is wrong and where, empty where the object can be read again and still bears
    the condition ``told``.
    """

    ref: ObjectRef
    generation: int
    text: str
    told: Condition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedWrite:
    """Refusal of an object by the API: a reason of ours, and the API's own words."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One immutable snapshot of the cluster, observed and assumed.

    Pods that were asked for but not yet seen stand in ``creating`` as (namespace, name); pods
    whose ungating was sent but not yet seen have no gate any more; deleted ones are ``deleting``.
    """

    version: int
    taken_at: float
    nodes: Mapping[str, NodeRecord] = field(default_factory=dict)
    gpu_nodes: Mapping[str, GPUNodeRecord] = field(default_factory=dict)
    pods: Mapping[str, PodRecord] = field(default_factory=dict)
    foreign_use: Mapping[str, Resources] = field(default_factory=dict)
    """Requests of foreign bound pods, by node."""
    slot_holders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Some of other people's bound pods that hold device slots, by node."""
    pods_around: Mapping[str, tuple[AlikePods, ...]] = field(default_factory=dict)
    """Other people's bound pods by node; while no pod of ours has rules about others, only those
    that keep others away."""
    namespaces: Mapping[str, Labels] = field(default_factory=dict)
    """Labels of namespaces, while rules look at any pods."""
    claims: Mapping[tuple[str, str], ClaimRecord] = field(default_factory=dict)
    """PersistentVolumeClaims that pods of ours use, by namespace and name."""
    workloads: Mapping[str, WorkloadRecord] = field(default_factory=dict)
    deployments: Mapping[tuple[str, str], DeploymentRecord] = field(default_factory=dict)
    services: Mapping[tuple[str, str], ServiceRecord] = field(default_factory=dict)
    profiles: Mapping[tuple[str, str], ProfileRecord] = field(default_factory=dict)
    device_profiles: Mapping[str, DeviceProfileRecord] = field(default_factory=dict)
    pools: Mapping[str, PoolRecord] = field(default_factory=dict)
    """CapacityPools by name, with what is known of them now."""
    leads: Mapping[str, CoordinatorReport] = field(default_factory=dict)
    """Reports of coordinators, by uid of the job."""
    routers: Mapping[str, RouterLoad] = field(default_factory=dict)
    """Loads by routers of services that may have no replica, by uid of the service."""
    router_faults: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Reason why a router does not run, by namespace and name of its service."""
    models: Mapping[str, LearnedModel] = field(default_factory=dict)
    """Learned model of each accelerator; one that is missing has no history."""
    policy: PolicyRecord = field(default_factory=PolicyRecord)
    idle_policies: tuple[PolicyRecord, ...] = ()
    """SchedulingPolicies that bind nothing, because of their name; sorted by it."""
    unread: tuple[Unread, ...] = ()
    """Policies, profiles and pools that cannot be read, or could not."""
    creating: frozenset[tuple[str, str]] = frozenset()
    refused_writes: Mapping[tuple[str, str, str], RefusedWrite] = field(default_factory=dict)
    """Writes that the API refused and that wait for another try, by (kind, namespace, name)."""
    node_refusals: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)
    """Times at which this process saw a node refuse a slice, by uid of the pod and device."""
    refused_starts: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)
    """The same by namespace and name of the pod, whichever pod bore it."""
