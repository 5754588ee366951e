# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Processes by PID and start time: the kernel reuses a PID once its process has ended.

Code that stores a process to act on it later stores both, and compares before it acts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ullage_node.devices.cgroups import CgroupUnreadable, pod_uid_of, read_text
from ullage_node.model.switching import ProcessId

START_FIELD: Final = 22
"""Field of /proc/PID/stat with the start time, in ticks since boot (proc_pid_stat(5))."""


def identity(process: Path) -> ProcessId:
    """PID and start time of a process, from its directory in /proc.

    Raises:
        OSError: there is no such process, or its file is malformed.
    """
    raw = (process / "stat").read_text(encoding="utf-8", errors="replace")
    number, _, rest = raw.partition(" (")
    fields = rest.rpartition(") ")[2].split()
    try:
        return ProcessId(int(number), int(fields[START_FIELD - 3]))
    except (ValueError, IndexError) as error:
        raise OSError(f"{process}/stat cannot be read") from error


def lives(proc_root: Path, process: ProcessId) -> bool:
    """True if the process exists, and its PID was not reused."""
    try:
        return identity(proc_root / str(process.pid)) == process
    except OSError:
        return False


def identified(proc_root: Path, pids: Iterable[int], pod_uid: str = "") -> tuple[ProcessId, ...]:
    """The existing ones of these processes.

    Args:
        proc_root: The host's ``/proc``.
        pids: Their PIDs, read a moment ago.
        pod_uid: Omit processes that now belong to another pod; "" = any pod.
    """
    processes: list[ProcessId] = []
    for pid in pids:
        try:
            process = identity(proc_root / str(pid))
        except OSError:
            continue
        # between two reads of the start time: the pod is that of the identified process
        if pod_uid and pod_of(proc_root, pid) not in (None, pod_uid):
            continue
        if lives(proc_root, process):
            processes.append(process)
    return tuple(processes)


def pod_of(proc_root: Path, pid: int) -> str | None:
    """UID of the pod that a process runs in; ``None`` = unknown, or it is in none.

    Args:
        proc_root: The host's ``/proc``.
        pid: The process there; 0 = it has no PID.
    """
    try:
        text = read_text(proc_root / str(pid) / "cgroup") if pid > 0 else None
    except CgroupUnreadable:
        return None
    return pod_uid_of(text or "")
