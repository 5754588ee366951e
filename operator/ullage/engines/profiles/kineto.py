# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the JSON that PyTorch's profiler exports (Kineto, Chrome trace events).

Device time of an operation is that of the kernels with its external id. In a trace without kernels,
from a CPU, it is the time outside inner operations. Times are microseconds in the file and seconds
here. Sizes need ``record_shapes``; without them the rows have only times. Files contain neither
results nor parameters: both follow from the arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.engines.profiles.calls import GRADIENT, OpCall, work_of
from ullage.engines.profiles.convolutions import Sizes
from ullage.engines.profiles.traces import (
    Json,
    OpTrace,
    OpTraceError,
    TracedOp,
    decoded,
    number,
    objects,
    precision_of,
    together,
)

US: Final = 1e-6
STEP: Final = re.compile(r"^ProfilerStep#(\d+)$")
KERNELS: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
CUDA: Final = 1
"""Device type of CUDA in memory events; 0 is the host."""
FLOP_FIELDS: Final = ("flops", "Flops", "kernel_flop")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """One complete event: its position in the file, its time and its thread."""

    place: str
    name: str
    category: str
    thread: tuple[str, str]
    start_us: float
    duration_us: float
    args: Json

    @property
    def end_us(self) -> float:
        return self.start_us + self.duration_us


def read_kineto(text: str, steps: int | None = None) -> OpTrace:
    """The step of a trace.

    Args:
        text: The JSON.
        steps: Steps in the trace, where it does not mark them.

    Raises:
        TraceError: it is not such a trace, has an invalid number, or marks no steps.
    """
    top = decoded(text)
    head: Json = top if isinstance(top, dict) else {}
    rows = objects(head.get("traceEvents", top), "traceEvents")
    read = (_event(row, at) for at, row in enumerate(rows))
    events = [event for event in read if event is not None]
    first_us, last_us, marked = _window(events, steps)
    inside = [event for event in events if first_us <= event.start_us < last_us]
    operations = [event for event in inside if event.category == "cpu_op"]
    if not operations:
        raise OpTraceError(
            "the trace holds no operations (category cpu_op): profile with ProfilerActivity.CPU"
        )
    kernels = [event for event in events if event.category in KERNELS]
    parameters = _parameters(operations)
    timed = list(
        _on_device(operations, kernels, parameters) if kernels else _on_cpu(operations, parameters)
    )
    ops, merged = together(timed, marked)
    return OpTrace(
        ops=ops,
        steps=marked,
        step_s=(last_us - first_us) * US / marked,
        precision=precision_of(ops),
        device=_device(head),
        peak_memory_bytes=_peak(rows, on_device=bool(kernels)),
        merged=merged,
    )


def _event(raw: Json, at: int) -> _Event | None:
    """A complete event (phase X); other events have no times."""
    if raw.get("ph") != "X":
        return None
    place = f"traceEvents[{at}]"
    start, duration = number(raw, "ts", place), number(raw, "dur", place)
    if start is None:
        raise OpTraceError(f"{place}.ts: missing")
    args = raw.get("args")
    return _Event(
        place=place,
        name=str(raw.get("name", "")),
        category=str(raw.get("cat", "")),
        thread=(str(raw.get("pid", "")), str(raw.get("tid", ""))),
        start_us=start,
        duration_us=duration or 0.0,
        args=args if isinstance(args, dict) else {},
    )


def _window(events: Sequence[_Event], steps: int | None) -> tuple[float, float, int]:
    """Start and end of the steps, and their number."""
    marks = [
        event
        for event in events
        if STEP.match(event.name) and event.category in ("user_annotation", "cpu_op")
    ]
    if marks:
        steps = len({mark.name for mark in marks})
        return min(mark.start_us for mark in marks), max(mark.end_us for mark in marks), steps
    if steps is None:
        raise OpTraceError(
            "the trace marks no steps: call step() on the profiler after each, or say how many it"
            " holds with --steps"
        )
    timed = [event for event in events if event.category == "cpu_op" or event.category in KERNELS]
    if not timed:
        raise OpTraceError("the trace holds no operations (category cpu_op)")
    return (
        min(event.start_us for event in timed),
        max(event.end_us for event in timed) + 1e-3,
        steps,
    )


