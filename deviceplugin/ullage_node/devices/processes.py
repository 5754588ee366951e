# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Processes by number and start: the kernel gives a number again once its process has ended.

Code that notes a process to act on it later notes both, and compares before it acts.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ullage_node.devices.cgroups import CgroupUnreadable, pod_uid_of, read_text
from ullage_node.model.switching import ProcessId

START_FIELD: Final = 22
"""Of /proc/PID/stat: when the process started, in ticks since boot (proc_pid_stat(5))."""


def identity(process: Path) -> ProcessId:
    """Number and start of a process, as its folder in /proc says them.

    Raises:
        OSError: there is no such process, or its file is none of the kernel's.
    """
    raw = (process / "stat").read_text(encoding="utf-8", errors="replace")
    number, _, rest = raw.partition(" (")
    fields = rest.rpartition(") ")[2].split()
    try:
        return ProcessId(int(number), int(fields[START_FIELD - 3]))
    except (ValueError, IndexError) as error:
        raise OSError(f"{process}/stat cannot be read") from error


def lives(proc_root: Path, process: ProcessId) -> bool:
    """True if the process is there, and not only another one of its number."""
    try:
        return identity(proc_root / str(process.pid)) == process
    except OSError:
        return False


def identified(proc_root: Path, pids: Iterable[int], pod_uid: str = "") -> tuple[ProcessId, ...]:
    """Those of these processes that are there.

    Args:
        proc_root: The host's ``/proc``.
        pids: Their numbers, as they were seen a moment ago.
        pod_uid: Leave out those that are of another pod by now; "" = of any.
    """
    processes: list[ProcessId] = []
    for pid in pids:
        try:
            process = identity(proc_root / str(pid))
        except OSError:
            continue
        # between the two looks: what is of the pod is what was identified
        if pod_uid and pod_of(proc_root, pid) not in (None, pod_uid):
            continue
        if lives(proc_root, process):
            processes.append(process)
    return tuple(processes)


def pod_of(proc_root: Path, pid: int) -> str | None:
    """UID of the pod that a process runs in; ``None`` = it cannot be told, or it is in none.

    Args:
        proc_root: The host's ``/proc``.
        pid: The process there; 0 = it has no number.
    """
    try:
        text = read_text(proc_root / str(pid) / "cgroup") if pid > 0 else None
    except CgroupUnreadable:
        return None
    return pod_uid_of(text or "")
