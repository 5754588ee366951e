# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Freezes all containers of a request or none, and is responsible for each until it runs again.

To freeze: find, record in the journal, write. To thaw: write, verify that it runs, remove the
record. So the journal always holds at least what is frozen. Guard and watchdog use the same keeper
on the same journal; releasing twice is harmless.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ullage_node.devices.cgroups import CgroupUnreadable
from ullage_node.guard.finder import CgroupNotFound, find, is_container
from ullage_node.guard.freezer import FreezeFailed, Freezer
from ullage_node.guard.io_limits import IoLimiter
from ullage_node.guard.journal import Journal, JournalEntry
from ullage_node.guard.log import Log
from ullage_node.guard.protocol import FreezeTarget, GuardRequest, IoLimit

_log: Final = Log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeper:
    """The freezer with its journal; ``clock`` is CLOCK_MONOTONIC, the same for every process."""

    cgroup_root: Path
    proc_root: Path
    journal: Journal
    freezer: Freezer
    limiter: IoLimiter | None = None
    clock: Callable[[], float] = time.monotonic

    def freeze(self, request: GuardRequest) -> str:
        """Freeze the containers of a request; returns the problem, empty when all are frozen.

        On any problem every one of them runs again.
        """
        begun = self.clock()
        try:
            entries = [
                JournalEntry(
                    slice=target.key.directory,
                    place=find(self.cgroup_root, self.proc_root, target),
                    since_s=begun,
                    until_s=begun + request.limit_seconds,
                    why=request.why,
                )
                for target in request.targets
            ]
            for entry in entries:
                self.journal.write(entry)
        except (CgroupNotFound, CgroupUnreadable, OSError) as error:
            self.release(self.journal.entries(), only=_names(request.targets))
            return str(error)
        try:
            self.freezer.freeze([entry.place for entry in entries])
        except FreezeFailed as error:
            self.release(entries)
            return str(error)
        took = round(self.clock() - begun, 4)
        _log.info(
            "frozen", slices=[entry.slice for entry in entries], seconds=took, why=request.why
        )
        return ""

    def thaw(self, targets: Iterable[FreezeTarget]) -> str:
        """Thaw these containers; returns the problem, empty when all run."""
        return self.release(self.journal.entries(), only=_names(targets))

    def thaw_all(self, why: str) -> str:
        """Thaw all containers in the journal and undo limits; returns the problem, empty = none."""
        entries = self.journal.entries()
        if entries:
            _log.warning("thawing everyone", slices=[entry.slice for entry in entries], why=why)
        problem = self.release(entries)
        if broken := self.journal.discard_unreadable():
            _log.error("journal entries unreadable", count=broken)
        limits = self.limiter.release_all() if self.limiter is not None else ""
        return "; ".join(filter(None, (problem, limits)))

    def limit(self, limits: Iterable[IoLimit]) -> str:
        """Make these the node's limits of I/O; returns the problem, empty when all hold."""
        return (
            self.limiter.hold(limits) if self.limiter is not None else "this guard sets no limits"
        )

    @property
    def holds(self) -> bool:
        """True while anything must be undone once the agent is gone."""
        return bool(self.journal.entries()) or (
            self.limiter is not None and bool(self.limiter.held)
        )

    def thaw_overdue(self, grace_seconds: float = 0.0) -> str:
        """Thaw all overdue containers; returns the problem, empty when all run."""
        now = self.clock()
        late = [entry for entry in self.journal.entries() if now >= entry.until_s + grace_seconds]
        if late:
            _log.warning("time is up", slices=[entry.slice for entry in late])
        return self.release(late)

    def release(self, entries: Iterable[JournalEntry], only: frozenset[str] | None = None) -> str:
        """Thaw the containers of these entries and remove the entries of those that run."""
        problems: list[str] = []
        for entry in entries:
            if only is not None and entry.slice not in only:
                continue
            try:
                # An entry whose directory is not a container's is not ours: leave it alone.
                if is_container(self.cgroup_root, entry.place.folder):
                    self.freezer.thaw([entry.place])
                self.journal.remove(entry.slice)
                _log.info("thawed", slice=entry.slice, after=round(self.clock() - entry.since_s, 3))
            except (FreezeFailed, OSError) as error:
                problems.append(f"{entry.slice}: {error}")
        if problems:
            _log.error("not thawed", problems=problems)
        return "; ".join(problems)


def _names(targets: Iterable[FreezeTarget]) -> frozenset[str]:
    return frozenset(target.key.directory for target in targets)
