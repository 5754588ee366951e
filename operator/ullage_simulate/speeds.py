# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Steps per second of kinds of work on types of devices, alone and beside one another.

The built-in tables are the published ones of Gavel (MIT, see data/NOTICE); a user's own file
replaces them. A missing pair is unknown, never free of interference.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from ullage.engines.allocation.model import PairRow
from ullage_simulate.table import header_of, opened, rows
from ullage_simulate.trace import JobTraceError

BUILT_IN: Final = files("ullage_simulate") / "data"

Beside = Mapping[tuple[str, str], Mapping[str, tuple[float, float]]]
"""Kinds, in order -> type -> steps/s of each on the same device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedTable:
    """Table of known speeds.

    Attributes:
        name: Source.
        alone: (kind, gang) -> type -> steps/s of the whole gang.
        beside: Two kinds of gang 1 on one device.
    """

    name: str
    alone: Mapping[tuple[str, int], Mapping[str, float]]
    beside: Beside = field(default_factory=dict)

    @property
    def types(self) -> tuple[str, ...]:
        """Types of devices, sorted."""
        return tuple(sorted({kind for row in self.alone.values() for kind in row}))

    def kinds(self, gang: int) -> tuple[str, ...]:
        """Kinds of work that run with this gang on every type, sorted."""
        return tuple(
            sorted(
                kind
                for (kind, size), row in self.alone.items()
                if size == gang and all(row.get(accelerator, 0.0) > 0 for accelerator in self.types)
            )
        )

    def gang_below(self, kind: str, gang: int) -> int:
        """The largest known gang of a kind that is not larger; 0 = none."""
        return max((size for name, size in self.alone if name == kind and size <= gang), default=0)

    def slowdown(self, kind: str, other: str, on: str) -> float:
        """Slowdown of a step beside another kind; 1 if unknown."""
        base = self.alone.get((kind, 1), {}).get(on, 0.0)
        first, second = sorted((kind, other))
        both = self.beside.get((first, second), {}).get(on)
        if both is None or base <= 0:
            return 1.0
        speed = both[0] if kind == first else both[1]
        return max(1.0, base / speed) if speed > 0 else float("inf")

    def pairs(self, types: tuple[str, ...]) -> tuple[PairRow, ...]:
        """The rows that packing policies choose from; an unknown cell is 0."""
        return tuple(
            PairRow(
                left=left,
                right=right,
                gang=1,
                left_rates=tuple(row.get(kind, (0.0, 0.0))[0] for kind in types),
                right_rates=tuple(row.get(kind, (0.0, 0.0))[1] for kind in types),
            )
            for (left, right), row in sorted(self.beside.items())
        )


@cache
def built_in() -> SpeedTable:
    """The published tables in the package."""
    body = json.loads((BUILT_IN / "solo.json").read_text(encoding="utf-8"))
    alone = {
        (str(kind), int(gang)): dict(zip(body["types"], map(float, values), strict=True))
        for kind, gang, *values in body["rows"]
    }
    body = json.loads((BUILT_IN / "pairs.json").read_text(encoding="utf-8"))
    kinds = [str(kind) for kind in body["kinds"]]
    beside: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    for on, left, right, left_rate, right_rate in body["pairs"]:
        pair = (kinds[left], kinds[right])
        both = (float(left_rate), float(right_rate))
        if pair[0] > pair[1]:
            pair, both = (pair[1], pair[0]), (both[1], both[0])
        beside.setdefault(pair, {})[str(on)] = both
    return SpeedTable(name="built-in (Gavel)", alone=alone, beside=beside)


def read_speeds(path: Path) -> SpeedTable:
    """A table of the user's: Gavel's JSON, or a CSV file.

    The CSV has the columns ``job_type, gang, type, steps_per_s``; the names of the flat copies of
    Gavel's table (``scale_factor``, ``gpu``) are understood too.

    Raises:
        TraceError: it has another form; the text names the line.
    """
    text = opened(path)
    if text.lstrip().startswith("{"):
        return _from_json(path.name, text)
    return _from_csv(path.name, text)


def _from_json(name: str, text: str) -> SpeedTable:
    alone: dict[tuple[str, int], dict[str, float]] = {}
    beside: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    try:
        for on, rows in json.loads(text).items():
            if on.endswith("_unconsolidated"):
                continue
            for key, row in rows.items():
                kind, gang = ast.literal_eval(key)
                for other, value in row.items():
                    if other == "null":
                        alone.setdefault((str(kind), int(gang)), {})[on] = max(0.0, float(value))
                    elif (pair := ast.literal_eval(other))[1] == gang == 1 and kind <= pair[0]:
                        both = (float(value[0]), float(value[1]))
                        beside.setdefault((str(kind), str(pair[0])), {})[on] = both
    except (ValueError, SyntaxError, AttributeError, TypeError, IndexError) as error:
        raise JobTraceError(f"{name}: not a table of speeds in Gavel's format: {error}") from error
    return SpeedTable(name=name, alone=alone, beside=beside)


def _from_csv(name: str, text: str) -> SpeedTable:
    alone: dict[tuple[str, int], dict[str, float]] = {}
    flat = "scale_factor" in header_of(text)
    gang_column, type_column = ("scale_factor", "gpu") if flat else ("gang", "type")
    for row in rows(name, text):
        if row.cells.get("placement", "consolidated") != "consolidated":
            continue
        for column in ("job_type", type_column):
            if not row.text(column):
                raise row.wrong(column, "is empty: job_type, gang, type, steps_per_s are needed")
        gang = row.whole(gang_column, "a number of devices, as 4")
        speed = row.number("steps_per_s", "steps a second, as 3.5, or 0")
        alone.setdefault((row.text("job_type"), gang), {}).setdefault(row.text(type_column), speed)
    if not alone:
        raise JobTraceError(f"{name}: no speeds in it")
    return SpeedTable(name=name, alone=alone)
