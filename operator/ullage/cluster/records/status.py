# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The status of a workload, the same record whether it was read back or is to be written.

Because both directions share one record, "nothing changed" is plain equality.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from ullage.api.codec import derived
from ullage.api.readers import MOST_COUNTED
from ullage.api.reasons import Reason, Standing
from ullage.api.slices import SliceKey
from ullage.api.wire_fields import (
    ACCELERATOR,
    BELIEVED,
    DECIMAL,
    IF_KNOWN,
    INT32,
    INT32_COUNT,
    INT32_MAX,
    KEPT,
    NEEDED,
    NO_LENGTH,
    OPTIONAL,
    REASON,
    THRESHOLD,
    Count,
    Decimal,
    Embedded,
    Flag,
    Kind,
    Line,
    Listed,
    Message,
    Moment,
    Money,
    Name,
    NeededCount,
    Percent,
    Schema,
    Signed,
    Text,
    Time,
    Whole,
    Word,
    at_most,
    atomic,
    between,
    count,
    counts,
    cut,
    distinct,
    keyed,
    one_of,
    word,
)
from ullage.api.words import Source, SpendMode
from ullage.cluster.records.efficiency import EfficiencyRecord
from ullage.cluster.records.metrics import MOST_EPOCH_VALUES, EpochValue
from ullage.cluster.records.tier import TierRecord
from ullage.cluster.values.device_ref import DeviceRef
from ullage.engines.scaling.sleeping import MOST_DOUBLINGS

Sum: TypeAlias = Annotated[int, count()]
ReasonWord: TypeAlias = Annotated[Reason, word(Reason, grows=True), NEEDED]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Cost as of ``as_of``, in the currency of the prices; the rates go on from there.

    Money is decimal text, "" = not known. A service has no steps to lose and no end.
    """

    total: Money = ""
    """Spent; absent = no price was known yet."""
    on_demand_total: Money = ""
    """What on-demand capacity of the same type would have taken for the same time; absent = its
    price was never known."""
    per_hour: Money = ""
    """Cost per hour of the devices that are held now: their part of the price of their instances;
    absent = none are held, or a price is missing."""
    on_demand_per_hour: Money = ""
    """The same on on-demand."""
    vs_on_demand: Money = ""
    """Spent / on-demand; 0.34 = 66 % saved."""
    unpriced_seconds: Sum = 0
    """Time in which devices were held and a price was missing; it is in no sum."""
    message: Annotated[str, cut(1024)] = ""
    """What keeps a figure from being known."""
    since: Annotated[Moment, OPTIONAL]
    """When devices were first held."""
    as_of: Annotated[Moment, OPTIONAL]
    """Until when the sums count; written at most once a minute, and not for less than 1 %."""
    per_thousand_steps: Annotated[Money, "perWorkUnit"] = ""
    """Cost of a thousand steps; work that a loss took counts once."""
    on_demand_seconds: Sum = 0
    """Time in which devices were held on on-demand or reserved capacity, of a job whose pools are
    chosen (spec.cost.objective)."""
    evictions: Annotated[int, count(INT32_MAX)] = 0
    """Starts that ended because devices were taken away."""
    first_step: Sum = 0
    """Step that the first start resumed at: those before it are not of this job."""
    earlier_steps: Sum = 0
    """Steps of the starts that ended, those that were done again included."""
    reached_steps: Annotated[Sum, "reachedStep"] = 0
    """Step at which the last start ended; absent once the next one has told of its steps."""
    lost_steps: Sum = 0
    """Steps that are done again; absent = none, or the speed is not known."""
    lost_seconds: Sum = 0
    """The same as time of the whole gang."""
    assumed_steps: Sum = 0
    """Of the steps, those of the last loss: assumed until the next start says where it resumed."""
    assumed_seconds: Sum = 0
    """The same as time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolShare:
    """Members of the job in one pool."""

    pool: Name
    """CapacityPool."""
    replicas: Annotated[NeededCount, INT32]
    """Members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Pools with the members in each, and what that costs."""

    pools: Annotated[
        tuple[PoolShare, ...], Listed(order=lambda share: share.pool), keyed("pool", most=64), KEPT
    ] = ()
    """Members by pool; none = the job waits."""
    cost_per_work: Decimal = ""
    """Expected cost of an hour of work of one member at speed 1, losses included."""
    per_hour: Decimal = ""
    """Cost per hour while every member runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendDecision:
    """Which pools the job may be placed in, and why."""

    time: Moment
    """When it was decided."""
    epoch: NeededCount
    """Term of the leader that decided."""
    inputs_hash: Annotated[Word, KEPT]
    """Hash of what the decision was made from; equal inputs give equal decisions."""
    mode: Annotated[Name, NO_LENGTH, one_of(*SpendMode)]
    """Spot, on-demand, or nothing for now."""
    committed: Annotated[Flag, Schema(default=False)] = False
    """The deadline needs the rest of the time: on-demand until the end."""
    since: Time = 0.0
    """When these pools were chosen."""
    chosen: Annotated[Offer, KEPT, Schema(required=False, default={})]
    """The pools that the job may be placed in."""
    runner_up: Annotated[Offer | None, KEPT] = None
    """The best of the others."""
    reason: Annotated[Reason, word(Reason, Reason.WAITING_FOR_DECISION, grows=True), NEEDED]
    """Why, in one stable word."""
    message: Annotated[str, cut(32_768), KEPT, OPTIONAL]
    """The decision in a sentence, with numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendRecord:
    """What the job spent, and, with `spec.cost.objective` and pools, why it holds what it holds."""

    account: Account | None = None
    """Its cost; ``None`` = nothing has a price, or it never held devices."""
    decision: SpendDecision | None = None
    """Which pools the job may be placed in, and why."""
    next_decision: Time = 0.0
    """When prices are compared again, even if nothing else changes."""
    expected_savings: Signed = ""
    """How much less the rest of the work is expected to cost in the chosen pools than on on-demand
    capacity of the same type, including time lost to interruptions; below 0 = more. As of the last
    change of this status. Absent = the amount of work or a price is not known, or losses have no
    bound because spot may take the job and it saves no checkpoint."""


