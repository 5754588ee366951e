# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the replay twin plays with: classes of work, and what each pair does to each other.

Slowdowns are measured rows of Gavel's tables. A pair that no one measured has the row of the same
two models at the nearest batch sizes; work that did not fit beside others asks for a whole device.
"""

from __future__ import annotations

import csv
import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.report import DATA
from ullage.engines.admission.queue_map import (
    Load,
    QueueObjective,
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

Pairs = Mapping[tuple[str, str], tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What a replica promises and what is asked of it."""

    service: Service
    load: Load
    latency_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClass:
    """One class of work; ``acts_as`` is the job type whose measured rows it uses.

    ``utilisation`` is half of what a class suffers beside its own copy, 1 where that was not
    measured: the tables hold no counters. ``allowed`` is the largest slowdown that keeps its
    objective. ``whole`` = it asks for a device of its own.
    """

    name: str
    family: str
    acts_as: str
    step_s: float
    utilisation: float = 1.0
    allowed: float = SLO
    whole: bool = False
    serving: Serving | None = None


@dataclass(frozen=True, slots=True)
class Tables:
    """Classes and pairs of one kind of device."""

    accelerator: str
    classes: tuple[JobClass, ...]
    pairs: Pairs
    """(acts_as, acts_as) -> slowdown of either, in both orders; of classes that share, all."""
    measured: float = 1.0
    """Part of the pairs that were measured."""

    def together(self, one: JobClass, other: JobClass) -> tuple[float, float]:
        """Slowdown of each beside the other."""
        return self.pairs[one.acts_as, other.acts_as]


def default_folder() -> Path:
    """Where the tables lie unless ``--data`` says otherwise."""
    return Path(os.environ.get("ULLAGE_DATA", DATA))


def load(folder: Path, accelerator: str) -> Tables:
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
    unfit: list[tuple[str, str]] = []
    for row in _rows(folder / "gavel" / "throughputs_colocated.csv", accelerator):
        a, b = row["job_a"], row["job_b"]
        fast, slow = float(row["a_steps_per_s"]), float(row["b_steps_per_s"])
        if fast > 0 and slow > 0:
            one, other = max(1.0, solo[a] / fast), max(1.0, solo[b] / slow)
            pairs[a, b], pairs[b, a] = (one, other), (other, one)
        else:
            unfit.append((a, b))
    alone = _too_large(unfit)
    classes = [
        replace(_training(name, speed, pairs), whole=name in alone)
        for name, speed in sorted(solo.items())
        if speed > 0
    ]
    shares = [one.name for one in classes if not one.whole]
    known = {one.name: one for one in classes}
    served = _service_times(folder / "interference" / "parvagpu_a100_mig_mps_inference.csv")
    classes += [_serving(model, served[model], known[acts_as]) for model, acts_as in SERVES.items()]
    wanted = [(one, two) for one in shares for two in shares]
    part = sum(pair in pairs for pair in wanted) / len(wanted)
    filled = {pair: pairs[_nearest(pair, pairs)] for pair in wanted}
    return Tables(accelerator, tuple(classes), filled, part)


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


def _too_large(unfit: list[tuple[str, str]]) -> set[str]:
    """Those that leave no pair that did not fit, the most frequent first."""
    found: set[str] = set()
    while left := [pair for pair in unfit if not found & set(pair)]:
        names = sorted(set(itertools.chain(*left)))
        found.add(max(names, key=lambda name: sum(name in pair for pair in left)))
    return found


def _nearest(pair: tuple[str, str], pairs: Pairs) -> tuple[str, str]:
    """The measured pair of the same two models whose batch sizes are nearest, by ratio."""

    def distance(other: tuple[str, str]) -> float:
        both = zip(pair, other, strict=True)
        return sum(abs(math.log(_batch(one) / _batch(two))) for one, two in both)

    models = tuple(map(_family, pair))
    alike = [other for other in pairs if tuple(map(_family, other)) == models]
    if not alike:
        raise ValueError(f"no batch sizes of {' and '.join(models)} were measured together")
    return min(alike, key=lambda other: (distance(other), other))


def _family(name: str) -> str:
    return name.partition(" (")[0]


def _batch(name: str) -> float:
    found = re.search(r"batch size (\d+)", name)
    return float(found.group(1)) if found else 1.0


def _training(name: str, steps_per_s: float, pairs: Pairs) -> JobClass:
    own = pairs.get((name, name))
    use = max(own) / 2 if own else 1.0
    return JobClass(
        name=name, family=_family(name), acts_as=name, step_s=1 / steps_per_s, utilisation=use
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
    latency_ms = math.ceil(latency_s(SLO, service, load, QUANTILE) * 1000)
    objective = QueueObjective(latency_s=latency_ms / 1000, quantile=QUANTILE)
    allowed = largest_slowdown(service, load, objective)
    if not isinstance(allowed, float):
        raise TypeError(f"{model}: {allowed.text}")
    return replace(
        acts_as,
        name=f"serve {model}",
        family=f"serve {model.rstrip('0123456789')}",
        step_s=mean_s,
        allowed=allowed,
        serving=Serving(service=service, load=load, latency_ms=latency_ms),
    )
