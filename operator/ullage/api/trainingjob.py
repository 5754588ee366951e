# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""TrainingJob: a gang of pods that trains until it is done, on shared or whole devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar, Final, Literal

from pydantic import ConfigDict, Field, PlainSerializer

from ullage.api.base import AGE, Column, KindInfo, ObjectName, Resource, condition_column
from ullage.api.dataio import MOST_WORKERS
from ullage.api.gpurequest import Accelerators, GPURequest, TrustDomain
from ullage.api.podtemplate import Runtime, TrainingTemplate
from ullage.api.readers import JsonObject
from ullage.api.rebalancing import StragglerPolicy
from ullage.api.rules import (
    BUDGET_WITH_OBJECTIVE,
    COST_NEEDS_WORK,
    COST_SAYS_SOMETHING,
    DEADLINE_HOLDS_WORK,
    DEADLINE_NEEDS_CHECKPOINT,
    DEADLINE_NEEDS_FALLBACK,
    DEADLINE_POSITIVE,
    DEADLINE_WITH_OBJECTIVE,
    DECIMAL_NOT_NEGATIVE,
    DELAY_COST_NEEDS_ELASTICITY,
    DELAY_COST_OBJECTIVE,
    DIRTY_POSITIVE,
    ELASTICITY_NEEDS_CHECKPOINT,
    ELASTICITY_OR_REPLICAS,
    ELASTICITY_ORDER,
    ESTIMATED_WORK_POSITIVE,
    FLUSH_NEEDS_TIERS,
    FROZEN_ACCELERATORS,
    FROZEN_ELASTICITY,
    FROZEN_GPU,
    FROZEN_REPLICAS,
    LAG_COVERS_PUSHES,
    MAX_TIME_POSITIVE,
    MEMBERSHIP_NEEDS_BOUNDS,
    ONE_OBJECTIVE,
    PACKING_NEEDS,
    RELIABLE_WITHIN_BOUNDS,
    REPLACE_AFTER_A_MINUTE,
    RESIZE_NEEDS_CHECKPOINT,
    SLOWDOWN_AT_LEAST_ONE,
    STATE_POSITIVE,
    THROUGHPUT_POSITIVE,
    TIERS_NEED_BACKUP,
    TIERS_NEED_BOUNDS,
    TIERS_NEED_RELIABLE,
    WORKLOAD_NAME,
    validations,
)
from ullage.api.scalars import decimal_number, duration, memory
from ullage.api.sharing import SharingRules
from ullage.api.spec import (
    SAYS_NOTHING,
    Elsewhere,
    ReadApart,
    Spec,
    SpecReader,
    Switch,
    Whole,
    is_word,
    listed,
    word_of,
)
from ullage.api.wire_fields import INT32_MAX
from ullage.api.words import CostObjective, Membership, OnNotice, Tiers

