# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The chain of work that the end of the steps waited for, followed from the end to the start.

Work of the device starts when its launch was called and the work before it has ended: the later of
the two is its predecessor. The program goes on when what it waited for has ended. (derived; the
graph of HolisticTraceAnalysis has the same edges, here the heaviest one at each node is followed.)
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ullage.api.rank_traces import NO_PATH, CriticalPath
from ullage.engines.tracing.breakdown import Activities, TraceWindow, divided, micros
from ullage.engines.tracing.intervals import Intervals
from ullage.engines.tracing.kineto_events import DEVICE, KinetoTrace, Use

MOST_NODES: Final = 1_000_000
"""Most events of the device in the window for which a path is computed."""
_COMPUTE, _COMMUNICATION, _COPY = range(3)


def critical_path(trace: KinetoTrace, activities: Activities, window: TraceWindow) -> CriticalPath:
    """Time of each kind on the path through the window; all 0 for too large a window."""
    device = trace.of(*DEVICE) & (trace.starts >= window.start) & (trace.ends <= window.end)
    nodes = int(device.sum())
    if nodes == 0:
        return _host_path(activities, window)
    return _device_path(trace, activities, window, device) if nodes <= MOST_NODES else NO_PATH


def _host_path(activities: Activities, window: TraceWindow) -> CriticalPath:
    """Without a device the path is the program: what is none of its operations is itself."""
    parts = {
        name: micros(part[0]) for name, part in divided(activities, window.edges[[0, -1]]).items()
    }
    return CriticalPath(
        compute_micros=parts["compute"],
        communication_micros=parts["communication"],
        copies_micros=parts["copies"],
        data_wait_micros=parts["data_wait"],
        host_micros=parts["idle"],
    )


def _device_path(
    trace: KinetoTrace,
    activities: Activities,
    window: TraceWindow,
    device: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> CriticalPath:
    chosen = np.flatnonzero(device)
    chosen = chosen[np.lexsort((trace.starts[chosen], trace.ends[chosen]))]
    starts, ends = trace.starts[chosen].tolist(), trace.ends[chosen]
    kinds = _kinds(trace.uses[chosen]).tolist()
    launches = _launches(trace, trace.correlations[chosen]).tolist()
    # a copy from or to memory that is not pinned returns when it is done
    staged = trace.correlations[trace.of(Use.PAGEABLE_COPY) & (trace.correlations >= 0)]
    waits = trace.of(Use.WAIT) | (trace.of(Use.LAUNCH) & np.isin(trace.correlations, staged))
    order = np.argsort(trace.ends[waits], kind="stable")
    wait_starts = trace.starts[waits][order].tolist()
    wait_ends = trace.ends[waits][order]

    spent = [0.0, 0.0, 0.0]
    idle = 0.0
    host: list[tuple[float, float]] = []
    now = window.end
    at = len(chosen) - 1 if ends[-1] >= window.marks_end else -1  # -1: on the CPU
    bound = len(chosen)
    last_wait = len(wait_starts)
    end_of = ends.tolist()
    while now > window.start:
        if at >= 0:
            idle += max(0.0, now - end_of[at])
            start = max(window.start, starts[at])
            spent[kinds[at]] += max(0.0, min(now, end_of[at]) - start)
            now, bound = start, at
            before = min(int(np.searchsorted(ends, now, side="right")), bound) - 1
            launch = launches[at]
            queued = before >= 0 and not launch > end_of[before]
            if queued:
                at = before
            elif launch == launch:  # no NaN: the call is known
                host.append((launch, now))
                now, at = min(now, launch), -1
            else:
                idle += now - window.start
                break
            continue
        # the program, back to the last time it waited for the device
        last_wait = min(int(np.searchsorted(wait_ends, now, side="right")), last_wait) - 1
        if last_wait < 0:
            host.append((window.start, now))
            break
        waited = min(int(np.searchsorted(ends, wait_ends[last_wait], side="right")), bound) - 1
        if waited >= 0 and end_of[waited] > wait_starts[last_wait]:
            host.append((end_of[waited], now))
            now, at = end_of[waited], waited
    return _path(activities, spent, idle, host)


def _kinds(
    uses: np.ndarray[tuple[int], np.dtype[np.uint8]],
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    kinds = np.full(len(uses), _COPY, np.int64)
    kinds[uses == Use.KERNEL] = _COMPUTE
    kinds[uses == Use.COLLECTIVE] = _COMMUNICATION
    return kinds


def _launches(
    trace: KinetoTrace, correlations: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Time of the call that started each; NaN = it is not in the trace."""
    calls = np.flatnonzero(trace.of(Use.LAUNCH, Use.WAIT) & (trace.correlations >= 0))
    if not len(calls):
        return np.full(len(correlations), np.nan)
    calls = calls[np.argsort(trace.correlations[calls], kind="stable")]
    known = trace.correlations[calls]
    at = np.minimum(np.searchsorted(known, correlations), len(known) - 1)
    return np.where(known[at] == correlations, trace.starts[calls[at]], np.nan)


def _path(
    activities: Activities, spent: list[float], idle: float, host: list[tuple[float, float]]
) -> CriticalPath:
    """The program's stretches divided into waiting for data and the rest."""
    stretches = np.array(host).reshape(-1, 2)
    own = Intervals.union(stretches[:, 0], np.maximum(stretches[:, 0], stretches[:, 1]))
    rest = (own - activities.fetches).length
    return CriticalPath(
        compute_micros=micros(spent[_COMPUTE]),
        communication_micros=micros(spent[_COMMUNICATION]),
        copies_micros=micros(spent[_COPY]),
        data_wait_micros=micros(own.length - rest),
        host_micros=micros(rest),
        idle_micros=micros(idle),
    )
