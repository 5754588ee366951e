# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Events of PyTorch's profiler (Kineto) as columns of numbers.

Times are microseconds as in the file: ``ts`` counts from ``baseTimeNanoseconds``, or from the epoch
in files that have no such field. ``displayTimeUnit`` says nothing about them.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt

from ullage.engines.tracing.event_reader import EventReader, unpacked
from ullage.engines.tracing.limits import TraceLimits, invalid, too_large

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
NAME_KEPT: Final = 512
"""Characters by which names are told apart."""
MOST_US: Final = 1e16
"""Largest time; the epoch in microseconds stays below it for 300 years."""
MOST_CORRELATION: Final = 2**62
LONGEST_US: Final = 1e11
"""Longest event: a day and more."""
STEP: Final = re.compile(r"ProfilerStep\s*#\s*(\d{1,12})")
COLLECTIVE: Final = re.compile(r"(?:gloo|mpi|ucc|nccl|xccl|hccl):(\w+)")
_NCCL: Final = re.compile(r"nccl\w*?Kernel_?([A-Z][A-Za-z]+?)(?:_|\(|<|$)")
_NCCL_KERNEL: Final = re.compile(r"nccl.*Kernel")
_FETCH: Final = re.compile(r"enumerate\(DataLoader\)|.*dataloader_next")
_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SPELLED: Final = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
}
_COMMUNICATION_OPERATIONS: Final = ("c10d::", "record_param_comms", "gloo:", "nccl:", "mpi:")
_WAITS: Final = re.compile(r"(cuda|cu|hip)(Device|Stream|Event|Ctx)Synchronize$|(cuda|hip)Memcpy$")
_ALLOCATIONS: Final = re.compile(
    r"(cuda|hip)(Malloc|Free)(Host)?$|cuMem(Alloc|Free|Create|Map|Unmap)"
)


class Use(IntEnum):
    """Uses of a stretch of time by one event."""

    OPERATION = 0
    """An operation of the framework on the CPU."""
    LAUNCH = 1
    """A call of the device's runtime that does not wait."""
    WAIT = 2
    """A call of the runtime that waits for the device."""
    ALLOCATION = 3
    """A call that allocates or frees memory of the device."""
    FETCH = 4
    """The program fetches its next batch."""
    STEP = 5
    """A step, as the profiler marks it."""
    HOST_COLLECTIVE = 6
    """A collective of the CPU, such as one of gloo."""
    HOST_COMMUNICATION = 7
    """An operation of the CPU that starts a collective or waits for it."""
    KERNEL = 8
    """Computation on the device."""
    COLLECTIVE = 9
    """A collective on the device."""
    COPY = 10
    """A copy or fill of memory by the device."""
    PAGEABLE_COPY = 11
    """The same, between the device and memory that is not pinned."""


DEVICE: Final = (Use.KERNEL, Use.COLLECTIVE, Use.COPY, Use.PAGEABLE_COPY)
COPIES: Final = (Use.COPY, Use.PAGEABLE_COPY)
_NAMED: Final = frozenset({int(Use.STEP), int(Use.COLLECTIVE), int(Use.HOST_COLLECTIVE)})
_RUNTIME: Final = frozenset({"cuda_runtime", "cuda_driver", "xpu_runtime"})
_COPIES: Final = frozenset({"gpu_memcpy", "gpu_memset"})
_MARKED: Final = frozenset({"cpu_op", "user_annotation"})


class KinetoArguments(msgspec.Struct, gc=False):
    """Arguments of an event; any value may have any type."""

    correlation: object = None
    collective: object = msgspec.field(name="Collective name", default=None)
    group: object = msgspec.field(name="Process Group Name", default=None)
    ranks: object = msgspec.field(name="Process Group Ranks", default=None)


