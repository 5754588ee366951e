# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Public tables of co-located jobs, read as the rows that the engines take.

The tables stay where they are: nothing of them is copied into the repository. A measurement of
zero means that nothing ran, and is left out.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ullage.engines.admission.colocations import Pairs
from ullage.engines.admission.pair_gp import Rows
from ullage.engines.admission.records import ClassProfile, Fingerprint, Partner, Row

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GAVEL_TYPES = ("v100", "p100", "k80")
_ROUND = {"source_file": "simulation_throughputs", "placement": "consolidated", "scale_factor": "1"}
_APART_S = 60.0


class TableError(Exception):
    """A table is not there, or not as expected."""


def _lines(file: Path) -> Iterator[dict[str, str]]:
    if not file.is_file():
        raise TableError(f"{file} is not there")
    with file.open(newline="", encoding="utf-8") as stream:
        yield from csv.DictReader(stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gavel:
    """Jobs of one round of measurement, with pairs per type: (job, job, slowdown, slowdown)."""

    jobs: tuple[str, ...]
    families: tuple[str, ...]
    batches: tuple[float, ...]
    solo: Mapping[tuple[str, str], float]
    pairs: Mapping[str, tuple[tuple[int, int, float, float], ...]]

    def features(self, *, families: bool) -> Floats:
        """Standardised log solo speeds on the three types, their differences, log batch.

        The family is a feature only where siblings remain (``families``).
        """
        logs = np.log([[self.solo[gpu, job] for gpu in GAVEL_TYPES] for job in self.jobs])
        gaps = [logs[:, one] - logs[:, other] for one, other in ((2, 1), (1, 0), (2, 0))]
        columns = [*logs.T, *gaps, np.log(self.batches)]
        if families:
            names = sorted(set(self.families))
            columns += [np.array([float(one == name) for one in self.families]) for name in names]
        table = np.stack(columns, axis=1)
        return np.asarray((table - table.mean(0)) / table.std(0), np.float64)

    def rows(self, gpu: str, features: Floats, max_slowdown: float | None = None) -> Pairs:
        """Directional rows of a type; both directions of a pair are one co-location."""
        kept: list[Row] = []
        log_slowdown: list[float] = []
        numbers: list[int] = []
        sides: list[tuple[int, int]] = []
        for number, (left, right, slow_left, slow_right) in enumerate(self.pairs[gpu]):
            both = [(left, right, slow_left), (right, left, slow_right)]
            for victim, aggressor, slowdown in both[: 1 if left == right else 2]:
                kept.append(
                    Row(
                        id=f"{number}.{len(kept)}",
                        workload_class=self.jobs[victim],
                        family=self.families[victim],
                        accelerator=gpu,
                        percent=100,
                        partners=(Partner(workload_class=self.jobs[aggressor], percent=100),),
                        step_s=slowdown / self.solo[gpu, self.jobs[victim]],
                        slowdown=slowdown,
                        at_s=0.0,
                        max_slowdown=max_slowdown,
                    )
                )
                sides.append((victim, aggressor))
                log_slowdown.append(math.log(slowdown))
                numbers.append(number)
        victims, aggressors = np.array(sides, np.int64).T
        return Pairs(
            kept=tuple(kept),
            rows=Rows(
                victim=victims,
                aggressor=aggressors,
                victim_features=features[victims],
                aggressor_features=features[aggressors],
            ),
            log_base=np.zeros(len(kept)),
            observed=np.array(log_slowdown),
            colocation=np.array(numbers, np.int64),
        )

    def self_use(self, gpu: str) -> Floats:
        """Utilisation of a job from the pair with itself; the mean where that was not feasible."""
        known = {
            left: min(1.0, slow / 2) for left, right, slow, _ in self.pairs[gpu] if left == right
        }
        middle = float(np.mean(list(known.values())))
        return np.array([known.get(number, middle) for number in range(len(self.jobs))])


def read_gavel(folder: Path) -> Gavel:
    """Read the tables of one device each and one round.

    Raises:
        TableError: a table is not there.
    """
    solo = {}
    for line in _lines(folder / "gavel" / "throughputs_solo.csv"):
        if _ROUND.items() <= line.items():
            solo[line["gpu"], line["job_type"]] = float(line["steps_per_s"])
    jobs = tuple(sorted({job for _, job in solo}))
    index = {job: number for number, job in enumerate(jobs)}
    pairs: dict[str, list[tuple[int, int, float, float]]] = {gpu: [] for gpu in GAVEL_TYPES}
    for line in _lines(folder / "gavel" / "throughputs_colocated.csv"):
        speeds = float(line["a_steps_per_s"]), float(line["b_steps_per_s"])
        if _ROUND.items() <= line.items() and min(speeds) > 0:
            gpu, left, right = line["gpu"], line["job_a"], line["job_b"]
            slow = solo[gpu, left] / speeds[0], solo[gpu, right] / speeds[1]
            pairs[gpu].append((index[left], index[right], *slow))
    sizes = [re.search(r"batch size (\d+)", job) for job in jobs]
    return Gavel(
        jobs=jobs,
        families=tuple(job.partition(" (")[0] for job in jobs),
        batches=tuple(float(size.group(1)) if size else 1.0 for size in sizes),
        solo=solo,
        pairs={gpu: tuple(rows) for gpu, rows in pairs.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lucid:
    """Classes with what was measured alone, and one row per direction of every pair.

    Rows 2k and 2k+1 are the two directions of pair k.
    """

    profiles: Mapping[str, ClassProfile]
    rows: tuple[Row, ...]


def read_lucid(folder: Path, *, max_slowdown: float) -> Lucid:
    """Read solo profiles and pairs; utilisation is the time busy, memory use of its bandwidth.

    Raises:
        TableError: a table is not there.
    """
    profiles = {}
    for line in _lines(folder / "interference" / "lucid_solo_profiles.csv"):
        workload_class = _lucid_class(line, "")
        profiles[workload_class] = ClassProfile(
            workload_class=workload_class,
            family=line["model"],
            batch=float(line["batchsize"]),
            fingerprint=Fingerprint(
                duty_cycle=float(line["gpu_util"]) / 100,
                dram=float(line["gmem_util"]) / 100,
                peak_memory_mib=float(line["gmem"]),
            ),
        )
    rows: list[Row] = []
    for number, line in enumerate(_lines(folder / "interference" / "lucid_colocated_pairs.csv")):
        names = _lucid_class(line, "1"), _lucid_class(line, "2")
        speeds = float(line["speed1"]), float(line["speed2"])
        for side in (0, 1):
            rows += [
                Row(
                    id=f"{number:04d}.{side}",
                    workload_class=names[side],
                    family=line[f"model{side + 1}"],
                    accelerator="lucid",
                    percent=100,
                    partners=(Partner(workload_class=names[1 - side], percent=100),),
                    step_s=1.0 / speeds[side],
                    slowdown=1.0 / speeds[side],
                    at_s=number * _APART_S,
                    max_slowdown=max_slowdown,
                )
            ]
    return Lucid(profiles=profiles, rows=tuple(rows))


def _lucid_class(line: Mapping[str, str], side: str) -> str:
    return "/".join(line[name + side] for name in ("model", "dataset", "batchsize", "amp"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePoint:
    """One measured latency of an inference model on slices of a device."""

    model: str
    batch: float
    processes: float
    slices: float
    seconds: float


def read_parva(folder: Path) -> tuple[ServicePoint, ...]:
    """Read measured latencies; rows of zeros did not fit into memory and are left out.

    Raises:
        TableError: the table is not there.
    """
    file = folder / "interference" / "parvagpu_a100_mig_mps_inference.csv"
    return tuple(
        ServicePoint(
            model=line["model"],
            batch=float(line["batch"]),
            processes=float(line["processes"]),
            slices=float(line["mig_gpcs"]),
            seconds=float(line["latency_s"]),
        )
        for line in _lines(file)
        if float(line["latency_s"]) > 0
    )
