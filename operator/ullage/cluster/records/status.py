# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The status of a workload, the same record whether it was read back or is to be written.

Because both directions share one record, "nothing changed" is plain equality.
"""

from __future__ import annotations

from dataclasses import dataclass

from ullage.api.contract import Reason, SliceKey
from ullage.cluster.records.failure import FailureRecord
from ullage.cluster.records.room import MadeRoom
from ullage.cluster.records.scheduling_state import NOTHING, SchedulingState
from ullage.cluster.records.spend import SpendRecord
from ullage.cluster.records.tier import TierRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One Kubernetes condition; ``since`` is the last change of ``status``."""

    type: str
    status: str
    reason: str
    message: str = ""
    since: float = 0.0
    observed_generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one slice of one member stands; a summary of the GPUNode's spec for people."""

    key: SliceKey
    pod: str
    node: str
    gpu: str
    percent: int
    memory_mib: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalLine:
    """Devices that one reason stops: how many, the one that misses by least, and by how much."""

    reason: Reason
    devices: int
    nearest: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """Why a workload is where it is, or waits."""

    time: float
    epoch: int
    inputs_hash: str
    chosen: str
    runner_up: str
    reason: Reason
    message: str
    refusals: tuple[RefusalLine, ...] = ()
    alone: bool = False
    """No other workload joins its devices until its latency is measured."""
    identity: str = ""
    """Digest of all that was decided: two decisions with one identity are the same decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress by step records of the slowest member; ``total`` 0 = not declared.

    ``steps`` are of all starts where the present one says which step it went on from
    (``resumed_at``), and of the present one alone where it does not (0). ``expected_percent`` is
    where the line to the deadline was at that moment, 0 = no deadline.
    """

    steps: int
    resumed_at: int = 0
    total: int = 0
    percent: int = 0
    expected_percent: int = 0
    steps_per_second: str = ""
    eta: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Share of the slowest member and its slowdown, as decimal strings ("" = not known).

    ``predicted_upper`` is the bound that 95 of 100 such predictions stay below; ``attainment`` the
    part of the guard's windows that kept the objective; ``group``, ``source`` (rung), ``z``,
    ``threshold`` (lambda, ``Refuse`` = none is enough) and ``risk_used`` are of the admission.
    """

    percent: int
    memory_mib: int
    predicted: str = ""
    predicted_upper: str = ""
    observed: str = ""
    latency_ms: int = 0
    attainment: str = ""
    group: str = ""
    source: str = ""
    z: str = ""
    threshold: str = ""
    risk_used: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """Time on one accelerator type: of earlier turns, and since when the present one lasts."""

    seconds: int = 0
    since: float = 0.0

    def at(self, now: float) -> float:
        """Seconds had until a moment; a clock that went back adds nothing."""
        return self.seconds + (max(0.0, now - self.since) if self.since else 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedDeadline:
    """A deadline that the division of time does not keep; speeds in steps/s as decimal strings.

    ``cause`` is a ``DropCause`` of the API; ``approximate``: others might have been given up.
    """

    cause: str
    needed: str = ""
    best: str = ""
    approximate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRecord:
    """A job's part of the cluster's time, sorted by accelerator type; numbers as decimal strings.

    Between two writes the fractions and the type it holds are constant, so what is owed and what
    was received at any moment follow from ``since`` and need no write.
    """

    since: float
    fractions: tuple[tuple[str, str], ...] = ()
    effective_throughput: str = ""
    normalised_share: str = ""
    source: str = ""
    deficit_seconds: tuple[tuple[str, str], ...] = ()
    received: tuple[tuple[str, Received], ...] = ()
    isolated_seconds: str = ""
    skipped_since: float = 0.0
    restart_seconds: str = ""
    dropped: DroppedDeadline | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SolveRecord:
    """``SchedulingPolicy.status.lastSolve``: the division of the cluster that is in force."""

    time: float
    result: str
    inputs_hash: str
    fractions_hash: str
    jobs: int = 0
    objective_value: str = ""
    prices: tuple[tuple[str, str], ...] = ()
    """What one device more of a type is worth; sorted by type, those that are scarce only."""
    dropped: int = 0
    """Deadlines that it does not keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommended:
    """One accelerator for a job: time and cost of the whole training, and what speaks against it.

    ``None`` and "" = not known. ``low_s`` and ``high_s`` bound an estimate.
    """

    accelerator: str
    devices: int
    reason: Reason
    total_s: int | None = None
    low_s: int | None = None
    high_s: int | None = None
    cost: str = ""
    source: str = ""
    confidence: str = ""
    need_mib: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRecord:
    """Why an elastic gang has as many members as it has; ``since`` = when that last changed.

    ``resumes`` is set between two starts, while its places are kept; ``room_since`` while there is
    lasting room for more members. 0 = not so.
    """

    since: float
    reason: Reason
    message: str
    resumes: float = 0.0
    room_since: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadStatus:
    """Status of a TrainingJob or InferenceService; what does not apply keeps its default."""

    observed_generation: int = 0
    phase: str = ""
    restarts: int = 0
    retry_at: float = 0.0
    """Earliest time of the next start of the gang (back-off), 0 = at once."""
    last_failure: FailureRecord | None = None
    """The last counted failure, which a lost node may turn out to explain."""
    nodes: str = ""
    gpus: int = 0
    start_time: float = 0.0
    completion_time: float = 0.0
    placement: tuple[Placement, ...] = ()
    decision: DecisionRecord | None = None
    scheduling: SchedulingState = NOTHING
    """State for later cycles."""
    progress: Progress | None = None
    allocation: AllocationRecord | None = None
    recommendation: tuple[Recommended, ...] = ()
    """Accelerators, the one to take first."""
    recommendation_basis: str = ""
    """Digest of what it rests on."""
    spend: SpendRecord | None = None
    """Pools that were chosen, and what is spent; where pools are chosen for it."""
    made_room: MadeRoom | None = None
    """The last time that it made room for another."""
    sharing: Sharing | None = None
    template_hash: str = ""
    replicas: int = 0
    """Replicas of a service; members of an elastic gang, 0 = the job is not elastic."""
    size: SizeRecord | None = None
    tier: TierRecord | None = None
    """Where a job in tiers stands."""
    ready_replicas: int = 0
    selector: str = ""
    endpoint: str = ""
    conditions: tuple[Condition, ...] = ()

    def condition(self, type_: str) -> Condition | None:
        """The condition of this type, if it is set."""
        for one in self.conditions:
            if one.type == type_:
                return one
        return None
