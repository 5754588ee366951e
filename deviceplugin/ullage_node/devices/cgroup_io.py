# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Block I/O of containers, from the kernel's control groups; both cgroup versions alike.

Version 2 counts in ``io.stat`` and times waits in ``io.pressure`` (PSI). Version 1 has the same
counts in ``blkio.throttle.*_recursive``, on newer kernels once it is asked to count; waits stand in
the version 2 hierarchy beside it where the runtime puts containers there, else the states of the
processes are sampled. What is not on a block device (NFS, FUSE, object stores) is in neither. Only
this module knows the names of the files.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ullage_node.devices.cgroups import (
    CgroupUnreadable,
    CgroupVersion,
    controller_paths,
    detect_version,
    pod_uid_of,
    read_text,
)

DEEPEST: Final = 9
"""Levels below the root that are searched for pods."""
MOST_FOLDERS: Final = 20_000
"""Directories that one search looks at."""
MOST_CONTAINERS: Final = 512
MOST_VOLUMES: Final = 32
"""Devices of one container that are looked at."""
MOST_THREADS: Final = 256
"""Threads of one container whose states are sampled."""
COUNTED_MOST: Final = 1 << 63
"""No counter is above it."""

DEVICE: Final = re.compile(r"[0-9]{1,6}:[0-9]{1,8}")
"""A major:minor number."""
_READS_AND_WRITES: Final = frozenset(("Read", "Write"))


@dataclass(frozen=True, slots=True, order=True)
class IoCgroup:
    """A container by its pod and the name of its directory, which the runtime chose."""

    pod_uid: str
    name: str


@dataclass(frozen=True, slots=True)
class IoCount:
    """Bytes and requests of a container on one device since it began."""

    bytes: int = 0
    requests: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IoCounters:
    """Counters of a container since it began.

    Attributes:
        devices: Bytes and requests by major:minor number.
        stalled_us: Time in which a task of it waited for I/O, microseconds; ``None`` = the kernel
            does not say.
        throttled_us: Time in which its CPU quota stopped it, microseconds.
    """

    devices: Mapping[str, IoCount]
    stalled_us: int | None
    throttled_us: int


def io_root(root: Path) -> tuple[Path, CgroupVersion]:
    """The hierarchy with the I/O of containers."""
    version = detect_version(root)
    return (root if version is CgroupVersion.V2 else root / "blkio"), version


def find_containers(base: Path) -> dict[IoCgroup, Path]:
    """Containers of pods below a hierarchy, in order, and their directories.

    Every directory directly below a pod's is one. A search that meets more directories than
    :data:`MOST_FOLDERS` ends there.
    """
    containers: dict[IoCgroup, Path] = {}
    level, looked = [base], 0
    for _ in range(DEEPEST):
        below: list[Path] = []
        for folder in level:
            for child in _folders(folder):
                looked += 1
                if looked > MOST_FOLDERS:
                    return containers
                uid = pod_uid_of(f"{child.name}/")
                if uid is None:
                    below.append(child)
                    continue
                for inner in _folders(child):
                    containers[IoCgroup(uid, inner.name)] = inner
                    if len(containers) >= MOST_CONTAINERS:
                        return containers
        level = below
    return containers


