# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Sia's workloads (drawn from Helios Saturn and Philly), with the step times of its applications.

A job keeps its requested replicas and batch size. The workloads do not have the length of a job:
its GPU time is drawn from the size class of its application, as in the study that defined the
classes (Pollux, OSDI 2021: small up to 1, medium up to 10, large up to 100 GPU hours).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ullage_simulate.reading import ReadingOptions
from ullage_simulate.speeds import SpeedTable
from ullage_simulate.table import TableRow, header_of, opened, rows
from ullage_simulate.trace import JobTrace, JobTraceError, TraceJob, in_order

TYPE_OF: Final = {"aws": "t4", "rtx": "rtx2080ti", "dgx": "a100", "quad": "quadro"}
"""Clusters of the step times, by the study's name of the device; others are not used."""
REFERENCE: Final = "t4"
GPU_HOURS: Final[Mapping[str, tuple[float, float]]] = {
    "cifar10": (0.1, 1.0),
    "ncf": (0.1, 1.0),
    "deepspeech2": (1.0, 10.0),
    "bert": (1.0, 10.0),
    "yolov3": (10.0, 100.0),
    "imagenet": (100.0, 1000.0),
}

_STEP_TIMES: Final = frozenset({"application", "placement", "local_batch", "step_time_s"})


def holds_step_times(path: Path) -> bool:
    """True if a file has the columns of Sia's step times by placement."""
    return set(header_of(opened(path))) >= _STEP_TIMES


def read_step_times(path: Path) -> SpeedTable:
    """Sia's step times by placement as a table, one kind for each application and local batch.

    ``bert@8`` is bert with 8 samples on each replica.

    Raises:
        TraceError: it is a different file.
    """
    points: dict[tuple[str, int], dict[str, float]] = {}
    for row in rows(path.name, opened(path)):
        kind, placement = TYPE_OF.get(row.text("cluster")), row.text("placement")
        if not placement.isdecimal():
            raise row.wrong("placement", "is no placement: write the devices of each node, as 22")
        replicas = sum(int(digit) for digit in placement)
        batch = row.whole("local_batch", "samples, as 8")
        step_s = row.number("step_time_s", "seconds, as 0.25")
        key = (f"{row.text('application')}@{batch}", replicas)
        # Of several ways of placing a gang the fastest counts.
        if kind is not None and step_s > 0:
            speeds = points.setdefault(key, {})
            speeds[kind] = max(speeds.get(kind, 0.0), 1 / step_s)
    if not points:
        raise JobTraceError(f"{path}: no step times of a type that is known")
    return SpeedTable(name=path.name, alone=points)


def sia_jobs(name: str, lines: Sequence[TableRow], how: ReadingOptions) -> JobTrace:
    """Jobs of a workload; applications without step times are left out and reported.

    Raises:
        TraceError: the table holds no step times of Sia.
    """
    if not any("@" in kind for kind, _ in how.table.alone):
        raise JobTraceError(f"{name}: give --speeds with sia_placement_step_times.csv(.gz)")
    known, types = _by_application(how.table), how.table.types
    chance = random.Random(how.seed)
    jobs, missing = [], 0
    for number, row in enumerate(lines):
        application, batch = row.text("application"), row.whole("batch_size", "samples, as 128")
        wanted, draw = row.whole("num_replicas", "a number of devices, as 4"), chance.random()
        hours = GPU_HOURS.get(application)
        gang = max((n for name, n in known if name == application and n <= wanted), default=0)
        if hours is None or gang == 0:
            missing += 1
            continue
        speeds = {kind: _speed(known[application, gang], batch / gang, kind) for kind in types}
        base = speeds[REFERENCE] if speeds.get(REFERENCE, 0.0) > 0 else max(speeds.values())
        gpu_s = 3600 * math.exp(math.log(hours[0]) + draw * math.log(hours[1] / hours[0]))
        jobs.append(
            TraceJob(
                name=f"{row.text('workload_id')}-{number:05d}",
                gang=gang,
                steps=max(1, round(gpu_s / gang * base)),
                arrival_s=row.number("submit_time_s", "seconds, as 12.5"),
                speeds=speeds,
                kind=f"{application} x {batch}",
            )
        )
    notes = (
        f"GPU time is drawn from the size class of each application by seed {how.seed}, on"
        f" {REFERENCE} where it runs there.",
        f"{missing} jobs of applications without step times were left out." if missing else "",
    )
    return in_order(name, jobs, notes)


def _by_application(table: SpeedTable) -> dict[tuple[str, int], dict[int, Mapping[str, float]]]:
    """(application, replicas) -> batch of one replica -> type -> steps/s."""
    rows: dict[tuple[str, int], dict[int, Mapping[str, float]]] = {}
    for (kind, gang), speeds in table.alone.items():
        application, at, batch = kind.partition("@")
        if at:
            rows.setdefault((application, gang), {})[int(batch)] = speeds
    return rows


def _speed(rows: Mapping[int, Mapping[str, float]], local: float, on: str) -> float:
    """Steps/s at a batch of one replica; above the largest measured gradients are accumulated.

    Between two measured batches the step time is interpolated, below the smallest it is that of
    the smallest. 0 where this gang was not measured on the type.
    """
    rates = {batch: row[on] for batch, row in rows.items() if row.get(on, 0.0) > 0}
    if not rates:
        return 0.0
    batches = sorted(rates)
    parts = max(1, math.ceil(local / batches[-1]))
    each = max(local / parts, batches[0])
    above = next(size for size in batches if size >= each)
    below = max(size for size in batches if size <= each)
    part = 0.0 if above == below else (each - below) / (above - below)
    return 1 / (parts * ((1 - part) / rates[below] + part / rates[above]))
