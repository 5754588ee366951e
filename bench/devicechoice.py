# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How well step times are predicted where nothing ran, and what choosing by them costs.

Leaves ``devicechoice.json``. Networks lie in the repository; public tables are read where they are,
and without them their sections are left out with a line that says so. It must never copy them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench import (
    devicechoice_counts,
    devicechoice_gangs,
    devicechoice_live,
    devicechoice_networks,
    devicechoice_regret,
)
from bench.devicechoice_tables import TableError, read_gavel, read_sia, read_torchvision
from bench.progress import Progress
from bench.report import DATA, Bars, Figure, Row, judge, write

BARS: Final[Bars] = {
    "loo_mean": lambda value: value <= 10,
    "loo_median": lambda value: value <= 6.5,
    "live_left_out_mean": lambda value: value <= 7,
    "count_interval_coverage": lambda value: 0.75 <= value <= 0.85,
    "gang_mape": lambda value: value <= 20,
    "regret": lambda value: value <= 1.05,
    "infeasible_chosen": lambda value: value == 0,
}
Section = Callable[[], tuple[dict[str, float], list[Row]]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and judge what the data at hand allow.

    Args:
        argv: Command line; ``None`` = that of the process.

    Returns:
        The exit status: 0, or 1 when a bar is missed.
    """
    parser = argparse.ArgumentParser(prog="bench.devicechoice", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    given = parser.parse_args(argv)
    figures, rows = measure(given.data)
    write("devicechoice", figures, rows)
    there = {name: bar for name, bar in BARS.items() if figures.get(name) is not None}
    return judge(figures, there)


def measure(folder: Path) -> tuple[dict[str, Figure], list[Row]]:
    """All sections that the data at hand allow; figures without data are ``None``."""
    with Progress() as progress:
        return _sections(folder, progress.say)


def _sections(folder: Path, tick: Callable[[str], None]) -> tuple[dict[str, Figure], list[Row]]:
    figures: dict[str, Figure] = {"regret": None}
    networks = devicechoice_networks.read_networks()
    part, rows = devicechoice_networks.measure(networks, tick)
    figures |= part
    part, live = devicechoice_live.measure_networks(networks)
    figures |= part
    rows += live
    speeds, live = devicechoice_live.measure()
    figures |= speeds
    rows += live
    tick("estimates of the operator scored")
    sections: tuple[Section, ...] = (
        lambda: devicechoice_gangs.measure_gavel(read_gavel(folder)),
        lambda: devicechoice_gangs.measure_sia(read_sia(folder)),
        lambda: devicechoice_counts.measure(read_gavel(folder), read_sia(folder)),
        lambda: devicechoice_regret.measure(read_gavel(folder), tick),
        lambda: devicechoice_regret.measure_torchvision(read_torchvision(folder)),
    )
    for section in sections:
        try:
            part, more = section()
        except TableError as error:
            print(f"bench devicechoice: section left out: {error}; give the folder with --data")
            continue
        figures |= part
        rows += more
    return figures, rows


if __name__ == "__main__":
    sys.exit(main())
