# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A recorded decision: the snapshot that went in, and every part of the plan that came out."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

import orjson

from ullage.app.replay import Inputs, from_json, to_json
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import Plan

FOLDER: Final = Path(__file__).parent / "recordings"
SNAPSHOT: Final = ".snapshot.json.gz"
PLAN: Final = ".plan.json.gz"
UNTIMED: Final = frozenset({"division_seconds"})
"""Parts of a plan that measure the machine, not the decision."""

Parts = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Files of one decision."""

    name: str
    folder: Path = FOLDER

    def inputs(self) -> Inputs:
        """The snapshot, the moment and the settings."""
        return from_json(gzip.decompress(self._file(SNAPSHOT).read_bytes()))

    def plan(self) -> Parts:
        """The plan as it was recorded, by part."""
        parts: Parts = orjson.loads(gzip.decompress(self._file(PLAN).read_bytes()))
        return parts

    def write(self, inputs: Inputs, *, snapshot: bool = True) -> None:
        """Keep a snapshot and the plan that this code makes of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if snapshot:
            self._write(SNAPSHOT, to_json(inputs))
        # through JSON, so that the plan is what a reader of the file will decide
        self._write(
            PLAN, orjson.dumps(decided(from_json(to_json(inputs))), option=orjson.OPT_INDENT_2)
        )

    def _write(self, suffix: str, data: bytes) -> None:
        self._file(suffix).write_bytes(gzip.compress(data, mtime=0))

    def _file(self, suffix: str) -> Path:
        return self.folder / f"{self.name}{suffix}"


def recordings(folder: Path = FOLDER) -> list[Recording]:
    """All of a folder, by name."""
    names = sorted(file.name.removesuffix(SNAPSHOT) for file in folder.glob(f"*{SNAPSHOT}"))
    return [Recording(name=name, folder=folder) for name in names]


def decided(inputs: Inputs, cache: CycleCache | None = None) -> Parts:
    """Every part of the plan and the actions that follow, as JSON holds them."""
    snapshot, now, settings = inputs
    plan = decide(snapshot, now, settings, cache=cache)
    parts = _parts(plan) | {"actions": [_plain(one) for one in diff(plan, snapshot)]}
    read: Parts = orjson.loads(orjson.dumps(parts))
    return read


def _parts(plan: Plan) -> Parts:
    return {
        one.name: _plain(getattr(plan, one.name)) for one in fields(plan) if one.name not in UNTIMED
    }


def _plain(value: object) -> object:
    """A value as JSON; records name their class, because plans hold unions of them."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return repr(value)  # every bit of it
    if is_dataclass(value) and not isinstance(value, type):
        body = {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
        return {"record": type(value).__name__} | body
    if isinstance(value, Mapping):
        return [[_plain(key), _plain(one)] for key, one in value.items()]
    if isinstance(value, (frozenset, set)):
        return sorted((_plain(one) for one in value), key=repr)
    if isinstance(value, (tuple, list)):
        return [_plain(one) for one in value]
    return repr(value)