def _folders(folder: Path) -> list[Path]:
    """Directories in a directory, in order; none if it is gone or cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(
                Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)
            )
    except OSError:
        return []


def read_counters(root: Path, version: CgroupVersion, folder: Path) -> IoCounters | None:
    """Counters of a container; ``None`` when it is gone.

    Args:
        root: The host's cgroup tree.
        version: The version of the hierarchy of ``folder``.
        folder: Its directory there.

    Raises:
        CgroupUnreadable: a file exists and cannot be read.
    """
    if version is CgroupVersion.V2:
        stat = read_text(folder / "io.stat")
        devices = _from_io_stat(stat or "")
        pressure = read_text(folder / "io.pressure")
        quota = _field(read_text(folder / "cpu.stat") or "", "throttled_usec")
    else:
        stat = read_text(folder / "blkio.throttle.io_service_bytes_recursive")
        served = read_text(folder / "blkio.throttle.io_serviced_recursive") or ""
        devices = _from_blkio(stat or "", served)
        inside = folder.relative_to(root / "blkio")
        pressure = read_text(root / "unified" / inside / "io.pressure")
        cpu = read_text(root / "cpu" / inside / "cpu.stat") or ""
        quota = _field(cpu, "throttled_time") // 1_000
    if stat is None:
        return None
    return IoCounters(
        devices=devices,
        stalled_us=_stalled(pressure) if pressure is not None else None,
        throttled_us=quota,
    )


def _count(text: str) -> int:
    """A counter; what is none, or is absurd, is 0."""
    return (
        min(int(text), COUNTED_MOST) if text.isascii() and text.isdigit() and len(text) < 21 else 0
    )


def _from_io_stat(stat: str) -> dict[str, IoCount]:
    """Devices of ``io.stat``: ``8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0``."""
    devices: dict[str, IoCount] = {}
    for line in stat.splitlines():
        device, *words = line.split()[:16] or [""]
        if not DEVICE.fullmatch(device) or len(devices) >= MOST_VOLUMES:
            continue
        values = {name: _count(value) for name, _, value in (word.partition("=") for word in words)}
        devices[device] = IoCount(
            values.get("rbytes", 0) + values.get("wbytes", 0),
            values.get("rios", 0) + values.get("wios", 0),
        )
    return devices


def _from_blkio(moved: str, served: str) -> dict[str, IoCount]:
    """Devices of version 1: a line for each kind of request, ``8:0 Read 4096``."""
    sums = [_sums(text) for text in (moved, served)]
    return {
        device: IoCount(count, sums[1].get(device, 0))
        for device, count in list(sums[0].items())[:MOST_VOLUMES]
    }


def _sums(text: str) -> dict[str, int]:
    sums: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in _READS_AND_WRITES and DEVICE.fullmatch(words[0]):
            sums[words[0]] = sums.get(words[0], 0) + _count(words[2])
    return sums


def _field(text: str, name: str) -> int:
    for line in text.splitlines():
        field_name, _, value = line.partition(" ")
        if field_name == name:
            return _count(value.strip())
    return 0


def _stalled(pressure: str) -> int | None:
    """Total of the line ``some`` of a PSI file; ``None`` = PSI is off."""
    for line in pressure.splitlines():
        if line.startswith("some "):
            return _count(line.rpartition("total=")[2].strip())
    return None


@dataclass(slots=True)
class WaitSampler:
    """Samples processes for waits, where the kernel counts none (``state`` D of a thread).

    Attributes:
        proc_root: The host's ``/proc``.
    """

    proc_root: Path
    _members: dict[IoCgroup, list[str]] = field(default_factory=dict)
    _samples: dict[IoCgroup, list[bool]] = field(default_factory=dict)

    @property
    def follows(self) -> bool:
        """True while there is a container to sample."""
        return bool(self._members)

    def follow(self, containers: Collection[IoCgroup]) -> None:
        """Look up the processes of these containers again, and no others'.

        Raises:
            CgroupUnreadable: there is no such ``/proc``.
        """
        self._members = {container: [] for container in containers}
        if not containers:
            return
        try:
            with os.scandir(self.proc_root) as entries:
                pids = [entry.name for entry in entries if entry.name.isdigit()]
        except OSError as error:
            raise CgroupUnreadable(f"{self.proc_root}: {error.strerror}") from error
        for pid in pids:
            container = self._container_of(pid)
            if container in self._members:
                self._members[container].append(pid)

    def sample(self) -> None:
        """Take one sample of each container."""
        for container, pids in self._members.items():
            waits = any(state == "D" for state in self._states(pids))
            self._samples.setdefault(container, []).append(waits)

    def take(self) -> dict[IoCgroup, float]:
        """Parts of the samples since the last call in which a container waited, 0 to 1."""
        samples, self._samples = self._samples, {}
        return {container: sum(waits) / len(waits) for container, waits in samples.items()}

    def _container_of(self, pid: str) -> IoCgroup | None:
        try:
            text = read_text(self.proc_root / pid / "cgroup") or ""
        except CgroupUnreadable:
            return None
        path = controller_paths(text).get("blkio", "")
        uid = pod_uid_of(path)
        if uid is None:
            return None
        parts = path.split("/")
        at = next(index for index, part in enumerate(parts) if pod_uid_of(f"{part}/") == uid)
        return IoCgroup(uid, parts[at + 1]) if at + 1 < len(parts) else None

    def _states(self, pids: Iterable[str]) -> Iterator[str]:
        left = MOST_THREADS
        for pid in pids:
            try:
                threads = os.listdir(self.proc_root / pid / "task")
            except OSError:
                continue  # it has ended
            for thread in threads[:left]:
                left -= 1
                try:
                    stat = read_text(self.proc_root / pid / "task" / thread / "stat") or ""
                except CgroupUnreadable:
                    continue
                yield stat.rpartition(") ")[2][:1]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLimit:
    """Bytes per second of a container on a device, as in the kernel; ``None`` = no limit."""

    read: int | None
    write: int | None


NO_LIMIT: Final = DeviceLimit(read=None, write=None)
_V1_FILES: Final = ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device")


def read_limit(folder: Path, version: CgroupVersion, device: str) -> DeviceLimit:
    """The limit of a container on a device.

    Raises:
        CgroupUnreadable: a file exists and cannot be read.
    """
    if version is CgroupVersion.V2:
        for line in (read_text(folder / "io.max") or "").splitlines():
            name, *words = line.split()[:8] or [""]
            if name == device:
                values = dict(word.partition("=")[::2] for word in words)
                return DeviceLimit(
                    read=_limited(values.get("rbps", "max")),
                    write=_limited(values.get("wbps", "max")),
                )
        return NO_LIMIT
    read, write = (_field(read_text(folder / name) or "", device) or None for name in _V1_FILES)
    return DeviceLimit(read=read, write=write)


def _limited(word: str) -> int | None:
    return None if word == "max" else _count(word) or None


def write_limit(folder: Path, version: CgroupVersion, device: str, limit: DeviceLimit) -> None:
    """Limit a container on a device.

    Raises:
        OSError: the kernel refuses it, or the container is gone.
    """
    if version is CgroupVersion.V2:
        words = (
            f"{name}={'max' if value is None else value}"
            for name, value in (("rbps", limit.read), ("wbps", limit.write))
        )
        _write(folder / "io.max", f"{device} {' '.join(words)}")
        return
    for name, value in zip(_V1_FILES, (limit.read, limit.write), strict=True):
        _write(folder / name, f"{device} {value or 0}")


def count_on_all_disks(base: Path, partitions: Path, counted: set[str]) -> None:
    """Let a version 1 kernel count I/O; from 6.10 on it does so only on disks that it may throttle.

    A limit of 0 in the root group stands for none: it makes the kernel count, and limits nothing.

    Args:
        base: The hierarchy of blkio.
        partitions: The kernel's list of block devices.
        counted: Disks on which that was done; new ones are added.
    """
    for line in (read_text(partitions) or "").splitlines()[2:]:
        words = line.split()
        device = ":".join(words[:2])
        if len(words) == 4 and device not in counted and DEVICE.fullmatch(device):
            counted.add(device)
            with contextlib.suppress(OSError):  # a partition, or no medium
                _write(base / _V1_FILES[0], f"{device} 0")


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
