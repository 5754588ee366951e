# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""TuningJobs: what is searched, and the results so far.

The status is the search's memory: a result is counted when it stands there, once, in the order of
counting, and everything that is decided follows from that list and the spec.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias

from ullage.api.reasons import Reason
from ullage.api.tuningjob import TrialPool as TrialPool
from ullage.api.wire_fields import (
    INT32_MAX,
    KEPT,
    NEEDED,
    Count,
    Decimal,
    Flag,
    Line,
    Name,
    Schema,
    Text,
    Time,
    at_most,
    atomic,
    count,
    keyed,
    one_of,
    word,
)
from ullage.cluster.records.metrics import EpochNumber, Metric
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.status import BY_TYPE, Condition
from ullage.engines.tuning.algorithms import SearchTerms

MOST_PERCENT: Final = 1_600
"""Of a device, of one trial: 16 devices."""
MOST_RESULTS: Final = 4_000
"""Results of one search: at most trials / (1 - 1/eta), and as many again for brackets."""
MOST_GROUPS: Final = 64
MOST_RESIZES: Final = 512
PHASES: Final = ("Pending", "Running", "Succeeded", "Failed")
Parameters: TypeAlias = Annotated[
    tuple[tuple[str, Annotated[Text, at_most(36)]], ...], Schema(maxProperties=32)
]
"""Values of parameters as text, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """Value that a trial reached by an epoch at which trials are compared."""

    trial: EpochNumber
    """Number of the trial, from 0."""
    epoch: EpochNumber
    """Epoch of the result."""
    value: Metric | None = None
    """Its metric at that epoch; absent = none, and the trial does not go on."""
    reason: Annotated[Reason | None, word(Reason, Reason.METRIC_MISSING, grows=True)] = None
    """Why there is no value."""
    seconds: Annotated[int, count(INT32_MAX)] = 0
    """Duration of its TrainingJob, from its first start to its end; of all of them, where the trial
    was resized."""
    percent: Annotated[int, count(MOST_PERCENT)] = 0
    """With spec.resources: percent of a device that the trial asked for, 100 for each whole device.
    Absent = it was resized or interrupted, so its duration belongs to no width."""
    parameters: Parameters = ()
    """Parameters of the trial, in its first result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResize:
    """A running trial was stopped and resumes from its checkpoint with more or less of a device."""

    trial: EpochNumber
    """Number of the trial, from 0."""
    epoch: EpochNumber
    """Epoch that it runs to."""
    from_percent: Annotated[int, count(MOST_PERCENT), NEEDED]
    """Percent of a device that it had, 100 for each whole device."""
    to_percent: Annotated[int, count(MOST_PERCENT), NEEDED]
    """Percent of a device that it asks for, 100 for each whole device."""
    seconds: Annotated[int, count(INT32_MAX), KEPT] = 0
    """Time that it ran with `fromPercent`."""
    gain_seconds: Annotated[int, count(INT32_MAX)] = 0
    """How much sooner it is expected to end; absent = it makes room for others."""
    not_started: Flag = False
    """It found no device with `fromPercent` for two minutes."""
    time: Time = 0.0
    """When it was decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestTrial:
    """The trial with the best value; of equal ones the first."""

    name: Name
    """Name of the trial."""
    trial: EpochNumber
    """Number of the trial, from 0."""
    epoch: EpochNumber
    """Epoch of the value."""
    value: Annotated[Metric, NEEDED]
    """Its metric at that epoch."""
    parameters: Parameters = ()
    """Its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialCounts:
    """Numbers of trials by state."""

    waiting: Annotated[int, count(), KEPT] = 0
    """Not started, or promoted and not running yet."""
    running: Annotated[int, count(), KEPT] = 0
    """Running, or waiting for devices."""
    paused: Annotated[int, count(), KEPT] = 0
    """At the end of a rung that others have not reached."""
    ended: Annotated[int, count(), KEPT] = 0
    """Ended: stopped, complete or failed."""
    stopped: Annotated[int, count(), KEPT] = 0
    """Ended trials that were not promoted."""
    failed: Annotated[int, count(), KEPT] = 0
    """Ended trials without a result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """Trials that are compared at one epoch."""

    name: Name
    """Name of the group, such as rung-0."""
    epoch: EpochNumber
    """Epoch of the comparison."""
    trials: Annotated[int, count(), KEPT] = 0
    """Trials in it."""
    ended: Annotated[int, count(), KEPT] = 0
    """Trials that reached the epoch or never will."""
    start_time: Time = 0.0
    """When the first of them ran."""
    makespan_eta: Annotated[int, count(INT32_MAX), "makespanETASeconds"] = 0
    """Expected time from the start of the first trial to the end of the last; measured once all
    have ended. Absent until one has ended."""
    lower_bound: Annotated[int, count(INT32_MAX), "lowerBoundSeconds"] = 0
    """Least possible time with spec.parallelism trials at once, or with spec.resources."""
    utilisation: Decimal = ""
    """Part of the time of spec.parallelism places in which a trial of the group ran, 0 to 1; with
    spec.resources, work done as a part of what its devices could have done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningStatus:
    """Observed state of the search; a new operator resumes from it."""

    observed_generation: Count = 0
    """Generation of the spec that this status describes."""
    phase: Annotated[Text, one_of(*PHASES)] = ""
    """Where the search is."""
    start_time: Time = 0.0
    """When the first trial was created."""
    completion_time: Time = 0.0
    """When the search ended."""
    message: Line = ""
    """What the search is doing, in one sentence."""
    trials: TrialCounts = TrialCounts()
    """Numbers of trials by state."""
    best_trial: BestTrial | None = None
    """The trial with the best value so far, at the highest epoch that any trial reached."""
    groups: Annotated[tuple[GroupRecord, ...], keyed("name", most=MOST_GROUPS)] = ()
    """Groups of trials that are compared with each other."""
    results: Annotated[tuple[TrialResult, ...], atomic(MOST_RESULTS)] = ()
    """Every result, in the order in which they were counted."""
    resizes: Annotated[tuple[TrialResize, ...], atomic(MOST_RESIZES)] = ()
    """Resizes of trials, in the order in which they were decided: all of trials that run, and the
    newest of others."""
    conditions: Annotated[tuple[Condition, ...], BY_TYPE] = ()
    """Complete and Failed; until the search has ended Planned, Stalled and PoolTooSmall; Invalid,
    when the newest version cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRecord:
    """A TuningJob: spec, and the status that was read back."""

    ref: ObjectRef
    generation: int
    resource_version: str
    deleting: bool = False
    orphans: bool = False
    """Who deletes it keeps its trials."""
    terms: SearchTerms
    metric: str
    parallelism: int = 8
    max_failed_trials: int = 10
    trial_template: str = field(repr=False)
    """``spec.trialTemplate`` as canonical JSON."""
    pool: TrialPool | None = None
    """Devices that are divided among trials; ``None`` = each gets what the template says."""
    status: TuningStatus = field(default_factory=TuningStatus)
