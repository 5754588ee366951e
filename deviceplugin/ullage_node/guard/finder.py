# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Finds a container's cgroup in the host's tree by its pod's uid and its processes.

Request data never becomes part of a path: the tree is walked, and a directory counts only when it
lies directly below a directory of that pod and holds one of the named processes. Supports the
layouts of both kubelet drivers, under any root. Read-only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ullage_node.devices.cgroups import CgroupUnreadable, controller_paths, pod_uid_of, read_text
from ullage_node.guard.protocol import FreezeTarget

DEEPEST: Final = 9
"""Levels below the root that are searched for pods."""


class FreezerKind(StrEnum):
    """Mechanism that freezes a container."""

    V2 = "v2"
    V1 = "v1"
    SIGNAL = "signal"
    """No freezer on this kernel: every process gets SIGSTOP."""


class CgroupNotFound(Exception):
    """There is no such container in the tree; the text names the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezableCgroup:
    """A container's cgroup: the directory, and the mechanism that freezes it."""

    folder: Path
    kind: FreezerKind


def hierarchy(root: Path) -> tuple[Path, FreezerKind]:
    """The hierarchy in which containers are stopped on this host.

    Raises:
        NotFound: none below the root.
    """
    if (root / "cgroup.controllers").exists():
        return root, FreezerKind.V2
    if (root / "freezer" / "cgroup.procs").exists():
        return root / "freezer", FreezerKind.V1
    for name in ("pids", "cpu", "cpu,cpuacct", "memory"):
        if (root / name / "cgroup.procs").exists():
            return root / name, FreezerKind.SIGNAL
    raise CgroupNotFound(f"no cgroup hierarchy below {root}")


def find(root: Path, proc_root: Path, target: FreezeTarget) -> FreezableCgroup:
    """The cgroup of one container.

    Raises:
        NotFound: no directory of that pod holds one of the processes.
        CgroupUnreadable: the kernel's answer cannot be read.
    """
    base, kind = hierarchy(root)
    seen = 0
    for pod in _pods(base, target.key.pod_uid):
        for folder in sorted(_subfolders(pod)):
            seen += 1
            if _holds(folder, pod, proc_root, target):
                stops = kind is not FreezerKind.V2 or (folder / "cgroup.freeze").exists()
                return FreezableCgroup(folder=folder, kind=kind if stops else FreezerKind.SIGNAL)
    named = ", ".join(map(str, target.pids[:5])) or "none named"
    raise CgroupNotFound(
        f"pod {target.key.pod_uid}: none of its {seen} cgroups holds the processes of container "
        f"{target.key.container} ({named})"
    )


def is_container(root: Path, folder: Path) -> bool:
    """True if a directory is a container's: directly below a pod's, inside the tree.

    Journal entries are checked with it before anything is written there.
    """
    try:
        base, _ = hierarchy(root)
        inside = folder.resolve().relative_to(base.resolve())
    except (CgroupNotFound, ValueError):
        return False
    parts = inside.parts
    return len(parts) >= 2 and pod_uid_of(f"{'/'.join(parts[:-1])}/") is not None


def members(place: FreezableCgroup) -> set[int]:
    """Processes of the container and its descendants, as visible in the reader's namespace.

    Raises:
        CgroupUnreadable: the kernel's list cannot be read.
    """
    pids: set[int] = set()
    for folder, _, _ in os.walk(place.folder):
        text = read_text(f"{folder}/cgroup.procs") or ""
        pids |= {int(word) for word in text.split() if word.isdigit() and int(word) > 1}
    return pids


def _pods(base: Path, uid: str) -> Iterator[Path]:
    level = [base]
    for _ in range(DEEPEST):
        below: list[Path] = []
        for folder in level:
            for child in _subfolders(folder):
                owner = pod_uid_of(f"{child.name}/")
                if owner == uid:
                    yield child
                elif owner is None:
                    below.append(child)
        level = below


def _subfolders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CgroupUnreadable(f"{folder}: {error.strerror}") from error


def _holds(folder: Path, pod: Path, proc_root: Path, target: FreezeTarget) -> bool:
    """True if one of the processes is in the directory or below it.

    ``/proc/<pid>/cgroup`` is read first: inside a PID namespace, the kernel's list hides all other
    processes. Its path may begin anywhere above the pod, so only the end is compared.
    """
    end = f"/{pod.name}/{folder.name}"
    for pid in target.pids:
        text = read_text(proc_root / str(pid) / "cgroup") or ""
        if any(f"{path}/".find(f"{end}/") >= 0 for path in controller_paths(text).values()):
            return True
    listed = members(FreezableCgroup(folder=folder, kind=FreezerKind.SIGNAL))
    return not listed.isdisjoint(target.pids)
