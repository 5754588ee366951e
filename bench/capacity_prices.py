# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Prices of 2019 and 2020 as the published study of dynamic pricing read them.

The tables stay where they are. It must never change a price: what the study did wrong is done in
its reproduction, not here.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from bench.devicechoice_tables import TableError

MODELS: Final = {
    "A3C": "A3C",
    "Transformer-256": "Transformer (batch size 256)",
    "Recommendation-8192": "Recommendation (batch size 8192)",
    "LM-80": "LM (batch size 80)",
    "CycleGAN": "CycleGAN",
    "ResNet-50-128": "ResNet-50 (batch size 128)",
}
STARTS: Final = slice(-35, -5)
"""Of the sorted days on which a p3.2xlarge has a price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Prices of one offer.

    Attributes:
        name: Type and zone, or size and region.
        cloud: aws or azure.
        kind: Instance type.
        gpu: Its GPUs' type, as the table of speeds spells it.
        gpus: How many.
        prices: Dollars per hour of the instance by day; the last known one, ``None`` before any.
    """

    name: str
    cloud: str
    kind: str
    gpu: str
    gpus: int
    prices: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """All offers on common days.

    Attributes:
        days: Every day from the first price to the last.
        starts: Indices of the study's 30 start days.
        series: Sorted by name.
        speeds: Iterations per second of (model, GPU type).
    """

    days: tuple[date, ...]
    starts: tuple[int, ...]
    series: tuple[Series, ...]
    speeds: Mapping[tuple[str, str], float]


def load(folder: Path) -> Prices:
    """Read the tables.

    Raises:
        TableError: one is not there.
    """
    aws = _aws(folder / "spot" / "aws_spot_prices_2019-12_2020-03.csv.gz")
    azure = _azure(folder / "spot" / "azure_lowpri_prices_2020.csv")
    both = aws | azure
    first = min(min(found) for found in both.values())
    last = max(max(found) for found in both.values())
    days = tuple(first + timedelta(days=n) for n in range((last - first).days + 1))
    priced = sorted({day for key, found in aws.items() if key[1] == "p3.2xlarge" for day in found})
    return Prices(
        days=days,
        starts=tuple(days.index(day) for day in priced[STARTS]),
        series=tuple(
            Series(
                name=f"{kind} {place}",
                cloud=cloud,
                kind=kind,
                gpu=gpu.lower(),
                gpus=gpus,
                prices=_followed(found, days),
            )
            for (cloud, kind, place, gpu, gpus), found in sorted(both.items())
        ),
        speeds=_speeds(folder / "gavel" / "throughputs_solo.csv"),
    )


Key = tuple[str, str, str, str, int]


def _aws(file: Path) -> dict[Key, dict[date, float]]:
    """Last price of each day in us-east-1."""
    if not file.is_file():
        raise TableError(f"{file} is not there")
    rows: dict[Key, dict[date, tuple[str, float]]] = {}
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        for line in csv.DictReader(stream):
            if line["region"] != "us-east-1":
                continue
            key = ("aws", line["instance_type"], line["zone"], line["gpu"], int(line["gpus"]))
            moment = line["timestamp_utc"]
            day = date.fromisoformat(moment[:10])
            found = rows.setdefault(key, {})
            if day not in found or found[day][0] <= moment:
                found[day] = moment, float(line["usd_per_hour"])
    return {key: {day: price for day, (_, price) in found.items()} for key, found in rows.items()}


def _azure(file: Path) -> dict[Key, dict[date, float]]:
    """Sizes without RDMA, both regions."""
    if not file.is_file():
        raise TableError(f"{file} is not there")
    rows: dict[Key, dict[date, float]] = {}
    with file.open(encoding="utf-8") as stream:
        for line in csv.DictReader(stream):
            if "r" in line["instance"].split(" ")[0][4:]:
                continue
            key = ("azure", line["instance"], line["region"], line["gpu"], int(line["gpus"]))
            day = date.fromisoformat(line["date"])
            rows.setdefault(key, {})[day] = float(line["usd_per_hour"])
    return rows


def _followed(found: Mapping[date, float], days: tuple[date, ...]) -> tuple[float | None, ...]:
    """A price for each day: that day's, else the last known."""
    last: float | None = None
    prices = []
    for day in days:
        last = found.get(day, last)
        prices.append(last)
    return tuple(prices)


def _speeds(file: Path) -> dict[tuple[str, str], float]:
    if not file.is_file():
        raise TableError(f"{file} is not there")
    jobs = {job: model for model, job in MODELS.items()}
    with file.open(encoding="utf-8") as stream:
        return {
            (jobs[line["job_type"]], line["gpu"]): float(line["steps_per_s"])
            for line in csv.DictReader(stream)
            if line["source_file"] == "oracle_throughputs_motivation"
            and line["placement"] == "consolidated"
            and line["scale_factor"] == "1"
            and line["job_type"] in jobs
        }
