# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps lanes and leases across a restart of the agent, so that no lane is granted twice.

Two files a device, in memory: after a reboot there is no process that could hold anything. One
holds all; it is written when lanes or residents change, and now and then for the times in it. The
other holds the leases, which every step changes: it is written in place, within one page, which a
process that is killed leaves as it was or as it is to be. Both are written before a program hears
of a grant, and soon after a step has ended; a lease that ended since is ended by its program, when
it greets again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import orjson

from ullage.engines.lanes.recorded import (
    LaneRecord,
    ResidentRecord,
    RunningRecord,
    TableRecord,
    running_in,
)
from ullage.engines.lanes.records import JobDemand, Lease
from ullage.engines.lanes.state import Memory
from ullage_node.files import read_bounded, write_whole
from ullage_node.lanes.device import DeviceLanes
from ullage_node.lanes.members import Member

MOST_BYTES: Final = 4 << 20
VERSION: Final = 2
WITHOUT_LEASES: Final = 1
"""An earlier version: one file held all."""
PAGE_BYTES: Final = 4096
TIMES_SECONDS: Final = 1.0
"""How old the times that jobs waited and ran may be, after a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The lanes of a device, and the process that greeted for each job (its session).

    ``pids`` are the processes of those that were suspended, by the host's numbers.
    """

    table: TableRecord
    members: tuple[Member, ...]
    sessions: Mapping[str, str]
    pids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _Kept:
    """What stands in the files of a device; ``edition`` says which leases belong to which lanes."""

    edition: str
    shape: tuple[object, ...]
    since_s: float
    leases: int
    """Descriptor of the file."""


@dataclass(frozen=True, slots=True)
class SavedLanes:
    """The files below one directory."""

    path: Path
    _kept: dict[str, _Kept] = field(default_factory=dict)

    def keep(self, device: str, lanes: DeviceLanes, now: float) -> None:
        """Keep a device's lanes, or the leases alone where no more has changed.

        Args:
            device: Names it.
            lanes: As they are.
            now: The present, seconds.

        Raises:
            OSError: they could not be written; what stood there still stands.
        """
        shape = (lanes.table.shape, lanes.members, lanes.sessions, lanes.pids)
        kept = self._kept.get(device)
        if kept is not None and kept.shape == shape and now - kept.since_s < TIMES_SECONDS:
            page = _page(kept.edition, lanes.table.running())
            if page is not None:
                os.pwrite(kept.leases, page, 0)
                return
        edition = os.urandom(8).hex()
        body = {
            "version": VERSION,
            "edition": edition,
            "table": lanes.table.record(),
            "members": lanes.members,
            "sessions": lanes.sessions,
            "pids": lanes.pids,
        }
        if kept is None:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(self._file(device), orjson.dumps(body), mode=0o600, sync=False)
        opened = kept.leases if kept is not None else self._open(device)
        self._kept[device] = _Kept(edition=edition, shape=shape, since_s=now, leases=opened)

    def read(self, device: str) -> Saved | None:
        """What was kept of a device; ``None`` = nothing, or nothing that can be used.

        Files of a newer version are of no use: its programs are not known, so they are refused
        until they have ended.
        """
        try:
            body = orjson.loads(read_bounded(self._file(device), MOST_BYTES))
            if body["version"] not in (VERSION, WITHOUT_LEASES):
                return None
            table = _table(body["table"])
            running = self._running(device, str(body.get("edition")))
            return Saved(
                table=table if running is None else running_in(table, running),
                members=tuple(Member(**one) for one in body["members"]),
                sessions={str(job): str(said) for job, said in body["sessions"].items()},
                pids={
                    str(job): tuple(int(pid) for pid in pids)
                    for job, pids in body.get("pids", {}).items()
                },
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    def remove(self, device: str) -> None:
        """Forget a device."""
        kept = self._kept.pop(device, None)
        if kept is not None:
            os.close(kept.leases)
        self._file(device).unlink(missing_ok=True)
        self._leases(device).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files; what they hold stays."""
        for kept in self._kept.values():
            os.close(kept.leases)
        self._kept.clear()

    def _running(self, device: str, edition: str) -> RunningRecord | None:
        """Leases of a later moment than the lanes; ``None`` = none were written since.

        Raises:
            OSError, ValueError, LookupError, TypeError: they cannot be read.
        """
        try:
            body = orjson.loads(read_bounded(self._leases(device), PAGE_BYTES))
        except FileNotFoundError:
            return None
        if body.get("edition") != edition:
            return None
        return RunningRecord(
            held=tuple(Lease(**one) for one in body["held"]),
            draining=tuple(body["draining"]),
            leases=int(body["leases"]),
        )

    def _open(self, device: str) -> int:
        """The file of leases, without any."""
        write_whole(self._leases(device), b"{}", mode=0o600, sync=False)
        return os.open(self._leases(device), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def _file(self, device: str) -> Path:
        return self.path / f"{quote(device, safe='')}.json"

    def _leases(self, device: str) -> Path:
        return self.path / f"{quote(device, safe='')}.leases"


def _page(edition: str, running: RunningRecord) -> bytes | None:
    """The content of a file of leases; ``None`` = they do not fit."""
    body = {
        "edition": edition,
        "held": running.held,
        "draining": running.draining,
        "leases": running.leases,
    }
    page = orjson.dumps(body)
    return page.ljust(PAGE_BYTES) if len(page) <= PAGE_BYTES else None


def _table(raw: dict[str, Any]) -> TableRecord:
    return TableRecord(
        lanes=tuple(_lane(one) for one in raw["lanes"]),
        queue=tuple(JobDemand(**one) for one in raw["queue"]),
        next_lane=int(raw["next_lane"]),
        arrivals=int(raw["arrivals"]),
        leases=int(raw["leases"]),
        away=tuple(_resident(one) for one in raw.get("away", ())),
    )


def _lane(raw: dict[str, Any]) -> LaneRecord:
    return LaneRecord(**{**raw, "residents": tuple(_resident(one) for one in raw["residents"])})


def _resident(raw: dict[str, Any]) -> ResidentRecord:
    lease = raw["lease"]
    own = {
        "demand": JobDemand(**raw["demand"]),
        "lease": Lease(**lease) if lease else None,
        "memory": Memory(raw.get("memory", Memory.HERE)),
    }
    return ResidentRecord(**{**raw, **own})
