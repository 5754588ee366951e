# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Orders of step traces in a GPUNode's spec, and the agent's reports on them.

Standard library only. An order names a pod of the node; the agent finds the pod's container among
its slices. The trace of a rank stays on the node: the status has a summary.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from ullage.api.captures import CAPTURE_STEPS_MOST, RANKS_MOST
from ullage.api.codec import Wire
from ullage.api.rank_traces import RANK_TRACE_BYTES
from ullage.api.readers import MOST_COUNTED, JsonObject, WireError
from ullage.api.wire_fields import (
    KEPT,
    NEEDED,
    Counted,
    Flag,
    Kind,
    Schema,
    Text,
    Word,
    at_most,
    atomic,
    between,
    counts,
    known_word,
)

MAX_TRACES: Final = 32
"""Most orders of one node; further ones wait."""
MAX_SUMMARIES: Final = 32
"""Most summaries in one status: with a large one each, a sixth of what an object may hold."""
MAX_RANK: Final = 99_999
MAX_TEXT: Final = 300
"""Characters of a text that a tenant's program may have written."""


class TraceState(StrEnum):
    """Progress of a pod with an order."""

    WAITING = "Waiting"
    READY = "Ready"
    ARMED = "Armed"
    CAPTURING = "Capturing"
    ANALYSING = "Analysing"
    DONE = "Done"
    FAILED = "Failed"

    @property
    def is_final(self) -> bool:
        """True when the agent does nothing more about the order."""
        return self in (TraceState.DONE, TraceState.FAILED)


def _ranks(raw: JsonObject, field: str) -> tuple[int, ...]:
    stated = counts(raw, field)
    if len(stated) > RANKS_MOST or any(rank > MAX_RANK for rank in stated):
        raise WireError(f"{field}: expected at most {RANKS_MOST} ranks of at most {MAX_RANK}")
    return stated


_RANKS: Final = Schema(
    type="array",
    items=Schema(type="integer", format="int32", minimum=0, maximum=MAX_RANK),
    **atomic(RANKS_MOST).keywords,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredTrace(Wire):
    """An order to trace some steps of a pod."""

    id: Annotated[Word, NEEDED]
    """Identity of the order, one per ProfileRequest and attempt."""
    pod_uid: Annotated[Word, NEEDED]
    """UID of the pod."""
    start_step: Annotated[int, between(0, MOST_COUNTED)] = 0
    """First step to trace, as the program counts them; absent = only report the pod's step."""
    steps: Annotated[int, between(1, CAPTURE_STEPS_MOST), NEEDED]
    """Number of steps."""
    stacks: Flag = False
    """Record Python stacks."""
    shapes: Flag = False
    """Record the shapes of inputs."""
    ranks: Annotated[tuple[int, ...], Kind(_ranks, list, (), schema=_RANKS)] = ()
    """Ranks of the job that are traced; absent = all of the pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceAnswer:
    """Answer of one rank of a pod."""

    local_rank: Annotated[int, between(0, RANKS_MOST - 1), KEPT] = 0
    """Its number in the container, from 0."""
    reason: Word = ""
    """Reason why there is no summary, as one stable word."""
    message: Annotated[Text, at_most(MAX_TEXT)] = ""
    """The reason in a sentence, with figures."""
    bytes: Counted = 0
    """Size of its trace, which stays in the container's directory."""
    summary: Annotated[Text, at_most(RANK_TRACE_BYTES)] = ""
    """Summary of its trace: a ``RankTrace`` as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTrace(Wire):
    """Progress of a node with an order."""

    id: Annotated[Word, NEEDED]
    """Identity of the order."""
    pod_uid: Annotated[Word, NEEDED]
    """UID of the pod."""
    state: Annotated[TraceState, known_word(TraceState), NEEDED]
    """Waiting for the pod's first step; Ready: its steps are known; Armed, Capturing, Analysing;
    Done; Failed."""
    reason: Word = ""
    """Reason for the failure, as one stable word."""
    message: Annotated[Text, at_most(MAX_TEXT)] = ""
    """The reason in a sentence, with figures."""
    step: Counted = 0
    """Step of the pod when it was Ready."""
    step_micros: Counted = 0
    """Recent time of one step, in microseconds."""
    ranks: Annotated[tuple[TraceAnswer, ...], atomic(RANKS_MOST)] = ()
    """Answers of its ranks so far."""
