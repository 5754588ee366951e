# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the limits of I/O that the agent asks for, and is responsible for each until it is undone.

The journal is written before the kernel's files, with the limit that stood there before: a limit of
ours only ever lowers one of the runtime, and undoing puts that back. A crash at any point leaves a
superfluous entry, never a forgotten limit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ullage_node.devices.cgroup_io import (
    DeviceLimit,
    IoCgroup,
    count_on_all_disks,
    find_containers,
    io_root,
    read_limit,
    write_limit,
)
from ullage_node.devices.cgroups import CgroupUnreadable, CgroupVersion, pod_uid_of
from ullage_node.files import read_bounded, write_whole
from ullage_node.guard.log import Log
from ullage_node.guard.protocol import MAX_LIMITS, IoLimit

MOST_BYTES: Final = 256 << 10
LimitKey = tuple[IoCgroup, str]
"""A container and the number of a device."""
_log: Final = Log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLimit:
    """A limit in force: where it stands, what it is, and what stood there before."""

    container: IoCgroup
    device: str
    folder: Path
    version: CgroupVersion
    bytes_per_s: int
    before: DeviceLimit

    @property
    def written(self) -> DeviceLimit:
        """The limit in the kernel's file: never above one that the runtime had set."""
        return DeviceLimit(
            read=min(self.bytes_per_s, self.before.read or self.bytes_per_s),
            write=min(self.bytes_per_s, self.before.write or self.bytes_per_s),
        )


@dataclass(slots=True)
class IoLimiter:
    """Limits of containers of this node.

    Attributes:
        cgroup_root: The host's cgroup tree.
        journal: File that survives this process.
        partitions: The kernel's list of block devices.
    """

    cgroup_root: Path
    journal: Path
    partitions: Path = Path("/proc/partitions")
    _held: dict[LimitKey, HeldLimit] | None = None
    _counted: set[str] = field(default_factory=set)
    _ours: dict[LimitKey, tuple[DeviceLimit, ...]] = field(default_factory=dict)
    """What this process wrote, and the value before, which a failed write leaves."""

    @property
    def held(self) -> dict[LimitKey, HeldLimit]:
        """Limits in the journal."""
        if self._held is None:
            self._held = {(limit.container, limit.device): limit for limit in self._saved()}
        return self._held

    def hold(self, limits: Iterable[IoLimit]) -> str:
        """Make these the limits of the node, all others are undone; returns problems.

        Limits that were undone behind our back are written again.
        """
        wanted = {(limit.container, limit.device): limit.bytes_per_s for limit in limits}
        problems = self._undo([at for at in self.held if at not in wanted])
        base, version = io_root(self.cgroup_root)
        if version is CgroupVersion.V1:
            count_on_all_disks(base, self.partitions, self._counted)
        folders = find_containers(base) if wanted else {}
        for (container, device), rate in wanted.items():
            folder = folders.get(container)
            if folder is None:
                problems += self._undo([at for at in self.held if at == (container, device)])
                continue
            try:
                self._hold(container, device, folder, version, rate)
            except (OSError, CgroupUnreadable) as error:
                problems.append(f"{container.pod_uid} on {device}: {error}")
        return "; ".join(problems)

    def release_all(self) -> str:
        """Undo all limits; returns problems."""
        problems = self._undo(list(self.held))
        if problems:
            _log.error("limits of I/O not undone", problems=problems)
        return "; ".join(problems)

    def _hold(
        self, container: IoCgroup, device: str, folder: Path, version: CgroupVersion, rate: int
    ) -> None:
        seen = read_limit(folder, version, device)
        at = (container, device)
        held = self.held.get(at)
        # what stands there and is not ours is the runtime's
        before = held.before if held is not None and seen in self._ours.get(at, ()) else seen
        limit = HeldLimit(
            container=container,
            device=device,
            folder=folder,
            version=version,
            bytes_per_s=rate,
            before=before,
        )
        self._ours[at] = (*((held.written,) if held is not None else ()), limit.written)
        if limit != held:
            self.held[at] = limit
            self._save()
        if limit.written != seen:
            write_limit(folder, version, device, limit.written)

    def _undo(self, gone: list[LimitKey]) -> list[str]:
        problems: list[str] = []
        for at in gone:
            limit = self.held[at]
            try:
                # An entry whose directory is not a container's is not ours: leave it alone.
                if self._is_container(limit.folder):
                    write_limit(limit.folder, limit.version, limit.device, limit.before)
            except OSError as error:
                if limit.folder.is_dir():
                    problems.append(f"{limit.container.pod_uid} on {limit.device}: {error}")
                    continue
            del self.held[at]
            self._ours.pop(at, None)
        if gone:
            self._save()
        return problems

    def _is_container(self, folder: Path) -> bool:
        base, _ = io_root(self.cgroup_root)
        try:
            inside = folder.resolve().relative_to(base.resolve())
        except ValueError:
            return False
        parts = inside.parts
        return len(parts) >= 2 and pod_uid_of(f"{parts[-2]}/") is not None and folder.is_dir()

    def _save(self) -> None:
        rows = [
            {
                "podUID": limit.container.pod_uid,
                "cgroup": limit.container.name,
                "device": limit.device,
                "folder": str(limit.folder),
                "version": limit.version.value,
                "bytesPerSecond": limit.bytes_per_s,
                "before": [limit.before.read, limit.before.write],
            }
            for limit in self.held.values()
        ]
        self.journal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(self.journal, json.dumps(rows).encode(), mode=0o600)

    def _saved(self) -> Iterable[HeldLimit]:
        """Limits of an earlier process; an unreadable file holds none that could be undone."""
        try:
            rows = json.loads(read_bounded(self.journal, MOST_BYTES))
            return [_from_row(row) for row in rows[:MAX_LIMITS]]
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            _log.error("journal of limits unreadable", error=str(error))
            return ()


def _from_row(row: dict[str, object]) -> HeldLimit:
    before = row["before"]
    if not isinstance(before, list) or len(before) != 2:
        raise ValueError("before: expected two limits")
    read, write = (None if value is None else int(value) for value in before)
    return HeldLimit(
        container=IoCgroup(str(row["podUID"]), str(row["cgroup"])),
        device=str(row["device"]),
        folder=Path(str(row["folder"])),
        version=CgroupVersion(int(str(row["version"]))),
        bytes_per_s=int(str(row["bytesPerSecond"])),
        before=DeviceLimit(read=read, write=write),
    )
