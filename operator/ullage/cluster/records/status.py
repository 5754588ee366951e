# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The status of a workload, the same record whether it was read back or is to be written.

Because both directions share one record, "nothing changed" is plain equality.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from ullage.api.contract import Reason, SliceKey
from ullage.api.readers import MOST_COUNTED
from ullage.api.wire_fields import (
    IF_KNOWN,
    INT32_MAX,
    KEPT,
    NEEDED,
    Count,
    Decimal,
    Embedded,
    Flag,
    Line,
    Listed,
    Message,
    Moment,
    Name,
    NeededCount,
    Percent,
    ReasonWord,
    Text,
    Time,
    Whole,
    between,
    cut,
    word,
)
from ullage.cluster.records.failure import FailureRecord
from ullage.cluster.records.room import MadeRoom
from ullage.cluster.records.scheduling_state import NOTHING, SchedulingState
from ullage.cluster.records.spend import SpendRecord
from ullage.cluster.records.tier import TierRecord

MemoryMiB: TypeAlias = Annotated[int, between(0, MOST_COUNTED), NEEDED]
Progressed: TypeAlias = Annotated[int, between(0, 100)]

REFUSAL_LIMIT: Final = 8
"""Refusals that a decision lists in the schema."""
MOST_RECOMMENDED: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One Kubernetes condition; ``since`` is the last change of ``status``."""

    type: Name
    status: Name
    reason: Annotated[Text, KEPT]
    message: Message = ""
    since: Annotated[Moment, "lastTransitionTime"] = 0.0
    observed_generation: Whole = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one slice of one member stands; a summary of the GPUNode's spec for people."""

    key: Annotated[SliceKey, Embedded(SliceKey.from_wire, SliceKey.to_wire)]
    pod: Name
    node: Name
    gpu: Name
    percent: Percent
    memory_mib: MemoryMiB
    epoch: NeededCount


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalLine:
    """Devices that one reason stops: how many, the one that misses by least, and by how much."""

    reason: ReasonWord
    devices: Annotated[int, between(0, INT32_MAX), NEEDED]
    nearest: Annotated[Line, KEPT]
    message: Annotated[Line, KEPT]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """Why a workload is where it is, or waits."""

    time: Moment
    epoch: NeededCount
    inputs_hash: Annotated[Text, KEPT]
    chosen: Line
    runner_up: Line
    reason: ReasonWord
    message: Message
    refusals: Annotated[
        tuple[RefusalLine, ...],
        Listed(most=REFUSAL_LIMIT, order=lambda line: (-line.devices, line.reason)),
    ] = ()
    alone: Flag = False
    """No other workload joins its devices until its latency is measured."""
    identity: Text = ""
    """Digest of all that was decided: two decisions with one identity are the same decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress by step records of the slowest member; ``total`` 0 = not declared.

    ``steps`` are of all starts where the present one says which step it went on from
    (``resumed_at``), and of the present one alone where it does not (0). ``expected_percent`` is
    where the line to the deadline was at that moment, 0 = no deadline.
    """

    steps: NeededCount
    resumed_at: Annotated[Count, "resumedAtStep"] = 0
    total: Count = 0
    percent: Progressed = 0
    expected_percent: Progressed = 0
    steps_per_second: Decimal = ""
    eta: Time = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Share of the slowest member and its slowdown, as decimal strings ("" = not known).

    ``predicted_upper`` is the bound that 95 of 100 such predictions stay below; ``attainment`` the
    part of the guard's windows that kept the objective; ``group``, ``source`` (rung), ``z``,
    ``threshold`` (lambda, ``Refuse`` = none is enough) and ``risk_used`` are of the admission.
    """

    percent: Percent
    memory_mib: MemoryMiB
    predicted: Decimal = ""
    predicted_upper: Decimal = ""
    observed: Decimal = ""
    latency_ms: Count = 0
    attainment: Decimal = ""
    group: Text = ""
    source: Text = ""
    z: Decimal = ""
    threshold: Annotated[Text, "lambda"] = ""
    risk_used: Decimal = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """Time on one accelerator type: of earlier turns, and since when the present one lasts."""

    seconds: Annotated[Count, KEPT] = 0
    since: Time = 0.0

    def at(self, now: float) -> float:
        """Seconds had until a moment; a clock that went back adds nothing."""
        return self.seconds + (max(0.0, now - self.since) if self.since else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedDeadline:
    """A deadline that the division of time does not keep; speeds in steps/s as decimal strings.

    ``cause`` is a ``DropCause`` of the API; ``approximate``: others might have been given up.
    """

    cause: Name
    needed: Annotated[Decimal, "neededStepsPerSecond"] = ""
    best: Annotated[Decimal, "bestStepsPerSecond"] = ""
    approximate: Flag = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRecord:
    """A job's part of the cluster's time, sorted by accelerator type; numbers as decimal strings.

    Between two writes the fractions and the type it holds stand still, so what is owed and what was
    received at any moment follow from ``since`` and need no write.
    """

    since: Moment
    fractions: tuple[tuple[str, Decimal], ...] = ()
    effective_throughput: Decimal = ""
    normalised_share: Decimal = ""
    source: Text = ""
    deficit_seconds: tuple[tuple[str, Decimal], ...] = ()
    received: Annotated[tuple[tuple[str, Received], ...], "receivedSeconds"] = ()
    isolated_seconds: Decimal = ""
    skipped_since: Time = 0.0
    restart_seconds: Decimal = ""
    dropped: Annotated[DroppedDeadline | None, "droppedDeadline"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveRecord:
    """``SchedulingPolicy.status.lastSolve``: the division of the cluster that is in force."""

    time: Moment
    result: Name
    inputs_hash: Name
    fractions_hash: Name
    jobs: Count = 0
    objective_value: Decimal = ""
    prices: tuple[tuple[str, Decimal], ...] = ()
    """What one device more of a type is worth; sorted by type, those that are scarce only."""
    dropped: Annotated[Count, "droppedDeadlines"] = 0
    """Deadlines that it does not keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """One accelerator for a job: time and cost of the whole training, and what speaks against it.

    ``None`` and "" = not known. ``low_s`` and ``high_s`` bound an estimate.
    """

    accelerator: Name
    devices: Annotated[Whole, NEEDED]
    reason: ReasonWord
    total_s: Annotated[Count | None, "seconds"] = None
    low_s: Annotated[Count | None, "lowSeconds"] = None
    high_s: Annotated[Count | None, "highSeconds"] = None
    cost: Text = ""
    source: Text = ""
    confidence: Text = ""
    need_mib: Annotated[Count | None, "memoryNeedMiB"] = None
    message: Annotated[str, cut(1024)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRecord:
    """Why an elastic gang has as many members as it has; ``since`` = when that last changed.

    ``resumes`` is set between two starts, while its places are kept; ``room_since`` while there is
    lasting room for more members. 0 = not so.
    """

    since: Moment
    reason: Annotated[Reason, word(Reason, Reason.SIZED), NEEDED]
    message: Line
    resumes: Time = 0.0
    room_since: Time = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadStatus:
    """Status of a TrainingJob or InferenceService; what does not apply keeps its default."""

    observed_generation: Count = 0
    phase: Text = ""
    restarts: Count = 0
    retry_at: Time = 0.0
    """Earliest time of the next start of the gang (back-off), 0 = at once."""
    last_failure: FailureRecord | None = None
    """What was counted last and may turn out to be the doing of a lost node."""
    nodes: Message = ""
    gpus: Count = 0
    start_time: Time = 0.0
    completion_time: Time = 0.0
    placement: tuple[Placement, ...] = ()
    decision: Annotated[DecisionRecord | None, IF_KNOWN] = None
    scheduling: SchedulingState = NOTHING
    """What later cycles need to know of earlier ones."""
    progress: Progress | None = None
    allocation: AllocationRecord | None = None
    recommendation: Annotated[
        tuple[Recommended, ...], Listed(most=MOST_RECOMMENDED, rank="rank"), IF_KNOWN
    ] = ()
    """Accelerators, the one to take first."""
    recommendation_basis: Text = ""
    """Digest of what it rests on."""
    spend: SpendRecord | None = None
    """Pools that were chosen, and what is spent; where pools are chosen for it."""
    made_room: MadeRoom | None = None
    """The last time that it made room for another."""
    sharing: Sharing | None = None
    template_hash: Text = ""
    replicas: Count = 0
    """Replicas of a service; members of an elastic gang, 0 = the job is not elastic."""
    size: SizeRecord | None = None
    tier: TierRecord | None = None
    """Where a job in tiers stands."""
    ready_replicas: Count = 0
    selector: Text = ""
    endpoint: Line = ""
    conditions: tuple[Condition, ...] = ()

    def condition(self, type_: str) -> Condition | None:
        """The condition of this type, if it is set."""
        for one in self.conditions:
            if one.type == type_:
                return one
        return None
