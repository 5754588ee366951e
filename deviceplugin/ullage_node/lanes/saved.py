# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps lanes and leases across a restart of the agent, so that no lane is granted twice.

Two files per device, in memory: after a reboot no process holds anything. One holds the full state;
it is written when lanes or residents change, and periodically for its times. The other holds the
leases, which every step changes: it is written in place, within one page, so a killed process
leaves it either old or new. Both are written before a grant is sent, and soon after a step has
ended; a lease that ended later is ended by its program, when it greets again.
"""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import repeat
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
from ullage.engines.lanes.records import JobDemand, LaneLease
from ullage.engines.lanes.state import MemoryPlace
from ullage_node.files import read_bounded, write_whole
from ullage_node.lanes.device import DeviceLanes
from ullage_node.lanes.members import LaneMember
from ullage_node.model.switching import ProcessId
from ullage_node.times import LANE_TIMES_AGE_S

MOST_BYTES: Final = 4 << 20
VERSION: Final = 2
WITHOUT_LEASES: Final = 1
"""Earlier format version: one file held the full state."""
PAGE_BYTES: Final = 4096
_NOT_OURS: Final = frozenset({errno.EFBIG, errno.EINVAL, errno.ELOOP})
"""Errors for a file not ours: too large, not a plain file, a link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The lanes of a device, and the process that greeted for each job (its session).

    ``processes`` are those of suspended jobs; start 0 = written by an earlier version, which stored
    PIDs only.
    """

    table: TableRecord
    members: tuple[LaneMember, ...]
    sessions: Mapping[str, str]
    processes: Mapping[str, tuple[ProcessId, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _SavedFiles:
    """Contents of a device's files; ``edition`` matches leases to lanes."""

    edition: str
    shape: tuple[object, ...]
    since_s: float
    leases: int
    """Descriptor of the file."""


