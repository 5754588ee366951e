# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``ullage simulate --tuning``: end of a tuning job's trials by their widths."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from ullage.cli.comparing import figures_table, followed, tell
from ullage.cli.simulate_options import PlayOptions, Tuning

if TYPE_CHECKING:
    from ullage_simulate.tuning import TuningAnswer, TuningQuestion

_SHARE: Final = re.compile(r"1(?:/(?P<count>[0-9]{1,3}))?")


def question(tuning: Tuning, play: PlayOptions) -> TuningQuestion:
    """The inputs from the options.

    Raises:
        ValueError: an option is invalid; the text has the correction.
    """
    from ullage.engines.tuning.records import PlanRules
    from ullage.engines.tuning.speed_curves import Widths
    from ullage_simulate.tuning import (
        MOST_TRIALS,
        SYNTHETIC,
        TRIALS,
        TuningQuestion,
        drawn,
        read_trials,
    )

    match = _SHARE.fullmatch(tuning.min_share)
    if match is None:
        raise ValueError(f"--min-share {tuning.min_share!r}: write a unit share, as 1/4, or 1")
    widths = Widths(per_device=int(match["count"] or 1), devices=tuning.max_devices)
    cost_s = play.restart_cost or 0.0
    if tuning.tuning == SYNTHETIC:
        count = play.jobs or TRIALS
        if count > MOST_TRIALS:
            raise ValueError(f"--jobs {count}: at most {MOST_TRIALS:,} trials are drawn")
        facts = drawn(count, play.seed, widths, cost_s)
        names = tuple(f"trial {at + 1}" for at in range(count))
    else:
        facts, names = read_trials(Path(tuning.tuning), widths, cost_s)
    return TuningQuestion(
        name=Path(tuning.tuning).name,
        facts=facts,
        names=names,
        devices=tuning.devices,
        rules=PlanRules(widths=widths),
    )


def watched(asked: TuningQuestion, console: Console) -> TuningAnswer:
    """Simulate it, with a progress bar."""
    from ullage_simulate.tuning import answer

    return followed(partial(answer, asked), console)


def table_of(result: TuningAnswer) -> Table:
    """A line for each planner, the earliest end bold."""
    table = figures_table(
        f"{result.question.name}: {len(result.question.facts)} trials on"
        f" {result.question.devices} devices",
        f"x bound: over the simple bound; x best: over {result.fluid_s / 60:.1f} min,\n"
        "before which no schedule ends; used: of all device time",
        ("end min", "x bound", "x best", "resizes", "used"),
        first="widths",
    )
    best = min(outcome.played.makespan_s for outcome in result.outcomes)
    for outcome in result.outcomes:
        end_s = outcome.played.makespan_s
        table.add_row(
            outcome.planner,
            f"{end_s / 60:.1f}",
            f"{end_s / max(result.bound_s, 1e-9):.2f}",
            f"{end_s / max(result.fluid_s, 1e-9):.2f}",
            str(outcome.played.resizes),
            f"{100 * outcome.useful:.0f}%",
            style="bold" if end_s == best else "",
        )
    return table


def show(result: TuningAnswer, json_file: str, plot: str) -> None:
    """Print the table and write the requested files.

    Raises:
        NoPlotter: pictures were asked for and matplotlib is missing.
    """
    from ullage_simulate.tuning import to_json

    def pictures(where: Path) -> tuple[Path, ...]:
        from ullage_simulate.plots_tuning import draw

        return draw(result, where)

    tell(
        table_of(result),
        (),
        json_file,
        partial(to_json, result),
        plot,
        pictures,
    )
