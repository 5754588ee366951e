# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads control groups: the hierarchy in force, the owner of a path, its limits.

Both cgroup versions have the same data under different names; only this module knows the names. It
reads and never writes: limits are written by the hook, on the host, before a container's first
instruction. Paths in ``/proc/<pid>/cgroup`` are untrusted input and never leave the root they are
joined to.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

PERIOD_US: Final = 100_000
"""Length of the period of all our quotas, microseconds."""
QUOTA_MIN_US: Final = 1_000
"""The kernel's smallest quota, microseconds (``min_cfs_quota_period``, sched/core)."""
UNIFIED: Final = ""
"""Name of the version 2 hierarchy among the controllers."""

_MIB: Final = 1 << 20
_READ_BYTES: Final = 1 << 16
_CONTROLLERS_V1: Final = ("cpu", "cpuset", "cpuacct", "pids", "memory")
_CORES: Final = re.compile(r"(\d+)(?:-(\d+))?")
_POD_UID: Final = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
    r"(?:\.slice)?(?:/|$)"
)


class CgroupVersion(IntEnum):
    """The hierarchy that holds the cpu controller."""

    V1 = 1
    V2 = 2


class CgroupUnreadable(Exception):
    """A cgroup file exists but cannot be read or parsed; the text names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerCgroup:
    """Paths of a container's cgroup: one for each controller, one for all in version 2."""

    version: CgroupVersion
    paths: Mapping[str, str]

    def file(self, root: Path, controller: str, name: str) -> str:
        """Path of one of the cgroup's files in the hierarchy of this controller.

        A string, because joining ``Path`` objects would cost more than reading the file.
        """
        if self.version is CgroupVersion.V2:
            return f"{root}{self.paths[UNIFIED]}/{name}"
        return f"{root}/{controller}{self.paths[controller]}/{name}"

    @property
    def cpu_path(self) -> str:
        """The path in the hierarchy of the cpu controller."""
        return self.paths[UNIFIED if self.version is CgroupVersion.V2 else "cpu"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuLimits:
    """Current CPU limits, in microseconds per :data:`PERIOD_US`; ``None`` = unlimited.

    ``quota_us`` is the cgroup's own, ``effective_us`` the smallest of it and all its ancestors'.
    """

    quota_us: int | None
    effective_us: int | None
    cores: str


def detect_version(root: Path) -> CgroupVersion:
    """The hierarchy that holds the cpu controller.

    The presence of a version 2 hierarchy proves nothing, since hybrid hosts have one: the cpu
    controller must be named in its root.
    """
    named = read_text(root / "cgroup.controllers") or ""
    return CgroupVersion.V2 if "cpu" in named.split() else CgroupVersion.V1


def controller_paths(text: str) -> dict[str, str]:
    """Parse ``/proc/<pid>/cgroup``: controller to path, :data:`UNIFIED` for version 2.

    Lines not of the form ``number:controllers:/path`` are ignored.
    """
    paths: dict[str, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not (number.isdigit() and colon and path.startswith("/")):
            continue
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def pod_uid_of(path: str) -> str | None:
    """UID of the pod whose cgroup contains a path, in the API's spelling.

    Supports both of kubelet's drivers: ``.../pod<uid>/<id>`` (cgroupfs) and ``...-pod<uid with
    underscores>.slice/...`` (systemd). Static pods have a UID without dashes.
    """
    match = _POD_UID.search(path)
    return match[1].replace("_", "-") if match else None


def parse_cores(text: str) -> frozenset[int]:
    """Cores named by a list such as ``0-1,3``.

    Raises:
        CgroupUnreadable: the text is not a list of cores.
    """
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        match = _CORES.fullmatch(part)
        if match is None:
            raise CgroupUnreadable(f"'{text.strip()}' is no list of cores")
        cores.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return frozenset(cores)


def format_cores(cores: frozenset[int]) -> str:
    """The list in the kernel's format (neighbours as a range), so it reads back unchanged."""
    spans: list[list[int]] = []
    for core in sorted(cores):
        if spans and core == spans[-1][1] + 1:
            spans[-1][1] = core
        else:
            spans.append([core, core])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)


def machine_cores(root: Path) -> frozenset[int] | None:
    """Cores that cgroups may use now; ``None`` when the machine does not report them.

    Raises:
        CgroupUnreadable: the kernel's list is malformed.
    """
    names = (
        ("cpuset.cpus.effective",)
        if detect_version(root) is CgroupVersion.V2
        else ("cpuset/cpuset.effective_cpus", "cpuset/cpuset.cpus")
    )
    for name in names:
        text = read_text(root / name)
        if text and text.strip():
            return parse_cores(text)
    return None


def read_text(path: Path | str) -> str | None:
    """The text of a kernel file; ``None`` when it is missing (the cgroup or process is gone).

    Raises:
        CgroupUnreadable: it exists and cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Plain calls: a quarter of the cost of a file object, some hundred times a second.
            parts = list(iter(lambda: os.read(descriptor, _READ_BYTES), b""))
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
        return None
    except OSError as error:
        if error.errno == errno.ENODEV:  # the cgroup went away between open and read
            return None
        raise CgroupUnreadable(f"{path}: {error.strerror}") from error
    return b"".join(parts).decode(errors="replace")


def read_limits(root: Path, cgroup: ContainerCgroup) -> CpuLimits | None:
    """Current CPU limits of a container; ``None`` when its cgroup is gone.

    Raises:
        CgroupUnreadable: a file is unreadable or malformed.
    """
    cores = read_text(cgroup.file(root, "cpuset", "cpuset.cpus"))
    quotas = [_quota_us(root, place) for place in _levels(cgroup)]
    if cores is None or quotas[0] is None:
        return None
    numbers = [quota.us for quota in quotas if quota is not None and quota.us is not None]
    return CpuLimits(
        quota_us=quotas[0].us, effective_us=min(numbers, default=None), cores=cores.strip()
    )


def is_populated(root: Path, cgroup: ContainerCgroup) -> bool:
    """True if any process lives in the cgroup or below it.

    From the kernel's own count: ``cgroup.procs`` hides processes outside the reader's process
    namespace (version 1 leaves them out, version 2 writes 0), and the agent has its own.

    Raises:
        CgroupUnreadable: a file is unreadable or malformed.
    """
    if cgroup.version is CgroupVersion.V2:
        events = read_text(cgroup.file(root, UNIFIED, "cgroup.events"))
        return events is not None and "populated 1" in events.splitlines()
    current = read_text(cgroup.file(root, "pids", "pids.current"))
    return current is not None and _whole(current, "pids.current") > 0


def read_pids(root: Path, cgroup: ContainerCgroup) -> tuple[int, ...]:
    """Processes of the cgroup that the reader's process namespace can see, in order.

    Raises:
        CgroupUnreadable: the file is unreadable.
    """
    text = read_text(cgroup.file(root, "cpu", "cgroup.procs")) or ""
    return tuple(sorted({int(line) for line in text.split() if line.isdigit() and int(line) > 0}))


def read_cpu_time_ns(root: Path, cgroup: ContainerCgroup) -> int:
    """CPU time used by the cgroup since its creation, nanoseconds; 0 when it is gone.

    Raises:
        CgroupUnreadable: the file is unreadable or malformed.
    """
    if cgroup.version is CgroupVersion.V1:
        usage = read_text(cgroup.file(root, "cpuacct", "cpuacct.usage"))
        return 0 if usage is None else _whole(usage, "cpuacct.usage")
    return 1_000 * _stat(cgroup.file(root, UNIFIED, "cpu.stat"), "usage_usec")


def read_memory_mib(root: Path, cgroup: ContainerCgroup) -> int:
    """Working set of the cgroup: its usage less the inactive file cache, MiB.

    Computed like kubelet's ``workingSetBytes``. 0 when the cgroup is gone.

    Raises:
        CgroupUnreadable: a file is unreadable or malformed.
    """
    is_v1 = cgroup.version is CgroupVersion.V1
    name = "memory.usage_in_bytes" if is_v1 else "memory.current"
    usage = read_text(cgroup.file(root, "memory", name))
    if usage is None:
        return 0
    stat = cgroup.file(root, "memory", "memory.stat")
    idle = _stat(stat, "total_inactive_file" if is_v1 else "inactive_file")
    return max(0, _whole(usage, "memory usage") - idle) // _MIB


@dataclass(frozen=True, slots=True)
class _Quota:
    """One cgroup's quota per :data:`PERIOD_US`, ``None`` = unlimited."""

    us: int | None


def _levels(cgroup: ContainerCgroup) -> Iterator[ContainerCgroup]:
    """The container's own cgroup, then its ancestors without the root.

    Version 1 needs only its own: the kernel refuses a quota above that of any ancestor.
    """
    yield cgroup
    path = cgroup.paths.get(UNIFIED, "").rpartition("/")[0]
    while cgroup.version is CgroupVersion.V2 and path:
        yield ContainerCgroup(version=cgroup.version, paths={UNIFIED: path})
        path = path.rpartition("/")[0]


def _quota_us(root: Path, cgroup: ContainerCgroup) -> _Quota | None:
    """The quota of one cgroup, or ``None`` when it has none or is gone."""
    if cgroup.version is CgroupVersion.V2:
        text = read_text(cgroup.file(root, UNIFIED, "cpu.max"))
        words = text.split() if text is not None else []
    else:
        quota, period = (
            read_text(cgroup.file(root, "cpu", name))
            for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        )
        words = [] if quota is None or period is None else [quota.strip(), period.strip()]
    if not words:
        return None
    if words[0] in ("max", "-1"):
        return _Quota(None)
    if len(words) != 2:
        text = " ".join(words)
        raise CgroupUnreadable(f"{cgroup.cpu_path}: '{text}' is no quota and period")
    return _Quota(_whole(words[0], "quota") * PERIOD_US // max(1, _whole(words[1], "period")))


def _stat(path: str, field: str) -> int:
    """One field of a flat keyed file; 0 when the file is gone."""
    text = read_text(path)
    for line in (text or "").splitlines():
        name, _, value = line.partition(" ")
        if name == field:
            return _whole(value, field)
    return 0


def _whole(text: str, what: str) -> int:
    """A whole number that the kernel wrote."""
    stripped = text.strip()
    if not stripped.isdigit():
        raise CgroupUnreadable(f"{what}: '{stripped}' is no whole number")
    return int(stripped)


def cgroup_from_record(record: Mapping[str, str]) -> ContainerCgroup:
    """The cgroup that the hook recorded for the agent.

    Raises:
        CgroupUnreadable: a path is missing or leaves its hierarchy.
    """
    version = {"1": CgroupVersion.V1, "2": CgroupVersion.V2}.get(record.get("version", ""))
    if version is None:
        raise CgroupUnreadable(f"cgroup version '{record.get('version', '')}' is neither 1 nor 2")
    if version is CgroupVersion.V2:
        paths = {UNIFIED: record.get("unified", "")}
    else:
        paths = {name: record.get(name, "") for name in _CONTROLLERS_V1}
    for name, path in paths.items():
        if not path.startswith("/") or path == "/" or ".." in path.split("/"):
            raise CgroupUnreadable(f"'{path}' is no container's path for {name or 'version 2'}")
    return ContainerCgroup(version=version, paths=paths)
