# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A trace of a run as rows of a WorkloadProfile. Pure: bytes in, an object out.

The result is declared, not measured: the trace was taken elsewhere, under a profiler.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from io import BytesIO
from typing import Final

from ullage.api.labels import API_VERSION
from ullage.api.numbers import six_digits
from ullage.api.slices import accelerator_key
from ullage.cli.forms import TraceKind
from ullage.cli.profiles import ProfileError, checked
from ullage.cluster.codecs.profile import op_table_to_wire
from ullage.cluster.records.profile import OpRow, OpTable
from ullage.engines.profiles.chakra import read_chakra
from ullage.engines.profiles.kineto import read_kineto
from ullage.engines.profiles.traces import OpTrace, OpTraceError, TracedOp

MOST_BYTES: Final = 256 * 2**20
"""Maximum bytes of the unpacked JSON; some hundreds of steps of a large model."""
GZIP: Final = b"\x1f\x8b"


READERS: Final[Mapping[TraceKind, Callable[[str, int | None], OpTrace]]] = {
    TraceKind.KINETO: read_kineto,
    TraceKind.CHAKRA: read_chakra,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """The user's options for a trace; empty = not given."""

    kind: TraceKind
    workload_class: str
    accelerator: str = ""
    family: str = ""
    steps: int | None = None


def profile_of(
    data: bytes, traced: Traced, name: str, namespace: str, known: Set[str] | None
) -> tuple[dict[str, object], OpTrace]:
    """The profile made from a trace, and the trace.

    Args:
        data: The file, plain or gzip.
        traced: The user's options.
        name: Name of the object.
        namespace: Namespace of the object.
        known: Accelerators that it may name; ``None`` = any.

    Raises:
        ProfileError: the trace is unusable; the text has the remedy.
    """
    if not traced.workload_class:
        raise ProfileError(
            "a trace does not say whose it is: give the class of work with --class, as the pods'"
            " label ullage.dev/class or `kubectl get workloadprofiles` has it"
        )
    try:
        trace = READERS[traced.kind](_text(data), traced.steps)
    except OpTraceError as error:
        raise ProfileError(f"the trace cannot be imported: {error}") from error
    if trace.step_s is not None and not traced.accelerator:
        seen = f" (the trace names {accelerator_key(trace.device)})" if trace.device else ""
        raise ProfileError(f"times hold for one type of device: name it with --accelerator{seen}")
    body: dict[str, object] = {
        "apiVersion": API_VERSION,
        "kind": "WorkloadProfile",
        "metadata": {"name": name, "namespace": namespace},
        "spec": _spec(traced, trace),
    }
    return checked(body, known), trace


def summary(trace: OpTrace) -> str:
    """One-line summary of the trace."""
    step = "" if trace.step_s is None else f", {trace.step_s * 1e3:.4g} ms a step"
    format_ = f", mostly {trace.precision}" if trace.precision else ""
    merged = f"; {trace.merged} small kinds were put together" if trace.merged else ""
    return f"{len(trace.ops)} kinds of operations over {trace.steps} steps{step}{format_}{merged}"


def _spec(traced: Traced, trace: OpTrace) -> dict[str, object]:
    timed = trace.step_s is not None
    table = OpTable(
        ops=tuple(row_of(op) for op in trace.ops),
        accelerator=traced.accelerator if timed else "",
        precision=trace.precision,
    )
    spec: dict[str, object] = {"class": traced.workload_class}
    spec |= {"family": traced.family} if traced.family else {}
    if trace.step_s:
        solo: dict[str, object] = {
            "device": traced.accelerator,
            "share": 100,
            "stepsPerSecond": six_digits(1 / trace.step_s),
        }
        if trace.peak_memory_bytes:
            solo["peakMemoryBytes"] = six_digits(trace.peak_memory_bytes)
        spec["solo"] = [solo]
    return spec | {"opTable": op_table_to_wire(table)}


def row_of(op: TracedOp) -> OpRow:
    """The fields of an operation for a profile."""
    return OpRow(
        type=op.type or "unnamed",
        count=int(op.count),
        flops=op.flops,
        bytes_read=op.bytes_read,
        parameter_bytes=op.parameter_bytes,
        bytes_written=op.bytes_written,
        kernel=op.kernel,
        seconds=op.seconds,
    )


def _text(data: bytes) -> str:
    """The JSON of the file, unpacked, within the bound."""
    if data.startswith(GZIP):
        try:
            with gzip.open(BytesIO(data)) as packed:
                data = packed.read(MOST_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise ProfileError(f"the file is no whole gzip archive: {error}") from error
    if len(data) > MOST_BYTES:
        raise ProfileError(
            f"the trace has more than {MOST_BYTES >> 20} MiB: record fewer steps, without stacks"
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProfileError(
            "the file is no text: a trace in protobuf (.et) must be exported as JSON first"
        ) from error


def joined(held: Mapping[str, object], spec: Mapping[str, object]) -> dict[str, object]:
    """The spec with the data of a trace added; rows of other types of device stay.

    Raises:
        ProfileError: the profile is of another class.
    """
    if held.get("class") != spec["class"]:
        raise ProfileError(
            f"the profile is of class {held.get('class')!r}, the trace of {spec['class']!r}: import"
            " it under another name"
        )
    listed = [row for part in (held, spec) for row in _rows(part)]
    rows = {(str(row.get("device")), str(row.get("share"))): row for row in listed}
    solo = {"solo": [rows[key] for key in sorted(rows)]} if rows else {}
    return {**held, **spec, **solo}


def _rows(spec: Mapping[str, object]) -> list[Mapping[str, object]]:
    listed = spec.get("solo")
    return [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
