# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of measured layers, CSV or JSON. Pure; every error names its row."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Final

from ullage.engines.parallelism.records import MOST_LAYERS, LayerCost

MOST_BYTES: Final = 1 << 20
"""Of a table; its rows are at most :data:`MOST_LAYERS`."""
COLUMNS: Final = tuple(column.name for column in fields(LayerCost))
NEEDED: Final = tuple(column.name for column in fields(LayerCost) if column.default is MISSING)


def read_layers(text: str) -> tuple[LayerCost, ...]:
    """The layers of a table, in its order: a JSON list of objects, or a CSV with a header.

    Raises:
        ValueError: it is neither, or a row is unusable.
    """
    if len(text) > MOST_BYTES:
        raise ValueError(f"a table of layers has at most {MOST_BYTES} characters")
    rows = _json(text) if text.lstrip()[:1] in ("[", "{") else _csv(text)
    if not 0 < len(rows) <= MOST_LAYERS:
        raise ValueError(f"a table has 1 to {MOST_LAYERS} layers, not {len(rows)}")
    return tuple(_layer(row, f"row {number}") for number, row in enumerate(rows, 1))


def _json(text: str) -> Sequence[Mapping[str, object]]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the table is no JSON: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("the table is no JSON list of objects")
    return rows


def _csv(text: str) -> Sequence[Mapping[str, object]]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num} is no CSV: {error}") from error
    # an empty cell of a column that may be left out says nothing
    return [
        {name: cell for name, cell in row.items() if cell or name in NEEDED or name is None}
        for row in rows
    ]


def _layer(row: Mapping[str, object], place: str) -> LayerCost:
    if strange := [str(name)[:80] for name in row if name not in COLUMNS]:
        raise ValueError(
            f"{place}: {', '.join(map(repr, strange[:5]))} is none of {', '.join(COLUMNS)}"
        )
    if missing := [name for name in NEEDED if row.get(name) is None]:
        raise ValueError(f"{place} has no {', '.join(missing)}")
    name = row["name"]
    if not isinstance(name, str):
        raise ValueError(f"{place}: the name is no text")
    figures = {
        column: _number(row[column], f"{place}, {column}")
        for column in COLUMNS
        if column != "name" and row.get(column) is not None
    }
    try:
        return LayerCost(
            name=name,
            forward_s=figures["forward_s"],
            backward_s=figures["backward_s"],
            activation_bytes=figures["activation_bytes"],
            parameter_bytes=figures["parameter_bytes"],
            saved_bytes=figures.get("saved_bytes"),
        )
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def _number(value: object, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{place} is no number")
    try:
        return float(value)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{place}: {str(value)[:40]!r} is no number") from error
