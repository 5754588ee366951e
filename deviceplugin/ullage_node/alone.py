# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One agent a node: a second one waits until the first has ended.

Two agents would bind slots and write checkpoint and status from separate books, and would take
kubelet's registration from each other for ever. The lock is on kubelet's plugin directory, which
both use in any configuration; the kernel releases it with the process, and no file is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator
from pathlib import Path

import structlog

from ullage_node.times import LOCK_RETRY_S

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@contextlib.asynccontextmanager
async def alone_in(directory: Path, stop: asyncio.Event) -> AsyncIterator[bool]:
    """Hold a folder for as long as the block lasts; waits while another process holds it.

    Args:
        directory: the folder; made if it is not there.
        stop: ends the wait.

    Yields:
        Whether the folder is held; ``False`` = ``stop`` was set before.

    Raises:
        OSError: the folder cannot be made or opened.
    """
    handle = _open(directory)
    try:
        held = _lock(handle)
        if not held:
            _log.warning("another agent works on this node; waiting for its end", at=str(directory))
        while not held and not stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOCK_RETRY_S):
                    await stop.wait()
            held = _lock(handle)
        yield held
    finally:
        os.close(handle)


def _open(directory: Path) -> int:
    directory.mkdir(parents=True, exist_ok=True)
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
