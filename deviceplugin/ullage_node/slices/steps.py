# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where a container may report its progress: one directory and one 64-byte file each.

The directory is mounted into the container, so its content is the tenant's: a link planted there
is replaced, never followed. Every start gets a fresh file of zeros (a new inode), so a reader
opens it by name each time.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ullage.api.contract import STEP_RECORD_BYTES, STEPS_FILE
from ullage_node.devices.protocol import ContainerKey
from ullage_node.slices.files import remove_temporaries, write_whole


@dataclass(frozen=True, slots=True)
class StepDirectories:
    """The directory that holds one directory per container."""

    path: Path

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
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)
        record = directory / STEPS_FILE
        if record.is_dir() and not record.is_symlink():
            shutil.rmtree(record)
        write_whole(record, bytes(STEP_RECORD_BYTES), mode=0o666, via=self.path)
        return directory

    def remove(self, container: ContainerKey) -> None:
        """Remove the container's directory; a container that has it mounted keeps its record."""
        shutil.rmtree(self.of(container), ignore_errors=True)

    def sweep(self, keep_pods: Collection[str]) -> None:
        """Remove the directories of all pods but these (uids)."""
        if not self.path.is_dir():
            return
        remove_temporaries(self.path, STEPS_FILE)
        for entry in self.path.iterdir():
            pod_uid = entry.name.partition("_")[0]
            if pod_uid not in keep_pods and entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
