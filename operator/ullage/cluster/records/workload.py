# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Workloads: TrainingJobs, InferenceDeployments and pods of other controllers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from ullage.api.batching import Batching
from ullage.api.gpurequest import GPURequest
from ullage.api.observations import LatencyObjective
from ullage.api.rebalancing import StragglerPolicy
from ullage.api.sharing import OfferedLoad, SharingRules
from ullage.api.trainingjob import CostAim, FailurePolicy
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod_shape import PodShape
from ullage.cluster.records.spec_fields import Elasticity, ReplicaBounds
from ullage.cluster.records.status import WorkloadStatus


class WorkloadKind(StrEnum):
    """The kinds that need placement."""

    TRAINING_JOB = "TrainingJob"
    INFERENCE_DEPLOYMENT = "InferenceDeployment"
    POD = "Pod"
    """Pods of other controllers that share devices by their labels: one, or a gang of them."""


def ended_in_wave(size: int, ended: Iterable[str], live: Collection[str]) -> int:
    """Succeeded pods of a gang that still count as its members.

    A controller may run a gang repeatedly: pods of a controller without a living pod belong to a
    finished run, and as many pods as the gang's size are a complete wave.

    Args:
        size: Number of pods of the gang.
        ended: Controllers (uid) of its succeeded pods, one per pod.
        live: Controllers of its pods that have not ended.
    """
    return sum(controller in live for controller in ended) % size


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedMember:
    """A pod of a workload of kind Pod."""

    pod: ObjectRef
    is_current: bool
    """Its own status equals that of the workload, or marks it as surplus."""
    too_many: bool = False
    """The gang is complete without this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOf:
    """The trial that a TrainingJob runs, up to an epoch."""

    tuning_uid: str
    """uid of the TuningJob that controls it."""
    trial: int
    until_epoch: int
    parameters: tuple[tuple[str, str], ...] = ()
    """Text values, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRecord:
    """A TrainingJob, InferenceDeployment or adopted pods: spec, and the status read back.

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
    """Number of members; the desired number of an elastic job."""
    elasticity: Elasticity | None = None
    gpu: GPURequest = field(default_factory=GPURequest)
    accelerators: tuple[str, ...] = ()
    mixed_accelerators: bool = False
    """A gang may be on devices of several types."""
    trust_domain: str
    profile_ref: str = ""
    weight: int = 1
    """Weight of its time against other jobs of its tenant."""
    tenant: str = ""
    """Party that its time is booked to."""
    priority: int = 0
    """From the template's ``priority`` if declared, else 0; pods have the real one."""
    plain: bool = False
    """Its template has nothing that other controllers or other pods have a say in, so that its pods
    may be created in their place."""
    suspend: bool = False
    max_slowdown: float | None = None
    min_throughput: float | None = None
    """Minimum steps per second of each member."""
    slo: LatencyObjective | None = None
    batching: Batching | None = None
    """The router before the replicas of a service."""
    load: OfferedLoad | None = None
    scaling: ReplicaBounds | None = None
    """Bounds of a service whose replicas follow its objective; ``None`` = not scaled by us."""
    sharing: SharingRules = field(default_factory=SharingRules)
    workload_class: str = ""
    """Key of its class of work."""
    family: str = ""
    """Model family of the class."""
    work_steps: int = 0
    cost: CostAim | None = None
    checkpoint: bool = False
    inject: bool | None = None
    """Choice of the step hook by a label of an adopted pod; ``None`` = none."""
    stragglers: StragglerPolicy | None = None
    """Policy for slow ranks; ``None`` = of a kind that has none, or of an adopted pod without."""
    replace_after_s: float | None = None
    """Time for which a rank is slow until its member is replaced; ``None`` = never."""
    failure: FailurePolicy = field(default_factory=FailurePolicy)
    ttl_seconds_after_finished: int | None = None
    has_port: bool = True
    """The device container names a port (needed by an InferenceDeployment)."""
    invalid: str = ""
    """Error of the object's newest generation; the rest is the last good record."""
    aside: bool = False
    """It is set aside: nothing is decided about it, and its slices stay."""
    status: WorkloadStatus = field(default_factory=WorkloadStatus)
    trial: TrialOf | None = None
    """The trial that it runs, of a TrainingJob that a TuningJob created."""
    adopted: tuple[AdoptedMember, ...] = ()
    """Its pods, of kind Pod: its status is stored in each of them."""

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
        """True when members join and leave while the others keep running."""
        return self.elasticity is not None and self.elasticity.in_place
