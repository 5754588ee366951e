# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Public traces of spot capacity: instances that a zone gave at each tick.

They carry no licence and stay where they are. The encoding is guarded: a value counts instances
that are up, and each file's mean must be what its index says, so an inverted file is refused.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.devicechoice_tables import TableError

Ints = NDArray[np.int64]

ZONES: Final[Mapping[str, float]] = {
    "us-east-1a": 0.98,
    "us-east-1c": 0.953,
    "us-east-1d": 0.954,
    "us-east-1f": 0.941,
    "us-west-2a": 1.015,
    "us-west-2c": 1.002,
}
"""Dollars per hour of a p3.2xlarge: medians of the price history, 1a after the design's example."""
ZONES_BATCH: Final = "aws-02-15-2023"
DEADLINE_BATCH: Final = "aws-10-26-2022"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One pool over time.

    Attributes:
        name: Batch, zone and instance.
        batch: Cloud and day of its start; traces of one batch run side by side.
        zone: Zone.
        instance: Tag of the instance type.
        gap_s: Seconds per tick.
        up: Instances up at each tick.
        nodes: Asked for.
    """

    name: str
    batch: str
    zone: str
    instance: str
    gap_s: int
    up: Ints
    nodes: int


def load(folder: Path) -> tuple[Trace, ...]:
    """All traces of the index.

    Raises:
        TableError: the index or a trace is not there, or a trace is not what its index says.
    """
    index = folder / "spot" / "skypilot_index.csv"
    if not index.is_file():
        raise TableError(f"{index} is not there")
    with index.open(encoding="utf-8") as stream:
        return tuple(_trace(folder / "spot" / "skypilot", line) for line in csv.DictReader(stream))


def _trace(folder: Path, line: Mapping[str, str]) -> Trace:
    file = folder / line["file"]
    if not file.is_file():
        raise TableError(f"{file} is not there")
    body = json.loads(file.read_text(encoding="utf-8"))
    up, nodes = np.array(body["data"], dtype=np.int64), int(line["nodes_requested"])
    if abs(float(up.mean()) / nodes - float(line["mean_fraction_available"])) > 5e-4:
        raise TableError(f"{file} is not encoded as its index says: 1 = up")
    return Trace(
        name=f"{line['batch']} {line['zone']} {line['instance_tag']} x{nodes}",
        batch=line["batch"],
        zone=line["zone"],
        instance=line["instance_tag"],
        gap_s=int(body["metadata"]["gap_seconds"]),
        up=up,
        nodes=nodes,
    )


def of_batch(traces: Sequence[Trace], batch: str) -> tuple[Trace, ...]:
    """Traces that run side by side.

    Raises:
        TableError: there is none.
    """
    found = tuple(one for one in traces if one.batch == batch)
    if not found:
        raise TableError(f"no trace of {batch}")
    return found
