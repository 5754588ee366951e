# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""TrainingJob: a gang of pods that trains until it is done, on shared or whole devices."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from ullage.api.allocation import Allocation
from ullage.api.base import (
    AGE,
    SET,
    AnyName,
    Column,
    Count,
    DecimalText,
    KindInfo,
    LongCount,
    Model,
    ObjectName,
    Resource,
    Time,
    Word,
    condition_column,
)
from ullage.api.conditions import Conditions
from ullage.api.cost import Cost, Recommendations
from ullage.api.elasticity import Elasticity, Members, Size
from ullage.api.gpurequest import Accelerators, GPURequest, TrustDomain
from ullage.api.placement import Decision, Placements, Scheduling, Sharing
from ullage.api.podtemplate import TrainingTemplate
from ullage.api.rules import (
    COST_NEEDS_WORK,
    DEADLINE_NEEDS_CHECKPOINT,
    ELASTICITY_NEEDS_CHECKPOINT,
    ELASTICITY_OR_REPLICAS,
    FROZEN_ACCELERATORS,
    FROZEN_ELASTICITY,
    FROZEN_GPU,
    FROZEN_REPLICAS,
    ONE_OBJECTIVE,
    RESIZE_NEEDS_CHECKPOINT,
    SLOWDOWN_AT_LEAST_ONE,
    THROUGHPUT_POSITIVE,
    WORKLOAD_NAME,
    validations,
)
from ullage.api.sharing import MadeRoom, SharingRules
from ullage.api.spend import Spend
from ullage.api.tiers import Tier


class TrainingObjective(Model):
    """What the job must not lose by sharing."""

    model_config = ConfigDict(json_schema_extra=validations(ONE_OBJECTIVE))

    max_slowdown: (
        Annotated[
            str,
            Field(
                max_length=16,
                pattern=r"^[0-9]{1,4}(\.[0-9]{1,4})?$",
                json_schema_extra=validations(SLOWDOWN_AT_LEAST_ONE),
            ),
        ]
        | None
    ) = None
    """Most that a step may be slower than alone on the whole device, as a quoted decimal number:
    "1.3" allows 30 % more time. Neighbours that would break it are not admitted."""
    min_throughput: (
        Annotated[
            str,
            Field(
                max_length=16,
                pattern=r"^[0-9]{1,9}(\.[0-9]{1,6})?$",
                json_schema_extra=validations(THROUGHPUT_POSITIVE),
            ),
        ]
        | None
    ) = None
    """Least steps per second of each member, as a quoted decimal number; instead of maxSlowdown.
    It needs a measured or declared speed alone on the device."""


class Work(Model):
    """How much there is to do."""

    steps: Annotated[int, Field(ge=1, le=10**12)]
    """Steps of the whole training, at most 10^12; gives progress in percent and the time of the
    end."""


class CheckpointSignal(StrEnum):
    """Signals that ask a process to save its state."""

    SIGTERM = "SIGTERM"


class Checkpoint(Model):
    """The job saves its state when asked, so it may be interrupted."""

    signal: CheckpointSignal = CheckpointSignal.SIGTERM
    """Signal that asks for a checkpoint."""
    grace_seconds: Annotated[int, Field(ge=1, le=3600, json_schema_extra={"format": "int32"})] = 30
    """Seconds between the signal and the kill; the pods' termination grace is at least this."""


class FailurePolicy(Model):
    """When a failed gang starts again."""

    max_restarts: Annotated[int, Field(ge=0, le=1000, json_schema_extra={"format": "int32"})] = 3
    """How often the gang restarts after a member failed. Evictions, lost nodes and lost races do
    not count, nor failures that a lost node explains within 90 s."""
    retry_exit_codes: Annotated[
        tuple[Annotated[int, Field(ge=1, le=255, json_schema_extra={"format": "int32"})], ...],
        Field(max_length=64, json_schema_extra=SET),
    ] = ()
    """Exit codes that restart the gang; empty means every code."""


