# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Freezes and thaws containers: cgroup v2, cgroup v1, or signals.

Freezing stops CPU threads; kernels already queued on a device drain, memory stays. Blocking, with
one deadline for all containers of a request. It decides nothing and keeps no state.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ullage_node.devices.cgroups import CgroupUnreadable, read_text
from ullage_node.guard.finder import FreezableCgroup, FreezerKind, members
from ullage_node.times import CGROUP_FREEZE_S, CGROUP_POLL_S

HELD_MOST: Final = 256
"""Most processes held by pidfds at a time."""
STOPPED: Final = frozenset("Tt")
DEAD: Final = frozenset("ZX")


class FreezeFailed(Exception):
    """Containers could not be frozen, or thawed, in time; the text says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Freezer:
    """Writes the file that freezes a container, and waits for the kernel to confirm it."""

    proc_root: Path = Path("/proc")
    deadline_seconds: float = CGROUP_FREEZE_S
    clock: Callable[[], float] = time.monotonic

    def freeze(self, places: Collection[FreezableCgroup]) -> None:
        """Stop all processes in these containers.

        Raises:
            FreezeFailed: not all are frozen within the deadline. Some may be: thaw them.
        """
        for place in places:
            self._write(place, frozen=True)
        self._wait(places, frozen=True)

    def thaw(self, places: Collection[FreezableCgroup]) -> None:
        """Let all processes in these containers run; a missing container is no error.

        Raises:
            FreezeFailed: not all run within the deadline; all were requested to.
        """
        problems: list[str] = []
        for place in places:
            try:
                self._write(place, frozen=False)
            except FreezeFailed as error:
                problems.append(str(error))
        if problems:
            raise FreezeFailed("; ".join(problems))
        self._wait(places, frozen=False)

    def is_frozen(self, place: FreezableCgroup) -> bool:
        """True if all processes in the container are frozen; ``False`` when it is gone.

        Raises:
            CgroupUnreadable: the kernel's answer cannot be read.
        """
        if place.kind is FreezerKind.V2:
            text = read_text(place.folder / "cgroup.events")
            return text is not None and "frozen 1" in text.splitlines()
        if place.kind is FreezerKind.V1:
            return (read_text(place.folder / "freezer.state") or "").strip() == "FROZEN"
        states = self._states(place)
        return bool(states) and states <= STOPPED | DEAD

    def _runs(self, place: FreezableCgroup) -> bool:
        if place.kind is FreezerKind.V1:
            text = read_text(place.folder / "freezer.state")
            return text is None or text.strip() == "THAWED"
        if place.kind is FreezerKind.SIGNAL:
            return self._states(place).isdisjoint(STOPPED)
        return not self.is_frozen(place)

    def _write(self, place: FreezableCgroup, *, frozen: bool) -> None:
        try:
            if place.kind is FreezerKind.SIGNAL:
                self._signal(place, signal.SIGSTOP if frozen else signal.SIGCONT)
                return
            v2 = place.kind is FreezerKind.V2
            words = ("1", "0") if v2 else ("FROZEN", "THAWED")
            file = place.folder / ("cgroup.freeze" if v2 else "freezer.state")
            descriptor = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, words[0 if frozen else 1].encode())
            finally:
                os.close(descriptor)
        except (OSError, CgroupUnreadable) as error:
            if not frozen and not place.folder.exists():
                return
            raise FreezeFailed(f"{place.folder}: {error}") from error

    def _signal(self, place: FreezableCgroup, number: signal.Signals) -> None:
        """Signal every process through a pidfd: its PID may have been reused."""
        pids = sorted(members(place))
        for first in range(0, len(pids), HELD_MOST):
            with contextlib.ExitStack() as held:
                handles: dict[int, int] = {}
                for pid in pids[first : first + HELD_MOST]:
                    with contextlib.suppress(ProcessLookupError):  # it ended meanwhile
                        handles[pid] = os.pidfd_open(pid)
                        held.callback(os.close, handles[pid])
                # those still listed are the ones the pidfds hold, or have ended
                for pid in members(place) & handles.keys():
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(handles[pid], number)

    def _wait(self, places: Collection[FreezableCgroup], *, frozen: bool) -> None:
        deadline = self.clock() + self.deadline_seconds
        done = self.is_frozen if frozen else self._runs
        waiting = list(places)
        while waiting := self._still(waiting, done):
            if self.clock() >= deadline:
                named = ", ".join(str(place.folder) for place in waiting)
                state = "frozen" if frozen else "running"
                raise FreezeFailed(f"not {state} after {self.deadline_seconds:.1f} s: {named}")
            time.sleep(CGROUP_POLL_S)
            for place in waiting:
                if frozen and place.kind is not FreezerKind.V2:
                    # Version 1 may stay at FREEZING while tasks fork, and signals miss new
                    # children: both need to be repeated.
                    self._write(place, frozen=True)

    def _still(
        self, waiting: list[FreezableCgroup], done: Callable[[FreezableCgroup], bool]
    ) -> list[FreezableCgroup]:
        try:
            return [place for place in waiting if not done(place)]
        except CgroupUnreadable as error:
            raise FreezeFailed(str(error)) from error

    def _states(self, place: FreezableCgroup) -> set[str]:
        """State letters of the container's processes, from ``/proc/<pid>/stat``."""
        texts = (read_text(self.proc_root / str(pid) / "stat") for pid in members(place))
        return {text.rpartition(")")[2].split()[0] for text in texts if text}
