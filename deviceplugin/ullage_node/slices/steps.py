# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Creates the 64-byte file in which each container reports its progress.

Only the file is mounted into the container, so nothing else can be created there. It lies in the
small file system of the container's first slot (:func:`mount_homes`): a tenant that makes it grow
fills only its own. Every start gets a new file of zeros, so a reader opens it by name each time. A
link named after the container points to the file, outside the tenants' reach.

Records of ranks, orders of traces and the traces lie in a directory that the container may write
(``ullage.api.captures``), a new one for each start, in a second file system of its slot. It is
tenants' memory: the kernel counts its pages to the containers that write them. Without that file
system there is no such directory.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Final

import structlog

from ullage.api.captures import ARMED_BYTES, ARMED_FILE, TRACE_FOLDER, TRACE_MOUNT
from ullage.api.environment import STEPS_FILE
from ullage.api.slices import slot_id
from ullage.api.steps import STEP_RECORD_BYTES
from ullage_node.files import remove_empty
from ullage_node.model.devices import BindMount, ContainerKey
from ullage_node.mounts import MS_NODEV, MS_NOEXEC, MS_NOSUID, mount_tmpfs
from ullage_node.slices.removal import Trash

TRASH: Final = ".trash"
HOMES: Final = ".slots"
SPARE: Final = ".spare"
"""Parent of the homes of files without room in their slot's."""
HOME_OPTIONS: Final = "size=16k,nr_inodes=8,mode=0755"
"""A record takes one page and one inode; files of earlier starts exist until their last user closes
them."""
TRACES: Final = ".traces"
"""Parent of the file systems of traces."""
TRACES_OPTIONS: Final = "size=64m,nr_inodes=256,mode=0755"
"""Room for two traces of each of 16 ranks; one of five steps takes 0.1 to 2 MiB compressed."""
HOMES_MOST: Final = 256
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def mount_homes(steps_dir: Path, slots: int) -> int:
    """Give each slot its own file systems in memory, for the host and all its containers.

    Run by a container that may mount, before the agent starts. Existing mounts stay.

    Args:
        steps_dir: directory of the step records.
        slots: number of slots.

    Returns:
        Number of slots with mounted homes.

    Raises:
        OSError: one cannot be mounted.
    """
    for number in range(min(slots, HOMES_MOST)):
        for parent, options in ((HOMES, HOME_OPTIONS), (TRACES, TRACES_OPTIONS)):
            home = steps_dir / parent / slot_id(number)
            home.mkdir(parents=True, exist_ok=True)
            mount_tmpfs(home, MS_NOSUID | MS_NODEV | MS_NOEXEC, options)
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

    def folders(self) -> tuple[Path, ...]:
        """Paths of the directories of all containers' records."""
        return tuple(self.path / name for name in sorted(self._names()))

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
        self._fresh_traces(self.path / TRACES / slot, home)
        return home / STEPS_FILE

    def trace_mount(self, record: Path) -> tuple[BindMount, ...]:
        """The mount of the directory for traces beside a record; none where there is no room."""
        folder = record.parent / TRACE_FOLDER
        if not folder.is_dir():
            return ()
        return (BindMount(host_path=str(folder.resolve()), container_path=TRACE_MOUNT),)

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
                self._discard_traces(home)
                remove_empty(home)
            remove_empty(folder)
        for room in (self.path / TRACES).glob("*"):
            _empty(room)
            remove_empty(room)
        remove_empty(self.path / TRACES)

    def _names(self) -> list[str]:
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        return [name for name in names if name not in (TRASH, HOMES, SPARE, TRACES)]

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

    def _fresh_traces(self, room: Path, home: Path) -> None:
        """A new directory for traces, in the slot's file system if it has one."""
        self._discard(home / TRACE_FOLDER)
        if not os.path.ismount(room):
            return
        try:
            _empty(room)
            folder = room / os.urandom(4).hex()
            folder.mkdir()
            folder.chmod(0o1777)
            (folder / ARMED_FILE).write_bytes(bytes(ARMED_BYTES))
            (folder / ARMED_FILE).chmod(0o644)
            (home / TRACE_FOLDER).symlink_to(os.path.relpath(folder, home))
        except OSError as error:  # a process holds the files of earlier starts open
            _log.warning("no room for traces", slot=room.name, why=str(error))

    def _discard_traces(self, home: Path) -> None:
        """Remove the directory for traces of a home, and what is in it."""
        link = home / TRACE_FOLDER
        if link.is_symlink():
            shutil.rmtree(home / os.readlink(link), ignore_errors=True)
            self._discard(link)

    def _discard(self, path: Path) -> None:
        """Remove a path, file or link."""
        try:
            path.unlink(missing_ok=True)
        except IsADirectoryError:
            self.trash.put(path)

    def _remove(self, name: str) -> None:
        """Forget one container; a directory is from an older agent that mounted directories."""
        if (self.path / name).is_symlink():
            self._discard_traces(self.path / os.readlink(self.path / name))
        self._discard(self.path / name)
        self._holders = {home: holder for home, holder in self._holders.items() if holder != name}


def _empty(room: Path) -> None:
    """Remove all in a slot's file system, which holds few entries; a tenant may add more meanwhile.

    Raises:
        FileNotFoundError: there is no such directory.
    """
    for name in os.listdir(room):
        shutil.rmtree(room / name, ignore_errors=True)