class KinetoEvent(msgspec.Struct, gc=False):
    """One event; only complete ones (phase X) have a duration. -inf = there is none."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    ts: float = -math.inf
    dur: float = 0.0
    tid: int | str = ""
    args: KinetoArguments | None = None


class _Distributed(msgspec.Struct):
    rank: object = None
    world_size: object = None


class _Device(msgspec.Struct):
    name: object = None


class _Order(msgspec.Struct):
    """Metadata that the step hook of Ullage writes."""

    id: object = None
    rank: object = None
    world: object = None
    step: object = None


class KinetoHead(msgspec.Struct):
    """Everything around the events that is used."""

    base_ns: int = msgspec.field(name="baseTimeNanoseconds", default=0)
    distributed: _Distributed | None = msgspec.field(name="distributedInfo", default=None)
    devices: list[_Device] = msgspec.field(name="deviceProperties", default_factory=list)
    ullage: _Order | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveName:
    """Name and group of a collective, as the trace has them; "" = not recorded."""

    name: str
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KinetoTrace:
    """The events of one rank that figures rest on, in order of the file, a column for each datum.

    Attributes:
        starts: Start of each event, microseconds since ``base_ns``.
        ends: End of each.
        uses: ``Use`` of each.
        names: Index of its name in ``name_table``.
        tracks: Number of its thread, or of its stream on a device.
        correlations: Number that a launch and its kernel share; -1 = none.
        collective_of: Of the collectives, by index of the event: name and group.
        step_numbers: Of the step marks, by index of the event: its number.
        name_table: Distinct names, each cut.
        events: Number of events of the file.
        base_ns: Nanoseconds since the epoch of time 0.
        rank: Rank that the file states; ``None`` = none.
        world_size: Number of ranks that the file states; 0 = none.
        device: Product name of the first device; "" = none.
        order_id: Order of Ullage that the trace belongs to; "" = none.
        first_step: Number of the first step in the run, as the step hook counts; 0 = not known.
    """

    starts: Floats
    ends: Floats
    uses: npt.NDArray[np.uint8]
    names: npt.NDArray[np.int32]
    tracks: npt.NDArray[np.int32]
    correlations: Whole
    collective_of: dict[int, CollectiveName]
    step_numbers: dict[int, int]
    name_table: tuple[str, ...]
    events: int
    base_ns: int = 0
    rank: int | None = None
    world_size: int = 0
    device: str = ""
    order_id: str = ""
    first_step: int = 0

    def of(self, *uses: Use) -> npt.NDArray[np.bool_]:
        """True for each event of one of these uses."""
        chosen = np.zeros(len(Use), np.bool_)
        chosen[list(uses)] = True
        return chosen[self.uses]


@dataclass(slots=True)
class _Columns:
    """Events while they are read."""

    limits: TraceLimits
    starts: array[float] = field(default_factory=lambda: array("d"))
    durations: array[float] = field(default_factory=lambda: array("d"))
    uses: array[int] = field(default_factory=lambda: array("B"))
    names: array[int] = field(default_factory=lambda: array("i"))
    tracks: array[int] = field(default_factory=lambda: array("i"))
    correlations: array[int] = field(default_factory=lambda: array("q"))
    collective_of: dict[int, CollectiveName] = field(default_factory=dict)
    step_numbers: dict[int, int] = field(default_factory=dict)
    kinds: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """Category, use and name of the events of a name; use -1 = no figure rests on them."""
    name_index: dict[str, int] = field(default_factory=dict)
    track_index: dict[int | str, int] = field(default_factory=dict)

    def add(self, batch: Iterable[KinetoEvent], first: int) -> None:
        """Take the complete events of a batch; ``first`` is the place of its first in the file."""
        kinds, tracks = self.kinds, self.track_index
        add_start, add_duration = self.starts.append, self.durations.append
        add_use, add_name, add_track = self.uses.append, self.names.append, self.tracks.append
        add_correlation = self.correlations.append
        for place, event in enumerate(batch, first):
            if event.ph != "X":
                continue
            name = event.name
            kind = kinds.get(name)
            if kind is None or kind[0] != event.cat:
                kind = self._new_kind(event.cat, name)
            use = kind[1]
            if use < 0:
                continue
            start, duration = event.ts, event.dur
            if not (-MOST_US < start < MOST_US and 0.0 <= duration < LONGEST_US):
                _refuse_times(place, start, duration)
            track = tracks.get(event.tid)
            if track is None:
                track = self._new_track(event.tid)
            arguments = event.args
            correlation = -1
            if arguments is not None:
                stated = arguments.correlation
                if type(stated) is int and 0 <= stated < MOST_CORRELATION:
                    correlation = stated
            if use in _NAMED:
                self._add_named(use, event)
            add_start(start)
            add_duration(duration)
            add_use(use)
            add_name(kind[2])
            add_track(track)
            add_correlation(correlation)

    def _add_named(self, use: int, event: KinetoEvent) -> None:
        """Contents of the names of collectives and steps, by the index of the event."""
        if use == Use.STEP:
            mark = STEP.match(event.name)
            self.step_numbers[len(self.starts)] = int(mark[1]) if mark else 0
        else:
            self.collective_of[len(self.starts)] = _collective(event.name, event.args)

    def _new_kind(self, category: str, name: str) -> tuple[str, int, int]:
        if len(self.kinds) >= self.limits.names and name not in self.kinds:
            raise too_large(f"its events have more than {self.limits.names} names")
        use = use_of(category, name)
        index = -1
        if use is not None:
            index = self.name_index.setdefault(name[:NAME_KEPT], len(self.name_index))
        kind = (category, -1 if use is None else int(use), index)
        self.kinds[name] = kind
        return kind

    def _new_track(self, thread: int | str) -> int:
        if len(self.track_index) >= self.limits.tracks:
            raise too_large(f"its events are on more than {self.limits.tracks} threads")
        track = self.track_index[thread] = len(self.track_index)
        return track


def _refuse_times(place: int, start: float, duration: float) -> NoReturn:
    if start == -math.inf:
        raise invalid(f"traceEvents[{place}].ts: missing")
    raise invalid(
        f"traceEvents[{place}]: it starts at {start:g} and takes {duration:g} microseconds, which"
        " cannot be"
    )


def use_of(category: str, name: str) -> Use | None:
    """Use of the time of an event; ``None`` = no figure rests on it."""
    if category == "kernel":
        return Use.COLLECTIVE if _NCCL_KERNEL.match(name) else Use.KERNEL
    if category in _COPIES:
        return Use.PAGEABLE_COPY if "Pageable" in name else Use.COPY
    if category in _RUNTIME:
        if _WAITS.match(name):
            return Use.WAIT
        return Use.ALLOCATION if _ALLOCATIONS.match(name) else Use.LAUNCH
    if category not in _MARKED:
        return None
    if STEP.match(name):
        return Use.STEP
    if _FETCH.match(name):
        return Use.FETCH
    if category == "user_annotation":
        return Use.HOST_COLLECTIVE if COLLECTIVE.match(name) else None
    if name.startswith(_COMMUNICATION_OPERATIONS):
        return Use.HOST_COMMUNICATION
    return Use.OPERATION


def _collective(name: str, arguments: KinetoArguments | None) -> CollectiveName:
    """Name and group of a collective: from its arguments, else from its name."""
    stated = arguments.collective if arguments is not None else None
    if isinstance(stated, str) and stated:
        plain = stated
    elif match := COLLECTIVE.match(name) or _NCCL.match(name):
        plain = match[1]
    else:
        plain = name
    spelled = _WORD.sub("_", plain).lower().lstrip("_").removesuffix("_base")
    spelled = _SPELLED.get(spelled, spelled)
    parts = (arguments.group, arguments.ranks) if arguments is not None else ()
    group = " ".join(part for part in parts if isinstance(part, str) and part)
    return CollectiveName(name=spelled, group=group)


def read_kineto_trace(chunks: Iterable[bytes], limits: TraceLimits | None = None) -> KinetoTrace:
    """Read one trace.

    Args:
        chunks: The file, plain or gzip, in pieces of any size.
        limits: Its limits.

    Raises:
        TraceError: it exceeds a limit, or is no trace of PyTorch's profiler.
    """
    limits = limits or TraceLimits()
    reader = EventReader(KinetoEvent, limits)
    columns = _Columns(limits)
    read = 0
    for batch in reader.batches(unpacked(chunks, limits)):
        columns.add(batch, read)
        read = reader.events
    head = reader.head(KinetoHead) or KinetoHead()
    starts = np.frombuffer(columns.starts, np.float64)
    distributed, order = head.distributed, head.ullage
    return KinetoTrace(
        starts=starts,
        ends=starts + np.frombuffer(columns.durations, np.float64),
        uses=np.frombuffer(columns.uses, np.uint8),
        names=np.frombuffer(columns.names, np.int32),
        tracks=np.frombuffer(columns.tracks, np.int32),
        correlations=np.frombuffer(columns.correlations, np.int64),
        collective_of=columns.collective_of,
        step_numbers=columns.step_numbers,
        name_table=tuple(columns.name_index),
        events=read,
        base_ns=_base(head.base_ns),
        rank=_count(order and order.rank, _count(distributed and distributed.rank)),
        world_size=_count(order and order.world, _count(distributed and distributed.world_size))
        or 0,
        device=_text(head.devices[0].name) if head.devices else "",
        order_id=_text(order.id) if order else "",
        first_step=_count(order and order.step) or 0,
    )


def _base(stated: int) -> int:
    if not 0 <= stated < MOST_US * 1e3:
        raise invalid(f"baseTimeNanoseconds: {stated:g} cannot be")
    return stated


def _count(value: object, otherwise: int | None = None) -> int | None:
    """A whole number of at least 0 that fits 31 bits."""
    return value if type(value) is int and 0 <= value < 2**31 else otherwise


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
