# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Worker processes: started a few at a time, parked on a socket, released together.

A worker is told to quit and drains before it leaves; no one is killed while attached, except one
that does not answer, and then the run ends.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.gpu.orders import Hello, Line, Order, Report, WorkerGone
from bench.gpu.plan import Member

AT_A_TIME: Final = 8
LEAVE_S: Final = 10.0
_ROOT = Path(__file__).resolve().parents[2]


class CrewStuck(Exception):
    """Workers did not come up in time; names them."""


class Worker:
    """One process and its end of the socket."""

    def __init__(self, member: Member, process: subprocess.Popen[bytes]) -> None:
        self.member = member
        self.process = process
        self.line: Line | None = None
        self.hello: Hello | None = None

    @property
    def alive(self) -> bool:
        """Whether it can still take an order."""
        return self.line is not None and self.process.poll() is None


class Crew:
    """All workers of a run, by key."""

    def __init__(self, folder: Path, env: Mapping[str, str], *, scale: float) -> None:
        self.workers: dict[str, Worker] = {}
        self._env = env
        self._scale = scale
        self._path = folder / "s"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._path))
        self._listener.listen(64)

    def start(self, members: Sequence[Member], *, mps: bool, timeout_s: float) -> None:
        """Start workers, eight at a time, and wait for their hellos.

        Raises:
            CrewStuck: some did not say hello in time.
        """
        end_s = time.monotonic() + timeout_s
        for start in range(0, len(members), AT_A_TIME):
            batch = members[start : start + AT_A_TIME]
            for one in batch:
                self.workers[one.key] = Worker(one, self._spawn(one, mps=mps))
            self._greet({one.key for one in batch}, end_s)

    def _spawn(self, member: Member, *, mps: bool) -> subprocess.Popen[bytes]:
        env = dict(self._env)
        if mps:
            env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(member.percent)
            env["CUDA_MPS_CLIENT_PRIORITY"] = str(member.priority)
        else:
            env.pop("CUDA_MPS_PIPE_DIRECTORY", None)
        words = [sys.executable, "-m", "bench.gpu.worker", str(self._path), member.key]
        words += ["--dry", str(self._scale)] if self._scale else []
        return subprocess.Popen(words, env=env, cwd=_ROOT, stdin=subprocess.DEVNULL)

    def _greet(self, missing: set[str], end_s: float) -> None:
        while missing:
            self._listener.settimeout(max(0.05, min(1.0, end_s - time.monotonic())))
            try:
                line = Line(self._listener.accept()[0])
                said = line.receive(max(0.1, end_s - time.monotonic()))["hello"]
            except (TimeoutError, WorkerGone):
                dead = {key for key in missing if self.workers[key].process.poll() is not None}
                missing -= dead  # its windows will say so
                if missing and time.monotonic() > end_s:
                    raise CrewStuck(f"no hello from {', '.join(sorted(missing))}") from None
                continue
            assert isinstance(said, dict)
            hello = Hello(**said)
            worker = self.workers[hello.key]
            worker.line, worker.hello = line, hello
            missing.discard(hello.key)

    def release(self, orders: Mapping[str, Order]) -> dict[str, str]:
        """Give every worker its order; gives the keys of those that are gone, and why."""
        gone = {}
        for key, order in orders.items():
            line = self.workers[key].line
            try:
                if line is None:
                    raise WorkerGone("it never came up")
                line.send(order.message())
            except WorkerGone as error:
                gone[key] = str(error)
        return gone

    def gather(self, keys: Iterable[str], window: int, timeout_s: float) -> dict[str, Report | str]:
        """Reports of a window, or why there is none."""
        found: dict[str, Report | str] = {}
        end_s = time.monotonic() + timeout_s
        for key in keys:
            worker = self.workers[key]
            assert worker.line is not None
            try:
                said = worker.line.receive(max(0.1, end_s - time.monotonic()))["report"]
                assert isinstance(said, dict)
                report = Report(**said)
                found[key] = report if report.window == window else "report of another window"
            except (WorkerGone, TimeoutError) as error:
                found[key] = f"worker gone: {error}"
                worker.line = None
        return found

    def close(self) -> None:
        """Tell everyone to quit, wait, and end who does not answer."""
        for worker in self.workers.values():
            if worker.line is not None:
                try:
                    worker.line.send({"quit": True})
                except WorkerGone:
                    worker.line = None
        end_s = time.monotonic() + LEAVE_S
        for worker in self.workers.values():
            try:
                worker.process.wait(max(0.1, end_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            if worker.line is not None:
                worker.line.socket.close()
        self._listener.close()


def cores_for(place: int, members: int, each: int = 3) -> list[int] | None:
    """Cores of the member at this place; ``None`` where the machine has too few to pin."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < each * members + 1:
        return None
    return cores[1 + place * each : 1 + (place + 1) * each]
