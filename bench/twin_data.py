# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The world that the replay twin plays in: classes of work, and what each pair does to each other.

Slowdowns of pairs are the measured rows of Gavel's tables; nothing is filled in. A pair without a
row, or one that does not fit into memory, is offered to no rule.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.report import DATA
from ullage.engines.admission.queue_map import (
    Load,
    Objective,
    Service,
    largest_slowdown,
    latency_s,
)

TABLE: Final = "simulation_throughputs"
SLO: Final = 2.0
BUSY_ALONE: Final = 0.4
"""Part of the time a serving replica works when it is alone."""
QUANTILE: Final = 0.99
SERVES: Final[Mapping[str, str]] = {
    "resnet50": "ResNet-50 (batch size 16)",
    "resnet101": "ResNet-50 (batch size 32)",
    "resnet152": "ResNet-50 (batch size 64)",
    "mobilenetv2": "ResNet-18 (batch size 16)",
    "densenet121": "ResNet-18 (batch size 64)",
}
"""Served model of ParvaGPU's table -> training job whose contention it is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClass:
    """One class of work; ``acts_as`` is the job type whose measured rows it uses."""

    name: str
    family: str
    acts_as: str
    batch: float
    step_s: float
    utilisation: float
    """Half of what a class suffers beside its own copy, 1 where that was not measured."""
    half_slowdown: float
    """On a hard half of the device: as beside its own copy, at most 2, 2 where not measured."""
    allowed: float
    latency: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """Classes and pairs of one kind of device."""

    accelerator: str
    classes: tuple[JobClass, ...]
    pairs: Mapping[tuple[str, str], tuple[float, float]]
    """(acts_as, acts_as) -> slowdown of either; both orders are there."""

    def together(self, one: JobClass, other: JobClass) -> tuple[float, float] | None:
        """Slowdown of each beside the other; ``None`` where nothing was measured."""
        return self.pairs.get((one.acts_as, other.acts_as))


def default_folder() -> Path:
    """Where the tables lie unless ``--data`` says otherwise."""
    return Path(os.environ.get("ULLAGE_DATA", DATA))


def load(folder: Path, accelerator: str) -> World:
    """Read the tables of one kind of device.

    Raises:
        FileNotFoundError: a table is not there.
        ValueError: a cell is no number.
    """
    solo = {
        row["job_type"]: float(row["steps_per_s"])
        for row in _rows(folder / "gavel" / "throughputs_solo.csv", accelerator)
    }
    pairs: dict[tuple[str, str], tuple[float, float]] = {}
    for row in _rows(folder / "gavel" / "throughputs_colocated.csv", accelerator):
        a, b = row["job_a"], row["job_b"]
        fast, slow = float(row["a_steps_per_s"]), float(row["b_steps_per_s"])
        if fast > 0 and slow > 0:
            one, other = max(1.0, solo[a] / fast), max(1.0, solo[b] / slow)
            pairs[a, b], pairs[b, a] = (one, other), (other, one)
    classes = [_training(name, speed, pairs) for name, speed in sorted(solo.items()) if speed > 0]
    known = {one.name: one for one in classes}
    served = _service_times(folder / "interference" / "parvagpu_a100_mig_mps_inference.csv")
    classes += [_serving(model, served[model], known[acts_as]) for model, acts_as in SERVES.items()]
    return World(accelerator, tuple(classes), pairs)


def _rows(file: Path, accelerator: str) -> Iterator[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if (
                row["source_file"] == TABLE
                and row["gpu"] == accelerator
                and row["placement"] == "consolidated"
                and row["scale_factor"] == "1"
            ):
                yield row


def _training(
    name: str, steps_per_s: float, pairs: Mapping[tuple[str, str], tuple[float, float]]
) -> JobClass:
    own = pairs.get((name, name))
    batch = re.search(r"batch size (\d+)", name)
    return JobClass(
        name=name,
        family=name.partition(" (")[0],
        acts_as=name,
        batch=float(batch.group(1)) if batch else 1.0,
        step_s=1 / steps_per_s,
        utilisation=max(own) / 2 if own else 1.0,
        half_slowdown=min(2.0, max(own)) if own else 2.0,
        allowed=SLO,
    )


def _service_times(file: Path) -> dict[str, float]:
    """Mean service time of one request alone on the whole device, seconds."""
    with file.open(encoding="utf-8", newline="") as lines:
        return {
            row["model"]: float(row["latency_s"])
            for row in csv.DictReader(lines)
            if (row["mig_gpcs"], row["batch"], row["processes"]) == ("7", "1", "1")
        }


def _serving(model: str, mean_s: float, acts_as: JobClass) -> JobClass:
    """A server whose latency objective is what its queue gives at a slowdown of 2."""
    service = Service(mean_s=mean_s, quantile_s=mean_s * -math.log(1 - QUANTILE))
    load = Load(requests_per_s=BUSY_ALONE / mean_s)
    objective = Objective(
        latency_s=latency_s(SLO, service, load, QUANTILE) * (1 + 1e-9), quantile=QUANTILE
    )
    allowed = largest_slowdown(service, load, objective)
    if not isinstance(allowed, float):
        raise TypeError(f"{model}: {allowed.text}")
    return JobClass(
        name=f"serve {model}",
        family=f"serve {model.rstrip('0123456789')}",
        acts_as=acts_as.name,
        batch=1.0,
        step_s=mean_s,
        utilisation=acts_as.utilisation,
        half_slowdown=acts_as.half_slowdown,
        allowed=allowed,
        latency=True,
    )
