# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``ullage simulate --lanes``: jobs on one device, their peaks packed or their steps in lanes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from ullage.cli.comparing import figures_table, followed, tell
from ullage.cli.simulate_options import Lanes

if TYPE_CHECKING:
    from ullage_simulate.lanes import LaneAnswer, LaneQuestion

MIB: Final = 1024
MINUTE: Final = 60
NAMED: Final = 3
"""Refused jobs named in a note."""


def question(lanes: Lanes, most: int) -> LaneQuestion:
    """The inputs from the options.

    Args:
        lanes: Table and device.
        most: The first jobs only; 0 = all.

    Raises:
        ValueError: the table is invalid; the text has the correction.
    """
    from ullage.engines.lanes.settings import LaneAim
    from ullage_simulate.lane_trace import lane_jobs
    from ullage_simulate.lanes import LaneQuestion

    if lanes.aim not in list(LaneAim):
        raise ValueError(f"--aim {lanes.aim!r}: write one of {', '.join(LaneAim)}")
    path = Path(lanes.lanes)
    jobs, notes = lane_jobs(path, most)
    return LaneQuestion(
        name=path.name,
        jobs=jobs,
        notes=notes,
        memory_mib=int(lanes.memory * MIB),
        slowdown=lanes.slowdown,
        aim=LaneAim(lanes.aim),
    )


def watched(asked: LaneQuestion, console: Console) -> LaneAnswer:
    """Simulate it, with a progress bar."""
    from ullage_simulate.lanes import answer

    return followed(partial(answer, asked), console)


def table_of(result: LaneAnswer) -> Table:
    """A line for packing and one for each policy, the best mean in bold."""
    asked, first = result.question, result.outcomes[0]
    table = figures_table(
        f"{asked.name}: {len(asked.jobs):,} jobs on a device of {asked.memory_mib / MIB:g} GiB",
        "mean, p99: arrival to end; residents: jobs on the device; running: steps side by side;\n"
        "waits: part of a job's time there in which it waits for its lane",
        ("mean min", "p99 min", f"x {first.policy}", "all min", "residents", "running", "waits"),
    )
    for outcome in result.outcomes:
        mean_s = outcome.played.mean_completion_s
        table.add_row(
            outcome.policy,
            f"{mean_s / MINUTE:.1f}",
            f"{outcome.p99_s / MINUTE:.1f}",
            f"{first.played.mean_completion_s / mean_s:.2f}" if mean_s > 0 else "",
            f"{outcome.end_s / MINUTE:.1f}",
            f"{outcome.played.residents:.1f}",
            f"{outcome.played.busy:.2f}",
            f"{outcome.waits:.0%}",
            style="bold" if outcome is result.best else "",
        )
    return table


def notes_of(result: LaneAnswer) -> tuple[str, ...]:
    """Notes on values missing in the table, and the jobs that never fit."""
    refused = result.outcomes[0].played.refused
    if not refused:
        return result.question.notes
    shown = ", ".join(refused[:NAMED]) + (", ..." if len(refused) > NAMED else "")
    never = f"{len(refused)} of the jobs never fit the device and are left out: {shown}"
    return (*result.question.notes, never)


def show(result: LaneAnswer, json_file: str, plot: str) -> None:
    """Print the table and write the requested files.

    Raises:
        NoPlotter: pictures were asked for and matplotlib is missing.
    """
    from ullage_simulate.lanes import to_json

    def pictures(where: Path) -> tuple[Path, ...]:
        from ullage_simulate.plots_lanes import draw

        return draw(result, where)

    tell(
        table_of(result),
        notes_of(result),
        json_file,
        partial(to_json, result),
        plot,
        pictures,
    )
