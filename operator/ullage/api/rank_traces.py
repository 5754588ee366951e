# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Summary of the trace of one rank, as the node agent reports it.

The trace stays on its node; this is all of it that reaches the API. Standard library only. Whole
numbers on the wire: microseconds, counts, permille. The text of a trace is the tenant's: names are
cut and printable.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

from ullage.api.codec import Wire, derived, rows
from ullage.api.readers import MOST_COUNTED, JsonObject, WireError, objects
from ullage.api.wire_fields import (
    COUNT,
    INT32_MAX,
    KEPT,
    NEEDED,
    Counted,
    Kind,
    Schema,
    Text,
    at_most,
    atomic,
    between,
    counts,
    word,
)

RANK_TRACE_BYTES: Final = 8192
"""Most bytes of the JSON of one summary."""
MAX_TRACED_STEPS: Final = 50
MAX_COLLECTIVES: Final = 96
"""Most collectives of one summary; the same ones are kept in every rank."""
MAX_COLLECTIVE_KINDS: Final = 8
MAX_TOP_OPERATIONS: Final = 8
NAME_CHARACTERS: Final = 64
"""Characters of a name of an operation, a collective or a device."""


class Activity(StrEnum):
    """Use of a moment of a step."""

    COMPUTE = "Compute"
    COMMUNICATION = "Communication"
    COPY = "Copy"
    DATA_WAIT = "DataWait"
    HOST = "Host"
    IDLE = "Idle"


def _column(most: int) -> Kind:
    def read(raw: JsonObject, field: str) -> tuple[int, ...]:
        held = counts(raw, field)
        if len(held) > most:
            raise WireError(f"{field}: {len(held)} entries, at most {most}")
        return held

    def write(held: tuple[int, ...]) -> list[int]:
        return [min(value, MOST_COUNTED) for value in held[:most]]

    schema = Schema(type="array", items=COUNT, **atomic(most).keywords)
    return Kind(read, write, (), schema=schema)


_PerStep: TypeAlias = Annotated[tuple[int, ...], _column(MAX_TRACED_STEPS)]
_PerCollective: TypeAlias = Annotated[tuple[int, ...], _column(MAX_COLLECTIVES)]
_ShortName: TypeAlias = Annotated[Text, at_most(NAME_CHARACTERS)]
_Number: TypeAlias = Annotated[int, between(0, INT32_MAX)]


def _of_one_length(**columns: tuple[int, ...]) -> None:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise WireError(f"columns of different lengths: {lengths}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBreakdown(Wire):
    """A span of time divided; every moment counts once, as the first of these that holds.

    ``span`` = compute + communication + copies + dataWait + idle, to rounding.
    """

    span_micros: Annotated[Counted, KEPT] = 0
    """Length of the span."""
    compute_micros: Counted = 0
    """The device computes; without a device, an operation runs on the CPU."""
    communication_micros: Counted = 0
    """Exposed communication: a collective runs, and no computation."""
    copies_micros: Counted = 0
    """Copies and fills of memory run, and neither of these."""
    data_wait_micros: Counted = 0
    """None of these, while the program fetches its next batch."""
    idle_micros: Counted = 0
    """None of these."""
    overlapped_micros: Counted = 0
    """Part of compute during which a collective ran, too."""

    def share(self, micros: int) -> float:
        """A part of the span, from 0 to 1."""
        return min(1.0, micros / self.span_micros) if self.span_micros else 0.0


NO_TIME: Final = TimeBreakdown()


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath(Wire):
    """The chain of work that ends the steps last, divided by what it did."""

    compute_micros: Counted = 0
    """Computation on the device; without one, operations on the CPU."""
    communication_micros: Counted = 0
    """Collectives."""
    copies_micros: Counted = 0
    """Copies and fills of memory."""
    data_wait_micros: Counted = 0
    """Fetching the next batch."""
    host_micros: Counted = 0
    """The program on the CPU, between and before what it starts on the device."""
    idle_micros: Counted = 0
    """Time that no event of the trace explains."""


NO_PATH: Final = CriticalPath()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepColumns(Wire):
    """Steps of the window in order, a column for each figure; all have one length."""

    starts_micros: _PerStep = ()
    """Start, after the start of the window."""
    spans_micros: _PerStep = ()
    """Length of the step."""
    compute_micros: _PerStep = ()
    """As ``TimeBreakdown.compute_micros``."""
    communication_micros: _PerStep = ()
    """As ``TimeBreakdown.communication_micros``."""
    copies_micros: _PerStep = ()
    """As ``TimeBreakdown.copies_micros``."""
    data_wait_micros: _PerStep = ()
    """Time in which the program fetches its next batch, also while the device works."""

    def __post_init__(self) -> None:
        _of_one_length(
            starts=self.starts_micros,
            spans=self.spans_micros,
            compute=self.compute_micros,
            communication=self.communication_micros,
            copies=self.copies_micros,
            data_wait=self.data_wait_micros,
        )

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.starts_micros)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveKind(Wire):
    """Collectives of one name in one group of ranks."""

    name: Annotated[_ShortName, NEEDED]
    """Name, such as ``all_reduce``."""
    group: _ShortName = ""
    """Process group: its name and its ranks, as the trace has them; "" = not recorded."""


