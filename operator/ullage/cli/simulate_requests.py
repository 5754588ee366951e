# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``ullage simulate --requests``: which share and how many replicas a service needs for a load."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.table import Table

from ullage.cli.comparing import figures_table, followed, tell
from ullage.cli.simulate_options import Serving

if TYPE_CHECKING:
    from ullage.engines.scaling.configurations import Configuration
    from ullage.engines.scaling.pooled_queue import LatencyTarget
    from ullage_simulate.serving import ServingAnswer, ServingQuestion

WHOLE: Final = 100
P99: Final = 0.99
_NUMBER: Final = r"[0-9]{1,9}(?:\.[0-9]{1,6})?"
_REPLICA: Final = re.compile(
    r"(?P<accelerator>[a-z0-9][a-z0-9.-]{0,62}):(?P<share>[0-9]{1,3})"
    rf"=(?P<mean>{_NUMBER})ms(?:,p99=(?P<p99>{_NUMBER})ms)?(?:,price=(?P<price>{_NUMBER}))?"
)
_OBJECTIVE: Final = re.compile(r"p(?P<percent>[0-9]{2}(?:\.[0-9]{1,3})?)<=(?P<ms>[0-9]{1,7})ms")
LEAST_PERCENT: Final = 51


def question(serving: Serving, seed: int) -> ServingQuestion:
    """The inputs from the options.

    Raises:
        ValueError: an option is invalid; the text has the correction.
    """
    from ullage_simulate.request_trace import arrivals
    from ullage_simulate.serving import ServingQuestion

    if not serving.slo or not serving.replica:
        raise ValueError(
            "--requests needs --slo, as p99<=250ms, and a --replica, as h100:50=40ms,p99=90ms"
        )
    target = target_of(serving.slo)
    return ServingQuestion(
        name=Path(serving.requests).name,
        arrival_s=arrivals(Path(serving.requests)),
        target=target,
        replicas=tuple(replica_of(text) for text in serving.replica),
        launch_s=serving.launch,
        season_s=serving.season * 3600,
        seed=seed,
    )


def target_of(text: str) -> LatencyTarget:
    """Parse ``p99<=250ms``.

    Raises:
        ValueError: it has another form.
    """
    from ullage.engines.scaling.pooled_queue import LatencyTarget

    match = _OBJECTIVE.fullmatch(text)
    if match is None or float(match["percent"]) < LEAST_PERCENT or int(match["ms"]) < 1:
        raise ValueError(
            f"--slo {text!r}: write a percentile from {LEAST_PERCENT} and a limit, as p99<=250ms"
        )
    return LatencyTarget(limit_s=int(match["ms"]) / 1e3, quantile=float(match["percent"]) / WHOLE)


def replica_of(text: str) -> Configuration:
    """Parse ``ACCELERATOR:SHARE=MEANms[,p99=MSms][,price=DOLLARS]``.

    Raises:
        ValueError: it has another form.
    """
    from ullage.engines.scaling.configurations import Configuration
    from ullage.engines.scaling.service_times import service_time

    match = _REPLICA.fullmatch(text)
    if match is None or not 1 <= int(match["share"]) <= WHOLE:
        raise ValueError(
            f"--replica {text!r}: write ACCELERATOR:SHARE=MEANms, as h100:50=40ms,p99=90ms"
        )
    mean_s = float(match["mean"]) / 1e3
    p99_s = float(match["p99"]) / 1e3 if match["p99"] else mean_s
    if not 0 < mean_s <= p99_s:
        raise ValueError(f"--replica {text!r}: the mean is above 0 and not above the p99")
    return Configuration(
        accelerator=match["accelerator"],
        share_percent=int(match["share"]),
        service=service_time(mean_s, p99_s, P99),
        cost=float(match["price"]) if match["price"] else 0.0,
    )


def watched(asked: ServingQuestion, console: Console) -> ServingAnswer:
    """Simulate it, with a progress bar."""
    from ullage_simulate.serving import answer

    return followed(partial(answer, asked), console)


def table_of(result: ServingAnswer) -> Table:
    """A line for each configuration and way, the best one bold."""
    asked = result.question
    priced = any(outcome.configuration.cost > 0 for outcome in result.outcomes)
    table = figures_table(
        f"{asked.name}: {asked.arrival_s.size:,} requests, p{asked.target.quantile * WHOLE:g}"
        f" within {asked.target.limit_s * 1e3:g} ms",
        "kept: requests within the limit; replicas: mean and most; device h: a share counts as its"
        " part",
        ("kept", "replicas", "most", "device h", *(("$",) if priced else ())),
        first="replica",
    )
    for outcome in result.outcomes:
        kept = outcome.attainment >= asked.target.quantile
        row = [
            outcome.name,
            f"{outcome.attainment:.2%}",
            f"{outcome.mean:.1f}",
            str(outcome.most),
            f"{outcome.device_s / 3600:.1f}",
            *((f"{outcome.dollars:.2f}",) if priced else ()),
        ]
        table.add_row(*row, style="bold" if outcome is result.best else "" if kept else "red")
    return table


def show(result: ServingAnswer, json_file: str, plot: str) -> None:
    """Print the table and write the requested files.

    Raises:
        NoPlotter: pictures were asked for and matplotlib is missing.
    """
    from ullage_simulate.serving import to_json

    def pictures(where: Path) -> tuple[Path, ...]:
        from ullage_simulate.plots_serving import draw

        return draw(result, where)

    notes = () if result.best is not None else ("no configuration keeps the objective",)
    tell(
        table_of(result),
        notes,
        json_file,
        partial(to_json, result),
        plot,
        pictures,
    )