class TrainingJobSpec(Model):
    """What to train, and on what."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            FROZEN_REPLICAS,
            FROZEN_ELASTICITY,
            ELASTICITY_OR_REPLICAS,
            ELASTICITY_NEEDS_CHECKPOINT,
            FROZEN_GPU,
            FROZEN_ACCELERATORS,
            RESIZE_NEEDS_CHECKPOINT,
            COST_NEEDS_WORK,
            DEADLINE_NEEDS_CHECKPOINT,
        )
    )

    template: TrainingTemplate
    """Template of the pods. The first container gets the device. A change takes effect at the
    next start of the gang."""
    replicas: Members | None = None
    """Members of the gang, one pod each with a stable rank; all start or none. Absent = 1. Changes
    only while suspended."""
    elasticity: Elasticity | None = None
    """Instead of replicas: bounds within which the number of members follows the room that there
    is, by restarts at a checkpoint. The bounds change only while suspended."""
    suspend: bool = False
    """Stop the job and give its devices back; false lets it run again."""
    gpu: GPURequest = GPURequest()
    """Devices of each member. Changes only while suspended; share and memory at any time where
    `sharing.resizable` is `Restart`."""
    accelerators: Accelerators = ()
    """Accelerator types that will do, by key such as nvidia-h100-80gb-hbm3; empty means any.
    Changes only while suspended."""
    slo: TrainingObjective | None = None
    """What sharing must not cost; with it the job's slices are protected."""
    sharing: SharingRules = SharingRules()
    """What sharing may do to the job and to its neighbours."""
    work: Work | None = None
    """How much there is to do, for progress and estimated end."""
    cost: Cost | None = None
    """What the accelerator is chosen for; status.recommendation says what follows from it."""
    checkpoint: Checkpoint | None = None
    """The job checkpoints when asked; only such jobs are preempted for others."""
    failure_policy: FailurePolicy = FailurePolicy()
    """When a failed gang starts again."""
    ttl_seconds_after_finished: (
        Annotated[int, Field(ge=0, le=2**31 - 1, json_schema_extra={"format": "int32"})] | None
    ) = None
    """Seconds after which the finished job is deleted with its pods; absent keeps it."""
    trust_domain: TrustDomain | None = None
    """Workloads share a device only within one trust domain; absent means this namespace. A named
    one must be granted to this namespace by `trustDomains` of the SchedulingPolicy."""
    profile_ref: ObjectName | None = None
    """WorkloadProfile in this namespace that states how the job uses a device."""
    weight: Annotated[int, Field(ge=1, le=1000, json_schema_extra={"format": "int32"})] = 1
    """Part of the cluster's time against other jobs of the tenant; where the SchedulingPolicy's
    objective is not FIFO."""
    tenant: ObjectName | None = None
    """Party that the job's time is booked to, as SchedulingPolicy.spec.tenants names it."""


class TrainingJobPhase(StrEnum):
    """Where a TrainingJob is in its life."""

    PENDING = "Pending"
    RESERVING = "Reserving"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Progress(Model):
    """How far the slowest member is, by its own step records."""

    steps: LongCount
    """Steps done by all starts; of a job that does not say where it resumes, by the present one."""
    resumed_at_step: LongCount | None = None
    """Step of the checkpoint that the present start went on from, as the job says; absent = its
    steps count from 0."""
    total: LongCount | None = None
    """Steps of the whole training, from spec.work."""
    percent: Annotated[int, Field(ge=0, le=100, json_schema_extra={"format": "int32"})] | None = (
        None
    )
    """Part done, in percent."""
    expected_percent: (
        Annotated[int, Field(ge=0, le=100, json_schema_extra={"format": "int32"})] | None
    ) = None
    """Part that should be done by then on the straight line from the creation to the deadline; a
    job behind it leaves spot. Absent = there is no deadline."""
    steps_per_second: DecimalText | None = None
    """Recent speed."""
    eta: Time | None = None
    """When the training will end at this speed; absent where that is after the year 9999."""


class LastFailure(Model):
    """A failure that was counted; it is given back when a node of the others turns out lost."""

    time: Time
    """When it was counted."""
    count: Count
    """How many of the restarts it stands for: failures within 90 s of each other are one."""
    nodes: Annotated[tuple[AnyName, ...], Field(max_length=256, json_schema_extra=SET)] = ()
    """Nodes of the members that did not fail."""


