# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A workload without a GPU: it sleeps, and its times have a planted interference.

The durations are drawn from a known form, not timed: a busy machine must not change what the
analysis has to find again. The attachment is real as far as the fake of MPS is.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from itertools import accumulate
from pathlib import Path

from bench.gpu import planted
from bench.gpu.orders import Hello, Order, Report
from bench.gpu.pacing import arrivals_s, cpu_s, wait_until

_FAKES = Path(__file__).resolve().parents[2] / "tests" / "fakes" / "mps"
_ATTACH_S = 30.0


class Sleeper:
    """Sleeps the window once, at ``scale`` real seconds per second."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._connection: socket.socket | None = None

    def hello(self, key: str) -> Hello:
        """Attach to the fake as a CUDA process would; hold the attachment."""
        sys.path.insert(0, str(_FAKES))
        from fake_mps import cuda, wire  # type: ignore[import-not-found]

        try:
            self._connection = wire.dial(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", ""))
        except wire.NoDaemon:
            return Hello(key=key, pid=os.getpid(), sm_count=planted.SM_COUNT, attached=False)
        assert self._connection is not None
        self._connection.settimeout(_ATTACH_S)
        said = cuda.hello_of(os.environ, command=key, contexts=1, claimed_uid=None)
        wire.send(self._connection, {"hello": said})
        (answer,) = wire.Reader(self._connection).read() or [{"event": "closed"}]
        if answer["event"] != "attached":
            error = str(answer.get("error", answer["event"]))
            return Hello(key=key, pid=os.getpid(), sm_count=0, attached=False, error=error)
        return Hello(key=key, pid=os.getpid(), sm_count=int(answer["sm_count"]), attached=True)

    def run(self, order: Order) -> Report:
        """One window."""
        before = cpu_s()
        wait_until(order.start_s + order.warm_s * self._scale)
        at_ns = time.time_ns()
        durations, ends = drawn(order)
        wait_until(order.start_s + (order.warm_s + order.measured_s) * self._scale)
        used = cpu_s() - before
        return Report(
            window=order.window,
            t_start_ns=at_ns,
            durations_ms=durations,
            ends_s=ends,
            cpu_util=used / ((order.warm_s + order.measured_s) * self._scale),
            memory_mib=500.0,
        )

    def close(self) -> None:
        """Leave the fake in order."""
        if self._connection is not None:
            self._connection.close()


def drawn(order: Order) -> tuple[list[float], list[float]]:
    """Times of the iterations, ms, and their ends, s, of the measured part."""
    members = [(str(name), int(percent)) for name, percent in order.members]
    mean = planted.step_ms(members, order.place, order.seed)
    rng = random.Random(f"steps {order.seed} {order.place}")
    if order.rate:
        return _queued(order, mean, rng)
    durations, spent_ms = [], 0.0
    while True:
        one = mean * rng.lognormvariate(0.0, planted.NOISE)
        if spent_ms + one > order.measured_s * 1000:
            break
        spent_ms += one
        durations.append(one)
    return durations, [total / 1000 for total in accumulate(durations)]


def _queued(order: Order, mean: float, rng: random.Random) -> tuple[list[float], list[float]]:
    """First come, first served; the latency counts from the scheduled arrival."""
    free_s, durations, ends = 0.0, [], []
    for at_s in arrivals_s(order):
        service_s = mean * rng.lognormvariate(0.0, planted.NOISE) / 1000
        free_s = max(free_s, at_s) + service_s
        if order.warm_s <= at_s and free_s <= order.warm_s + order.measured_s:
            durations.append((free_s - at_s) * 1000)
            ends.append(free_s - order.warm_s)
    return durations, ends
