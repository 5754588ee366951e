# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Container edits for an NVIDIA device: from the container toolkit, or device files alone.

Where NVIDIA's container toolkit wrote a CDI specification, its edits (libraries, device files,
hooks, groups) are copied: it knows the driver's files, and guessing them would break with the next
driver. Every field of CDI 0.5 to 1.1 is passed on; a field of a newer version is dropped, and
``kubectl ullage doctor`` names it. Where there is no specification, the container gets the device
files and the variable that the runtime class ``nvidia`` reads. A broken file, or a broken entry of
one, affects only devices without a valid entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import yaml

from ullage.api.codec import Wire, wire_names
from ullage.api.readers import JsonObject, WireError, objects, quoted, section, text
from ullage_node.devices.nvidia.read import NvidiaDevice
from ullage_node.files import read_bounded
from ullage_node.model.devices import (
    BindMount,
    ContainerEdits,
    DeviceNode,
    Hook,
    IntelRdt,
    NetDevice,
)

MOST_BYTES: Final = 4 << 20
TOOLKIT_KIND: Final = "nvidia.com/gpu"
SHARED_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
"""Device files that every CUDA program needs beside its GPU's own."""

HOOK_SECONDS_MAX: Final = 30
"""Timeout of a toolkit hook that sets none; kubelet's timeout for a start is 30 s too."""

_SUFFIXES: Final = frozenset({".json", ".yaml", ".yml"})
_VENDOR: Final = "nvidia"
"""Part of a toolkit file's name; identifies it even if the content cannot be read."""
_LISTS: Final[Mapping[str, type[Wire]]] = {
    "deviceNodes": DeviceNode,
    "netDevices": NetDevice,
    "mounts": BindMount,
    "hooks": Hook,
}
_SPECIFICATION: Final = frozenset(
    {"cdiVersion", "kind", "annotations", "devices", "containerEdits"}
)
_DEVICE: Final = frozenset({"name", "annotations", "containerEdits"})
"""Annotations do not change a container."""
_OWN_NODE: Final = re.compile(r"(/dev/nvidia(\d+|-caps/nvidia-cap\d+))$", re.ASCII)
"""Files that identify a device; a containerised driver has them below its root."""
_UUIDS: Final = ("GPU-", "MIG-")
_NAME_MOST: Final = 64
LEFT_OUT_MOST: Final = 8
"""Most names of dropped fields that are reported for one file."""

DeviceFiles: TypeAlias = Mapping[str, Sequence[str]]
"""Device files of each device, by uuid."""


_Item = TypeVar("_Item")


class CdiUnusable(Exception):
    """A specification exists and cannot be used; the text names file and field.

    Attributes:
        remedy: what an administrator can do about it.
    """

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