class TrainingJobStatus(Model):
    """What the operator has observed and decided."""

    observed_generation: LongCount | None = None
    """Generation of the spec that this status speaks of."""
    phase: TrainingJobPhase | None = None
    """Where the job is in its life."""
    restarts: Count | None = None
    """How often the gang restarted after a failure."""
    retry_at: Time | None = None
    """Earliest time of the next start while the job backs off, after a failure or a preemption; of
    a gang in place, when the next member may join."""
    last_failure: LastFailure | None = None
    """The last failure that was counted while other members stood on nodes that were well."""
    nodes: Annotated[str, Field(max_length=32768)] | None = None
    """Nodes in use, separated by commas."""
    gpus: Count | None = None
    """Devices in use; a share counts as one."""
    replicas: Count | None = None
    """Members of an elastic gang: as many as run, or as are wanted at its next start."""
    size: Size | None = None
    """Why an elastic gang has as many members as it has."""
    tier: Tier | None = None
    """Where a job in tiers stands."""
    start_time: Time | None = None
    """When the gang first ran."""
    completion_time: Time | None = None
    """When the job ended."""
    placement: Placements = ()
    """Where each member stands."""
    decision: Decision | None = None
    """Why the job is where it is, or why it waits."""
    scheduling: Scheduling | None = None
    """What the operator remembers of placing it."""
    progress: Progress | None = None
    """How far the training is."""
    allocation: Allocation | None = None
    """Its part of the cluster's time; absent under FIFO."""
    recommendation: Recommendations = ()
    """Accelerators for the job, the one to take first; with spec.cost."""
    recommendation_basis: Word | None = None
    """Digest of what the recommendation rests on."""
    spend: Spend | None = None
    """Which pools it may be placed in, why, and what it spends."""
    made_room: MadeRoom | None = None
    """The last time that it was restarted with a smaller share so that another fits."""
    sharing: Sharing | None = None
    """Share and slowdown of the slowest member."""
    template_hash: Word | None = None
    """Which version of the template runs."""
    conditions: Conditions = ()
    """Admitted, Placed, Ready, Enforced, SLOMet, Finished and Invalid."""


class TrainingJob(Resource):
    """A training job: a gang of pods that runs to its end on shared or whole devices.

    Say what each member needs in `gpu` and what sharing must not cost in `slo`; the operator finds
    devices, predicts the slowdown before it admits, and tells in `status.decision` why.
    """

    model_config = ConfigDict(json_schema_extra=validations(WORKLOAD_NAME))
    info: ClassVar[KindInfo] = KindInfo(
        plural="trainingjobs",
        singular="trainingjob",
        short_name="tj",
        namespaced=True,
        columns=(
            Column(name="Phase", path=".status.phase", description="Where the job is."),
            condition_column("SLO", "SLOMet", "Whether the objective is kept."),
            Column(
                name="Predicted",
                path=".status.sharing.predicted",
                description="Predicted slowdown of the slowest member.",
            ),
            Column(
                name="Observed",
                path=".status.sharing.observed",
                description="Observed slowdown of the slowest member.",
            ),
            Column(name="GPUs", path=".status.gpus", type="integer", description="Devices in use."),
            Column(
                name="Progress",
                path=".status.progress.percent",
                type="integer",
                description="Part of the training that is done, in percent.",
            ),
            Column(name="Cost", path=".status.spend.total", description="Spent so far."),
            AGE,
            Column(
                name="Reason",
                path=".status.decision.reason",
                description="What binds, or why it runs where it does.",
                wide=True,
            ),
            Column(name="Nodes", path=".status.nodes", description="Nodes in use.", wide=True),
            Column(
                name="Share",
                path=".status.sharing.percent",
                type="integer",
                description="Granted percent of the device.",
                wide=True,
            ),
            Column(
                name="Completion",
                path=".status.completionTime",
                type="date",
                description="Time since the job ended.",
                wide=True,
            ),
        ),
    )

    kind: Literal["TrainingJob"] = "TrainingJob"
    """Kind of the object."""
    spec: TrainingJobSpec
    """What to train, and on what."""
    status: TrainingJobStatus | None = None
    """What the operator has observed and decided."""
