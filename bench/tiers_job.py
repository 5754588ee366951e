# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A small elastic job of real processes, led by the operator's own engine for tiers.

One reliable machine (state keeper and a member) and three transient members. Here the parent is the
controller: it sees a pipe end where an operator sees a pod go, so detection is nearly free; it says
nothing about the time that a cluster needs for that.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Self

import numpy as np

from bench.tiers_member import BATCH, SHARDS, STATE_BYTES, Maps, main, sample
from bench.tiers_records import (
    LINK,
    NOTICE_S,
    PATIENCE_S,
    RELIABLE,
    SETTINGS,
    SPOTS,
    WAY,
    Copy,
    Event,
    Lost,
    Outcome,
    What,
)
from ullage.engines.tiers.decide import decide
from ullage.engines.tiers.records import Do, Member, Situation, Source, Standing
from ullage_run.backup import KeeperLink


class Job:
    """Runs one arm of the bench.

    Args:
        copy: Where the state is saved: nowhere, in the keeper, in files.
        step_s: Length of a step; what the members do not need of it stands for an accelerator.
        interval_s: Between checkpoints.
        events: What happens.
    """

    def __init__(
        self, *, copy: Copy, step_s: float, interval_s: float = 60.0, events: Sequence[Event] = ()
    ) -> None:
        self._copy = copy
        self._step_s = step_s
        self._interval_s = interval_s
        self._events = events
        self._spawn = multiprocessing.get_context("spawn")
        self._processes: dict[str, SpawnProcess] = {}
        self._pipes: dict[str, Connection] = {}
        self._joining: set[str] = set()
        self._told: dict[str, float] = {}
        self._ended: set[str] = set()
        # the maps that all members have, and the last epoch that some may have heard of
        self._standing: Standing | None = None
        self._epoch = 0
        self._began = self._changed_at = time.monotonic()
        self._lost_at = 0.0
        self._saved_at = 0.0
        self._saved_step = 0
        self._next_name = len(SPOTS) + 1
        self._folder = tempfile.TemporaryDirectory()
        self.outcome = Outcome()

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "ullage_run.keeper", "--state-bytes", str(STATE_BYTES)]
        self._keeper_process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._keeper_process.stdout is not None
        _, host, port = self._keeper_process.stdout.readline().split()
        self._address = (host, int(port))
        self._keeper = KeeperLink(host, int(port))
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.join()
        for pipe in self._pipes.values():
            pipe.close()
        self._keeper.close()
        self._keeper_process.kill()
        self._keeper_process.communicate()
        self._folder.cleanup()

    def run(self, steps: int) -> Outcome:
        """Train; every event happens once, in the middle of whatever is done then."""
        for name in (RELIABLE, *SPOTS):
            self._start(name)
        self._await_joining(PATIENCE_S)
        self._move(last=0)
        self._began = self._saved_at = time.monotonic()
        timers = [threading.Timer(one.at_s, self._strike, (one.what,)) for one in self._events]
        for timer in timers:
            timer.start()
        step = 1
        while step <= steps:
            try:
                self._boundary(step - 1)
                self._step(step)
            except Lost:
                step = self._recover(step - 1)
            step += 1
        self.outcome.wall_s = time.monotonic() - self._began
        for timer in timers:
            timer.cancel()
        return self.outcome

    def _step(self, step: int) -> None:
        """One step of all owners; counts only when all have it."""
        began = time.monotonic()
        owners = sorted(set(self._owners()))
        parts: dict[int, object] = {}
        for answer in self._all(owners, "logits", step):
            assert isinstance(answer, dict)
            parts |= answer
        total = np.zeros(BATCH, np.float32)
        for number in range(SHARDS):
            total += np.asarray(parts[number], np.float32)
        labels = sample(step)[1]
        chance = 1 / (1 + np.exp(-total.astype(np.float64)))
        right = np.where(labels > 0, chance, 1 - chance)
        self._pause(began + self._step_s - time.monotonic())
        self._all(owners, "apply", step, (chance - labels).astype(np.float32))
        if self._lost_at:
            self.outcome.recovery_s[-1] = began - self._lost_at
            self._lost_at = 0.0
        elif step not in self.outcome.losses:
            self.outcome.step_s.append(time.monotonic() - began)
        self.outcome.losses[step] = float(-np.log(np.maximum(right, 1e-12)).mean())

    def _boundary(self, last: int) -> None:
        """What is due between two steps: notices, newcomers, a checkpoint."""
        self._watch(0.0)
        self._await_joining(0.0)
        running = set(self._pipes) - self._joining - self._ended
        stays = running - set(self._told)
        if self._copy != "files" and stays != self._known():
            going = sorted(set(self._told) & set(self._owners()))
            if going:
                self._all(sorted(set(self._owners())), "flush", last)
            self._move(last=last)
        if self._copy == "files" and time.monotonic() - self._saved_at >= self._interval_s:
            self._all(sorted(set(self._owners())), "save", last, self._folder.name)
            self._saved_at, self._saved_step = time.monotonic(), last

    def _recover(self, last: int) -> int:
        """After a loss: the last step that holds; the loop goes on after it."""
        self.outcome.recovery_s.append(0.0)
        while True:
            try:
                back = self._restart() if self._copy == "files" else self._move(last=last)
            except Lost:
                continue  # more of the same event: decide again
            self.outcome.lost_steps.append(last - back)
            return back

    def _restart(self) -> int:
        """As a launcher does it: all workers anew, from the last checkpoint."""
        for name in list(self._processes):
            self._end(name)
        for name in (RELIABLE, *SPOTS):
            self._start(name)
        self._await_joining(PATIENCE_S)
        files = Path(self._folder.name) if self._saved_step else None
        assert self._standing is not None
        self._epoch += 1
        maps = replace(self._standing, epoch=self._epoch)
        self._tell(maps, last=self._saved_step, load={}, files=files)
        self._saved_at = time.monotonic()
        return self._saved_step

    def _move(self, *, last: int) -> int:
        """Ask the engine for maps and carry them out; the step that holds afterwards.

        A transition that a loss interrupts has changed nothing: it is decided anew from the maps
        that all members had, under an epoch that nobody has heard of. The keeper is fenced first:
        otherwise a push could complete a later step after the cut was read.
        """
        self._epoch += 1
        held = self._keeper.begin(self._epoch, SHARDS)
        seen = Situation(
            members=self._members(),
            link=LINK,
            notice_s=NOTICE_S,
            standing=self._standing,
            since_s=time.monotonic() - self._changed_at,
            step=last,
            step_s=self._step_s,
            committed=held.committed,
            heard=self._epoch,
        )
        found = decide(seen, SETTINGS)
        back = last if found.source is Source.NONE else held.committed
        if back is None:
            raise RuntimeError(f"the job cannot go on: {found.text}")
        self._epoch = found.standing.epoch
        self._keeper.begin(self._epoch, SHARDS)
        load = {one.member: one.shards for one in found.commands if one.do is Do.LOAD}
        if found.source is Source.KEEPER:
            load = {one.member: one.shards for one in found.assignments}
        self._tell(found.standing, last=back, load=load, files=None)
        self._ended |= set(self._told) & set(self._pipes) - self._known()
        return back

    def _tell(
        self,
        maps: Standing,
        *,
        last: int,
        load: dict[str, tuple[int, ...]],
        files: Path | None,
    ) -> None:
        """Give every member its part and wait until all have it."""
        names = [name for name in sorted(self._pipes) if name not in self._ended | self._joining]
        backed = self._copy == "keeper" and bool(maps.backups)
        share = WAY / len(set(maps.owners))
        committed = self._keeper.held().committed
        for name in names:
            shards = tuple(n for n, owner in enumerate(maps.owners) if owner == name)
            part = Maps(
                epoch=maps.epoch,
                shards=shards,
                load=tuple(n for n in load.get(name, ()) if n in shards),
                files=files,
                push=backed,
                committed=committed,
                last=last,
                bytes_per_s=None if name == RELIABLE else share,
            )
            self._send(name, ("maps", part))
        self._gather(names, "maps", last)
        if self._standing is None or maps.stage is not self._standing.stage:
            self._changed_at = time.monotonic()
        self._standing = maps

    def _all(
        self, names: Sequence[str], what: str, step: int, value: object = None
    ) -> list[object]:
        for name in names:
            self._send(name, (what, step, value))
        return self._gather(names, what, step)

    def _send(self, name: str, order: tuple[object, ...]) -> None:
        try:
            self._pipes[name].send(order)
        except OSError as error:
            self._gone(name)
            raise Lost(name) from error

    def _gather(self, names: Sequence[str], what: str, step: int) -> list[object]:
        """The answers of members to this order, in their order; late ones of old maps are dropped.

        Raises:
            Lost: one of them is gone.
            RuntimeError: nobody answers.
        """
        until = time.monotonic() + PATIENCE_S
        answers: dict[str, object] = {}
        while len(answers) < len(names):
            if not self._pipes.keys() >= set(names):
                raise Lost(what)
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise RuntimeError(f"no answer to {what} {step} from {set(names) - set(answers)}")
            for name, said in self._watch(left_s):
                if said[:3] == (what, self._epoch, step):
                    answers[name] = said[3]
        return [answers[name] for name in names]

    def _pause(self, seconds: float) -> None:
        """The rest of a step; a loss ends it."""
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0:
            self._watch(left_s)

    def _watch(self, seconds: float) -> list[tuple[str, tuple[object, ...]]]:
        """What members say within a time; returns at the first.

        Raises:
            Lost: an owner is gone; who owns nothing is missed at the next boundary.
        """
        names = {pipe: name for name, pipe in self._pipes.items()}
        heard, lost = [], []
        for pipe in wait(list(names), seconds):
            assert isinstance(pipe, Connection)
            name = names[pipe]
            try:
                said = pipe.recv()
            except (EOFError, OSError):
                if name in self._owners() and name not in self._ended:
                    lost.append(name)
                self._gone(name)
                continue
            if said[0] == "hello":
                self._joining.discard(name)
            heard.append((name, said))
        if lost:
            raise Lost(", ".join(lost))
        return heard

    def _await_joining(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._joining and (left_s := until - time.monotonic()) > 0:
            self._watch(left_s)

    def _members(self) -> tuple[Member, ...]:
        """Who runs, as the operator would see it."""
        now = time.monotonic()
        return tuple(
            Member(
                name=name,
                node=f"node-{name}",
                pool="on-demand" if name == RELIABLE else f"pool-{int(name[1:]) % 2}",
                reliable=name == RELIABLE,
                notice_left_s=max(0.0, self._told[name] - now) if name in self._told else None,
            )
            for name in sorted(self._pipes)
            if name not in self._joining and name not in self._ended
        )

    def _owners(self) -> Sequence[str]:
        return () if self._standing is None else self._standing.owners

    def _known(self) -> set[str]:
        old = self._standing
        return set() if old is None else {*old.owners, *old.backups, *old.workers}

    def _start(self, name: str) -> None:
        ours, theirs = self._spawn.Pipe()
        process = self._spawn.Process(target=main, args=(theirs, self._address), daemon=True)
        process.start()
        theirs.close()
        self._processes[name], self._pipes[name] = process, ours
        self._joining.add(name)

    def _gone(self, name: str) -> None:
        """Forget a member whose pipe ended; a replacement is started at once."""
        if name not in self._pipes:
            return
        if name in self._owners():
            self._lost_at = self._lost_at or time.monotonic()
        self._end(name)
        if self._copy == "keeper" and name != RELIABLE:
            self._start(f"s{self._next_name}")
            self._next_name += 1

    def _end(self, name: str) -> None:
        self._pipes.pop(name).close()
        process = self._processes.pop(name)
        process.kill()
        process.join()
        for names in (self._joining, self._ended):
            names.discard(name)
        self._told.pop(name, None)

    def _strike(self, what: What) -> None:
        """An event of the script; runs in a thread of its own."""
        owners = sorted({name for name in self._owners() if name != RELIABLE})
        victims = owners[:1]
        if what == "all":
            victims = [name for name in list(self._processes) if name != RELIABLE]
        for name in victims:
            process = self._processes.get(name)
            if process is None or process.pid is None:
                continue
            if what == "notice":
                self._told[name] = time.monotonic() + NOTICE_S
                threading.Timer(4 * self._step_s, process.terminate).start()
            else:
                os.kill(process.pid, signal.SIGKILL)


def play(
    *, copy: Copy, steps: int, step_s: float, interval_s: float, events: Sequence[Event] = ()
) -> Outcome:
    """Run one arm from start to end."""
    with Job(copy=copy, step_s=step_s, interval_s=interval_s, events=events) as job:
        return job.run(steps)
