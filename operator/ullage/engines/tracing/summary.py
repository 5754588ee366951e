# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Summary of the trace of one rank, of at most ``RANK_TRACE_BYTES``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ullage.api.rank_traces import (
    MAX_COLLECTIVE_KINDS,
    MAX_COLLECTIVES,
    MAX_TOP_OPERATIONS,
    MAX_TRACED_STEPS,
    NAME_CHARACTERS,
    RANK_TRACE_BYTES,
    Activity,
    CollectiveColumns,
    CollectiveKind,
    RankTrace,
    TopOperation,
    TraceCounters,
)
from ullage.engines.tracing.breakdown import (
    TraceWindow,
    activities_of,
    breakdown,
    device_span,
    has_device,
    launched,
    micros,
    step_columns,
    window_of,
)
from ullage.engines.tracing.critical_path import critical_path
from ullage.engines.tracing.kineto_events import (
    DEVICE,
    CollectiveName,
    KinetoTrace,
    Use,
    read_kineto_trace,
)
from ullage.engines.tracing.limits import TraceLimits

SHORT_KERNEL_US: Final = 10.0
_SCALAR_READ: Final = "aten::_local_scalar_dense"
_ACTIVITY: Final = {
    Use.OPERATION: Activity.COMPUTE,
    Use.KERNEL: Activity.COMPUTE,
    Use.COLLECTIVE: Activity.COMMUNICATION,
    Use.HOST_COLLECTIVE: Activity.COMMUNICATION,
    Use.COPY: Activity.COPY,
    Use.PAGEABLE_COPY: Activity.COPY,
}
_Flags = npt.NDArray[np.bool_]


def summarised(chunks: Iterable[bytes], limits: TraceLimits | None = None) -> RankTrace:
    """The summary of a trace in Kineto's format.

    Args:
        chunks: The file, plain or gzip, in pieces of any size.
        limits: Its limits.

    Raises:
        TraceError: it exceeds a limit, is no trace, or has no operation.
    """
    return rank_trace(read_kineto_trace(chunks, limits))


def rank_trace(trace: KinetoTrace) -> RankTrace:
    """The summary of a trace.

    Raises:
        TraceError: it has no operation and no work of a device.
    """
    window = window_of(trace)
    activities = activities_of(trace)
    first_kept = max(0, window.steps - MAX_TRACED_STEPS)
    summary = RankTrace(
        rank=trace.rank,
        world_size=trace.world_size,
        trace_id=printable(trace.order_id),
        device=printable(trace.device) if has_device(trace) else "",
        start_micros=micros(trace.base_ns / 1e3 + window.start),
        first_step=trace.first_step + first_kept if trace.first_step else 0,
        events=trace.events,
        step_marks=window.steps if window.marked else 0,
        step=breakdown(activities, window.edges),
        device_span=device_span(trace, activities),
        critical_path=critical_path(trace, activities, window),
        steps=step_columns(activities, window, MAX_TRACED_STEPS),
        collectives=_collectives(trace, window, first_kept),
        operations=_top_operations(trace, window),
        counters=_counters(trace, window),
    )
    return _fitted(summary)


def printable(name: str) -> str:
    """A name of a trace, cut, in printable ASCII."""
    kept = name if len(name) <= NAME_CHARACTERS else name[: NAME_CHARACTERS - 3] + "..."
    return "".join(letter if " " <= letter <= "~" else "?" for letter in kept)


def size_of(summary: RankTrace) -> int:
    """Bytes of its JSON."""
    return len(json.dumps(summary.to_wire(), separators=(",", ":")))


