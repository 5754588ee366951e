# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or absent, whenever the process dies.

The content is opaque here. A file is never opened for writing under its final name, and a symbolic
link left there is replaced, never followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Final

TEMPORARY_SUFFIX: Final = ".tmp"


def write_whole(path: Path, data: bytes, *, mode: int, sync: bool = True) -> None:
    """Write a file atomically: a reader sees the old content or the new.

    Args:
        path: the file; its directory exists.
        data: its content.
        mode: its permissions, whatever the umask.
        sync: also survive a crash of the machine, not only of the process.

    Raises:
        OSError: the file could not be written; the old content is intact.
    """
    temporary = path.parent / f".{path.name}.{os.urandom(4).hex()}{TEMPORARY_SUFFIX}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, mode), "wb") as handle:
            os.fchmod(handle.fileno(), mode)
            handle.write(data)
            handle.flush()
            if sync:
                os.fsync(handle.fileno())
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if sync:
        _sync_directory(path.parent)


def read_bounded(path: Path, most: int, *, follow: bool = False) -> bytes:
    """The content of a plain file of at most ``most`` bytes; ``follow`` links to it.

    Other file types are refused: a pipe would wait for its writer.

    Raises:
        OSError: it cannot be read, is not a plain file, or is larger; FileNotFoundError if there is
            none.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(path, flags if follow else flags | os.O_NOFOLLOW)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no plain file", str(path))
        data = b""
        while len(data) <= most and (piece := os.read(handle, most + 1 - len(data))):
            data += piece
    finally:
        os.close(handle)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"more than {most} bytes", str(path))
    return data


def remove_temporaries(directory: Path, stem: str) -> None:
    """Remove leftovers of a process that died in :func:`write_whole`, for names with this stem."""
    for left in directory.glob(f".{stem}*{TEMPORARY_SUFFIX}"):
        left.unlink(missing_ok=True)


def remove_empty(directory: Path) -> None:
    """Remove a directory if it exists and is empty."""
    with contextlib.suppress(OSError):
        directory.rmdir()


def _sync_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
