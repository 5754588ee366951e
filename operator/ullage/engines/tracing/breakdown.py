# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Uses of the time of a traced rank: which of its moments compute, communicate, copy, wait, idle.

A moment counts once: computation first, then communication, then copies, then waiting for data.
With a device its work counts, without one the operations on the CPU. There a collective's span
ends later than the wait for it (gloo closes it after it has released who waits), so communication
is what remains of it beside operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ullage.api.rank_traces import StepColumns, TimeBreakdown
from ullage.engines.tracing.intervals import Floats, Intervals
from ullage.engines.tracing.kineto_events import COPIES, DEVICE, KinetoTrace, Use
from ullage.engines.tracing.limits import invalid

_Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceWindow:
    """The traced steps.

    Attributes:
        edges: Start of each step and end of the last, microseconds; one more than steps. Work of
            the device that the last step started belongs to it.
        marks_end: End of the last step on the CPU.
        marked: False = the trace marks no steps: it counts as one.
    """

    edges: Floats
    marks_end: float
    marked: bool

    @property
    def start(self) -> float:
        """Start of the first step."""
        return float(self.edges[0])

    @property
    def end(self) -> float:
        """End of the last step."""
        return float(self.edges[-1])

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.edges) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Activities:
    """Times of each kind of work of a rank; these may overlap."""

    compute: Intervals
    communication: Intervals
    copies: Intervals
    fetches: Intervals


def has_device(trace: KinetoTrace) -> bool:
    """True if the trace has work of a device."""
    return bool(trace.of(*DEVICE).any())


def launched(trace: KinetoTrace, until: float = np.inf) -> _Flags:
    """True for work of the device whose launch is in the trace, not after ``until``."""
    matched = trace.of(*DEVICE) & (trace.correlations >= 0)
    calls = trace.of(Use.LAUNCH, Use.WAIT, Use.ALLOCATION) & (trace.correlations >= 0)
    calls &= trace.starts <= until
    matched[matched] = np.isin(trace.correlations[matched], trace.correlations[calls])
    return matched


def window_of(trace: KinetoTrace) -> TraceWindow:
    """The steps of a trace.

    Raises:
        TraceError: it has no operation and no work of a device.
    """
    work = trace.of(*DEVICE, Use.OPERATION, Use.HOST_COMMUNICATION, Use.HOST_COLLECTIVE)
    if not work.any():
        raise invalid(
            "the trace has no operation: it was taken before the first step, or without"
            " ProfilerActivity.CPU"
        )
    marks = trace.of(Use.STEP)
    if not marks.any():
        start, end = float(trace.starts[work].min()), float(trace.ends[work].max())
        return TraceWindow(edges=np.array([start, end]), marks_end=end, marked=False)
    starts = np.unique(trace.starts[marks])
    end = marks_end = float(trace.ends[marks].max())
    started = launched(trace, marks_end) & (trace.starts >= starts[0])
    if started.any():
        end = max(end, float(trace.ends[started].max()))
    return TraceWindow(edges=np.append(starts, end), marks_end=marks_end, marked=True)


def activities_of(trace: KinetoTrace) -> Activities:
    """Times of each activity in the whole trace."""
    fetching = trace.of(Use.FETCH)
    fetches = _union(trace, fetching)
    if has_device(trace):
        return Activities(
            compute=_union(trace, trace.of(Use.KERNEL)),
            communication=_union(trace, trace.of(Use.COLLECTIVE)),
            copies=_union(trace, trace.of(*COPIES)),
            fetches=fetches,
        )
    operations = trace.of(Use.OPERATION)
    for track in np.unique(trace.tracks[fetching]):  # what loads a batch is no computation
        own = trace.tracks == track
        loading = _union(trace, fetching & own)
        operations &= ~(own & loading.holds(trace.starts))
    return Activities(
        compute=_union(trace, operations),
        communication=_union(trace, trace.of(Use.HOST_COLLECTIVE, Use.HOST_COMMUNICATION)),
        copies=Intervals(np.empty(0), np.empty(0)),
        fetches=fetches,
    )


def _union(trace: KinetoTrace, chosen: _Flags) -> Intervals:
    return Intervals.union(trace.starts[chosen], trace.ends[chosen])


def divided(activities: Activities, edges: Floats) -> dict[str, Floats]:
    """Microseconds of each use between each two edges, by field of ``TimeBreakdown``."""
    compute = activities.compute.between(edges)
    communication = activities.communication.between(edges)
    working = activities.compute | activities.communication
    moving = working | activities.copies
    waiting = moving | activities.fetches
    spans = np.diff(edges)
    busy = [part.between(edges) for part in (working, moving, waiting)]
    return {
        "span": spans,
        "compute": compute,
        "communication": busy[0] - compute,
        "copies": busy[1] - busy[0],
        "data_wait": busy[2] - busy[1],
        "idle": spans - busy[2],
        "overlapped": compute + communication - busy[0],
    }


def breakdown(activities: Activities, edges: Floats) -> TimeBreakdown:
    """Division of the time from the first edge to the last."""
    parts = divided(activities, edges[[0, -1]])
    return TimeBreakdown(**{f"{name}_micros": micros(part[0]) for name, part in parts.items()})


def device_span(trace: KinetoTrace, activities: Activities) -> TimeBreakdown | None:
    """Division of the time from the first to the last work of the device; ``None`` = no device."""
    device = trace.of(*DEVICE)
    if not device.any():
        return None
    edges = np.array([trace.starts[device].min(), trace.ends[device].max()])
    return breakdown(activities, edges)


def step_columns(activities: Activities, window: TraceWindow, most: int) -> StepColumns:
    """Figures of each step, of the last ones where there are more than ``most``."""
    edges = window.edges[-most - 1 :]
    parts = divided(activities, edges)
    fetches = activities.fetches.between(edges)
    return StepColumns(
        starts_micros=_column(edges[:-1] - window.start),
        spans_micros=_column(parts["span"]),
        compute_micros=_column(parts["compute"]),
        communication_micros=_column(parts["communication"]),
        copies_micros=_column(parts["copies"]),
        data_wait_micros=_column(fetches),
    )


def _column(values: Floats) -> tuple[int, ...]:
    return tuple(micros(value) for value in values.tolist())


def micros(value: float) -> int:
    """Whole microseconds of at least 0."""
    return max(0, round(value))