MOST_REPLACEMENTS: Final = 3
"""Members of one job that are replaced in a day because their nodes were slow, and that its status
holds."""
MOST_EXCLUSIONS: Final = 16
"""Exclusions that one status holds; the oldest go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A device that failed the workload and is left out for it."""

    reason: ReasonWord
    """How it failed."""
    node: Name
    """Node of the device."""
    gpu: Name
    """UUID of the device."""
    since: Moment
    """When it failed."""
    until: Time
    """Until when it is left out; absent = with its whole node, until the node's agent reports. For
    reasons StuckUnscheduled and StragglerReplaced the whole node is left out, for the first one
    each time in a row for twice as long."""
    message: Annotated[str, cut(1024)]
    """What happened, in a sentence."""

    @property
    def device(self) -> DeviceRef:
        """The device that is left out."""
        return DeviceRef(self.node, self.gpu)

    @property
    def is_of_node(self) -> bool:
        """True when all devices of the node are left out."""
        return not self.until or Standing.LEAVES_NODE in self.reason.standing


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A member that had to leave because its node made a rank slow."""

    rank: Annotated[NeededCount, INT32]
    """The slow rank."""
    pod: Name
    """Pod of that rank; its successor has the same name."""
    node: Name
    """Node that it left."""
    reason: ReasonWord
    """The cause of the slowness."""
    time: Moment
    """When it had to leave."""
    message: Annotated[str, cut(1024)]
    """What happened, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingState:
    """What the operator remembers between its decisions; the operator alone writes it."""

    exclusions: Annotated[
        tuple[Annotated[Exclusion, IF_KNOWN], ...],
        Listed(newest=MOST_EXCLUSIONS),
        atomic(MOST_EXCLUSIONS),
    ] = ()
    """Devices that are left out, the latest last; one whose time is over binds nothing."""
    preemptions: Annotated[int, count(INT32_MAX)] = 0
    """Preemptions in a row: each doubles the wait before the next start."""
    preempted_at: Time = 0.0
    """When the last preemption happened."""
    pull_failures: Annotated[int, count(INT32_MAX)] = 0
    """Starts in a row whose image could not be pulled: each doubles the wait before the next."""
    pull_again_at: Time = 0.0
    """When an image that could not be pulled is tried again."""
    replacements: Annotated[
        tuple[Annotated[Replacement, IF_KNOWN], ...],
        Listed(newest=MOST_REPLACEMENTS),
        atomic(MOST_REPLACEMENTS),
    ] = ()
    """Members that had to leave because of slow nodes, the latest last."""


