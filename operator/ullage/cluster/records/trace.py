# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""ProfileRequests: what is traced, how far it has come, and what was found.

The status is the memory of the trace: a new operator goes on from it and from what nodes report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias

from ullage.api.reasons import Reason
from ullage.api.times import DAY_S
from ullage.api.traces import MAX_RANK, MAX_TEXT, DesiredTrace, ObservedTrace
from ullage.api.wire_fields import (
    INT32_MAX,
    KEPT,
    NEEDED,
    Count,
    Line,
    Name,
    Text,
    Time,
    Word,
    atomic,
    between,
    count,
    cut,
    one_of,
    word,
)
from ullage.api.words import TracedKind
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.status import BY_TYPE, Condition
from ullage.engines.tracing.job_trace import JobTrace, TraceFinding

PHASES: Final = ("Pending", "Armed", "Capturing", "Analysing", "Done", "Failed")
MOST_PODS: Final = 64
"""Pods that one request traces."""
MOST_RANKS: Final = 256
Why: TypeAlias = Annotated[Reason | None, word(Reason, Reason.CAPTURE_FAILED, grows=True)]
SmallText: TypeAlias = Annotated[str, cut(MAX_TEXT, "…")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedPod:
    """A pod whose steps are traced."""

    uid: Annotated[Word, NEEDED]
    """UID of the pod."""
    pod: Name
    """Name of the pod."""
    node: Name
    """Node of the pod."""
    rank: Annotated[int | None, between(0, MAX_RANK)] = None
    """Index of the pod in its job, from 0, if its labels state one."""
    reason: Why = None
    """Reason why the pod takes no further part; absent = it takes part."""
    message: SmallText = ""
    """The reason in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWindow:
    """The steps that were traced, as the program counts them."""

    first_step: Annotated[Count, KEPT] = 0
    """First traced step."""
    last_step: Annotated[Count, KEPT] = 0
    """Last traced step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCapture:
    """Trace of one rank, or the reason why there is none."""

    rank: Annotated[int | None, between(0, MAX_RANK)] = None
    """Rank in the job; absent = not known, as the rank has no trace."""
    pod: Name
    """Name of the pod."""
    node: Name
    """Node of the pod."""
    local_rank: Annotated[int, count(INT32_MAX)] = 0
    """Its number in the container, from 0."""
    bytes: Count = 0
    """Size of its trace; `kubectl ullage trace get` reads it from the pod."""
    state: Annotated[Text, one_of("Done", "Failed"), NEEDED]
    """Done if its steps were traced."""
    reason: Why = None
    """Reason why they were not."""
    message: SmallText = ""
    """The reason in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequestStatus:
    """Progress and result of the request."""

    observed_generation: Count = 0
    """Generation of the spec that this status describes."""
    phase: Annotated[Text, one_of(*PHASES)] = ""
    """Pending: pods, or their current steps, are not known yet; Armed: all pods know the first step
    to trace; Capturing; Analysing; Done; Failed."""
    message: Line = ""
    """State of the request, in one sentence."""
    attempt: Annotated[int, count(INT32_MAX)] = 0
    """Number of the attempt: if the order reaches a rank too late, there is a second one."""
    asked_time: Time = 0.0
    """Time at which nodes were asked for the steps of the pods."""
    start_step: Count = 0
    """First step to trace; absent = not chosen yet."""
    give_up_time: Time = 0.0
    """Time at which the request ends without the ranks that are still missing."""
    completion_time: Time = 0.0
    """Time at which the request ended."""
    window: StepWindow | None = None
    """The steps that were traced."""
    pods: Annotated[tuple[TracedPod, ...], atomic(MOST_PODS)] = ()
    """Pods that are traced."""
    ranks: Annotated[tuple[RankCapture, ...], atomic(MOST_RANKS)] = ()
    """Traces by rank."""
    result: JobTrace | None = None
    """Analysis of all traces together."""
    conditions: Annotated[tuple[Condition, ...], BY_TYPE] = ()
    """Complete and Failed; Invalid, when the object cannot be read."""

    @property
    def is_over(self) -> bool:
        """True when the trace has ended."""
        return self.phase in ("Done", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequestRecord:
    """A ProfileRequest: spec, and the status that was read back.

    Attributes:
        job_kind: Kind of the traced job; empty = pods are found by ``labels``.
        labels: Labels of the pods, sorted.
        ranks: Ranks of the job by number; ``None`` = all, or those of a sample.
        sample: Up to four pods are traced, spread over the ranks.
    """

    ref: ObjectRef
    generation: int
    resource_version: str
    created: float
    deleting: bool = False
    job_kind: str = ""
    job_name: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    ranks: tuple[int, ...] | None = None
    sample: bool = False
    steps: int = 5
    stacks: bool = False
    shapes: bool = False
    ttl_s: int = DAY_S
    status: ProfileRequestStatus = field(default_factory=ProfileRequestStatus)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastTrace:
    """The newest finished trace of a TrainingJob.

    Attributes:
        name: Of its ProfileRequest.
        ended: Its end, seconds since the epoch.
        pods: Uids of the pods that were traced: a job that started again has others.
        first_step: First step; 0 = not known.
        steps: Steps that every rank has.
        findings: Its findings.
    """

    name: str
    ended: float
    pods: tuple[str, ...]
    first_step: int
    steps: int
    findings: tuple[TraceFinding, ...]


def last_traces(
    requests: Iterable[ProfileRequestRecord],
) -> Mapping[tuple[str, str], LastTrace]:
    """The newest finished trace of each TrainingJob, by its namespace and name."""
    last: dict[tuple[str, str], LastTrace] = {}
    for request in requests:
        result = request.status.result
        if result is None or request.job_kind != TracedKind.TRAINING_JOB:
            continue
        at = request.ref.namespace, request.job_name
        if at in last and last[at].ended >= request.status.completion_time:
            continue
        last[at] = LastTrace(
            name=request.ref.name,
            ended=request.status.completion_time,
            pods=tuple(pod.uid for pod in request.status.pods),
            first_step=result.first_step,
            steps=result.steps,
            findings=result.findings,
        )
    return last


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTraces:
    """Step traces of one GPUNode; not part of a snapshot, as no decision needs them.

    Attributes:
        uid: Of the GPUNode.
        orders: What its spec orders.
        reports: What its agent reports.
    """

    uid: str
    orders: tuple[DesiredTrace, ...] = ()
    reports: tuple[ObservedTrace, ...] = ()