@dataclass(frozen=True, slots=True, kw_only=True)
class Specification:
    """One file of the toolkit: edits for every container, and those of each device by name.

    ``broken`` is the reason why an entry cannot be used, by the device's name; ``left_out`` names
    dropped fields.
    """

    path: Path
    shared: ContainerEdits
    devices: Mapping[str, ContainerEdits]
    broken: Mapping[str, CdiUnusable] = field(default_factory=dict)
    version: str = ""
    left_out: tuple[str, ...] = ()

    @property
    def remark(self) -> str:
        """Text that names the dropped fields; "" = none."""
        if not self.left_out:
            return ""
        named = ", ".join(self.left_out[:LEFT_OUT_MOST])
        more = len(self.left_out) - LEFT_OUT_MOST
        return (
            f"{self.path} (CDI {self.version}) holds what this node agent does not know and "
            f"leaves out: {named}{f' and {more} more' if more > 0 else ''}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Contents of the toolkit's files for some devices.

    ``edits`` is ``None`` where one of them is in no specification. ``remarks`` are for an
    administrator: unusable files that are not needed, and dropped fields.
    """

    edits: ContainerEdits | None
    remarks: tuple[str, ...] = ()


class ToolkitSpecifications:
    """The toolkit's files, parsed again only when one of them changed."""

    def __init__(self, directories: Sequence[Path]) -> None:
        self._directories = tuple(directories)
        self._parsed: dict[Path, tuple[tuple[int, int], Specification | CdiUnusable | None]] = {}

    def edits(self, devices: Sequence[NvidiaDevice], files: DeviceFiles) -> ContainerEdits | None:
        """Edits for a container with these devices; ``None`` when one is in no specification.

        Raises:
            CdiUnusable: a device has no valid entry, and an entry or a file cannot be used.
        """
        return self.survey(devices, files).edits

    def survey(self, devices: Sequence[NvidiaDevice], files: DeviceFiles) -> Survey:
        """The same, with remarks on the files.

        Raises:
            CdiUnusable: a device has no valid entry, and an entry or a file cannot be used.
        """
        sound, unusable = self._load_all()
        parts: list[ContainerEdits] = []
        remarks = [str(error) for error in unusable]
        lacking = False
        for device in devices:
            specification, own = _find(sound, device.uuid, files[device.uuid])
            if specification is None or own is None:
                if problems := [*_broken(sound, device.uuid), *unusable]:
                    raise problems[0]
                lacking = True
                continue
            parts += [part for part in (specification.shared, own) if part not in parts]
            if specification.remark:
                remarks.append(specification.remark)
        edits = None if lacking else merge(parts)
        return Survey(edits=edits, remarks=tuple(dict.fromkeys(remarks)))

    def _load_all(self) -> tuple[list[Specification], list[CdiUnusable]]:
        """The toolkit's files, the last directory first: it takes precedence, as in the runtime."""
        paths = tuple(self._files())
        self._parsed = {path: known for path, known in self._parsed.items() if path in paths}
        loaded = [self._load(path) for path in reversed(paths)]
        return (
            [result for result in loaded if isinstance(result, Specification)],
            [result for result in loaded if isinstance(result, CdiUnusable)],
        )

    def _files(self) -> Iterable[Path]:
        for directory in self._directories:
            if directory.is_dir():
                yield from sorted(p for p in directory.iterdir() if p.suffix in _SUFFIXES)

    def _load(self, path: Path) -> Specification | CdiUnusable | None:
        try:
            stat = path.stat()
            stamp = (stat.st_mtime_ns, stat.st_size)
            known = self._parsed.get(path)
            if known is None or known[0] != stamp:
                raw = read_bounded(path, MOST_BYTES, follow=True).decode(errors="replace")
                known = self._parsed[path] = (stamp, _parsed(path, raw))
            return known[1]
        except FileNotFoundError:
            return None
        except OSError as error:
            if _VENDOR not in path.name:
                return None  # ignore another vendor's file
            return CdiUnusable(f"{path} cannot be read: {error.strerror}", _write_again(path))


def _parsed(path: Path, raw: str) -> Specification | CdiUnusable | None:
    try:
        return parse_specification(path, raw)
    except CdiUnusable as error:
        return error


def parse_specification(path: Path, raw: str) -> Specification | None:
    """The toolkit's specification in a file's text; ``None`` when it is another vendor's.

    Raises:
        CdiUnusable: it is the toolkit's and none of its entries can be used.
    """
    try:
        body = json.loads(raw) if path.suffix == ".json" else yaml.safe_load(raw)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        if TOOLKIT_KIND not in raw:
            return None  # ignore another vendor's broken file
        cause = quoted(" ".join(str(error).split()))
        raise CdiUnusable(f"{path} cannot be parsed: {cause}", _write_again(path)) from error
    if not isinstance(body, dict) or body.get("kind") != TOOLKIT_KIND:
        return None
    left_out: dict[str, None] = dict.fromkeys(_others(body, _SPECIFICATION))
    devices: dict[str, ContainerEdits] = {}
    broken: dict[str, CdiUnusable] = {}
    try:
        shared = _edits(body, left_out)
        entries = objects(body, "devices")
    except WireError as error:
        raise _wrong(path, str(error)) from error
    for position, entry in enumerate(entries):
        left_out |= dict.fromkeys(f"devices.{name}" for name in _others(entry, _DEVICE))
        name = f"devices[{position}]"
        try:
            name = _name(entry)
            devices[name] = _edits(entry, left_out)
        except WireError as error:
            broken[name] = _wrong(path, f"devices[{position}].{error}")
    version = body.get("cdiVersion")
    return Specification(
        path=path,
        shared=shared,
        devices=devices,
        broken=broken,
        version=version[:16] if isinstance(version, str) else "of no version",
        left_out=tuple(left_out),
    )


def _find(
    specifications: Sequence[Specification], uuid: str, files: Sequence[str]
) -> tuple[Specification | None, ContainerEdits | None]:
    """The specification that lists a device, and the device's own edits there."""
    for specification in specifications:
        own = own_edits(specification.devices, uuid, files)
        if own is not None:
            return specification, own
    return None, None


def _broken(specifications: Sequence[Specification], uuid: str) -> list[CdiUnusable]:
    """Unusable entries that may be this device's; those named by uuid identify theirs."""
    return [
        error
        for specification in specifications
        for name, error in specification.broken.items()
        if name == uuid or not name.startswith(_UUIDS)
    ]


def own_edits(
    devices: Mapping[str, ContainerEdits], uuid: str, files: Sequence[str]
) -> ContainerEdits | None:
    """A device's edits by its uuid, else of the entry with exactly this device's files."""
    if uuid in devices:
        return devices[uuid]
    for edits in devices.values():
        nodes = (_OWN_NODE.search(node.host_path or node.path) for node in edits.device_nodes)
        if {node[1] for node in nodes if node} == set(files):
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
    """Several edits as one: each item once, in the order of its first appearance."""
    env: dict[str, str] = {}
    for part in parts:
        env |= part.env
    return ContainerEdits(
        env=env,
        device_nodes=_once(node for part in parts for node in part.device_nodes),
        net_devices=_once(device for part in parts for device in part.net_devices),
        mounts=_once(mount for part in parts for mount in part.mounts),
        hooks=_once(hook for part in parts for hook in part.hooks),
        additional_gids=_once(gid for part in parts for gid in part.additional_gids),
        intel_rdt=next((part.intel_rdt for part in reversed(parts) if part.intel_rdt), None),
    )


def _once(items: Iterable[_Item]) -> tuple[_Item, ...]:
    return tuple(dict.fromkeys(items))


def _edits(entry: JsonObject, left_out: dict[str, None]) -> ContainerEdits:
    """The edits of an entry; adds the names of dropped fields to ``left_out``.

    Raises:
        WireError: a field is malformed.
    """
    raw = section(entry, "containerEdits")
    try:
        hooks = [{"timeout": HOOK_SECONDS_MAX, **hook} for hook in objects(raw, "hooks")]
        edits = ContainerEdits.from_wire({**raw, "hooks": hooks})
        unknown = [*_others(raw, wire_names(ContainerEdits))]
        for name, record in _LISTS.items():
            for item in objects(raw, name):
                unknown += [f"{name}.{other}" for other in _others(item, wire_names(record))]
        rdt = _others(section(raw, "intelRdt"), wire_names(IntelRdt))
        unknown += [f"intelRdt.{other}" for other in rdt]
    except WireError as error:
        raise WireError(f"containerEdits.{error}") from error
    left_out |= dict.fromkeys(f"containerEdits.{name}" for name in unknown)
    return edits


def _others(raw: JsonObject, known: Collection[str]) -> list[str]:
    """Names of unknown fields that are not empty; YAML has names that are not strings."""
    names = (str(name)[:_NAME_MOST] for name, value in raw.items() if value and name not in known)
    return sorted(names)


def _name(raw: JsonObject) -> str:
    """A device's name; YAML reads an unquoted index as a number."""
    name = raw.get("name")
    return str(name) if isinstance(name, int) else text(raw, "name")


def _write_again(path: Path) -> str:
    return f"nvidia-ctk cdi generate --output={path}"


def _wrong(path: Path, error: str) -> CdiUnusable:
    """The error for a field that the same generator would write again."""
    remedy = (
        "correct that field by hand (nvidia-ctk cdi list then shows the devices), or move the file "
        "away: workloads then need runtimeClassName: nvidia"
    )
    return CdiUnusable(f"{path}: {error}", remedy)
