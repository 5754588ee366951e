# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Traces of spot capacity from files in SkyPilot's JSON form; they are read and never stored.

The encoding counts available instances (1 = up). Files of another family use the reverse in the
same form, so an index beside them overrides the file, and a note reports it.
"""

from __future__ import annotations

import csv
import glob
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from ullage_simulate.spot.market import Floats, Series
from ullage_simulate.trace import JobTraceError

INDEX: Final = "skypilot_index.csv"
SAME: Final = 5e-4
"""Tolerance of the mean availability: the index rounds it."""
MOST_BYTES: Final = 64 * 2**20


def read_series(where: str) -> tuple[Series, ...]:
    """Pools of a file, of all files of a folder, or of a pattern with ``*``; by name.

    Raises:
        TraceError: there is none, or one cannot be read; the text names it and the reason.
    """
    path = Path(where)
    if path.is_dir():
        files = sorted(path.glob("*.json"))
    else:
        files = [Path(path) for path in sorted(glob.glob(where))]
    if not files:
        raise JobTraceError(
            f"--trace {where}: no such file, and no *.json in a folder of that name"
        )
    traces = [_series(file) for file in files]
    names = _short([file.stem for file in files])
    return tuple(
        Series(name=name, tick_s=tick_s, up=up >= asked, price=price)
        for name, (tick_s, up, asked, price) in zip(names, traces, strict=True)
    )


def _series(file: Path) -> tuple[int, Floats, int, Floats]:
    """Seconds per tick, available instances, requested instances, prices (empty = none)."""
    if file.stat().st_size > MOST_BYTES:
        raise JobTraceError(f"{file}: larger than {MOST_BYTES // 2**20} MiB")
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        gap = body["metadata"]["gap_seconds"]
        up = np.array(body["data"], dtype=float)
        price = np.array(body.get("prices") or [], dtype=float)
    except (KeyError, TypeError, ValueError) as error:
        raise JobTraceError(
            f"{file}: expected metadata.gap_seconds and a list of numbers in data ({error})"
        ) from error
    if up.ndim != 1 or not len(up) or not np.all(up >= 0) or not float(gap) >= 1:
        raise JobTraceError(f"{file}: expected ticks of 1 s or more and instances of 0 or more")
    if len(price) and (price.shape != up.shape or not np.all(price > 0)):
        raise JobTraceError(f"{file}: expected one price above 0 for each tick, or none")
    stated = _stated(file)
    asked = max(1, int(stated["nodes_requested"]) if stated else int(up.max()))
    if stated is not None:
        mean = float(stated["mean_fraction_available"])
        if abs(float(up.mean()) / asked - mean) > SAME:
            raise JobTraceError(f"{file} is not encoded as its index says: 1 = up")
    return int(float(gap)), up, asked, price


def _stated(file: Path) -> Mapping[str, str] | None:
    """The entry of an index beside the file or above its folder."""
    for folder in (file.parent, file.parent.parent):
        index = folder / INDEX
        if index.is_file():
            with index.open(encoding="utf-8") as stream:
                return next(
                    (row for row in csv.DictReader(stream) if row["file"] == file.name), None
                )
    return None


def _short(stems: Sequence[str]) -> list[str]:
    """Names without their common parts: of a/b/c and a/d/c, b and d."""
    parts = [stem.split("__") for stem in stems]
    if len(stems) < 2 or len({len(part) for part in parts}) > 1:
        return list(stems)
    differ = [place for place, words in enumerate(zip(*parts, strict=True)) if len(set(words)) > 1]
    return ["-".join(part[place] for place in differ) for part in parts]