NOTHING: Final = SchedulingState()


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeRoom:
    """The job's last restart with a smaller share to make room for another workload."""

    time: Moment
    """Time of the restart request; for ten minutes the job's starts request at most percent."""
    percent: Percent
    """Share that the job keeps, in percent of the device."""
    node: Name
    """Node of that device."""
    gpu: Name
    """UUID of the device."""
    beneficiary: Annotated[Name, at_most(1024)]
    """Namespace and name of the workload that got the rest."""
    beneficiary_uid: Annotated[Word, NEEDED]
    """UID of that workload; once it is gone, the limit no longer applies."""


MOST_NODES: Final = 256
"""Nodes that one record names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRecord:
    """A failure that was counted; it is uncounted if the node of another member turns out lost."""

    time: Moment
    """When it was counted."""
    count: Annotated[int, count(INT32_MAX), NEEDED]
    """How many of the restarts it accounts for: failures within 90 s of each other are one."""
    nodes: Annotated[tuple[str, ...], Listed(most=MOST_NODES), KEPT, OPTIONAL, distinct(MOST_NODES)]
    """Nodes of the members that did not fail."""


MemoryMiB: TypeAlias = Annotated[int, between(0, MOST_COUNTED), NEEDED]
Progressed: TypeAlias = Annotated[int, between(0, 100)]
BY_TYPE: Final = keyed("type", most=32)
TYPES: Final = Schema(maxProperties=64)
MOST_PAIRS: Final = 64
"""Jobs and types that one job is paired with."""
MOST_PARTED: Final = 16
"""Pairs that are remembered not to hold."""
"""Accelerator types that one map holds."""
_PHASES: Final = (
    *("Pending", "Reserving", "Starting", "Running", "Restarting", "Suspending", "Suspended"),
    *("Succeeded", "Failed"),
)
_KEY: Final = Embedded(
    SliceKey.from_wire,
    SliceKey.to_wire,
    Schema(
        properties=derived(
            SliceKey,
            pod_uid=Schema(description="uid of the pod."),
            index=Schema(description="Which of the container's devices, from 0."),
        ).shape
    ),
)
_RANK: Final = Schema(
    before="devices",
    description="Position in the list, from 0: the recommended type, then other types "
    "(unavailable ones last), then other numbers of devices.",
)

REFUSAL_LIMIT: Final = 8
"""Refusals that a decision lists in the schema."""
MOST_RECOMMENDED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One aspect of the object's state; docs/reference/reasons.md lists types and reasons."""

    type: Annotated[
        Name, Schema(maxLength=316, pattern="^([-a-z0-9.]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*)$")
    ]
    """Which aspect, for example Admitted or Ready."""
    status: Annotated[Name, NO_LENGTH, one_of("True", "False", "Unknown")]
    """True, False or Unknown."""
    reason: Annotated[Text, KEPT, REASON]
    """Why, in one stable word; `kubectl ullage explain` explains it."""
    message: Message = ""
    """Why, for people: what binds, and by how much."""
    observed_generation: Annotated[Whole, BELIEVED] = 0
    """Generation of the object that the condition speaks of."""
    since: Annotated[Moment, "lastTransitionTime", Schema(required=True)] = 0.0
    """When status last changed; a changed message alone does not move it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One slice of one member: a summary of the GPUNode's spec for people."""

    key: Annotated[SliceKey, _KEY]
    pod: Name
    """Name of the pod."""
    node: Name
    """Node of the device."""
    gpu: Name
    """uuid of the device."""
    percent: Percent
    """Granted share of the device's compute."""
    memory_mib: MemoryMiB
    """Granted device memory in MiB."""
    epoch: NeededCount
    """Term of the leader that decided this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalLine:
    """Devices that one reason rules out."""

    reason: ReasonWord
    """What binds."""
    devices: Annotated[int, between(0, INT32_MAX), NEEDED]
    """How many devices it rules out."""
    nearest: Annotated[Line, KEPT]
    """The device that comes closest."""
    message: Annotated[Line, KEPT]
    """By how much it misses, and what would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """Why the workload has its placement, or why it waits."""

    time: Moment
    """When it was decided."""
    epoch: NeededCount
    """Term of the leader that decided."""
    inputs_hash: Annotated[Word, KEPT]
    """Hash of what the decision was made from; equal inputs give equal decisions."""
    chosen: Line
    """What was chosen and its score."""
    runner_up: Line
    """The next best and its score."""
    reason: ReasonWord
    """What binds, in one stable word."""
    message: Message
    """The decision in a sentence."""
    refusals: Annotated[
        tuple[RefusalLine, ...],
        Listed(most=REFUSAL_LIMIT, order=lambda line: (-line.devices, line.reason)),
        keyed("reason", most=REFUSAL_LIMIT),
    ] = ()
    """Why devices were refused, one entry per reason."""
    alone: Flag = False
    """No other workload joins its devices until its latency is measured."""
    identity: Word = ""
    """Digest of the decision; it stays the same while the decision stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the slowest member has come, by its own step records."""

    steps: NeededCount
    """Steps done by all starts; only by the current start if the job does not report where it
    resumes."""
    resumed_at: Annotated[Count, "resumedAtStep"] = 0
    """Step of the checkpoint that the current start resumed from, as the job reports; absent = its
    steps count from 0."""
    total: Count = 0
    """Steps of the whole training, from spec.work."""
    percent: Progressed = 0
    """Completed part, in percent."""
    expected_percent: Progressed = 0
    """Part that should be complete by now on the straight line from creation to deadline; a job
    behind it leaves spot. Absent = there is no deadline."""
    steps_per_second: Decimal = ""
    """Recent speed."""
    eta: Time = 0.0
    """When the training ends at this speed; absent if that is after the year 9999."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Share of the slowest member, and how much slower it is than alone on a whole device."""

    percent: Percent
    """Granted share of the device's compute."""
    memory_mib: MemoryMiB
    """Granted device memory in MiB."""
    predicted: Decimal = ""
    """Predicted slowdown (median), 1 = as fast as alone on the whole device."""
    predicted_upper: Decimal = ""
    """Slowdown that 95 of 100 such predictions stay below."""
    observed: Decimal = ""
    """Observed slowdown; absent until it is known."""
    latency_ms: Count = 0
    """Observed latency of the last window at the objective's percentile, in milliseconds."""
    attainment: Decimal = ""
    """Part of the windows since the start that kept the objective, 0 to 1."""
    group: Word = ""
    """How new this mixture of classes is: G0 (seen before) to G4 (three or more tenants)."""
    source: Word = ""
    """Model that predicted, such as prior+gp."""
    z: Signed = ""
    """Safety margin of the device's tightest objective, in standard deviations."""
    threshold: Annotated[Text, "lambda", THRESHOLD] = ""
    """Minimum margin that the risk budget requires; Refuse = no margin is enough."""
    risk_used: Decimal = ""
    """Predicted chance that an objective on the device is broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStatus:
    """The lane of the member that waits most for its turn."""

    lane: NeededCount
    """Number of the lane on its device."""
    node: Name
    """Node of the device."""
    persistent_mib: MemoryMiB
    """Memory that stays on the device between two steps, in MiB: as reported, else as requested."""
    ephemeral_peak_mib: Count = 0
    """Most memory that a step took above it, in MiB; absent until a step reported it."""
    wait_fraction: Decimal = ""
    """Fraction of its time in which it waited for its lane, 0 to 1."""
    suspended: Flag = False
    """Its memory is not on the device: others need it while the member does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """Time on one accelerator type."""

    seconds: Annotated[Count, KEPT, Schema(default=0)] = 0
    """Seconds of earlier turns."""
    since: Time = 0.0
    """When the current turn began; its time is not in `seconds` yet."""

    def at(self, now: float) -> float:
        """Seconds had until a moment; a clock that went back adds nothing."""
        return self.seconds + (max(0.0, now - self.since) if self.since else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedDeadline:
    """A deadline that the division of time does not keep."""

    cause: Annotated[Name, NO_LENGTH, one_of("Passed", "TooSlow", "Contended", "WorkUnknown")]
    """`Passed`: it is over; `TooSlow`: not even its fastest accelerator, held all the time, is fast
    enough; `Contended`: other deadlines need the same devices; `WorkUnknown`: nothing says how much
    the job has to do."""
    needed: Annotated[Decimal, "neededStepsPerSecond"] = ""
    """Speed that the deadline requires."""
    best: Annotated[Decimal, "bestStepsPerSecond"] = ""
    """Speed on its fastest accelerator, held all the time."""
    approximate: Annotated[Flag, Schema(default=False)] = False
    """There were too many deadlines to find the fewest to drop; those that lack most were
    dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRecord:
    """Time that the job is promised beside another one on the same device."""

    partner: Name
    """The other job, as namespace/name."""
    partner_uid: Annotated[Word, NEEDED]
    """Its uid."""
    accelerator: Annotated[Name, ACCELERATOR]
    """Accelerator type."""
    fraction: Decimal = ""
    """Part of the time; it is in `fractions` as well."""
    percent: Percent
    """Share of the device that the job has beside the other one."""
    steps_per_second: Decimal = ""
    """Predicted speed of the job beside the other one."""
    partner_steps_per_second: Decimal = ""
    """Predicted speed of the other one."""
    deficit_seconds: Signed = ""
    """Time promised less time had beside the other one; it is in `deficitSeconds` as well."""
    seconds: Annotated[Count, "receivedSeconds", KEPT, Schema(default=0)] = 0
    """Time had beside the other one in earlier turns."""
    since: Time = 0.0
    """When the current turn beside it began; its time is not in `receivedSeconds` yet."""

    @property
    def cell(self) -> tuple[str, str]:
        """The other one's uid and the type."""
        return self.partner_uid, self.accelerator


@dataclass(frozen=True, slots=True, kw_only=True)
class PartedRecord:
    """A pair that did not hold what was predicted, and is left out for a while."""

    workload_class: Annotated[Word, "class", NEEDED]
    """Class of the other job."""
    accelerator: Annotated[Name, ACCELERATOR]
    """Accelerator type."""
    until: Moment
    """Until when the two classes share no device of the type."""
    message: Line = ""
    """What was observed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRecord:
    """The job's part of the cluster's time, and what it has had of it.

    Written when the part changes or a turn begins or ends; what runs on follows from the times.
    """

    since: Moment
    """Since when the fractions hold; the deficits are of that moment."""
    fractions: Annotated[tuple[tuple[str, Decimal], ...], TYPES] = ()
    """Part of the time promised on each accelerator type, 0 to 1; absent types have none."""
    effective_throughput: Decimal = ""
    """Steps per second that the fractions amount to."""
    normalised_share: Decimal = ""
    """The same against holding every type in proportion to its size; 1 = as much as that."""
    source: Annotated[Text, one_of("Measured", "Declared", "Estimated", "Neutral")] = ""
    """Weakest source of the speeds; Neutral = nothing is known, all types count as equal."""
    deficit_seconds: Annotated[tuple[tuple[str, Signed], ...], TYPES] = ()
    """Time promised less time had on each type; below 0 = it had more."""
    received: Annotated[tuple[tuple[str, Received], ...], "receivedSeconds", TYPES] = ()
    """Time had on each type."""
    isolated_seconds: Decimal = ""
    """What the steps done so far would have taken on an equal part of the cluster; under
    FinishTimeFairness."""
    skipped_since: Time = 0.0
    """Since when smaller jobs pass it by; after gangSkipLimit rounds devices are kept for it."""
    restart_seconds: Decimal = ""
    """What its last start took, from getting devices to running; weighed before it is stopped."""
    dropped: Annotated[DroppedDeadline | None, "droppedDeadline"] = None
    """Why spec.cost.deadline is not kept, with the speeds as of when that was found; under
    MinCostSLO. Absent = it is kept, or there is none."""
    pairs: Annotated[
        tuple[PairRecord, ...],
        Listed(order=lambda row: row.cell),
        keyed("partnerUID", "accelerator", most=MOST_PAIRS),
    ] = ()
    """Time promised beside other jobs, with sharing.allowPacking."""
    parted: Annotated[
        tuple[PartedRecord, ...], Listed(newest=MOST_PARTED), atomic(MOST_PARTED)
    ] = ()
    """Classes that it shares no device with for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveRecord:
    """The division that is in force; each job's part stands in its `status.allocation`."""

    time: Moment
    """When the cluster was divided."""
    result: Annotated[Name, NO_LENGTH, one_of("Optimal", "KeptLast", "FellBack", "NothingToDivide")]
    """`Optimal`; `KeptLast`: no optimum was found and the one before stands; `FellBack`: a price is
    missing, time is divided as under MaxMinFairness; `NothingToDivide`: no job can run anywhere."""
    jobs: Annotated[Count, INT32, Schema(default=0)] = 0
    """Jobs that take part."""
    objective_value: Signed = ""
    """Value of the objective, in its own unit."""
    inputs_hash: Annotated[Word, NEEDED]
    """Hash of jobs, speeds and devices; time is divided again when it changes."""
    fractions_hash: Annotated[Word, NEEDED]
    """Hash of the fractions in the jobs' statuses; time is divided again when some are lost."""
    prices: Annotated[tuple[tuple[str, Decimal], ...], TYPES] = ()
    """What one device more of a type would add to the objective; absent types are not scarce."""
    dropped: Annotated[Count, "droppedDeadlines", INT32, Schema(default=0)] = 0
    """Deadlines that are not kept; `status.allocation.droppedDeadline` of each job says why."""


MOST_USAGES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantUsage:
    """What a tenant holds of its quota of one accelerator type, in percent of devices."""

    tenant: Name
    """Name of the tenant."""
    accelerator: Annotated[Name, ACCELERATOR]
    """Accelerator key."""
    nominal_quota: NeededCount
    """What it may hold without borrowing."""
    used: NeededCount
    """What its workloads hold."""
    borrowed: NeededCount
    """The part of `used` above nominalQuota."""
    available: NeededCount
    """What it can get now, borrowing included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaStatus:
    """What tenants hold of their quota; written on changes, at most every ten seconds."""

    time: Moment
    """When this was written."""
    borrowing_tenants: Annotated[NeededCount, INT32]
    """Tenants that hold more than their nominal quota of any type."""
    left_out: Annotated[Count, INT32] = 0
    """Entries beyond the limit of the list; those with nothing in use are left out first."""
    usage: Annotated[tuple[TenantUsage, ...], atomic(MOST_USAGES)] = ()
    """By tenant and accelerator type, for each quota of `spec.tenants`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """An accelerator type and number of devices for the job, with its verdict."""

    accelerator: Annotated[Name, ACCELERATOR]
    """Accelerator key."""
    devices: Annotated[Whole, NEEDED, INT32_COUNT]
    """Devices of the whole job. For an elastic gang, the best number within its bounds; other
    numbers of the first type have rows of their own, which are estimates."""
    total_s: Annotated[Count | None, "seconds"] = None
    """Time of the whole training; absent = unknown."""
    low_s: Annotated[Count | None, "lowSeconds"] = None
    """Lower bound of the time; four of five such estimates lie within both bounds."""
    high_s: Annotated[Count | None, "highSeconds"] = None
    """Upper bound of the time; four of five such estimates lie within both bounds."""
    cost: Annotated[Text, DECIMAL] = ""
    """Cost of the whole training, in the currency of the prices."""
    source: Annotated[Text, one_of(*Source)] = ""
    """Source of the speed; absent = the speed is unknown."""
    confidence: Annotated[Text, DECIMAL] = ""
    """Confidence in the speed, 0 to 1."""
    need_mib: Annotated[Count | None, "memoryNeedMiB"] = None
    """Device memory that each member needs, context overhead included; absent = unknown."""
    reason: ReasonWord
    """Recommended, Feasible, or the obstacle."""
    message: Annotated[str, cut(1024)] = ""
    """The reason as a sentence, with figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRecord:
    """Why the gang has its current number of members."""

    since: Moment
    """When the number last changed."""
    reason: Annotated[Reason, word(Reason, Reason.SIZED, grows=True), NEEDED]
    """Sized, Shrunk or Grown."""
    message: Line
    """The same in words: what happened, and what follows."""
    resumes: Time = 0.0
    """Set between two starts, while the places of the members are kept."""
    room_since: Time = 0.0
    """Since when there has been room for more; the gang grows when that lasts."""


MOST_RATES: Final = 80
MOST_NEEDS: Final = 16
SLOTS_OF_A_DAY: Final = 96
_COUNTS: Final = Kind(
    counts,
    list,
    (),
    schema=Schema(
        type="array",
        items=Schema(type="integer", format="int64", minimum=0, maximum=MOST_COUNTED),
    ),
)
_Rates: TypeAlias = Annotated[tuple[int, ...], _COUNTS, atomic(MOST_RATES)]
_Season: TypeAlias = Annotated[tuple[int, ...], _COUNTS, atomic(SLOTS_OF_A_DAY)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaChoice:
    """A number of replicas, and what each of them is."""

    replicas: Annotated[NeededCount, INT32]
    """How many."""
    percent: Annotated[int, between(0, 100)] = 0
    """Share of a device of each, in percent; 100 = whole devices."""
    accelerator: Annotated[Text, at_most(63)] = ""
    """Accelerator type."""
    predicted_ms: Count = 0
    """Predicted latency at the objective's percentile, in milliseconds; absent = more would come
    than is served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenShare:
    """The share of a device, and its type, that the operator chose for each replica."""

    percent: Annotated[int, between(0, 100)] = 0
    """Share in percent; absent = found no room, so replicas have what the spec allows."""
    accelerator: Annotated[Text, at_most(63)] = ""
    """Accelerator type; absent = any that spec.accelerators allows."""
    time: Moment
    """When it was chosen, or given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedRecord:
    """How many replicas were needed at a moment."""

    time: Moment
    """When that was found."""
    replicas: Annotated[NeededCount, INT32]
    """How many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingHistory:
    """What the next decision needs of the earlier ones."""

    as_of: Moment
    """End of the last interval that was measured."""
    rates_milli: _Rates = ()
    """Requests per 1,000 seconds in intervals of 15 seconds, the oldest first."""
    needs: Annotated[tuple[NeedRecord, ...], Listed(newest=MOST_NEEDS), atomic(MOST_NEEDS)] = ()
    """Replicas that were needed; fewer are kept only when they were enough for two minutes."""
    caution: Decimal = ""
    """Quantile of earlier forecast errors that is planned for; late requests raise it."""
    service_micros: Count = 0
    """Mean time to serve a request that does not wait, in microseconds."""
    spread: Decimal = ""
    """Standard deviation of the logarithm of that time."""
    percent: Annotated[int, between(0, 100)] = 0
    """Share of a device at which that time was measured, in percent."""
    accelerator: Annotated[Text, at_most(63)] = ""
    """Accelerator type on which it was measured."""
    season_milli: _Season = ()
    """Requests per 1,000 seconds by quarter of an hour of the day, from midnight UTC; 0 = not
    known."""
    asleep_since: Time = 0.0
    """When the service scaled to zero; absent = it has replicas."""
    idle_doublings: Annotated[int, between(0, MOST_DOUBLINGS)] = 0
    """How often scaling.idleSeconds is doubled, because requests came soon after it passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRecord:
    """How many replicas the objective needs at the load to come, and why."""

    load: Decimal = ""
    """Requests per second, as measured; absent = not known."""
    forecast: Decimal = ""
    """Requests per second expected when a replica that starts now is ready; neighbours on
    the replicas' devices are judged at this load."""
    predicted_ms: Count = 0
    """Predicted latency at the objective's percentile, in milliseconds; absent = not known, or
    more comes than is served."""
    chosen: ReplicaChoice
    """What is asked for."""
    runner_up: ReplicaChoice | None = None
    """One replica less than is needed, and what it would bring."""
    share: ChosenShare | None = None
    """Share and accelerator chosen for the replicas within spec.gpu.share and
    spec.accelerators; absent = none was chosen."""
    reason: ReasonWord
    """Why, in one stable word."""
    message: Line = ""
    """The same in words, with figures."""
    last_scale_time: Time = 0.0
    """When the number of replicas was last changed by the operator."""
    launch_seconds: Annotated[Count, INT32] = 0
    """Time that replicas took from creation until they answered; absent = not known yet."""
    history: ScalingHistory | None = None
    """What the next decision needs of the earlier ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadStatus:
    """State that the operator has observed and decided."""

    observed_generation: Count = 0
    """Generation of the spec that this status describes."""
    phase: Annotated[Text, one_of(*_PHASES)] = ""
    """Where the job is in its lifecycle."""
    restarts: Annotated[Count, INT32] = 0
    """How often the gang restarted after a failure."""
    retry_at: Time = 0.0
    """Earliest time of the next start while the job backs off after a failure or a preemption. With
    membership InPlace: when the next member may join."""
    last_failure: FailureRecord | None = None
    """The last failure that was counted while other members ran on healthy nodes."""
    nodes: Message = ""
    """Nodes in use, separated by commas."""
    gpus: Annotated[Count, INT32] = 0
    """Devices in use; a share counts as one."""
    replicas: Annotated[Count, INT32] = 0
    """Members of an elastic gang: those that run, or those wanted at its next start."""
    ready_replicas: Annotated[Count, INT32] = 0
    """Replicas that answer requests."""
    selector: Annotated[Text, at_most(2048)] = ""
    """Label selector of the pods; autoscalers read it."""
    endpoint: Line = ""
    """Address of the service inside the cluster."""
    scaling: Annotated[ScalingRecord | None, IF_KNOWN] = None
    """How many replicas the objective needs, and why; with scaling.policy SLO."""
    size: SizeRecord | None = None
    """Why an elastic gang has its current number of members."""
    tier: TierRecord | None = None
    """Where a job in tiers stands."""
    start_time: Time = 0.0
    """When the gang first ran."""
    completion_time: Time = 0.0
    """When the job ended."""
    placement: Annotated[
        tuple[Placement, ...], keyed("podUID", "container", "index", most=65_536)
    ] = ()
    """Device slices of each member."""
    decision: Annotated[DecisionRecord | None, IF_KNOWN] = None
    """Why the job is where it is, or why it waits."""
    scheduling: SchedulingState = NOTHING
    """What the operator remembers of placing it."""
    progress: Progress | None = None
    """How far the training is."""
    metrics: Annotated[
        tuple[EpochValue, ...],
        Listed(order=lambda value: value.epoch),
        keyed("epoch", most=MOST_EPOCH_VALUES),
    ] = ()
    """Values by epoch that the program of a succeeded trial (TuningJob) reported."""
    allocation: AllocationRecord | None = None
    """Its part of the cluster's time; absent under FIFO."""
    recommendation: Annotated[
        tuple[Recommended, ...],
        Listed(most=MOST_RECOMMENDED, rank="rank", says=_RANK),
        keyed("accelerator", "devices", most=MOST_RECOMMENDED),
        IF_KNOWN,
    ] = ()
    """Recommended accelerators, best first; set with spec.cost."""
    recommendation_basis: Word = ""
    """Digest of the inputs of the recommendation."""
    spend: SpendRecord | None = None
    """Which pools it may be placed in, why, and what it spends."""
    efficiency: EfficiencyRecord | None = None
    """Device time that it held and used, and why some was not used."""
    made_room: MadeRoom | None = None
    """The last time the job was restarted with a smaller share so that another workload fits."""
    sharing: Sharing | None = None
    """Share and slowdown of the slowest member."""
    gpu: LaneStatus | None = None
    """Its lane, and how much it waits for its turns; absent = it has no lane."""
    template_hash: Word = ""
    """Which version of the template runs."""
    conditions: Annotated[tuple[Condition, ...], BY_TYPE] = ()
    """Admitted, Placed, Ready, Enforced, SLOMet, Finished and Invalid."""

    def condition(self, type_: str) -> Condition | None:
        """The condition of this type, if it is set."""
        for condition in self.conditions:
            if condition.type == type_:
                return condition
        return None
