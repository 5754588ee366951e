# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Container edits for an NVIDIA device: from the container toolkit, or device files alone.

Where NVIDIA's container toolkit wrote a CDI specification, its edits (libraries, device files,
hooks) are copied: it knows the driver's files, and guessing them would break with the next driver.
Where there is none, the container gets the device files and the variable that the runtime class
``nvidia`` reads. An edit that cannot be handed on is an error, never left out in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import yaml

from ullage.api.contract import JsonObject, WireError, objects, section, text
from ullage_node.devices.nvidia.read import NvidiaDevice
from ullage_node.files import read_bounded
from ullage_node.model.devices import (
    ContainerEdits,
    DeviceNode,
)

MOST_BYTES: Final = 4 << 20
TOOLKIT_KIND: Final = "nvidia.com/gpu"
SHARED_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
"""Device files that every CUDA program needs beside its GPU's own."""

HOOK_SECONDS_MAX: Final = 30
"""Time for a hook of the toolkit that names no limit; kubelet gives a start 30 s too."""

_SUFFIXES: Final = frozenset({".json", ".yaml", ".yml"})
_UNDERSTOOD: Final = frozenset({"env", "deviceNodes", "mounts", "hooks"})
_OWN_NODE: Final = re.compile(r"^/dev/nvidia(\d+|-caps/nvidia-cap\d+)$", re.ASCII)
"""Files that tell one device from another."""

DeviceFiles: TypeAlias = Mapping[str, Sequence[str]]
"""Device files of each device, by uuid."""


class CdiUnusable(Exception):
    """A specification is there and cannot be used; the text names file and field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """One file of the toolkit: edits for every container, and those of each device by name."""

    path: Path
    shared: ContainerEdits
    devices: Mapping[str, ContainerEdits]


class ToolkitSpecifications:
    """The toolkit's files, parsed again only when one of them changed."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = tuple(directories)
        self._parsed: dict[Path, tuple[tuple[int, int], Specification | None]] = {}

    def edits(self, devices: Sequence[NvidiaDevice], files: DeviceFiles) -> ContainerEdits | None:
        """Edits for a container with these devices; ``None`` when one is in no specification.

        Raises:
            CdiUnusable: a file cannot be read or holds an edit that cannot be handed on.
        """
        parts: list[ContainerEdits] = []
        for device in devices:
            found = self._find(device.uuid, files[device.uuid])
            if found is None:
                return None
            parts += [part for part in found if part not in parts]
        return merge(parts)

    def _find(
        self, uuid: str, files: Sequence[str]
    ) -> tuple[ContainerEdits, ContainerEdits] | None:
        """Shared and own edits of a device; the last directory wins, as for the runtime."""
        for path in reversed(tuple(self._files())):
            specification = self._load(path)
            own = None if specification is None else own_edits(specification.devices, uuid, files)
            if specification is not None and own is not None:
                return specification.shared, own
        return None

    def _files(self) -> Iterable[Path]:
        for directory in self._directories:
            if directory.is_dir():
                yield from sorted(p for p in directory.iterdir() if p.suffix in _SUFFIXES)

    def _load(self, path: Path) -> Specification | None:
        try:
            stat = path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            known = self._parsed.get(path)
            if known is None or known[0] != stamp:
                raw = read_bounded(path, MOST_BYTES, follow=True).decode()
                known = (stamp, parse_specification(path, raw))
                self._parsed[path] = known
            return known[1]
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise CdiUnusable(f"{path} cannot be read: {error}") from error


def parse_specification(path: Path, raw: str) -> Specification | None:
    """The toolkit's specification in a file's text; ``None`` when it is another vendor's.

    Raises:
        CdiUnusable: it is the toolkit's and cannot be used.
    """
    try:
        body = json.loads(raw) if path.suffix == ".json" else yaml.safe_load(raw)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        if TOOLKIT_KIND not in raw:
            return None  # another vendor's broken file is not ours to judge
        raise CdiUnusable(f"{path}: {' '.join(str(error).split())}") from error
    if not isinstance(body, dict) or body.get("kind") != TOOLKIT_KIND:
        return None
    try:
        return Specification(
            path=path,
            shared=_edits(section(body, "containerEdits")),
            devices={
                _name(device): _edits(section(device, "containerEdits"))
                for device in objects(body, "devices")
            },
        )
    except WireError as error:
        raise CdiUnusable(f"{path}: {error}; generate it again with nvidia-ctk") from error


def own_edits(
    devices: Mapping[str, ContainerEdits], uuid: str, files: Sequence[str]
) -> ContainerEdits | None:
    """A device's edits by its uuid, else the entry that has this device's files and no other's."""
    if uuid in devices:
        return devices[uuid]
    for edits in devices.values():
        nodes = (node.host_path or node.path for node in edits.device_nodes)
        if {node for node in nodes if _OWN_NODE.match(node)} == set(files):
            return edits
    return None


def plain_edits(devices: Sequence[NvidiaDevice], files: DeviceFiles) -> ContainerEdits:
    """Device files alone; the runtime class ``nvidia`` adds the driver's libraries."""
    nodes = dict.fromkeys(path for device in devices for path in files[device.uuid])
    return ContainerEdits(
        env={
            "NVIDIA_VISIBLE_DEVICES": ",".join(device.uuid for device in devices),
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        },
        device_nodes=tuple(DeviceNode(path=path) for path in (*nodes, *SHARED_NODES)),
    )


def merge(parts: Sequence[ContainerEdits]) -> ContainerEdits:
    """Several edits as one: each thing once, in the order of its first appearance."""
    env: dict[str, str] = {}
    for part in parts:
        env |= part.env
    return ContainerEdits(
        env=env,
        device_nodes=tuple(dict.fromkeys(node for part in parts for node in part.device_nodes)),
        mounts=tuple(dict.fromkeys(mount for part in parts for mount in part.mounts)),
        hooks=tuple(dict.fromkeys(hook for part in parts for hook in part.hooks)),
    )


def _edits(raw: JsonObject) -> ContainerEdits:
    unknown = sorted(name for name in set(raw) - _UNDERSTOOD if raw[name])
    if unknown:
        raise WireError(f"containerEdits.{unknown[0]}: cannot be handed on")
    hooks = [{"timeout": HOOK_SECONDS_MAX, **hook} for hook in objects(raw, "hooks")]
    return ContainerEdits.from_wire({**raw, "hooks": hooks})


def _name(raw: JsonObject) -> str:
    """A device's name; YAML reads an unquoted index as a number."""
    name = raw.get("name")
    return str(name) if isinstance(name, int) else text(raw, "name")