Steps = Annotated[int, Whole(1, 100_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierTerms(Spec):
    """The copy of the state that the lead keeps in memory."""

    rules: ClassVar = (LAG_COVERS_PUSHES,)

    every_steps: Steps = 1
    """The owners push what they own every so many steps."""
    max_lag_steps: Steps = 2
    """Most steps that the job may be ahead of the copy, which is the most that a loss costs."""
    state_bytes: Annotated[int, memory(STATE_POSITIVE, unit=1)]
    """Largest size of the state, such as 6Gi. The lead asks for twice that memory: it holds a whole
    copy, and the one that arrives."""
    dirty_bytes: Annotated[
        int, memory(DIRTY_POSITIVE, unit=1), Field(alias="dirtyBytesPerStep")
    ] = 0
    """How much of the state a step changes; absent = all of it."""
    shards: Annotated[int, Whole(1, 4096)] = 64
    """Pieces that the state is cut into, at least as many as there are members; the program finds
    the number in ULLAGE_SHARDS."""
    silence_s: Annotated[int, Whole(2, 600), Field(alias="silenceSeconds")] = 10
    """A member that the coordinator has not heard for so long counts as lost, and others take over
    what it owned. A killed process is noticed at once, so this is for machines that vanish and
    programs that hang. Members report every half second; a guard may pause one for ten seconds."""
    reliable: Annotated[int, Elsewhere(held=1)] = 1
    """Members, of the lowest ranks, on machines that are not taken away: ``reliableReplicas``."""
    stage: Annotated[int, Elsewhere(held=0)] = 0
    """1 to 3 where ``tiers`` fixes it; 0 = by the ratio of members."""


MOST_REPLICAS: Final = 4096

Members = Annotated[int, Whole(1, MOST_REPLICAS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticitySpec(Spec):
    """Bounds of a gang that may change its size at a checkpoint."""

    rules: ClassVar = (
        ELASTICITY_ORDER,
        MEMBERSHIP_NEEDS_BOUNDS,
        TIERS_NEED_BOUNDS,
        TIERS_NEED_RELIABLE,
        RELIABLE_WITHIN_BOUNDS,
        TIERS_NEED_BACKUP,
        FLUSH_NEEDS_TIERS,
    )

    min_replicas: Members
    """Minimum members that the job can train with; it waits until there is room for them."""
    max_replicas: Members
    """Maximum members; the job takes as many as there is room for, and grows when room lasts."""
    on_notice: OnNotice = OnNotice.CHECKPOINT
    """When a machine will be taken away. `Checkpoint`: the job saves its state at once and goes on
    without that machine; `Ignore`: it runs on until the machine is gone; `Flush`, in tiers: the
    member on that machine hands over what it has, and no step is lost; the job is not started where
    noticeSeconds of its CapacityPools is too short for that."""
    in_place: Annotated[
        bool, is_word(Membership.IN_PLACE, Membership.RESTART), Field(alias="membership")
    ] = False
    """How members come and go. `Restart`: another number of them comes by a restart of all at a
    checkpoint; `InPlace`: the program itself goes on when a member is lost and when one joins
    (elastic torchrun; JAX only with code of its own), so the others' pods are never stopped for it.
    In tiers it is always so."""
    reliable_replicas: Annotated[int, Whole(0, MOST_REPLICAS)] = 0
    """In tiers: so many members, those of the lowest ranks, run on machines of CapacityPools that
    are not taken away (OnDemand, Reserved), where there are such pools."""
    tiers: Tiers = Tiers.DISABLED
    """Members own the state of the job in shards, and a lead that the operator starts keeps a copy
    of them: a lost member costs at most backup.maxLagSteps, and no other member restarts. The
    program must use ullage_run.group. `Auto`: by the ratio of transient to reliable members;
    `Stage1` to `Stage3` fix it."""
    backup: TierTerms | None = None
    """The copy of the state; needed in tiers."""


Price = Annotated[float, decimal_number(DECIMAL_NOT_NEGATIVE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostAim(Spec):
    """Objective and bounds for choosing capacity; DeviceProfiles and CapacityPools set prices."""

    rules: ClassVar = (
        COST_SAYS_SOMETHING,
        DEADLINE_WITH_OBJECTIVE,
        DEADLINE_NEEDS_FALLBACK,
        DEADLINE_HOLDS_WORK,
        BUDGET_WITH_OBJECTIVE,
        DELAY_COST_OBJECTIVE,
    )

    objective: Annotated[str, word_of(CostObjective)] = ""
    """`CostPerWork`: the cheapest capacity within maxTime; `Makespan`: the fastest capacity within
    maxCost and budgetPerHour; `Deadline`: spot while the deadline leaves room for it, on-demand
    otherwise. Absent = the recommendation minimises the quantity without a cap, and Ullage chooses
    no pools."""
    max_cost: Price | None = None
    """Maximum cost of the whole training in the currency of the prices, a fraction in quotes:
    500 or "99.5"."""
    max_time_s: Annotated[
        Annotated[float, duration(MAX_TIME_POSITIVE)] | None, Field(alias="maxTime")
    ] = None
    """Maximum run time of the whole training, such as `60h` or `1h30m`."""
    deadline_s: Annotated[
        Annotated[float, duration(DEADLINE_POSITIVE)] | None, Field(alias="deadline")
    ] = None
    """Time from the creation of the job to its deadline, such as `60h`; with objective
    Deadline."""
    estimated_work_s: Annotated[
        Annotated[float, duration(ESTIMATED_WORK_POSITIVE)] | None, Field(alias="estimatedWork")
    ] = None
    """Undisturbed run time of the whole training on a pool of speed 1, such as `48h`; absent =
    spec.work.steps at the known speed of the class."""
    budget_per_hour: Price | None = None
    """Maximum cost of the job's instances per hour, a fraction in quotes: 12 or "7.5"; with an
    objective."""
    delay_cost_per_hour: Price | None = None
    """Cost to its owner of each hour until the job ends in the currency of the prices, a fraction
    in quotes: 3 or "2.5"; with objective CostPerWork and elasticity. Ullage then chooses the number
    of members together with the pools, so that instances and delay cost least per unit of work; 0
    asks for the cheapest size, as does an objective without it."""
    allow_spot: Switch = True
    """The job may run on capacity that the provider can take back."""
    on_demand_fallback: Switch = True
    """The job may run on on-demand and reserved capacity."""

    @property
    def capped(self) -> bool:
        """True when cost or time of the whole training is bounded."""
        return self.max_cost is not None or self.max_time_s is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingObjective(Spec):
    """The performance that the job keeps while it shares devices."""

    rules: ClassVar = (ONE_OBJECTIVE,)

    max_slowdown: (
        Annotated[float, decimal_number(SLOWDOWN_AT_LEAST_ONE, digits=4, places=4)] | None
    ) = None
    """Maximum slowdown of a step against running alone on the whole device, a fraction in
    quotes: 2 or "1.3", which allows 30 % more time. Neighbours that would break it are not
    admitted."""
    min_throughput: Annotated[float, decimal_number(THROUGHPUT_POSITIVE)] | None = None
    """Minimum steps per second of each member, a fraction in quotes: 40 or "12.5"; replaces
    maxSlowdown. It needs a measured or declared speed alone on the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work(Spec):
    """Amount of work."""

    steps: Annotated[int, Whole(1, 10**12)]
    """Steps of the whole training, at most 10^12. Progress in percent and the estimated end are
    derived from it."""


class CheckpointSignal(StrEnum):
    """Signals that ask a process to save its state."""

    SIGTERM = "SIGTERM"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(Spec):
    """The job saves its state on a signal, so it may be interrupted."""

    signal: CheckpointSignal = CheckpointSignal.SIGTERM
    """Signal that requests a checkpoint."""
    grace_s: Annotated[int, Whole(1, 3600), Field(alias="graceSeconds")] = 30
    """Seconds between the signal and the kill; the pods' termination grace is at least this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePolicy(Spec):
    """Terms for starting a failed gang again."""

    max_restarts: Annotated[int, Whole(0, 1000)] = 3
    """How often the gang restarts after a member failed. Evictions, lost nodes and lost races do
    not count, and neither do failures that a lost node explains within 90 s."""
    retry_exit_codes: Annotated[
        frozenset[Annotated[int, Whole(1, 255)]],
        listed(64),
        PlainSerializer(sorted),
    ] = frozenset()
    """Exit codes that restart the gang; empty means every code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderTerms(Spec):
    """Settings of the program's data loaders that may be changed."""

    autotune: Switch = False
    """Tune `num_workers` and `prefetch_factor` of torch's own DataLoader from epoch to epoch; needs
    the step hook (`runtime.inject: Auto`). An IterableDataset, and a data set that holds open files
    or does not work in a worker process, keep their settings: an Event `IoNotTuned` says so."""
    max_workers: Annotated[int, Whole(1, MOST_WORKERS)] = 8
    """Most worker processes of one loader; each needs memory of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataInput(Spec):
    """Reading of training data."""

    io: LoaderTerms = LoaderTerms()
    """Settings of readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StragglerRules(Spec):
    """Treatment of ranks that the others wait for."""

    policy: StragglerPolicy = StragglerPolicy.OBSERVE
    """`Observe` reports ranks that are slower than others, and why, where the step hook is
    (`runtime.inject`). `Rebalance` also gives them smaller batches and the others larger ones, at
    most by a quarter, so that all finish at the same time: the global batch and the trained model
    stay the same. It takes effect in programs of DistributedDataParallel whose DataLoader reads by
    a DistributedSampler, or that accelerate or the Trainer of transformers run; others keep their
    batches, and `kubectl ullage why` says the reason. `Disabled` reports nothing."""
    replace_after_s: Annotated[
        Annotated[float, duration(REPLACE_AFTER_A_MINUTE)] | None, Field(alias="replaceAfter")
    ] = None
    """Time for which a rank must be slow without a pause until its member is replaced, such as 10m.
    Absent = never. Only where its node is the cause, not its input or a neighbour on its device,
    where `elasticity.membership` is `InPlace` and another node has room: one member at a time,
    three in a day at most, never a rank that was slow on another node, too. The node is left out
    for this job alone. Where the member stays, condition `StragglerPresent` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJobSpec(Spec):
    """The training, and the devices that it needs."""

    rules: ClassVar = (
        FROZEN_REPLICAS,
        FROZEN_ELASTICITY,
        ELASTICITY_OR_REPLICAS,
        ELASTICITY_NEEDS_CHECKPOINT,
        FROZEN_GPU,
        FROZEN_ACCELERATORS,
        RESIZE_NEEDS_CHECKPOINT,
        PACKING_NEEDS,
        COST_NEEDS_WORK,
        DELAY_COST_NEEDS_ELASTICITY,
        DEADLINE_NEEDS_CHECKPOINT,
    )

    template: Annotated[JsonObject, ReadApart(TrainingTemplate)]
    """Template of the pods. The first container gets the device. A change takes effect when the
    gang starts next."""
    replicas: Members | None = None
    """Members of the gang, one pod each with a stable rank; all start or none. Defaults to 1. May
    change only while the job is suspended."""
    elasticity: ElasticitySpec | None = None
    """Replaces replicas: bounds within which the number of members follows the available room, by
    restarts at a checkpoint. The bounds may change only while the job is suspended."""
    suspend: Switch = False
    """Stops the job and releases its devices; false lets it run again."""
    gpu: GPURequest = field(default_factory=GPURequest)
    """Devices of each member. May change only while the job is suspended; share and memory at any
    time where `sharing.resizable` is `Restart`."""
    accelerators: Accelerators = ()
    """Accepted accelerator types, by key such as nvidia-h100-80gb-hbm3; empty means any. May change
    only while the job is suspended."""
    mixed_accelerators: Switch = False
    """Members of a gang may be on devices of several accelerator types, and all of them then keep
    the pace of the slowest; false = all are of one type. Where jobs take turns, types are never
    mixed."""
    slo: TrainingObjective | None = None
    """Performance objective under sharing; it protects the job's slices."""
    sharing: SharingRules = field(default_factory=SharingRules)
    """What sharing may do to the job and to its neighbours."""
    work: Work | None = None
    """How much there is to do, for progress and estimated end."""
    cost: CostAim | None = None
    """Goal that the accelerator is chosen by; status.recommendation shows the result."""
    runtime: Runtime = field(default_factory=Runtime)
    """What Ullage adds inside the container. A change takes effect when the gang starts next."""
    data: DataInput = DataInput()
    """How training data are read. A change takes effect when the gang starts next."""
    stragglers: StragglerRules = StragglerRules()
    """Slow ranks. A change takes effect when the gang starts next."""
    checkpoint: Checkpoint | None = None
    """The job checkpoints on request; only such jobs are preempted for others."""
    failure_policy: FailurePolicy = FailurePolicy()
    """When a failed gang starts again."""
    ttl_seconds_after_finished: Annotated[int, Whole(0, INT32_MAX)] | None = None
    """Seconds after which the finished job is deleted with its pods; absent keeps it."""
    trust_domain: Annotated[TrustDomain, SAYS_NOTHING] = ""
    """Workloads share a device only within one trust domain. Defaults to this namespace. A named
    domain must be granted to this namespace by `trustDomains` of the SchedulingPolicy."""
    profile_ref: Annotated[ObjectName, SAYS_NOTHING] = ""
    """WorkloadProfile in this namespace that states how the job uses a device."""
    weight: Annotated[int, Whole(1, 1000)] = 1
    """Weight against other jobs of the tenant when the cluster's time is divided; it has no effect
    under the objective FIFO."""
    tenant: Annotated[ObjectName, SAYS_NOTHING] = ""
    """Tenant that the job's time is charged to, by its name in SchedulingPolicy.spec.tenants."""


read_training_spec: Final = SpecReader(TrainingJobSpec)
read_training_slo: Final = SpecReader(TrainingObjective, "slo")


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
