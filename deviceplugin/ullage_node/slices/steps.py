# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where a container may report its progress: one directory and one 64-byte file each.

The content of a directory is the tenant's: it is moved aside whole and removed bit by bit
(:mod:`ullage_node.slices.removal`), never read or followed. Every start gets a new directory and a
new file of zeros, so a reader opens it by name each time.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

import structlog

from ullage.api.contract import STEP_RECORD_BYTES, STEPS_FILE
from ullage_node.devices.protocol import ContainerKey
from ullage_node.slices.files import remove_temporaries, write_whole
from ullage_node.slices.removal import Trash

TRASH: Final = ".trash"

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class StepDirectories:
    """The directory that holds one directory per container."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trash = Trash(path / TRASH)

    def of(self, container: ContainerKey) -> Path:
        """The container's directory on the host."""
        return self.path / container.directory

    def reset(self, container: ContainerKey) -> Path:
        """Give the container an empty record that any user may write.

        Returns:
            The directory to mount.

        Raises:
            OSError: the file system refuses.
        """
        directory = self.of(container)
        self.trash.put(directory)
        directory.mkdir()
        directory.chmod(0o755)
        record = directory / STEPS_FILE
        write_whole(record, bytes(STEP_RECORD_BYTES), mode=0o666, via=self.path)
        return directory

    def remove(self, container: ContainerKey) -> None:
        """Remove the container's directory; a container that has it mounted keeps its record.

        Where the file system refuses, the next sweep tries again.
        """
        try:
            self.trash.put(self.of(container))
        except OSError as error:
            _log.warning("step directory stays", container=container.directory, why=str(error))

    def sweep(self, keep_pods: Collection[str]) -> None:
        """Remove the directories of all pods but these (uids).

        Raises:
            OSError: the file system refuses.
        """
        if not self.path.is_dir():
            return
        remove_temporaries(self.path, STEPS_FILE)
        for name in os.listdir(self.path):
            if name != TRASH and name.partition("_")[0] not in keep_pods:
                self.trash.put(self.path / name)
