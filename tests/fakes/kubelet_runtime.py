# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A container runtime as far as CDI goes: reads the files, says what a container would get."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class UnresolvableDevice(Exception):
    """``unresolvable CDI devices``: the runtime refuses the container."""


@dataclass(slots=True)
class Created:
    """What one container was created with."""

    env: dict[str, str] = field(default_factory=dict)
    mounts: dict[str, str] = field(default_factory=dict)
    """Container path -> host path."""
    device_nodes: list[str] = field(default_factory=list)
    hooks: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FakeRuntime:
    """Resolves CDI names against one directory, newest content each time."""

    cdi_dir: Path

    def create(self, names: Sequence[str]) -> Created:
        """Merge the edits of all devices in the order of their names' list."""
        made = Created()
        for name in names:
            self._merge(made, self._edits(name))
        return made

    def _edits(self, name: str) -> dict[str, Any]:
        kind, _, device = name.partition("=")
        for path in sorted(self.cdi_dir.glob("*.json"), key=lambda path: device not in path.name):
            spec = json.loads(path.read_bytes())
            if spec["kind"] != kind:
                continue
            for entry in spec["devices"]:
                if entry["name"] == device:
                    edits: dict[str, Any] = entry["containerEdits"]
                    if not edits:
                        raise UnresolvableDevice(f"invalid device, empty device edits: {name}")
                    return edits
        raise UnresolvableDevice(f"unresolvable CDI devices {name}")

    def _merge(self, made: Created, edits: dict[str, Any]) -> None:
        made.env.update(pair.split("=", 1) for pair in edits.get("env", []))
        for mount in edits.get("mounts", []):
            made.mounts[mount["containerPath"]] = mount["hostPath"]
        made.device_nodes += [node["path"] for node in edits.get("deviceNodes", [])]
        made.hooks += edits.get("hooks", [])
