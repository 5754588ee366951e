# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Spot capacity on public traces and prices: deadlines, cost per work, hazards, dynamic pricing.

``python -m bench.capacity [--data FOLDER] [--zones NAME ...] [--days FIRST LAST]`` writes
``build/bench/capacity.json``. The tables are read where they are and never copied; without them
nothing is measured, which is said.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench import capacity_deadline, capacity_hazard, capacity_study, capacity_zones
from bench.capacity_prices import load as load_prices
from bench.capacity_traces import ZONES
from bench.capacity_traces import load as load_traces
from bench.devicechoice_tables import TableError
from bench.progress import Progress
from bench.report import DATA, Bars, Figure, Row, judge, write

BARS: Final[Bars] = {
    "misses": lambda value: value == 0,
    "ondemand_vs_greedy": lambda value: value <= capacity_deadline.LIMIT,
    "cost_per_work": lambda value: value <= capacity_zones.LIMITS["cost"],
    "cost_vs_oracle": lambda value: value <= capacity_zones.LIMITS["oracle"],
    "cost_vs_fixed": lambda value: value <= capacity_zones.LIMITS["fixed_cost"],
    "runtime_vs_fixed": lambda value: value <= capacity_zones.LIMITS["fixed_time"],
    "evictions_ratio": lambda value: value <= capacity_zones.LIMITS["evict"],
    "live_vs_fixed": lambda value: value <= capacity_zones.LIMITS["fixed_cost"],
    "live_runtime_vs_fixed": lambda value: value <= capacity_zones.LIMITS["fixed_time"],
    "live_evictions_ratio": lambda value: value <= capacity_zones.LIMITS["evict"],
    "calibration_max_error": lambda value: value <= capacity_hazard.LIMIT,
    "pricing_ratio_max_error": lambda value: value <= capacity_study.RATIO_LIMIT,
    "vs_offline_optimum_max": lambda value: value <= capacity_study.OPTIMUM_LIMIT,
    "models_beating_baseline": lambda value: value >= 4,
    "switches_that_did_not_pay": lambda value: value == 0,
    "pricing_deadline_misses": lambda value: value == 0,
}


def zone(text: str) -> tuple[str, float]:
    """A zone as an option names it: ``NAME`` or ``NAME=PRICE``.

    Raises:
        argparse.ArgumentTypeError: the price is missing and not known, or no number above 0.
    """
    name, _, said = text.partition("=")
    try:
        price = float(said) if said else ZONES[name]
    except (KeyError, ValueError):
        price = 0.0
    if not 0 < price < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: give the price of an hour, as in {name}=1.02")
    return name, price


def day(text: str) -> float:
    """A day of the traces, from 0 on.

    Raises:
        argparse.ArgumentTypeError: it is no finite number from 0 on.
    """
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: give a number of days from 0 on")
    return found


def measure(
    folder: Path,
    starts: int,
    zones: Mapping[str, float] = ZONES,
    days: tuple[float, float] = (capacity_zones.FIRST_DAY, capacity_zones.LAST_DAY),
) -> tuple[dict[str, Figure], list[Row]]:
    """All four parts.

    Args:
        folder: Of the tables.
        starts: Windows of each pool for the deadlines.
        zones: Dollars per hour of an instance, by zone, for the job by cost per work.
        days: Of the traces, between which that job starts.

    Raises:
        TableError: a table is not there.
    """
    with Progress() as progress:
        traces, prices = load_traces(folder), load_prices(folder)
        progress.say(f"read {len(traces)} traces and {len(prices.series)} series of prices")
        parts = (
            capacity_deadline.measure(traces, progress.say, starts),
            capacity_zones.measure(traces, progress.say, prices=zones, days=days),
            capacity_hazard.measure(traces, progress.say),
            capacity_study.measure(prices, progress.say),
        )
    figures: dict[str, Figure] = {}
    rows: list[Row] = []
    for part, more in parts:
        figures |= part
        rows += more
    return figures, rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure everything and judge it.

    Returns:
        0, or 1 when a bar is missed; 0 without data, which is said.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument(
        "--starts", type=int, default=capacity_deadline.STARTS, help="windows of each pool"
    )
    parser.add_argument(
        "--zones",
        type=zone,
        nargs="+",
        metavar="NAME[=PRICE]",
        help="zones for the job by cost per work, with dollars per hour (default: all priced ones)",
    )
    parser.add_argument(
        "--days",
        type=day,
        nargs=2,
        metavar=("FIRST", "LAST"),
        default=[capacity_zones.FIRST_DAY, capacity_zones.LAST_DAY],
        help="days of the traces between which the job by cost per work starts",
    )
    given = parser.parse_args(arguments)
    first, last = given.days
    if last < first:
        parser.error("--days: the last day comes before the first")
    try:
        figures, rows = measure(given.data, given.starts, dict(given.zones or ZONES), (first, last))
    except TableError as error:
        print(f"bench capacity: no tables ({error}); name their folder with --data. Nothing ran.")
        return 0
    write("capacity", figures, rows)
    print(
        "Prices of the six zones are medians of 2019 and 2020, their capacity is of 2023. The "
        "hazards' half-life was chosen on these same traces. The optimum of prices ends on the "
        "policy's last day or before; one that may take any time waits on slow offers for prices "
        "that no one could know. Savings of the bid market of before 2017 cannot be measured: no "
        "prices of that time are public."
    )
    return judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
