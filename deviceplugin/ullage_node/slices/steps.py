# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Creates the 64-byte file in which each container reports its progress.

Only the file is mounted into the container, so nothing else can be created there. It lies in the
small file system of the container's first slot (:func:`mount_homes`): a tenant that makes it grow
fills only its own. Every start gets a new file of zeros, so a reader opens it by name each time. A
link named after the container points to the file, outside the tenants' reach.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

import structlog

from ullage.api.environment import STEPS_FILE
from ullage.api.slices import slot_id
from ullage.api.steps import STEP_RECORD_BYTES
from ullage_node.files import remove_empty
from ullage_node.model.devices import ContainerKey
from ullage_node.mounts import MS_NODEV, MS_NOEXEC, MS_NOSUID, mount_tmpfs
from ullage_node.slices.removal import Trash

TRASH: Final = ".trash"
HOMES: Final = ".slots"
SPARE: Final = ".spare"
"""Parent of the homes of files without room in their slot's."""
HOME_OPTIONS: Final = "size=16k,nr_inodes=8,mode=0755"
"""A record takes one page and one inode; files of earlier starts exist until their last user closes
them."""
HOMES_MOST: Final = 256
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def mount_homes(steps_dir: Path, slots: int) -> int:
    """Give each slot its own file system in memory, for the host and all its containers.

    Run by a container that may mount, before the agent starts. Existing mounts stay.

    Args:
        steps_dir: directory of the step records.
        slots: number of slots.

    Returns:
        Number of mounted homes.

    Raises:
        OSError: one cannot be mounted.
    """
    for number in range(min(slots, HOMES_MOST)):
        home = steps_dir / HOMES / slot_id(number)
        home.mkdir(parents=True, exist_ok=True)
        mount_tmpfs(home, MS_NOSUID | MS_NODEV | MS_NOEXEC, HOME_OPTIONS)
    return min(slots, HOMES_MOST)


class StepRecords:
    """The records in one directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trash = Trash(path / TRASH)
        self.uncapped = 0
        """Records created outside their slot's file system, because it was full."""
        self._holders: dict[str, str] = {}
        """Name of the link to each home."""
        for name in self._names():
            if (path / name).is_symlink():
                self._holders[os.readlink(path / name)] = name

    def of(self, container: ContainerKey) -> Path:
        """Path of the directory of a container's record."""
        return self.path / container.directory

    def reset(self, container: ContainerKey, slot: str) -> Path:
        """Give a container an empty record that any user may write.

        Args:
            container: which one.
            slot: its first slot.

        Returns:
            The file to mount.

        Raises:
            OSError: the file system refuses.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            home = self._fresh(self.path / HOMES / slot)
        except OSError as error:
            if error.errno not in FULL:
                raise
            # A process keeps files of earlier starts open: that must not stop this one.
            self.uncapped += 1
            _log.warning("no room for a step record", slot=slot, why=str(error))
            home = self._fresh(self.path / SPARE / slot)
        target = str(home.relative_to(self.path))
        # The record is this container's now: no other link may point to it.
        self._remove(self._holders.pop(target, container.directory))
        self._remove(container.directory)
        self.of(container).symlink_to(target)
        self._holders[target] = container.directory
        return home / STEPS_FILE

    def remove(self, container: ContainerKey) -> None:
        """Forget the container's record; one that has it mounted keeps it.

        If the file system refuses, the next sweep retries.
        """
        try:
            self._remove(container.directory)
        except OSError as error:
            _log.warning("step record stays", container=container.directory, why=str(error))

    def sweep(self, keep_pods: Collection[str]) -> None:
        """Forget the records of all pods but these (uids).

        Raises:
            OSError: the file system refuses.
        """
        for name in self._names():
            if name.partition("_")[0] not in keep_pods:
                self._remove(name)

    def clear(self) -> None:
        """Forget everything; mounts stay, empty, until the next reboot.

        Raises:
            OSError: the file system refuses.
        """
        self.sweep(())
        for folder in (self.path / HOMES, self.path / SPARE):
            for home in folder.glob("*"):
                self._discard(home / STEPS_FILE)
                remove_empty(home)
            remove_empty(folder)

    def _names(self) -> list[str]:
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        return [name for name in names if name not in (TRASH, HOMES, SPARE)]

    def _fresh(self, home: Path) -> Path:
        """A new record in one of our directories."""
        home.mkdir(parents=True, exist_ok=True)
        record = home / STEPS_FILE
        self._discard(record)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(record, flags, 0o666), "wb") as file:
            os.fchmod(file.fileno(), 0o666)  # whatever the umask
            file.write(bytes(STEP_RECORD_BYTES))
        return home

    def _discard(self, path: Path) -> None:
        """Remove a path, file or link."""
        try:
            path.unlink(missing_ok=True)
        except IsADirectoryError:
            self.trash.put(path)

    def _remove(self, name: str) -> None:
        """Forget one container; a directory is from an older agent that mounted directories."""
        self._discard(self.path / name)
        self._holders = {home: holder for home, holder in self._holders.items() if holder != name}
