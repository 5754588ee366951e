# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The device files of a device: a GPU's own, and for a MIG device its two capabilities too.

The kernel lists the minor numbers of capabilities in ``/proc/driver/nvidia-caps/mig-minors``
(NVIDIA, MIG user guide, device nodes and capabilities).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ullage_node.devices.nvidia.read import NvidiaDevice
from ullage_node.files import read_bounded

MINORS: Final = Path("driver/nvidia-caps/mig-minors")
MINORS_MAX: Final = 1 << 20
CAPABILITIES: Final = "/dev/nvidia-caps/nvidia-cap"

_LINE: Final = re.compile(r"^(gpu\d+/gi\d+/(?:ci\d+/)?access) (\d{1,7})$", re.ASCII | re.MULTILINE)


class FilesUnknown(Exception):
    """The kernel does not list the files of a MIG device; the text says what is missing."""


def read_minors(proc_root: Path) -> Mapping[str, int]:
    """Capabilities by name (``gpu0/gi3/ci0/access``); none where the kernel lists none.

    Raises:
        FilesUnknown: the list exists and cannot be read.
    """
    path = proc_root / MINORS
    try:
        raw = read_bounded(path, MINORS_MAX, follow=True).decode("utf-8", "replace")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise FilesUnknown(f"{path} cannot be read: {error}") from error
    return {name: int(minor) for name, minor in _LINE.findall(raw)}


def files_of(device: NvidiaDevice, minors: Mapping[str, int]) -> tuple[str, ...]:
    """Paths of the files that belong to this device only.

    Raises:
        FilesUnknown: a capability of a MIG device is in no list.
    """
    gpu = f"/dev/nvidia{device.minor}"
    if device.instance is None:
        return (gpu,)
    part, compute = device.instance
    home = f"gpu{device.minor}/gi{part}"
    try:
        own = (minors[f"{home}/access"], minors[f"{home}/ci{compute}/access"])
    except KeyError as error:
        raise FilesUnknown(
            f"{device.uuid}: {MINORS} does not list {error.args[0]}; is the kernel module "
            "nvidia-caps there? Compare with nvidia-smi -L"
        ) from error
    return (gpu, *(f"{CAPABILITIES}{minor}" for minor in own))
