# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Public request traces as arrivals: the shape of their load is theirs, its height is ours."""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np

from ullage.engines.scaling.forecast import Floats

PEAK_PER_S: Final = 40.0
"""Requests per second of the highest minutes."""
SAMPLE_S: Final = 300.0
"""Length of a bin of the monitor samples."""
FASTER: Final = 5.0
"""A day is played in so many parts of its time: it then swings ten-fold within minutes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """Arrivals in order, seconds from the beginning."""

    name: str
    arrival_s: Floats

    def rates(self, bin_s: float) -> Floats:
        """Requests per second by bin."""
        edges = np.arange(0.0, float(self.arrival_s[-1]) + bin_s, bin_s)
        return np.histogram(self.arrival_s, edges)[0] / bin_s


def traces(data: Path, seed: int) -> list[Trace]:
    """What of the traces is there: one day of a service fast and as it was, an hour of another."""
    found = []
    day = data / "inference" / "genai_qps.csv.gz"
    if day.exists():
        shape = _day(day)
        found.append(_drawn("genai_day", shape, SAMPLE_S, PEAK_PER_S / 4, seed))
        found.append(_drawn("genai_fast", shape, SAMPLE_S / FASTER, PEAK_PER_S, seed))
    hour = data / "inference" / "azure_llm_2023_conv.csv.gz"
    if hour.exists():
        found.append(Trace(name="azure_hour", arrival_s=_hour(hour)))
    return found


def _day(path: Path) -> Floats:
    """The load of each five minutes of a day, in the trace's own unit."""
    sums: dict[int, float] = defaultdict(float)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            sums[int(float(row["timestamp_anon"]) // SAMPLE_S)] += float(row["value"])
    first, last = min(sums), max(sums)
    return np.asarray([sums.get(at, 0.0) for at in range(first, last + 1)])


def _drawn(name: str, shape: Floats, bin_s: float, peak_per_s: float, seed: int) -> Trace:
    """Poisson arrivals of a load that changes evenly between the middles of the bins."""
    rates = shape * peak_per_s / np.quantile(shape, 0.99)
    generator = np.random.default_rng(seed)
    fine_s = bin_s / 30
    middles = (np.arange(rates.size) + 0.5) * bin_s
    times = (np.arange(rates.size * 30) + 0.5) * fine_s
    counts = generator.poisson(np.interp(times, middles, rates) * fine_s)
    starts = np.repeat(times - fine_s / 2, counts)
    return Trace(name=name, arrival_s=np.sort(starts + generator.random(starts.size) * fine_s))


def _hour(path: Path) -> Floats:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        times = [
            datetime.fromisoformat(row["timestamp"][:26]).timestamp()
            for row in csv.DictReader(lines)
        ]
    found = np.sort(np.asarray(times))
    return np.asarray(found - found[0])
