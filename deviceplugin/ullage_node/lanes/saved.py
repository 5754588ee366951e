# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps lanes and leases across a restart of the agent, so that no lane is granted twice.

One file a device, in memory: after a reboot there is no process that could hold anything. It is
written before a program hears of a grant; a lease that ended since is ended by its program, when it
greets again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from ullage.engines.lanes.recorded import LaneRecord, ResidentRecord, TableRecord
from ullage.engines.lanes.records import JobDemand, Lease
from ullage_node.files import read_bounded, write_whole
from ullage_node.lanes.device import Member

MOST_BYTES: Final = 4 << 20
VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """The lanes of a device, and the process that greeted for each job (its session)."""

    table: TableRecord
    members: tuple[Member, ...]
    sessions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SavedLanes:
    """The files below one directory."""

    path: Path

    def write(self, device: str, saved: Saved) -> None:
        """Keep a device's lanes.

        Raises:
            OSError: they could not be written.
        """
        body = {
            "version": VERSION,
            "table": saved.table,
            "members": saved.members,
            "sessions": dict(saved.sessions),
        }
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(
            self._file(device), json.dumps(body, default=_fields).encode(), mode=0o600, sync=False
        )

    def read(self, device: str) -> Saved | None:
        """What was kept of a device; ``None`` = nothing, or nothing that can be used.

        A file of another version is of no use: its programs are not known, so they are refused
        until they have ended.
        """
        try:
            body = json.loads(read_bounded(self._file(device), MOST_BYTES))
            if body["version"] != VERSION:
                return None
            return Saved(
                table=_table(body["table"]),
                members=tuple(Member(**one) for one in body["members"]),
                sessions={str(job): str(said) for job, said in body["sessions"].items()},
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    def remove(self, device: str) -> None:
        """Forget a device."""
        self._file(device).unlink(missing_ok=True)

    def _file(self, device: str) -> Path:
        return self.path / f"{quote(device, safe='')}.json"


def _fields(record: Any) -> dict[str, object]:
    """A record of ours; ``dataclasses.asdict`` copies every value, which is most of a grant."""
    return {name: getattr(record, name) for name in record.__slots__}


def _table(raw: dict[str, Any]) -> TableRecord:
    return TableRecord(
        lanes=tuple(_lane(one) for one in raw["lanes"]),
        queue=tuple(JobDemand(**one) for one in raw["queue"]),
        next_lane=int(raw["next_lane"]),
        arrivals=int(raw["arrivals"]),
        leases=int(raw["leases"]),
    )


def _lane(raw: dict[str, Any]) -> LaneRecord:
    return LaneRecord(**{**raw, "residents": tuple(_resident(one) for one in raw["residents"])})


def _resident(raw: dict[str, Any]) -> ResidentRecord:
    lease = raw["lease"]
    own = {"demand": JobDemand(**raw["demand"]), "lease": Lease(**lease) if lease else None}
    return ResidentRecord(**{**raw, **own})
