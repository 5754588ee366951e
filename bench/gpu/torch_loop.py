# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A workload on a real GPU: iterations timed by CUDA events, after an event's synchronisation.

Imported only by a worker on a machine with a GPU; torch is looked up by name so that nothing else
needs it. Nothing of this has been run here without a GPU, and nothing of it is ever a stand-in.
"""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

from bench.gpu.orders import Hello, Order, Report
from bench.gpu.pacing import arrivals_s, cpu_s, wait_until

WARM_ITERATIONS = 20
_MIB = 1 << 20


class TorchLoop:
    """One workload of ``bench.gpu.models``, captured as a CUDA graph where servers do that."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._torch: Any = None
        self._step: Any = None
        self._graph = False

    def hello(self, key: str) -> Hello:
        """Make the context and the model, run the first iterations, say what was seen."""
        models = importlib.import_module("bench.gpu.models")
        torch = self._torch = importlib.import_module("torch")
        torch.manual_seed(0)
        torch.set_num_threads(3)
        seen = int(torch.cuda.get_device_properties(0).multi_processor_count)
        try:
            self._step, self._graph = models.build(torch, self._name)
            for _ in range(WARM_ITERATIONS):
                self._step()
            torch.cuda.synchronize()
        except (RuntimeError, ImportError) as error:  # out of memory, a kernel that will not build
            return Hello(key=key, pid=os.getpid(), sm_count=seen, attached=True, error=str(error))
        return Hello(key=key, pid=os.getpid(), sm_count=seen, attached=True)

    def run(self, order: Order) -> Report:
        """One window; an error of the device ends in the report, not in a crash."""
        try:
            return self._window(order)
        except RuntimeError as error:
            return Report(
                window=order.window, t_start_ns=time.time_ns(), durations_ms=[], ends_s=[],
                cpu_util=0.0, error=str(error)[:200],
            )  # fmt: skip

    def _window(self, order: Order) -> Report:
        torch = self._torch
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        wait_until(order.start_s)
        measured_from_s = order.start_s + order.warm_s
        until_s = measured_from_s + order.measured_s
        schedule = iter(arrivals_s(order)) if order.rate else None
        durations, ends, launches = [], [], 0
        begun_ns, before = 0, cpu_s()
        while True:
            arrival_s = order.start_s + next(schedule, float("inf")) if schedule else None
            if arrival_s is not None:
                wait_until(min(arrival_s, until_s))
            now_s = time.monotonic()
            if now_s >= until_s:
                break
            if now_s >= measured_from_s and not begun_ns:
                begun_ns, before = time.time_ns(), cpu_s()
            start.record()
            self._step()
            end.record()
            end.synchronize()
            done_s, launches = time.monotonic(), launches + 1
            if now_s >= measured_from_s and done_s <= until_s:
                took = start.elapsed_time(end) if arrival_s is None else (done_s - arrival_s) * 1e3
                durations.append(float(took))
                ends.append(done_s - measured_from_s)
        return Report(
            window=order.window,
            t_start_ns=begun_ns or time.time_ns(),
            durations_ms=durations,
            ends_s=ends,
            cpu_util=(cpu_s() - before) / order.measured_s,
            memory_mib=torch.cuda.max_memory_reserved() / _MIB,
            graph_launches=launches if self._graph else 0,
        )

    def close(self) -> None:
        """Drain before leaving: a client that dies with work in flight breaks the server."""
        if self._torch is not None:
            self._torch.cuda.synchronize()
