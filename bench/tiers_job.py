# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A small elastic job of real processes: coordinator, state store and four members.

One machine is reliable (coordinator, state store and a member), three are transient. What an
operator and a kubelet do is done here: processes that are gone are started again. It must never
tell coordinator or members anything that a cluster would not.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Self

from bench.spot_trace import Event as Change
from bench.spot_trace import Kind
from bench.tiers_member import SHARDS, STATE_BYTES
from bench.tiers_records import (
    NOTICE_S,
    PATIENCE_S,
    RELIABLE,
    SETTINGS,
    SPOTS,
    WAY,
    Copy,
    Event,
    Outcome,
    What,
)
from ullage_coordinator.server import STATE_LOST
from ullage_run.orders import ENV_KEEPER, ENV_LEAD, ENV_MEMBER, ENV_NODE, ENV_POOL, ENV_TIER

COORDINATOR = "lead"


class Job:
    """Runs one arm of the bench.

    Args:
        copy: Where the state is saved: nowhere, in the state store, in files.
        steps: How many there are.
        step_s: Length of a step.
        interval_s: Between checkpoints.
        refills: Who went without notice is replaced at once; else machines come when a trace says.
    """

    def __init__(
        self, *, copy: Copy, steps: int, step_s: float, interval_s: float, refills: bool = True
    ) -> None:
        self._copy = copy
        self._refills = refills
        self._steps = steps
        self._step_s = step_s
        self._save_every = max(1, round(interval_s / step_s)) if step_s else steps
        self._folder = tempfile.TemporaryDirectory()
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._changed = threading.Condition()
        self._coordinator_at = self._state_store_at = ""
        self._at = 0
        self._next_name = len(SPOTS) + 1
        self._on = dict(enumerate(SPOTS))
        """Members by the machine of a trace."""
        self._owners: set[str] = set()
        self._struck: list[float] = []
        self._began: list[tuple[int, float]] = []
        self.outcome = Outcome()

    def __enter__(self) -> Self:
        self._start_all()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._folder.cleanup()

    def run(self, events: Sequence[Event], changes: Sequence[Change] = ()) -> Outcome:
        """Train to the end; every event happens once, in the middle of whatever is done then.

        Args:
            events: Of a script.
            changes: Of a trace.
        """
        self._await_step()
        timers = [threading.Timer(one.at_s, self._strike, (one.what,)) for one in events]
        timers += [threading.Timer(one.at_s, self._change, (one,)) for one in changes]
        for timer in timers:
            timer.start()
        while (code := self._processes[COORDINATOR].wait()) == STATE_LOST and self._copy == "files":
            self._restart()
        for timer in timers:
            timer.cancel()
        if code:
            raise RuntimeError(f"the job ended with {code}")
        self._settle()
        return self.outcome

    def _start_all(self) -> None:
        command = [
            sys.executable, "-m", "ullage_coordinator.server",
            "--members", str(1 + len(SPOTS)),
            "--state-bytes", str(STATE_BYTES),
            "--shards", str(SHARDS), "--blocks", str(SHARDS),
            "--owner-part", str(SETTINGS.owner_part),
            "--bytes-per-second", str(WAY),
            "--notice-seconds", str(NOTICE_S),
            "--join-seconds", str(PATIENCE_S),
        ]  # fmt: skip
        coordinator = self._spawn(
            COORDINATOR, [*command, *(["--no-copy"] if self._copy != "keeper" else [])], {}
        )
        assert coordinator.stdout is not None
        _, host, port, state_store_host, state_store_port = coordinator.stdout.readline().split()
        self._coordinator_at, self._state_store_at = (
            f"{host}:{port}",
            f"{state_store_host}:{state_store_port}",
        )
        self._follow(coordinator.stdout, self._told)
        for name in (RELIABLE, *SPOTS):
            self._start(name)

    def _start(self, name: str) -> None:
        command = [
            sys.executable, "-m", "bench.tiers_member",
            "--steps", str(self._steps),
            "--step-seconds", str(self._step_s),
            "--at", str(self._at),
        ]  # fmt: skip
        if name != RELIABLE:
            command += ["--bytes-per-second", str(WAY / 2)]
        if self._copy == "files":
            command += ["--folder", self._folder.name, "--save-every", str(self._save_every)]
        environment = {
            ENV_LEAD: self._coordinator_at,
            ENV_KEEPER: self._state_store_at,
            ENV_MEMBER: name,
            ENV_NODE: f"node-{name}",
            ENV_POOL: "on-demand" if name == RELIABLE else f"pool-{int(name[1:]) % 2}",
            ENV_TIER: "reliable" if name == RELIABLE else "transient",
        }
        process = self._spawn(name, command, environment)
        if name == RELIABLE:
            assert process.stdout is not None
            self._follow(process.stdout, self._stepped)

    def _spawn(
        self, name: str, command: list[str], environment: dict[str, str]
    ) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )
        self._processes[name] = made
        return made

    @staticmethod
    def _follow(lines: IO[str], take: Callable[[dict[str, object]], None]) -> None:
        def read() -> None:
            with lines:
                for line in lines:
                    take(json.loads(line))

        threading.Thread(target=read, daemon=True).start()

    def _told(self, event: dict[str, object]) -> None:
        """One event of the coordinator; who went without notice is replaced at once."""
        owners = event.get("owners")
        if isinstance(owners, list):
            self._owners = {str(one) for one in owners}
        if event["event"] == "Recovered":
            lost = int(str(event["lostSteps"]))
            self.outcome.lost_steps.append(lost)
            if self.outcome.told:
                self.outcome.lost_to.setdefault(self.outcome.told[-1], []).append(lost)
        elif event["event"] == "MemberGone" and self._copy == "keeper" and self._refills:
            gone = str(event["member"])
            if gone != RELIABLE and self._processes[COORDINATOR].poll() is None:
                self._start_another()

    def _start_another(self) -> str:
        with self._changed:
            name, self._next_name = f"s{self._next_name}", self._next_name + 1
            self._start(name)
            return name

    def _stepped(self, said: dict[str, object]) -> None:
        with self._changed:
            step = int(str(said["step"]))
            self.outcome.losses[step] = float(str(said["loss"]))
            self._began.append((step, float(str(said["began"]))))
            self._changed.notify_all()

    def _await_step(self) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: bool(self._began), PATIENCE_S):
                raise RuntimeError("the job does not begin")

    def _restart(self) -> None:
        """As a launcher does it: all members again, from the last whole checkpoint."""
        with self._changed:
            last = self._began[-1][0]
        for process in self._processes.values():
            process.kill()
            process.wait()
        folder = Path(self._folder.name)
        whole = [int(one.name) for one in folder.iterdir() if len(list(one.iterdir())) == SHARDS]
        self._at = max(whole, default=0)
        self.outcome.lost_steps.append(last - self._at)
        self._start_all()

    def _settle(self) -> None:
        """Times from what was seen: lengths of steps, and how long each loss stopped the job."""
        began = self._began
        self.outcome.wall_s = began[-1][1] - began[0][1]
        starts = [at for _, at in began]
        for (step, at), (following, then) in itertools.pairwise(began):
            if following == step + 1 and not any(at <= struck < then for struck in self._struck):
                self.outcome.step_s.append(then - at)
        for struck in self._struck:
            after = [at for at in starts if at > struck]
            if after:
                self.outcome.recovery_s.append(after[0] - struck)

    def _strike(self, what: What) -> None:
        """An event of the script; runs in a thread of its own."""
        running = [
            name
            for name, one in list(self._processes.items())
            if name not in (COORDINATOR, RELIABLE) and one.poll() is None
        ]
        owners = [name for name in running if name in self._owners]
        victims = running if what == "all" else owners[:1]
        if what != "notice":
            self._struck.append(time.monotonic())
        for name in victims:
            self._processes[name].send_signal(
                signal.SIGTERM if what == "notice" else signal.SIGKILL
            )

    def _change(self, change: Change) -> None:
        """What a trace says of a machine; runs in a thread of its own."""
        if change.kind is Kind.ADD:
            self._on[change.node] = self._start_another()
            return
        process = self._processes[self._on[change.node]]
        if change.kind is Kind.GONE:
            self.outcome.overdue += process.poll() is None
            process.kill()
            return
        self.outcome.told.append(change.kind)
        if change.kind is Kind.KILL:
            self._struck.append(time.monotonic())
        process.send_signal(signal.SIGTERM if change.kind is Kind.NOTICE else signal.SIGKILL)


def play(
    *,
    copy: Copy,
    steps: int,
    step_s: float,
    interval_s: float,
    events: Sequence[Event] = (),
    changes: Sequence[Change] = (),
) -> Outcome:
    """Run one arm from start to end."""
    refills = not changes
    with Job(copy=copy, steps=steps, step_s=step_s, interval_s=interval_s, refills=refills) as job:
        return job.run(events, changes)
