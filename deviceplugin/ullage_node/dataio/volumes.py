# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Names of block devices by major:minor number, with the volume of Kubernetes that is on them.

The kernel counts whole disks, file systems may be on partitions. Mount points contain names that
tenants chose, so they are cut and held to plain characters.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from ullage_node.devices.cgroups import CgroupUnreadable, read_text

LONGEST: Final = 100
"""Characters of a name."""
MOST_MOUNTS: Final = 10_000
_KUBELET_VOLUME: Final = re.compile(
    r"/pods/[^/]+/volumes/kubernetes\.io~[a-z-]+/([^/]+)(?:/mount)?$"
)
_PLAIN: Final = re.compile(r"[^A-Za-z0-9._/:-]")


def volume_names(sys_root: Path, proc_root: Path) -> dict[str, str]:
    """Names of the devices with mounted file systems, such as ``/dev/sdb (data-0)``.

    Args:
        sys_root: A ``/sys``.
        proc_root: The host's ``/proc``: the mounts are those of its first process.
    """
    names: dict[str, str] = {}
    try:
        mounts = read_text(proc_root / "1" / "mountinfo") or ""
    except CgroupUnreadable:
        mounts = ""
    for line in mounts.splitlines()[:MOST_MOUNTS]:
        words = line.split(" ", 5)
        if len(words) < 6 or words[2].startswith("0:"):
            continue
        device = whole_disk(sys_root, words[2])
        names.setdefault(device, device_name(sys_root, device))
        if volume := _KUBELET_VOLUME.search(words[4]):
            label = _PLAIN.sub("", volume[1])[: LONGEST // 2]
            names[device] = f"{device_name(sys_root, device)} ({label})"
    return names


def device_name(sys_root: Path, device: str) -> str:
    """Path of a device; its number where the kernel does not name it."""
    try:
        link = os.readlink(sys_root / "dev" / "block" / device)
    except OSError:
        return device
    return f"/dev/{_PLAIN.sub('', os.path.basename(link))}"[: LONGEST // 2]


def whole_disk(sys_root: Path, device: str) -> str:
    """Number of the disk of a partition; that of a disk itself."""
    place = sys_root / "dev" / "block" / device
    try:
        if not (place / "partition").exists():
            return device
        return (read_text(place.resolve().parent / "dev") or "").strip() or device
    except (OSError, CgroupUnreadable):
        return device
