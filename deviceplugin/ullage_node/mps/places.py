# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Directories of the daemons: created before each start, removed after the end.

Each device has its own tmpfs for the shared memory of daemon and clients, because clients of
different devices must not see one another's regions. Mounting needs privileges and is therefore
behind an interface; no path contains a tenant's input.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ullage_node.mounts import MS_NODEV, MS_NOSUID, mount_tmpfs, unmount
from ullage_node.mps.control import DaemonDirectories
from ullage_node.mps.records import ServerOrder

LOG_BYTES_MAX: Final = 8 << 20
"""A larger log is truncated: it lies in memory."""
SOCKET_PATH_MAX: Final = 107
"""Most bytes of a socket's path (``sun_path`` without its NUL); a longer one fails silently."""
SHARED_REGIONS: Final = "cuda.shm.*"
"""Named regions of daemon and clients."""
CONTROL_LOGS: Final = ("control.log", "daemon.log")
"""Logs of a control daemon: its own file, and the output of a foreground daemon. Which of the two a
foreground daemon uses is not documented."""
LONGEST_SOCKET: Final = "pipe/u/0123456789abcdef/control"


class PlaceUnusable(Exception):
    """The directories cannot be created; the text says which and why."""


class Mounts:
    """mount(2) of this machine; the chart propagates the mounts to the host."""

    def mount(self, path: Path) -> None:
        """Mount a world-writable tmpfs at this empty directory; at most half of the memory.

        Raises:
            OSError: it cannot be mounted.
        """
        mount_tmpfs(path, MS_NOSUID | MS_NODEV, "mode=1777")

    def unmount(self, path: Path) -> None:
        """Remove the mount; no error if there is none."""
        unmount(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Directories of the daemons below one root."""

    root: Path
    mounts: Mounts

    def of(self, order: ServerOrder) -> DaemonDirectories:
        """The directories of one device.

        Raises:
            PlaceUnusable: the path of a socket there would be too long.
        """
        place = DaemonDirectories(
            uuid=order.uuid,
            directory=self.root / str(order.index),
            memory_mib=order.memory_mib,
        )
        longest = len(os.fsencode(place.directory / LONGEST_SOCKET))
        if longest > SOCKET_PATH_MAX:
            raise PlaceUnusable(
                f"{place.directory}: a socket's path would have {longest} bytes of at most "
                f"{SOCKET_PATH_MAX}; choose a shorter run directory"
            )
        return place

    def prepare(self, place: DaemonDirectories) -> None:
        """Create empty directories for a new daemon; old files are stale.

        Raises:
            PlaceUnusable: they cannot be created.
        """
        try:
            for path in (place.pipe, place.log):
                path.mkdir(parents=True, exist_ok=True)
                path.chmod(0o755)
                _remove(path.iterdir())
            place.shm.mkdir(exist_ok=True)
            self.mounts.mount(place.shm)
            # Containers of the last server may still have it as their /dev/shm: only its own
            # regions are stale, the rest is theirs.
            _remove(place.shm.glob(SHARED_REGIONS))
        except OSError as error:
            raise PlaceUnusable(f"{error.filename or place.directory}: {error.strerror}") from error

    def trim(self, place: DaemonDirectories) -> None:
        """Keep the logs from filling the memory."""
        for path in (place.log / name for name in (*CONTROL_LOGS, "server.log")):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size > LOG_BYTES_MAX:
                    os.truncate(path, 0)

    def remove(self, place: DaemonDirectories) -> None:
        """Remove all directories of one device."""
        self.mounts.unmount(place.shm)
        shutil.rmtree(place.directory, ignore_errors=True)


def _remove(entries: Iterable[Path]) -> None:
    for entry in list(entries):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