def _fitted(summary: RankTrace) -> RankTrace:
    """The summary within its limit: first with fewer collectives, then with fewer operations."""
    while size_of(summary) > RANK_TRACE_BYTES:
        if len(summary.collectives):
            fewer = thinned(summary.collectives, len(summary.collectives) // 2)
            summary = replace(summary, collectives=fewer)
        else:
            summary = replace(summary, operations=summary.operations[:-1])
    return summary


@dataclass(frozen=True, slots=True)
class _Executed:
    """A collective of the window."""

    start: float
    end: float
    step: int
    name: CollectiveName


def _collectives(trace: KinetoTrace, window: TraceWindow, first: int) -> CollectiveColumns:
    """The collectives of the steps from ``first`` on."""
    use = Use.COLLECTIVE if has_device(trace) else Use.HOST_COLLECTIVE
    chosen = np.flatnonzero(trace.of(use))
    chosen = chosen[np.argsort(trace.starts[chosen], kind="stable")]
    steps = np.searchsorted(window.edges, trace.starts[chosen], side="right") - 1
    executed = [
        _Executed(
            float(trace.starts[index]),
            float(trace.ends[index]),
            step - first,
            trace.collective_of[index],
        )
        for index, step in zip(chosen.tolist(), steps.tolist(), strict=True)
        if first <= step < window.steps
    ]
    common = Counter(collective.name for collective in executed).most_common()
    common.sort(key=lambda pair: (-pair[1], pair[0].name, pair[0].group))
    kinds = {name: place for place, (name, _) in enumerate(common[:MAX_COLLECTIVE_KINDS])}
    executed = [collective for collective in executed if collective.name in kinds]
    of = Counter((collective.step, collective.name) for collective in executed)
    passed: Counter[tuple[int, CollectiveName]] = Counter()
    rows = []
    for collective in executed:
        key = (collective.step, collective.name)
        start = micros(collective.start - window.start)
        span = micros(collective.end - collective.start)
        rows.append((kinds[collective.name], collective.step, passed[key], of[key], start, span))
        passed[key] += 1
    columns = CollectiveColumns(
        kinds=tuple(
            CollectiveKind(name=printable(name.name), group=printable(name.group)) for name in kinds
        )
    )
    return _thinned_rows(columns, rows, MAX_COLLECTIVES)


_Row = tuple[int, int, int, int, int, int]


def thinned(columns: CollectiveColumns, most: int) -> CollectiveColumns:
    """At most ``most`` of the collectives."""
    rows = zip(
        columns.kind,
        columns.step,
        columns.ordinal,
        columns.of,
        columns.starts_micros,
        columns.spans_micros,
        strict=True,
    )
    return _thinned_rows(columns, list(rows), most)


def _thinned_rows(columns: CollectiveColumns, rows: list[_Row], most: int) -> CollectiveColumns:
    """Keep collectives whose ordinals, then whose steps, are multiples of a power of two.

    So what a rank keeps of many, a rank keeps of few, and both can be compared.
    """
    by_ordinal, by_step = 1, 1
    while len(rows) > most:
        if any(row[2] for row in rows):
            by_ordinal *= 2
            rows = [row for row in rows if row[2] % by_ordinal == 0]
        elif any(row[1] for row in rows):
            by_step *= 2
            rows = [row for row in rows if row[1] % by_step == 0]
        else:
            rows = rows[:most]
    kind, step, ordinal, of, starts, spans = zip(*rows, strict=True) if rows else ((),) * 6
    return replace(
        columns,
        kind=kind,
        step=step,
        ordinal=ordinal,
        of=of,
        starts_micros=starts,
        spans_micros=spans,
    )


def _within(trace: KinetoTrace, window: TraceWindow) -> _Flags:
    flags: _Flags = (trace.starts >= window.start) & (trace.starts <= window.marks_end)
    return flags


def _top_operations(trace: KinetoTrace, window: TraceWindow) -> tuple[TopOperation, ...]:
    """Names by time: of work of the device, else of operations without those inside them."""
    if has_device(trace):
        chosen = np.flatnonzero(trace.of(*DEVICE) & (trace.starts <= window.end))
        chosen = chosen[trace.starts[chosen] >= window.start]
        times = trace.ends[chosen] - trace.starts[chosen]
    else:
        chosen = np.flatnonzero(trace.of(Use.OPERATION) & _within(trace, window))
        times = own_times(trace, chosen)
        spans = np.flatnonzero(trace.of(Use.HOST_COLLECTIVE) & _within(trace, window))
        chosen = np.concatenate((chosen, spans))
        times = np.concatenate((times, trace.ends[spans] - trace.starts[spans]))
    if not len(chosen):
        return ()
    kinds = trace.names[chosen].astype(np.int64) * len(Use) + trace.uses[chosen]
    distinct, place, counts = np.unique(kinds, return_inverse=True, return_counts=True)
    totals = np.bincount(place, weights=times)
    longest = np.lexsort((distinct, -totals))[:MAX_TOP_OPERATIONS]
    return tuple(
        TopOperation(
            name=printable(trace.name_table[int(distinct[at]) // len(Use)]),
            activity=_ACTIVITY[Use(int(distinct[at]) % len(Use))],
            micros=micros(float(totals[at])),
            count=int(counts[at]),
        )
        for at in longest
    )


def own_times(trace: KinetoTrace, chosen: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Microseconds of each chosen operation outside those that run inside it on its thread."""
    starts, ends = trace.starts[chosen], trace.ends[chosen]
    own = ends - starts
    order = np.lexsort((-ends, starts, trace.tracks[chosen]))
    tracks = trace.tracks[chosen]
    open_: list[int] = []
    inner = np.zeros(len(chosen))
    rows = zip(
        order.tolist(),
        starts[order].tolist(),
        ends[order].tolist(),
        tracks[order].tolist(),
        strict=True,
    )
    track = -1
    end_of: list[float] = []
    for at, start, end, thread in rows:
        if thread != track:
            open_.clear()
            end_of.clear()
            track = thread
        while end_of and end_of[-1] <= start:
            end_of.pop()
            open_.pop()
        if open_:
            inner[open_[-1]] += min(end, end_of[-1]) - start
        open_.append(at)
        end_of.append(end)
    return np.maximum(0.0, own - inner)


def _counters(trace: KinetoTrace, window: TraceWindow) -> TraceCounters:
    inside = _within(trace, window)
    times = trace.ends - trace.starts
    device = trace.of(*DEVICE)
    kernels = trace.of(Use.KERNEL, Use.COLLECTIVE) & inside
    unlaunched = int((device & ~launched(trace)).sum())
    waits = trace.of(Use.WAIT) & inside
    operations = trace.of(Use.OPERATION) & inside
    scalar = next((at for at, name in enumerate(trace.name_table) if name == _SCALAR_READ), -1)
    return TraceCounters(
        kernels=int(kernels.sum()),
        short_kernels=int((kernels & (times < SHORT_KERNEL_US)).sum()),
        unlaunched_permille=round(1000 * unlaunched / max(1, int(device.sum()))),
        operations=_outermost(trace, np.flatnonzero(operations)),
        synchronisations=int(waits.sum()),
        synchronisation_micros=micros(float(times[waits].sum())),
        scalar_reads=int((operations & (trace.names == scalar)).sum()),
        allocations=int((trace.of(Use.ALLOCATION) & inside).sum()),
        pageable_micros=micros(float(times[trace.of(Use.PAGEABLE_COPY) & inside].sum())),
    )


def _outermost(trace: KinetoTrace, chosen: npt.NDArray[np.int64]) -> int:
    """Number of the chosen operations that begin while none of their thread runs."""
    total = 0
    order = chosen[np.lexsort((-trace.ends[chosen], trace.starts[chosen], trace.tracks[chosen]))]
    changes = np.flatnonzero(np.diff(trace.tracks[order])) + 1
    for thread in np.split(order, changes):
        if len(thread):
            latest = np.maximum.accumulate(trace.ends[thread])
            total += 1 + int((trace.starts[thread][1:] >= latest[:-1]).sum())
    return total