def _on_device(
    operations: Sequence[_Event], kernels: Sequence[_Event], parameters: frozenset[Sizes]
) -> Iterator[TracedOp]:
    """Operations that started kernels, with the time of those kernels."""
    by_id: dict[object, float] = {}
    for kernel in kernels:
        identity = kernel.args.get("External id")
        by_id[identity] = by_id.get(identity, 0.0) + kernel.duration_us
    by_id.pop(None, None)
    for operation in operations:
        spent_us = by_id.pop(operation.args.get("External id"), None)
        if spent_us is not None:
            yield _op(operation, spent_us, parameters)


def _on_cpu(operations: Sequence[_Event], parameters: frozenset[Sizes]) -> Iterator[TracedOp]:
    """Every operation with its time outside inner ones."""
    threads: dict[tuple[str, str], list[_Event]] = {}
    for operation in operations:
        threads.setdefault(operation.thread, []).append(operation)
    for thread in sorted(threads):
        nested = sorted(threads[thread], key=lambda e: (e.start_us, -e.duration_us))
        yield from _own_times(nested, parameters)


@dataclass(slots=True)
class _Open:
    """An operation that has not ended yet, and the totals of its inner ones."""

    event: _Event
    inner_us: float = 0.0
    computed: bool = False


def _own_times(nested: Sequence[_Event], parameters: frozenset[Sizes]) -> Iterator[TracedOp]:
    """Own times of one thread's events, which are nested or disjoint."""
    open_: list[_Open] = []
    for event in nested:
        while open_ and open_[-1].event.end_us <= event.start_us:
            yield _closed(open_, parameters)
        open_.append(_Open(event))
    while open_:
        yield _closed(open_, parameters)


def _closed(open_: list[_Open], parameters: frozenset[Sizes]) -> TracedOp:
    """The innermost operation, without the arithmetic that its inner ones already count."""
    held = open_.pop()
    op = _op(held.event, max(0.0, held.event.duration_us - held.inner_us), parameters)
    if open_:
        open_[-1].inner_us += held.event.duration_us
        open_[-1].computed |= held.computed or bool(op.flops)
    return replace(op, flops=None) if held.computed else op


def _op(event: _Event, spent_us: float, parameters: frozenset[Sizes]) -> TracedOp:
    call = _call(event)
    work = work_of(call, parameters)
    stated = [number(event.args, field, f"{event.place}.args") for field in FLOP_FIELDS]
    return TracedOp(
        type=event.name,
        seconds=spent_us * US,
        flops=next((flops for flops in stated if flops), work.flops),
        bytes_read=work.bytes_read,
        parameter_bytes=work.parameter_bytes,
        bytes_written=work.bytes_written,
        kernel=work.kernel,
        number=call.format,
    )


def _call(event: _Event) -> OpCall:
    return OpCall.of(
        event.name,
        _list(event.args, "Input Dims"),
        _list(event.args, "Input type"),
        _list(event.args, "Concrete Inputs"),
    )


def _parameters(operations: Sequence[_Event]) -> frozenset[Sizes]:
    """Sizes of the model's parameters, from their gradients."""
    gradients = (_call(event) for event in operations if event.name == GRADIENT)
    return frozenset(sizes for call in gradients for sizes in call.shapes if sizes is not None)


def _list(args: Json, field: str) -> Sequence[object]:
    value = args.get(field)
    return value if isinstance(value, list) else []


def _device(top: Json) -> str:
    """Product name of the first device that the file describes."""
    listed = top.get("deviceProperties")
    first = listed[0] if isinstance(listed, list) and listed else {}
    return str(first.get("name", "")) if isinstance(first, Mapping) else ""


def _peak(rows: Sequence[Json], *, on_device: bool) -> float | None:
    """Largest total of the memory events (``profile_memory``) of the device."""
    peak: float | None = None
    for at, row in enumerate(rows):
        args = row.get("args")
        if row.get("name") != "[memory]" or not isinstance(args, dict):
            continue
        if (args.get("Device Type") == CUDA) != on_device:
            continue
        total = number(args, "Total Allocated", f"traceEvents[{at}].args")
        if total is not None:
            peak = max(peak or 0.0, total)
    return peak
