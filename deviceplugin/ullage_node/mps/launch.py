# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Executes a control daemon that sees its device's own memory as ``/dev/shm``.

Run as ``python -m ullage_node.mps.launch SHM PROGRAM [WORD ...]``. Daemon and clients meet in named
regions below ``/dev/shm``; every daemon of the container needs its own, so each runs in its own
mount namespace. The process execs the program, so that signals reach it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

CLONE_NEWNS: Final = 0x00020000
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_SLAVE: Final = 1 << 19


def run(arguments: list[str]) -> None:
    """Give this process its own ``/dev/shm`` and exec the program.

    Raises:
        OSError: the kernel refuses, mostly because the container is not privileged.
    """
    shm, *words = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(CLONE_NEWNS), "unshare")
    # No mount made here may propagate to the host; mounts of the host still propagate here.
    _check(libc.mount(None, b"/", None, MS_REC | MS_SLAVE, None), "make mounts private")
    _check(libc.mount(os.fsencode(shm), b"/dev/shm", None, MS_BIND, None), f"bind {shm}")
    os.execvp(words[0], words)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    run(sys.argv[1:])
