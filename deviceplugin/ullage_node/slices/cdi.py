# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""CDI files: one small file per slot defines the slot's edits for the container runtime.

``Allocate`` returned only a name; the runtime resolves it when it creates the container. No file,
no container: a missing file fails closed. Each file also contains its decision, so that a running
container can be recognised when every other record is lost. It never touches a file without our
name pattern.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ullage.api.environment import (
    ENV_LANE,
    ENV_LANE_MEMORY,
    ENV_PERCENT,
    ENV_SLICE,
    ENV_STEPS,
    LANE_MOUNT,
    LANE_SOCKET,
    STEPS_FILE,
    STEPS_MOUNT,
)
from ullage.api.labels import CDI_KIND
from ullage.api.slices import DesiredSlice
from ullage_node.files import read_bounded, remove_temporaries, write_whole
from ullage_node.model.devices import READ_ONLY, BindMount, ContainerBinding, ContainerEdits
from ullage_node.slices.desired import read_decision

CDI_VERSION: Final = "0.6.0"
"""Oldest version with annotations on devices; containerd 1.7.13 and CRI-O 1.28 read it."""
CDI_VERSION_OF_GROUPS: Final = "0.7.0"
"""Oldest version with groups and ``intelRdt``; containerd 1.7.24 and 2.0 read it."""
CDI_VERSION_OF_NETWORKS: Final = "1.1.0"
"""Oldest version with network interfaces and ``schemata``; containerd 2.2 reads it."""
ANNOTATION: Final = "ullage.dev/slice"
FILE_PREFIX: Final = "ullage.dev-"
FILE_NAME: Final = re.compile(r"^ullage\.dev-(slot-\d{2,4})\.json$")
MOST_BYTES: Final = 256 << 10
"""Largest CDI file; the edits of 64 devices take less."""


def device_name(slot: str) -> str:
    """Fully qualified CDI name of a slot, as returned by ``Allocate``."""
    return f"{CDI_KIND}={slot}"


def render(
    binding: ContainerBinding,
    decided: Mapping[int, DesiredSlice],
    edits: ContainerEdits,
    record: Path,
    beside: Sequence[BindMount] = (),
    lane: Path | None = None,
) -> dict[str, bytes]:
    """The files of one container, by slot.

    The edits of all slots of a container merge in the runtime, so the first file carries them all
    and the others only name the owner (a device without edits is refused).

    Args:
        binding: slots and slices.
        decided: the decision of each slice, by index.
        edits: edits from the backend.
        record: the container's step record on the host; the file alone is mounted.
        beside: further mounts: ``ullage_run`` and the directory for traces, as the node has them.
        lane: directory of the socket on the host, if the container shares a lane.
    """
    whose = {ENV_SLICE: binding.key.directory}
    path = f"{STEPS_MOUNT}/{STEPS_FILE}"
    own = {
        **whose,
        ENV_STEPS: path,
        ENV_PERCENT: str(binding.slices[0].percent),
    }
    mounts = [BindMount(host_path=str(record), container_path=path), *beside]
    if lane is not None:
        first = decided[binding.slices[0].index]
        own[ENV_LANE] = f"{LANE_MOUNT}/{LANE_SOCKET}"
        own[ENV_LANE_MEMORY] = f"{first.persistent_mib},{first.ephemeral_mib}"
        # the directory, not the socket: the agent's restart replaces the socket
        mounts.append(BindMount(host_path=str(lane), container_path=LANE_MOUNT, options=READ_ONLY))
    whole = replace(edits, env={**edits.env, **own}, mounts=(*edits.mounts, *mounts))
    others = ContainerEdits(env=whose)
    return {
        part.slot: _file(part.slot, others if position else whole, decided[part.index])
        for position, part in enumerate(binding.slices)
    }


def _file(slot: str, edits: ContainerEdits, decided: DesiredSlice) -> bytes:
    device = {
        "name": slot,
        "annotations": {ANNOTATION: json.dumps(decided.to_wire(), sort_keys=True)},
        "containerEdits": edits.to_wire(),
    }
    body = {"cdiVersion": version_for(edits), "kind": CDI_KIND, "devices": [device]}
    return json.dumps(body, separators=(",", ":")).encode()


def version_for(edits: ContainerEdits) -> str:
    """The oldest version that has these edits: a runtime refuses files of newer versions.

    It also refuses a file with fields that its version does not have.
    """
    rdt = edits.intel_rdt
    if edits.net_devices or (rdt and (rdt.schemata or rdt.enable_monitoring)):
        return CDI_VERSION_OF_NETWORKS
    return CDI_VERSION_OF_GROUPS if edits.additional_gids or rdt else CDI_VERSION


@dataclass(frozen=True, slots=True)
class CDIDirectory:
    """The CDI directory of the runtime; it also holds files of other vendors."""

    path: Path

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write the files of one container, by slot.

        Raises:
            OSError: the directory cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        for slot, data in files.items():
            write_whole(self._file(slot), data, mode=0o644)

    def remove(self, slot: str) -> None:
        """Remove one slot's file; a container that starts on it then fails closed."""
        self._file(slot).unlink(missing_ok=True)

    def slots(self) -> tuple[str, ...]:
        """Slots that have a file."""
        if not self.path.is_dir():
            return ()
        names = (FILE_NAME.match(entry.name) for entry in self.path.iterdir())
        return tuple(sorted(match[1] for match in names if match))

    def decision(self, slot: str) -> DesiredSlice | None:
        """The decision that a slot's file was written for; ``None`` if unknown."""
        try:
            body = json.loads(read_bounded(self._file(slot), MOST_BYTES))
            annotation = json.loads(body["devices"][0]["annotations"][ANNOTATION])
            return read_decision(annotation)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    def sweep(self, keep: frozenset[str]) -> tuple[str, ...]:
        """Remove the files of all other slots and leftovers of a crashed writer.

        Returns:
            The slots whose file was removed.
        """
        if not self.path.is_dir():
            return ()
        remove_temporaries(self.path, FILE_PREFIX)
        gone = tuple(slot for slot in self.slots() if slot not in keep)
        for slot in gone:
            self.remove(slot)
        return gone

    def _file(self, slot: str) -> Path:
        return self.path / f"{FILE_PREFIX}{slot}.json"
