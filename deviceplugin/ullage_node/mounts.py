# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""mount(2) of this machine, for file systems in memory; needs CAP_SYS_ADMIN."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MNT_DETACH: Final = 2


def mount_tmpfs(path: Path, flags: int, options: str) -> None:
    """Mount a tmpfs at a directory, unless something is mounted there already.

    Raises:
        OSError: it cannot be mounted.
    """
    if os.path.ismount(path):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", flags, options.encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))


def unmount(path: Path) -> None:
    """Remove a mount, even if still in use; no error if there is none."""
    if os.path.ismount(path):
        ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(path), MNT_DETACH)
