# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Random strokes against the members of a job in tiers: the state is never lost, nor one bit of it.

Real processes: the product's coordinator and state store, which stay, and four members, which are
killed or stopped one, two or all at a time, at random moments, and replaced at random times. The
random choices follow from a seed; the moments depend on the machine as well.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Final, Literal, Self

from bench.tiers_stroke_member import SHARD_BYTES, SHARDS, undisturbed
from ullage_coordinator.server import STATE_LOST
from ullage_run.orders import ENV_KEEPER, ENV_LEAD, ENV_MEMBER, ENV_NODE, ENV_POOL, ENV_TIER

COORDINATOR: Final = "lead"
TRANSIENT: Final = 3
"""Members beside the reliable one."""
STEP_S: Final = 0.02
SILENT_S: Final = 2.0
"""Silence limit of the rig's coordinator: how long each stopped member holds the others up."""
STEPS: Final = 600
"""Of one job; strokes go on in the next one when its steps are done."""
CALM_STEPS: Final = 4
"""Finished between two strokes at least: a stroke's lost steps are then its own."""
AHEAD: Final = 20
"""Steps before the end of a job in which nothing is struck."""
PATIENCE_S: Final = 60.0

Who = Literal["one", "two", "owner", "reliable and owner", "transient", "all"]
WHO: Final[tuple[Who, ...]] = ("one", "two", "owner", "reliable and owner", "transient", "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stroke:
    """One stroke.

    Attributes:
        who: Which members.
        stops: SIGSTOP instead of SIGKILL.
        apart_s: Between its victims.
        after_s: From the calm to its first victim: a random moment of a step.
        replaced_s: Until replacements start.
    """

    who: Who
    stops: bool
    apart_s: float
    after_s: float
    replaced_s: float


@dataclass(slots=True, kw_only=True)
class Suffered:
    """What strokes did.

    Attributes:
        strokes: How many there were.
        state_lost: Jobs that lost their state although the store held it.
        lost_steps: Finished steps done again, at most, by one stroke.
        differing: Jobs whose last state differs from an undisturbed one's.
        faults: What went wrong, with the seed and the last stroke.
    """

    strokes: int = 0
    state_lost: int = 0
    lost_steps: int = 0
    differing: int = 0
    faults: list[str] = field(default_factory=list)


def drawn(dice: random.Random) -> Stroke:
    """A random stroke; a fifth are stops."""
    return Stroke(
        who=dice.choice(WHO),
        stops=dice.random() < 0.2,
        apart_s=dice.choice((0.0, 0.0, dice.uniform(0.0, 0.5))),
        after_s=dice.uniform(0.0, 4 * STEP_S),
        replaced_s=dice.choice((0.0, dice.uniform(0.0, 1.0))),
    )


class Victims:
    """One job and those who suffer in it.

    Args:
        seed: Of its strokes.
        most: Strokes against it.
        steps: Of the job.
    """

    def __init__(self, seed: int, most: int, steps: int = STEPS) -> None:
        self._dice = random.Random(seed)
        self._seed = seed
        self._most = most
        self._steps = steps
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._readers: list[threading.Thread] = []
        self._stopped: set[str] = set()
        self._changed = threading.Condition()
        self._owners: set[str] = set()
        self._joined: set[str] = set()
        self._state_lost = False
        self._begun: dict[int, tuple[int, int]] = {}
        """First and last step begun, by epoch."""
        self._digests: dict[int, str] = {}
        self._made = 0
        self._coordinator_at = self._state_store_at = ""
        self._last: Stroke | None = None

    def __enter__(self) -> Self:
        self._start_coordinator()
        self._refill()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()  # reaches stopped ones, too
            process.wait()
        for reader in self._readers:
            reader.join()

    def suffer(self) -> Suffered:
        """Strike until there have been enough strokes, then let the job end; judge it."""
        found = Suffered()
        while found.strokes < self._most and self._await_calm():
            self._last = drawn(self._dice)
            self._strike(self._last)
            found.strokes += 1
        self._end(found)
        return found

    def _end(self, found: Suffered) -> None:
        code = self._await_end()
        for reader in self._readers:
            reader.join(1.0)
        found.state_lost = int(self._state_lost or code == STATE_LOST)
        found.lost_steps = self._lost_steps()
        same = self._digests == undisturbed(self._steps)
        found.differing = int(not same)
        if code or not same:
            ending = "no end" if code is None else f"exit code {code}"
            found.faults.append(
                f"seed {self._seed}: {ending}, {len(self._digests)} shards, last {self._last}"
            )

    def _lost_steps(self) -> int:
        """Most steps that new maps took back, from the steps that members themselves begun."""
        worst, furthest = 0, 0
        for _, (first, last) in sorted(self._begun.items()):
            worst = max(worst, furthest - first)
            furthest = max(furthest, last)
        return worst

    def _start_coordinator(self) -> None:
        command = [
            sys.executable, "-m", "ullage_coordinator.server",
            "--members", str(1 + TRANSIENT),
            "--state-bytes", str(SHARDS * SHARD_BYTES),
            "--shards", str(SHARDS), "--blocks", str(SHARDS),
            "--owner-part", "0.6",
            "--notice-seconds", "30",
            "--silent-seconds", str(SILENT_S),
            "--join-seconds", str(PATIENCE_S),
        ]  # fmt: skip
        coordinator = self._spawn(COORDINATOR, command, {})
        assert coordinator.stdout is not None
        _, host, port, state_store_host, state_store_port = coordinator.stdout.readline().split()
        self._coordinator_at, self._state_store_at = (
            f"{host}:{port}",
            f"{state_store_host}:{state_store_port}",
        )
        self._follow(coordinator.stdout, self._told)

    def _refill(self) -> None:
        """Start members until one reliable and all transient ones run."""
        here = [name for name in self._here() if name != COORDINATOR]
        reliable = sum(name.startswith("r") for name in here)
        wanted = ["r"] * (1 - reliable) + ["s"] * (TRANSIENT - (len(here) - reliable))
        for kind in wanted:
            self._made += 1
            self._start(f"{kind}{self._made}", reliable=kind == "r")

    def _start(self, name: str, *, reliable: bool) -> None:
        command = [
            sys.executable, "-m", "bench.tiers_stroke_member",
            "--steps", str(self._steps),
            "--step-seconds", str(STEP_S),
        ]  # fmt: skip
        environment = {
            ENV_LEAD: self._coordinator_at,
            ENV_KEEPER: self._state_store_at,
            ENV_MEMBER: name,
            ENV_NODE: f"node-{name}",
            ENV_POOL: "on-demand" if reliable else f"pool-{self._made % 2}",
            ENV_TIER: "reliable" if reliable else "transient",
        }
        process = self._spawn(name, command, environment)
        assert process.stdout is not None
        self._follow(process.stdout, self._said)

    def _spawn(
        self, name: str, command: list[str], environment: dict[str, str]
    ) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=None if name == COORDINATOR else subprocess.DEVNULL,
            text=True,
            env={**os.environ, **environment},
        )
        self._processes[name] = made
        return made

    def _follow(self, lines: IO[str], take: Callable[[dict[str, object]], None]) -> None:
        def read() -> None:
            with lines:
                for line in lines:
                    if line.endswith("\n"):  # a kill may cut the last one
                        with self._changed:
                            take(json.loads(line))
                            self._changed.notify_all()

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        self._readers.append(reader)

    def _told(self, event: dict[str, object]) -> None:
        """One event of the coordinator."""
        owners = event.get("owners")
        if isinstance(owners, list):
            self._owners = {str(owner) for owner in owners}
        member = str(event.get("member", ""))
        if event["event"] == "MemberJoined":
            self._joined.add(member)
        elif event["event"] == "MemberGone":
            self._joined.discard(member)
        elif event["event"] == "StateLost":
            self._state_lost = True

    def _said(self, said: dict[str, object]) -> None:
        """A member begins a step, or says at the end what it owns."""
        if "digest" in said:
            self._digests[int(str(said["shard"]))] = str(said["digest"])
            return
        epoch, step = int(str(said["epoch"])), int(str(said["step"]))
        first, last = self._begun.get(epoch, (step, step))
        self._begun[epoch] = min(first, step), max(last, step)

    def _here(self) -> list[str]:
        """Processes that run and are not stopped."""
        return [
            name
            for name, process in self._processes.items()
            if process.poll() is None and name not in self._stopped
        ]

    def _await_calm(self) -> bool:
        """All members are in and have done some steps; ``False`` = the job is about to end."""
        until = time.monotonic() + PATIENCE_S
        quiet_from: int | None = None
        while self._processes[COORDINATOR].poll() is None and time.monotonic() < until:
            self._refill()
            with self._changed:
                self._changed.wait(0.05)
                members = {name for name in self._here() if name != COORDINATOR}
                furthest = max((last for _, last in self._begun.values()), default=0)
                if furthest > self._steps - AHEAD:
                    return False
                if not members <= self._joined:
                    quiet_from = None
                elif quiet_from is None:
                    quiet_from = furthest
                elif furthest >= quiet_from + CALM_STEPS:
                    return True
        return False

    def _strike(self, stroke: Stroke) -> None:
        time.sleep(stroke.after_s)
        victims = self._victims(stroke.who)
        self._dice.shuffle(victims)
        for number, name in enumerate(victims):
            if number:
                time.sleep(stroke.apart_s)
            self._processes[name].send_signal(signal.SIGSTOP if stroke.stops else signal.SIGKILL)
            if stroke.stops:
                self._stopped.add(name)
            else:
                self._processes[name].wait()
        time.sleep(stroke.replaced_s)
        self._refill()
        if stroke.stops:
            threading.Thread(target=self._wake, args=(victims,), daemon=True).start()

    def _wake(self, names: list[str]) -> None:
        """Stopped members run on after they were given up: their part is another's by then."""
        time.sleep(2 * SILENT_S)
        for name in names:
            self._processes[name].send_signal(signal.SIGCONT)

    def _victims(self, who: Who) -> list[str]:
        members = sorted(name for name in self._here() if name != COORDINATOR)
        reliable = [name for name in members if name.startswith("r")]
        transient = [name for name in members if not name.startswith("r")]
        owners = [name for name in transient if name in self._owners]
        choices: dict[Who, list[str]] = {
            "one": self._dice.sample(members, min(1, len(members))),
            "two": self._dice.sample(members, min(2, len(members))),
            "owner": self._dice.sample(owners, min(1, len(owners))),
            "reliable and owner": reliable + self._dice.sample(owners, min(1, len(owners))),
            "transient": transient,
            "all": members,
        }
        return choices[who]

    def _await_end(self) -> int | None:
        """Keep the job complete until its coordinator ends; ``None`` = it does not."""
        until = time.monotonic() + PATIENCE_S + 4 * self._steps * STEP_S
        coordinator = self._processes[COORDINATOR]
        while coordinator.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
            if not any(last >= self._steps - 1 for _, last in self._begun.values()):
                self._refill()
        if coordinator.poll() is None:
            return None
        for name in self._here():
            try:
                self._processes[name].wait(10.0)
            except subprocess.TimeoutExpired:
                continue  # judged by the shards that are missing
        return coordinator.returncode


def strike(
    strokes: int, seed: int, *, each: int = 20, tell: Callable[[Suffered], None] = lambda _: None
) -> Suffered:
    """Strike jobs, one after the other, until there have been enough strokes.

    Args:
        strokes: In all.
        seed: Of the first job; later ones count on from it.
        each: Most strokes against one job.
        tell: Is given the sum after each job.
    """
    total, job = Suffered(), seed
    while total.strokes < strokes and len(total.faults) < strokes:
        with Victims(job, min(each, strokes - total.strokes)) as victims:
            found = victims.suffer()
        total.strokes += found.strokes
        total.state_lost += found.state_lost
        total.lost_steps = max(total.lost_steps, found.lost_steps)
        total.differing += found.differing
        total.faults += found.faults
        job += 1
        tell(total)
        if not found.strokes:
            total.faults.append(f"seed {job - 1}: the job never became calm")
            break
    return total
