# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Operations of a step in a trace: parsed strictly, merged, bounded.

A trace is untrusted: errors name their place, and nothing is repaired. A profile must never grow
beyond its bound: small operations are merged first.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn, cast

from ullage.api.words import Kernel

Json = Mapping[str, object]

MOST_OPS: Final = 256
MOST_EVENTS: Final = 5_000_000
TYPE_LIMIT: Final = 128
REST: Final = "other"
"""Type of the rest when even one row per type is too many."""


class OpTraceError(ValueError):
    """The trace cannot be used; the text names the place and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedOp:
    """Operations of one type and size.

    Attributes:
        type: Name by the framework.
        count: Executions; first of the whole trace, later of one step.
        seconds: Of one execution; ``None`` = not timed.
        flops: Of one execution; ``None`` = not known.
        bytes_read: Bytes of its inputs; ``None`` = not known.
        parameter_bytes: Bytes of parameters among them; ``None`` = not known.
        bytes_written: Bytes of its outputs; ``None`` = not known.
        kernel: Kind of convolution; ``None`` = another operation, or not known.
        number: Format of its numbers, such as ``FP16``; empty = not known.
    """

    type: str
    count: float = 1.0
    seconds: float | None = None
    flops: float | None = None
    bytes_read: float | None = None
    parameter_bytes: float | None = None
    bytes_written: float | None = None
    kernel: Kernel | None = None
    number: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTrace:
    """One step of a trace.

    Attributes:
        ops: Operations of a step, the longest first; counts are whole.
        steps: Number of steps in the trace.
        step_s: Seconds of a step; ``None`` = no times.
        precision: Format of most of the arithmetic; empty = not known.
        device: Product name of the device; empty = unknown.
        peak_memory_bytes: Peak device memory in use; ``None`` = not recorded.
        merged: Number of kinds of operations merged to stay within the bound.
    """

    ops: tuple[TracedOp, ...]
    steps: int
    step_s: float | None = None
    precision: str = ""
    device: str = ""
    peak_memory_bytes: float | None = None
    merged: int = 0


def decoded(text: str) -> object:
    """Parse the JSON of a trace.

    Raises:
        TraceError: it is not JSON, or contains an invalid number.
    """

    def refused(word: str) -> NoReturn:
        raise OpTraceError(f"the trace holds {word}, which is no number; record it again")

    try:
        return json.loads(text, parse_constant=refused)
    except json.JSONDecodeError as error:
        raise OpTraceError(
            f"the trace is no JSON (line {error.lineno}: {error.msg}); a trace in protobuf must be"
            " exported as JSON first"
        ) from error
    except RecursionError as error:
        raise OpTraceError("the trace is nested too deeply to be one") from error


def objects(value: object, place: str) -> list[Json]:
    """A list of objects, bounded.

    Args:
        value: Parsed JSON.
        place: Its position in the trace, for the message.

    Raises:
        TraceError: it is not a list of objects, or too long.
    """
    if not isinstance(value, list):
        raise OpTraceError(f"{place}: expected a list; this is no trace of that form")
    if len(value) > MOST_EVENTS:
        raise OpTraceError(
            f"{place}: {len(value)} entries, at most {MOST_EVENTS}; trace fewer steps"
        )
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise OpTraceError(f"{place}[{index}]: expected an object")
    return cast("list[Json]", value)


def number(raw: Json, field: str, place: str) -> float | None:
    """A number of at least 0; ``None`` when absent.

    Args:
        raw: Parsed JSON object.
        field: Key of the number.
        place: Position of the object in the trace, for the message.

    Raises:
        TraceError: it is anything else.
    """
    value = raw.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise OpTraceError(f"{place}.{field}: expected a number, got {type(value).__name__}")
    if not math.isfinite(value) or value < 0:
        raise OpTraceError(f"{place}.{field}: {value} must be a finite number of at least 0")
    return float(value)


def together(
    ops: Iterable[TracedOp], steps: int, most: int = MOST_OPS
) -> tuple[tuple[TracedOp, ...], int]:
    """Operations of one step, equal ones in one row, and the number of merged kinds.

    Beyond the bound the cheapest kinds become one row per type and kind of convolution, then one
    row for the rest.

    Args:
        ops: Executions, or rows of several.
        steps: Number of steps of these executions.
        most: Most rows.

    Returns:
        Rows of one step, and the number of merged kinds.
    """
    exact = _grouped(ops, _sizes)
    ranked = sorted(exact, key=_weight)
    merged = 0
    if len(ranked) > most:
        keep = max(0, most - len({_type(op) for op in ranked}))
        merged = len(ranked) - keep
        rest = sorted(_grouped(ranked[keep:], _type), key=_weight)
        ranked = ranked[:keep] + rest
    if len(ranked) > most:
        last = [replace(op, type=REST) for op in ranked[most - 1 :]]
        ranked = ranked[: most - 1] + _grouped(last, lambda op: (op.type,))
    return tuple(_of_a_step(op, steps) for op in sorted(ranked, key=_weight)), merged


def _type(op: TracedOp) -> tuple[str, Kernel | None]:
    return op.type, op.kernel


def _sizes(op: TracedOp) -> tuple[object, ...]:
    """The key shared by equal operations."""
    sizes = op.bytes_read, op.parameter_bytes, op.bytes_written, op.flops
    return *_type(op), *sizes


def _weight(op: TracedOp) -> tuple[float, float, str, float, float]:
    """Order: most time first, then most arithmetic; the same for the same rows."""
    size = op.bytes_read or 0.0
    return -(op.seconds or 0) * op.count, -(op.flops or 0) * op.count, op.type, size, -op.count


def _of_a_step(op: TracedOp, steps: int) -> TracedOp:
    """Rows per step; an operation below once a step counts once, with its fraction of work."""
    per_step = op.count / steps
    count = max(1, round(per_step))
    part = per_step / count

    def scaled(value: float | None) -> float | None:
        return None if value is None else value * part

    return replace(
        op,
        type=op.type[:TYPE_LIMIT],
        count=float(count),
        seconds=scaled(op.seconds),
        flops=scaled(op.flops),
        bytes_read=scaled(op.bytes_read),
        parameter_bytes=scaled(op.parameter_bytes),
        bytes_written=scaled(op.bytes_written),
    )


def _grouped(
    ops: Iterable[TracedOp], key: Callable[[TracedOp], tuple[object, ...]]
) -> list[TracedOp]:
    groups: dict[tuple[object, ...], list[TracedOp]] = {}
    for op in ops:
        groups.setdefault(key(op), []).append(op)
    return [_mean(group) for group in groups.values()]


def _mean(group: Sequence[TracedOp]) -> TracedOp:
    """One row with the total count; each figure is the mean of the executions that have it."""

    def mean(pairs: Iterable[tuple[float, float | None]]) -> float | None:
        known = [(count, value) for count, value in pairs if value is not None]
        weight = math.fsum(count for count, _ in known)
        return math.fsum(count * value for count, value in known) / weight if weight else None

    return TracedOp(
        type=group[0].type,
        count=math.fsum(op.count for op in group),
        seconds=mean((op.count, op.seconds) for op in group),
        flops=mean((op.count, op.flops) for op in group),
        bytes_read=mean((op.count, op.bytes_read) for op in group),
        parameter_bytes=mean((op.count, op.parameter_bytes) for op in group),
        bytes_written=mean((op.count, op.bytes_written) for op in group),
        kernel=group[0].kernel if len({op.kernel for op in group}) == 1 else None,
        number=group[0].number,
    )


def precision_of(ops: Iterable[TracedOp]) -> str:
    """Number format of most of the arithmetic: by FLOPs where they are known, else by bytes."""
    weight: Counter[str] = Counter()
    for op in ops:
        if op.number:
            weight[op.number] += round((op.flops or 1e-3 * (op.bytes_read or 0.0)) * op.count)
    return min(weight, key=lambda precision: (-weight[precision], precision), default="")
