# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``ullage simulate --spot``: ways to buy spot capacity side by side, on the same pools.

Reads files and writes only those named by options.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ullage.cli.comparing import figures_table, followed, tell

if TYPE_CHECKING:
    from ullage.cli.simulate_options import Inputs, PlayOptions, SpotOptions
    from ullage_simulate.spot.comparison import SpotComparison, SpotRequest


def asked_for(inputs: Inputs, play: PlayOptions, spot: SpotOptions) -> SpotRequest:
    """The comparison of the options."""
    from ullage_simulate.spot.comparison import DRAWN, POLICIES, STARTS, SpotRequest

    return SpotRequest(
        trace=inputs.trace or DRAWN,
        select=inputs.select or (),
        prices=inputs.price or (),
        policies=play.policy or POLICIES,
        seed=play.seed,
        starts=play.jobs or STARTS,
        work_h=spot.work,
        deadline_h=spot.deadline,
        replicas=spot.replicas,
        min_replicas=spot.min_replicas,
        restart_s=720.0 if play.restart_cost is None else play.restart_cost,
        checkpoint_s=1800.0 if play.checkpoint_every is None else play.checkpoint_every,
        notice_s=spot.notice,
        flush_s=spot.flush,
    )


def watched(asked: SpotRequest, console: Console) -> SpotComparison:
    """Compare, with a progress bar for every way to buy.

    Raises:
        ValueError: the request is invalid; the text has the correction.
    """
    from ullage_simulate.spot.comparison import compare

    return followed(partial(compare, asked), console)


def table_of(comparison: SpotComparison) -> Table:
    """The figures of every way to buy; the cheapest that was never late in bold."""
    asked = comparison.asked
    figures = comparison.figures()
    table = figures_table(
        f"{asked.replicas} instances, {asked.work_h:g} h of work, deadline {asked.deadline_h:g}"
        f" h, {len(comparison.starts)} starts",
        "means of the starts; saved: against on-demand alone; late: starts that missed the\n"
        "deadline; firm h: instance hours on on-demand; lost h: work done again",
        (
            "$",
            "saved",
            "$/work h",
            "mean h",
            "max h",
            "late",
            "firm h",
            "spot h",
            "taken",
            "lost h",
        ),
    )
    in_time = [figure["dollars"] for figure in figures.values() if not figure["late"]]
    for policy, row in figures.items():
        best = bool(in_time) and not row["late"] and row["dollars"] == min(in_time)
        table.add_row(
            policy,
            f"{row['dollars']:.0f}",
            f"{row['saved']:.0%}",
            f"{row['dollars_per_work_h']:.2f}",
            f"{row['mean_h']:.1f}",
            f"{row['max_h']:.1f}",
            f"{row['late']}",
            f"{row['on_demand_instance_h']:.1f}",
            f"{row['spot_instance_h']:.1f}",
            f"{row['evictions']:.1f}",
            f"{row['lost_work_h']:.2f}",
            style="bold" if best else "",
        )
    return table


def show(comparison: SpotComparison, json_file: str, plot: str, *, each: bool) -> None:
    """Print the table and write the requested files.

    Raises:
        NoPlotter: pictures were asked for and matplotlib is missing.
    """
    from ullage_simulate.spot.comparison import to_json

    def pictures(where: Path) -> tuple[Path, ...]:
        from ullage_simulate.spot.plots import draw

        return draw(comparison, where)

    tell(
        table_of(comparison),
        comparison.notes,
        json_file,
        lambda: to_json(comparison, each=each),
        plot,
        pictures,
    )