_KINDS: Final = rows(derived(CollectiveKind))


def _kinds(raw: JsonObject, field: str) -> object:
    stated = len(objects(raw, field))
    if stated > MAX_COLLECTIVE_KINDS:
        raise WireError(f"{field}: {stated} entries, at most {MAX_COLLECTIVE_KINDS}")
    return _KINDS.read(raw, field)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveColumns(Wire):
    """Collectives of the window in order of their start, a column for each figure.

    Of many, those with a round ordinal are kept: what a rank keeps, other ranks keep, too.
    """

    kinds: Annotated[
        tuple[CollectiveKind, ...],
        Kind(_kinds, _KINDS.write, (), schema=_KINDS.schema),
        atomic(MAX_COLLECTIVE_KINDS),
    ] = ()
    """The kinds that ``kind`` counts from 0."""
    kind: _PerCollective = ()
    """Kind of each."""
    step: _PerCollective = ()
    """Step of each, from 0."""
    ordinal: _PerCollective = ()
    """Place of each among those of its kind in its step, from 0."""
    of: _PerCollective = ()
    """Number of those of its kind in its step."""
    starts_micros: _PerCollective = ()
    """Start, after the start of the window: when this rank arrived."""
    spans_micros: _PerCollective = ()
    """Length: the rank that arrives last waits least."""

    def __post_init__(self) -> None:
        _of_one_length(
            kind=self.kind,
            step=self.step,
            ordinal=self.ordinal,
            of=self.of,
            starts=self.starts_micros,
            spans=self.spans_micros,
        )
        if self.kind and max(self.kind) >= len(self.kinds):
            raise WireError(f"kind: {max(self.kind)} is none of {len(self.kinds)}")

    def __len__(self) -> int:
        """Number of collectives."""
        return len(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopOperation(Wire):
    """An operation that took much of the window."""

    name: Annotated[_ShortName, NEEDED]
    """Name of a kernel; without a device, of an operation."""
    activity: Annotated[Activity, word(Activity), NEEDED]
    """Kind of work."""
    micros: Counted = 0
    """Sum of its times."""
    count: Counted = 0
    """Number of executions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCounters(Wire):
    """Counts and times of the window that findings rest on."""

    kernels: Counted = 0
    """Kernels on the device."""
    short_kernels: Counted = 0
    """Those below 10 microseconds."""
    unlaunched_permille: _Number = 0
    """Share of device work whose launch is not in the trace."""
    operations: Counted = 0
    """Operations on the CPU that stand in no other one."""
    synchronisations: Counted = 0
    """Calls in which the program waits for the device."""
    synchronisation_micros: Counted = 0
    """Time in these."""
    scalar_reads: Counted = 0
    """Values read back one by one, such as ``loss.item()``."""
    allocations: Counted = 0
    """Calls that allocate or free memory of the device."""
    pageable_micros: Counted = 0
    """Time of copies between device and memory that is not pinned."""


_OPERATIONS: Final = rows(derived(TopOperation))


def _operations(raw: JsonObject, field: str) -> object:
    stated = len(objects(raw, field))
    if stated > MAX_TOP_OPERATIONS:
        raise WireError(f"{field}: {stated} entries, at most {MAX_TOP_OPERATIONS}")
    return _OPERATIONS.read(raw, field)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace(Wire):
    """Summary of the steps that one rank traced."""

    rank: Annotated[int | None, between(0, INT32_MAX)] = None
    """Rank, as the file says; the node knows better. Absent = it does not say."""
    world_size: _Number = 0
    """Number of ranks, as the file says; 0 = it does not say."""
    trace_id: _ShortName = ""
    """The order that the trace answers, as the file says."""
    device: _ShortName = ""
    """Product name of the device; "" = a trace of the CPU alone."""
    start_micros: Annotated[Counted, KEPT] = 0
    """Start of the window, microseconds since the epoch by the clock of the node."""
    first_step: Counted = 0
    """Number of the first step in the run; 0 = not known."""
    events: Counted = 0
    """Events of the file."""
    step_marks: Counted = 0
    """Steps that the trace marks; 0 = none, and all of it counts as one step."""
    step: TimeBreakdown = NO_TIME
    """The steps, from the start of the first to the end of the last."""
    device_span: TimeBreakdown | None = None
    """From the first to the last work of the device, within the window."""
    critical_path: CriticalPath = NO_PATH
    """The chain of work that the steps waited for."""
    steps: StepColumns = StepColumns()
    """Each step."""
    collectives: CollectiveColumns = CollectiveColumns()
    """Collectives, for comparison of ranks."""
    operations: Annotated[
        tuple[TopOperation, ...],
        Kind(_operations, _OPERATIONS.write, (), schema=_OPERATIONS.schema),
        atomic(MAX_TOP_OPERATIONS),
    ] = ()
    """Operations that took most time, the longest first."""
    counters: TraceCounters = TraceCounters()
    """Counts that findings rest on."""
