# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Result of a trace of several ranks, as a status stores it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from ullage.api.codec import Wire
from ullage.api.rank_traces import NO_PATH, NO_TIME, CriticalPath, TimeBreakdown
from ullage.api.reasons import Reason
from ullage.api.wire_fields import (
    INT32,
    INT32_MAX,
    KEPT,
    NEEDED,
    Counted,
    Line,
    Text,
    Whole,
    at_most,
    atomic,
    between,
    keyed,
    word,
)

MAX_RANKS: Final = 64
"""Most ranks of a job that a status lists; the slowest ones stay."""
MAX_FINDINGS: Final = 16


class ClockAlignment(StrEnum):
    """Comparability of the times of several ranks."""

    ONE_CLOCK = "OneClock"
    """All ranks run on one node."""
    ALIGNED = "Aligned"
    """Clocks of nodes were compared by their collectives."""
    UNALIGNED = "Unaligned"
    """Too few collectives to compare clocks: arrivals are judged by waiting times alone."""


class DelayCause(StrEnum):
    """Part of a step that makes a rank arrive late."""

    INPUT = "Input"
    """It fetches its batches longer than the others."""
    COMPUTE = "Compute"
    """It computes longer."""
    COPIES = "Copies"
    """It copies longer."""
    HOST = "Host"
    """Its program takes longer outside of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRank(Wire):
    """One rank of the job."""

    rank: Annotated[int, between(0, INT32_MAX), NEEDED]
    """Rank in the job."""
    node: Annotated[Text, at_most(253)] = ""
    """Node that it runs on."""
    step: TimeBreakdown = NO_TIME
    """Its steps."""
    critical_path: CriticalPath = NO_PATH
    """Critical path of its steps."""
    arrives_last: Counted = 0
    """Number of collectives that waited for it."""
    lead_micros: Counted = 0
    """Total time that the others waited for it in these."""
    clock_offset_micros: Whole = 0
    """Its node's clock less that of the first rank's node."""
    clock_uncertainty_micros: Counted = 0
    """Bound of the error of the offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler(Wire):
    """The rank that others wait for."""

    rank: Annotated[int, between(0, INT32_MAX), NEEDED]
    """Its rank."""
    cause: Annotated[DelayCause, word(DelayCause), NEEDED]
    """Part of the step in which it falls behind."""
    arrives_last: Annotated[Counted, KEPT] = 0
    """Number of collectives that waited for it."""
    collectives: Annotated[Counted, KEPT] = 0
    """Number of collectives that were compared."""
    delay_micros: Counted = 0
    """Its delay per step against the median of the others, in that part."""
    slowdown_percent: Annotated[Counted, INT32] = 100
    """Its own work per step against the median of all ranks, in percent; 100 = equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFinding(Wire):
    """An avoidable cost in the steps."""

    reason: Annotated[Reason, word(Reason), NEEDED]
    """Kind of the finding."""
    share_percent: Annotated[Counted, INT32] = 0
    """Largest part of the step that could be saved, in percent."""
    rank: Annotated[int | None, between(0, INT32_MAX)] = None
    """The rank concerned; absent = all."""
    message: Line = ""
    """Evidence with figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTrace(Wire):
    """The steps of all ranks together."""

    first_step: Counted = 0
    """Number of the first step in the run; 0 = not known."""
    steps: Annotated[Counted, KEPT] = 0
    """Number of steps that every rank has."""
    step: TimeBreakdown = NO_TIME
    """Sums over all ranks."""
    alignment: Annotated[ClockAlignment, word(ClockAlignment), NEEDED]
    """Comparability of the ranks' times."""
    clock_uncertainty_micros: Counted = 0
    """Largest uncertainty between two nodes."""
    collectives: Counted = 0
    """Number of collectives that were matched in all ranks of their group."""
    straggler: Straggler | None = None
    """The rank that others wait for; absent = none."""
    ranks: Annotated[tuple[TracedRank, ...], keyed("rank", most=MAX_RANKS)] = ()
    """The ranks, in order."""
    ranks_left_out: Counted = 0
    """Number of ranks left out of the list."""
    findings: Annotated[tuple[TraceFinding, ...], atomic(MAX_FINDINGS)] = ()
    """Findings, the largest share first."""
    message: Line = ""
    """Summary in one line."""
