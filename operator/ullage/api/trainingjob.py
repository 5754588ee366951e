# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""TrainingJob: a gang of pods that trains until it is done, on shared or whole devices."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from ullage.api.base import (
    AGE,
    SET,
    Column,
    KindInfo,
    Model,
    ObjectName,
    Resource,
    condition_column,
)
from ullage.api.cost import Cost
from ullage.api.elasticity import Elasticity, Members
from ullage.api.gpurequest import Accelerators, GPURequest, TrustDomain
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
from ullage.api.runtime import Runtime
from ullage.api.sharing import SharingRules


class TrainingObjective(Model):
    """The performance that the job keeps while it shares devices."""

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
    """Maximum slowdown of a step against running alone on the whole device, as a quoted decimal
    number: "1.3" allows 30 % more time. Neighbours that would break it are not admitted."""
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
    """Minimum steps per second of each member, as a quoted decimal number; replaces maxSlowdown.
    It needs a measured or declared speed alone on the device."""


class Work(Model):
    """How much there is to do."""

    steps: Annotated[int, Field(ge=1, le=10**12)]
    """Steps of the whole training, at most 10^12. Progress in percent and the estimated end are
    derived from it."""


class CheckpointSignal(StrEnum):
    """Signals that ask a process to save its state."""

    SIGTERM = "SIGTERM"


class Checkpoint(Model):
    """The job saves its state on a signal, so it may be interrupted."""

    signal: CheckpointSignal = CheckpointSignal.SIGTERM
    """Signal that requests a checkpoint."""
    grace_seconds: Annotated[int, Field(ge=1, le=3600, json_schema_extra={"format": "int32"})] = 30
    """Seconds between the signal and the kill; the pods' termination grace is at least this."""


class FailurePolicy(Model):
    """When a failed gang starts again."""

    max_restarts: Annotated[int, Field(ge=0, le=1000, json_schema_extra={"format": "int32"})] = 3
    """How often the gang restarts after a member failed. Evictions, lost nodes and lost races do
    not count, and neither do failures that a lost node explains within 90 s."""
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
    """Template of the pods. The first container gets the device. A change takes effect when the
    gang starts next."""
    replicas: Members | None = None
    """Members of the gang, one pod each with a stable rank; all start or none. Defaults to 1. May
    change only while the job is suspended."""
    elasticity: Elasticity | None = None
    """Replaces replicas: bounds within which the number of members follows the available room, by
    restarts at a checkpoint. The bounds may change only while the job is suspended."""
    suspend: bool = False
    """Stops the job and releases its devices; false lets it run again."""
    gpu: GPURequest = GPURequest()
    """Devices of each member. May change only while the job is suspended; share and memory at any
    time where `sharing.resizable` is `Restart`."""
    accelerators: Accelerators = ()
    """Accepted accelerator types, by key such as nvidia-h100-80gb-hbm3; empty means any. May change
    only while the job is suspended."""
    slo: TrainingObjective | None = None
    """Performance objective under sharing; it protects the job's slices."""
    sharing: SharingRules = SharingRules()
    """What sharing may do to the job and to its neighbours."""
    work: Work | None = None
    """How much there is to do, for progress and estimated end."""
    cost: Cost | None = None
    """Goal that the accelerator is chosen by; status.recommendation shows the result."""
    runtime: Runtime = Runtime()
    """What Ullage adds inside the container. A change takes effect when the gang starts next."""
    checkpoint: Checkpoint | None = None
    """The job checkpoints on request; only such jobs are preempted for others."""
    failure_policy: FailurePolicy = FailurePolicy()
    """When a failed gang starts again."""
    ttl_seconds_after_finished: (
        Annotated[int, Field(ge=0, le=2**31 - 1, json_schema_extra={"format": "int32"})] | None
    ) = None
    """Seconds after which the finished job is deleted with its pods; absent keeps it."""
    trust_domain: TrustDomain | None = None
    """Workloads share a device only within one trust domain. Defaults to this namespace. A named
    domain must be granted to this namespace by `trustDomains` of the SchedulingPolicy."""
    profile_ref: ObjectName | None = None
    """WorkloadProfile in this namespace that states how the job uses a device."""
    weight: Annotated[int, Field(ge=1, le=1000, json_schema_extra={"format": "int32"})] = 1
    """Weight against other jobs of the tenant when the cluster's time is divided; it has no effect
    under the objective FIFO."""
    tenant: ObjectName | None = None
    """Tenant that the job's time is charged to, by its name in SchedulingPolicy.spec.tenants."""


class TrainingJob(Resource):
    """A training job: a gang of pods that runs to its end on shared or whole devices.

    Say what each member needs in `gpu` and what sharing must not cost in `slo`; the operator finds
    devices, predicts the slowdown before it admits, and explains itself in `status.decision`.
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
