# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Removes tenant-writable directories: any depth, any number of files, any names.

A directory is moved aside in one step, so its name is free at once; its content is removed later,
in passes of bounded work beside the event loop. No pass recurses and no path grows: a directory
that is not empty is moved up into the trash before it is removed. Every name is resolved below an
open directory and never followed, so neither a symbolic link nor a mount leads out of the trash.
The trash itself is the only state, so a pass continues where a crashed process stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import time
from itertools import islice
from pathlib import Path
from typing import Final

import structlog

from ullage.process.threads import in_thread
from ullage_node.times import REMOVAL_PAUSE_S

PASS_ENTRIES: Final = 5_000
"""Entries of one pass; about 50 ms."""
NOT_EMPTY: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST})
"""Errors of file systems for a directory that is not empty."""
FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Trash:
    """One directory of entries to remove, on their own file system."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stuck: set[str] = set()
        self._filled = asyncio.Event()

    @property
    def stuck(self) -> int:
        """Entries that the file system refuses to remove; a later process retries them."""
        return len(self._stuck)

    def put(self, path: Path) -> None:
        """Move a path of any type into the trash, if it exists.

        Raises:
            OSError: it cannot be moved.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            path.rename(self.path / os.urandom(8).hex())
            self._filled.set()

    async def run(self) -> None:
        """Empty the trash whenever something is in it, until cancelled."""
        while True:
            self._filled.clear()
            while not await in_thread(self.empty):
                await asyncio.sleep(REMOVAL_PAUSE_S)
            await self._filled.wait()

    async def drain(self, seconds: float) -> None:
        """Empty the trash now.

        Raises:
            TimeoutError: not all could be removed in that time.
        """
        deadline = time.monotonic() + seconds
        while not await in_thread(self.empty):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.path}: more to remove than fits into {seconds:.0f} s")

    def empty(self, entries: int = PASS_ENTRIES) -> bool:
        """One pass.

        Args:
            entries: Most files and directories to visit.

        Returns:
            True if only entries that cannot be removed are left.
        """
        try:
            trash = os.open(self.path, FOLDER_FLAGS)
        except FileNotFoundError:
            return True
        except OSError as error:
            _log.error("trash cannot be emptied", error=str(error))
            return True
        try:
            left = entries
            while left > 0:
                with os.scandir(trash) as iterator:
                    movable = (entry.name for entry in iterator if entry.name not in self._stuck)
                    names = list(islice(movable, left))
                if not names:
                    return True
                for name in names:
                    left -= self._remove(trash, name, max(left, 1))
            return False
        finally:
            os.close(trash)

    def _remove(self, trash: int, name: str, most: int) -> int:
        """Remove one entry, or up to ``most`` entries of it; returns the number visited."""
        try:
            if _removed(trash, name):
                return 1
            looked, kept = _unpack(trash, name, most)
        except OSError as error:
            looked, kept = 1, str(error)
        if kept:
            self._stuck.add(name)
            _log.warning("cannot be removed", directory=str(self.path), why=kept)
        return looked + 1


def _removed(folder: int, name: str) -> bool:
    """Remove a file, a link or an empty directory; False for a directory that is not empty."""
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        try:
            os.rmdir(name, dir_fd=folder)
        except OSError as error:
            if error.errno not in NOT_EMPTY:
                raise
            return False
    return True


def _unpack(trash: int, name: str, most: int) -> tuple[int, str]:
    """Empty a directory of the trash; subdirectories with content move beside it.

    Returns:
        Number of entries visited, and the reason why some remain; "" = none.
    """
    folder = _open_folder(trash, name)
    looked, kept = 0, ""
    try:
        if os.fstat(folder).st_dev != os.fstat(trash).st_dev:
            return 1, f"{name}: another file system is mounted there"
        with os.scandir(folder) as scandir_iterator:
            for entry in islice(scandir_iterator, most):
                looked += 1
                try:
                    if not _removed(folder, entry.name):
                        aside = os.urandom(8).hex()
                        os.rename(entry.name, aside, src_dir_fd=folder, dst_dir_fd=trash)
                except OSError as error:
                    kept = str(error)
    finally:
        os.close(folder)
    return looked, kept


def _open_folder(trash: int, name: str) -> int:
    """Open a directory whose owner may have removed its permissions, without following a link."""
    try:
        return os.open(name, FOLDER_FLAGS, dir_fd=trash)
    except PermissionError:
        handle = os.open(name, os.O_PATH | FOLDER_FLAGS, dir_fd=trash)
        try:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
        finally:
            os.close(handle)
        return os.open(name, FOLDER_FLAGS, dir_fd=trash)