@dataclass(frozen=True, slots=True)
class SavedLanes:
    """The files in one directory."""

    path: Path
    _kept: dict[str, _SavedFiles] = field(default_factory=dict)

    def keep(self, device: str, lanes: DeviceLanes, now: float) -> None:
        """Save a device's lanes, or the leases alone if only they have changed.

        Args:
            device: Names it.
            lanes: Their current state.
            now: Current time, seconds.

        Raises:
            OSError: they could not be written; the old content is intact.
        """
        shape = (lanes.table.shape, lanes.members, lanes.sessions, lanes.processes)
        kept = self._kept.get(device)
        page = None
        if kept is not None and kept.shape == shape:
            page = _page(kept.edition, lanes.table.running())
        if kept is not None and page is not None:
            _write_page(kept.leases, page)
            if now - kept.since_s < LANE_TIMES_AGE_S:
                return
        try:
            self._keep_whole(device, lanes, kept, shape, now)
        except OSError:
            if page is None:
                raise  # else only the times are outdated

    def _keep_whole(
        self,
        device: str,
        lanes: DeviceLanes,
        kept: _SavedFiles | None,
        shape: tuple[object, ...],
        now: float,
    ) -> None:
        edition = os.urandom(8).hex()
        body = {
            "version": VERSION,
            "edition": edition,
            "table": lanes.table.record(),
            "members": lanes.members,
            "sessions": lanes.sessions,
            "pids": {
                job: [process.pid for process in held] for job, held in lanes.processes.items()
            },
            "starts": {
                job: [process.start for process in held] for job, held in lanes.processes.items()
            },
        }
        if kept is None:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(self._file(device), orjson.dumps(body), mode=0o600, sync=False)
        opened = kept.leases if kept is not None else self._open(device)
        self._kept[device] = _SavedFiles(edition=edition, shape=shape, since_s=now, leases=opened)

    def read(self, device: str) -> Saved | None:
        """The saved lanes of a device; ``None`` = none, or unusable.

        Raises:
            OSError: the files exist and cannot be read now.
        """
        try:
            body = orjson.loads(_content(self._file(device), MOST_BYTES))
            if body["version"] not in (VERSION, WITHOUT_LEASES):
                return None
            table = _table(body["table"])
            starts = defaultdict(lambda: repeat(0), body.get("starts", {}))
            running = self._running(device, str(body.get("edition")))
            return Saved(
                table=table if running is None else running_in(table, running),
                members=tuple(LaneMember(**row) for row in body["members"]),
                sessions={str(job): str(session) for job, session in body["sessions"].items()},
                processes={
                    str(job): tuple(map(ProcessId, map(int, pids), map(int, starts[job])))
                    for job, pids in body.get("pids", {}).items()
                },
            )
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    def remove(self, device: str) -> None:
        """Forget a device."""
        kept = self._kept.pop(device, None)
        if kept is not None:
            os.close(kept.leases)
        self._file(device).unlink(missing_ok=True)
        self._leases(device).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files; their content stays."""
        for kept in self._kept.values():
            os.close(kept.leases)
        self._kept.clear()

    def _running(self, device: str, edition: str) -> RunningRecord | None:
        """Leases written after the lanes; ``None`` = none.

        Raises:
            OSError, ValueError, LookupError, TypeError: they cannot be read.
        """
        try:
            body = orjson.loads(_content(self._leases(device), PAGE_BYTES))
        except FileNotFoundError:
            return None
        if body.get("edition") != edition:
            return None
        return RunningRecord(
            held=tuple(LaneLease(**row) for row in body["held"]),
            leases=int(body["leases"]),
        )

    def _open(self, device: str) -> int:
        """Create the empty lease file; its page is allocated now, in case the disk fills up."""
        write_whole(self._leases(device), b"{}".ljust(PAGE_BYTES), mode=0o600, sync=False)
        return os.open(self._leases(device), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def _file(self, device: str) -> Path:
        return self.path / f"{quote(device, safe='')}.json"

    def _leases(self, device: str) -> Path:
        return self.path / f"{quote(device, safe='')}.leases"


def _content(path: Path, most: int) -> bytes:
    """The contents of one of our files.

    Raises:
        OSError: it cannot be read now, for example when out of descriptors.
        ValueError: it was not written by us.
    """
    try:
        return read_bounded(path, most)
    except OSError as error:
        if error.errno in _NOT_OURS:
            raise ValueError(str(error)) from error
        raise


def _write_page(handle: int, page: bytes) -> None:
    """Write a page in place.

    Raises:
        OSError: it was not written, or only in part.
    """
    if os.pwrite(handle, page, 0) != len(page):
        raise OSError(errno.ENOSPC, "only a part of the leases was written")


def _page(edition: str, running: RunningRecord) -> bytes | None:
    """The content of a file of leases; ``None`` = they do not fit."""
    body = {
        "edition": edition,
        "held": running.held,
        "leases": running.leases,
    }
    page = orjson.dumps(body)
    return page.ljust(PAGE_BYTES) if len(page) <= PAGE_BYTES else None


def _table(raw: dict[str, Any]) -> TableRecord:
    return TableRecord(
        lanes=tuple(_lane(row) for row in raw["lanes"]),
        queue=tuple(JobDemand(**row) for row in raw["queue"]),
        next_lane=int(raw["next_lane"]),
        arrivals=int(raw["arrivals"]),
        leases=int(raw["leases"]),
        away=tuple(_resident(row) for row in raw.get("away", ())),
    )


def _lane(raw: dict[str, Any]) -> LaneRecord:
    return LaneRecord(**{**raw, "residents": tuple(_resident(row) for row in raw["residents"])})


def _resident(raw: dict[str, Any]) -> ResidentRecord:
    lease = raw["lease"]
    own = {
        "demand": JobDemand(**raw["demand"]),
        "lease": LaneLease(**lease) if lease else None,
        "memory": MemoryPlace(raw.get("memory", MemoryPlace.HERE)),
    }
    return ResidentRecord(**{**raw, **own})
