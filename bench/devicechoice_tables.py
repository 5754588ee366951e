# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Public tables of training speed, as far as the choice of devices is judged by them.

They stay where they are. Batches of the Gavel table are per device, and its steps/s count the
steps of every device: a step takes devices / (steps/s). Sia's batches are per device too.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TYPES: Final = ("k80", "p100", "v100")
PRICES: Final = {"k80": 0.45, "p100": 1.46, "v100": 2.48}
"""Per device and hour."""
PARAMETERS: Final = {
    "LM": 14.0e6,
    "ResNet-18": 11.2e6,
    "ResNet-50": 25.6e6,
    "Transformer": 47.0e6,
}
"""Parameters of the table's data-parallel models, from their public definitions (derived)."""
_KEY: Final = re.compile(r"\('(.*)', (\d+)\)")


class TableError(Exception):
    """A table is not there."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Job:
    """A configuration of the Gavel table."""

    name: str
    gpus: int

    @property
    def family(self) -> str:
        """Model."""
        return self.name.split(" (", maxsplit=1)[0]

    @property
    def batch(self) -> int:
        """Samples per device; 1 where the table names none."""
        found = re.search(r"batch size (\d+)", self.name)
        return int(found[1]) if found else 1


Steps = Mapping[tuple[Job, str], float]


def read_gavel(folder: Path) -> Steps:
    """Seconds per step of (configuration, type); 0 = it did not run, absent = not measured.

    Raises:
        TableError: the table is not there.
    """
    file = folder / "gavel" / "simulation_throughputs.json.gz"
    if not file.is_file():
        raise TableError(f"{file} is not there")
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        raw: Mapping[str, Mapping[str, Mapping[str, float]]] = json.load(stream)
    steps: dict[tuple[Job, str], float] = {}
    for kind in TYPES:
        for key, values in raw[kind].items():
            found = _KEY.fullmatch(key)
            if found is None or "null" not in values:
                continue
            job, rate = Job(name=found[1], gpus=int(found[2])), values["null"]
            steps[job, kind] = job.gpus / rate if rate > 0 else 0.0
    return steps


def read_sia(folder: Path) -> Mapping[tuple[str, str, int], Mapping[int, float]]:
    """Seconds per step by devices, of (application, cluster, batch per device), on one node.

    Raises:
        TableError: the table is not there.
    """
    groups: dict[tuple[str, str, int], dict[int, float]] = {}
    for line in _lines(folder / "training_throughput" / "sia_placement_step_times.csv.gz"):
        if len(line["placement"]) == 1:
            key = line["application"], line["cluster"], int(line["local_batch"])
            groups.setdefault(key, {})[int(line["placement"])] = float(line["step_time_s"])
    return groups


def read_torchvision(folder: Path) -> Mapping[str, Mapping[str, float]]:
    """Median seconds of a training step, single precision, one device: type -> model.

    Raises:
        TableError: the table is not there.
    """
    steps: dict[str, dict[str, float]] = {}
    sources = {"dgx-a100", "new_results", "TITANXP"}
    for line in _lines(folder / "training_throughput" / "pytorch_gpu_benchmark_step_ms.csv.gz"):
        wanted = (line["gpus"], line["precision"], line["mode"]) == ("1", "float", "train")
        if wanted and line["source_folder"] in sources:
            steps.setdefault(line["gpu"], {})[line["model"]] = float(line["ms_median"]) / 1e3
    return steps


def _lines(file: Path) -> Iterator[dict[str, str]]:
    if not file.is_file():
        raise TableError(f"{file} is not there")
    with gzip.open(file, "rt", encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)
