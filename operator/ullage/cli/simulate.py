# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``ullage simulate``: the results of a policy on a trace, or on the jobs of a live cluster.

Reads files and, on request, a cluster; writes only the files named by options. The numerics are
imported when the command runs: other commands start without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from ullage.cli import (
    simulate_lanes,
    simulate_requests,
    simulate_spot,
    simulate_submit,
    simulate_tuning,
)
from ullage.cli.comparing import figures_table, followed, tell
from ullage.cli.simulate_options import (
    Inputs,
    Lanes,
    Live,
    OutputOptions,
    PlayOptions,
    Serving,
    SpotOptions,
    Tuning,
    of,
)

if TYPE_CHECKING:
    from ullage.cli.target import ClusterTarget
    from ullage.cluster.records.snapshot import Snapshot
    from ullage_simulate.comparison import ComparisonRequest, PolicyComparison


def answered(target: ClusterTarget, given: Mapping[str, object]) -> None:
    """Run the command of its options; an invalid one ends it with exit status 1.

    Args:
        target: The cluster, if one is requested.
        given: Options by the names of their fields.
    """
    inputs, play, spot = of(Inputs, given), of(PlayOptions, given), of(SpotOptions, given)
    live, output = of(Live, given), of(OutputOptions, given)
    problems = Console(stderr=True, highlight=False)
    try:
        if spot.spot:
            bought = simulate_spot.watched(simulate_spot.asked_for(inputs, play, spot), problems)
            simulate_spot.show(bought, output.json_file, output.plot, each=output.each)
            return
        serving = of(Serving, given)
        if serving.requests:
            served = simulate_requests.question(serving, play.seed)
            answer = simulate_requests.watched(served, problems)
            simulate_requests.show(answer, output.json_file, output.plot)
            return
        lanes = of(Lanes, given)
        if lanes.lanes:
            asked = simulate_lanes.question(lanes, play.jobs)
            shared = simulate_lanes.watched(asked, problems)
            simulate_lanes.show(shared, output.json_file, output.plot)
            return
        tuning = of(Tuning, given)
        if tuning.tuning:
            trials = simulate_tuning.question(tuning, play)
            ended = simulate_tuning.watched(trials, problems)
            simulate_tuning.show(ended, output.json_file, output.plot)
            return
        if live.submit:
            submitted = simulate_submit.submission(target, live.submit, live.snapshot)
            simulate_submit.show(submitted, output.json_file)
            return
        seen = _live(target) if live.from_cluster else _saved(live.snapshot)
        comparison = watched(asked_for(inputs, play, seen), problems)
        show(comparison, output.json_file, output.plot, each=output.each)
    except (ValueError, RuntimeError, OSError) as error:
        problems.print(f"error: {error}", style="red", markup=False)
        raise typer.Exit(code=1) from error


def asked_for(inputs: Inputs, play: PlayOptions, seen: Snapshot | None) -> ComparisonRequest:
    """The comparison of the options.

    Args:
        inputs: Work and devices.
        play: Policies, and how they are simulated.
        seen: A cluster to start from instead of a trace.
    """
    from ullage.cli.policy_file import policy_rules
    from ullage_simulate.comparison import PUBLISHED, ComparisonRequest

    return ComparisonRequest(
        trace=inputs.trace or PUBLISHED,
        form=inputs.form,
        speeds=inputs.speeds,
        select=inputs.select or (),
        cluster=inputs.cluster,
        prices=inputs.price or (),
        policies=play.policy or (),
        against=play.against or (),
        rules=policy_rules(play.policy_file) if play.policy_file else None,
        mode=play.mode,
        seed=play.seed,
        jobs=play.jobs,
        load=play.load,
        length=play.length,
        restart_s=play.restart_cost or 0.0,
        checkpoint_s=play.checkpoint_every or 0.0,
        failures_h=play.failures,
        repair_s=play.repair,
        round_s=play.round_seconds,
        packing=play.packing,
        snapshot=seen,
    )


def watched(asked: ComparisonRequest, console: Console) -> PolicyComparison:
    """Compare, with a progress bar for every policy.

    Raises:
        ValueError: the request is invalid; the text has the correction.
    """
    from ullage_simulate.comparison import compare

    return followed(partial(compare, asked), console)


def table_of(comparison: PolicyComparison) -> Table:
    """The figures of every policy, the best mean completion time in bold."""
    fleet = ", ".join(f"{count} {kind}" for kind, count in comparison.fleet.devices.items())
    priced = any(outcome.dollars > 0 for outcome in comparison.outcomes)
    broken = any(outcome.failures > 0 for outcome in comparison.outcomes)
    first = comparison.outcomes[0]
    numbers = ["mean h", "p99 h", f"x {first.policy}", "all h", "used", "rho", "stops"]
    table = figures_table(
        f"{comparison.trace.name}: {len(comparison.trace.jobs)} jobs on {fleet}",
        "mean, p99: arrival to end; all: the last end; rho: largest arrival to end\n"
        "over the time on an equal part of the cluster",
        (*numbers, *(("lost h",) if broken else ()), *(("$",) if priced else ())),
    )
    best = min(outcome.mean_jct_s for outcome in comparison.outcomes)
    for outcome in comparison.outcomes:
        figures = outcome.figures()
        row = [
            outcome.policy,
            f"{figures['mean_jct_h']:.2f}",
            f"{figures['p99_jct_h']:.2f}",
            f"{first.mean_jct_s / outcome.mean_jct_s:.2f}" if outcome.mean_jct_s > 0 else "",
            f"{figures['makespan_h']:.2f}",
            f"{100 * outcome.utilisation:.0f}%",
            f"{figures['rho_max']:.2f}",
            str(outcome.stops),
        ]
        row += [f"{figures['lost_device_h']:.1f}"] if broken else []
        row += [f"{outcome.dollars:.0f}"] if priced else []
        table.add_row(*row, style="bold" if outcome.mean_jct_s == best else "")
    return table


def show(comparison: PolicyComparison, json_file: str, plot: str, *, each: bool) -> None:
    """Print the table and write the requested files.

    Raises:
        NoPlotter: pictures were asked for and matplotlib is missing.
    """
    from ullage_simulate.comparison import to_json

    def pictures(where: Path) -> tuple[Path, ...]:
        from ullage_simulate.plots import draw

        return draw(comparison.outcomes, where, comparison.trace.name)

    tell(
        table_of(comparison),
        comparison.trace.notes,
        json_file,
        lambda: to_json(comparison, jobs=each),
        plot,
        pictures,
    )


def _saved(path: str) -> Snapshot | None:
    if not path:
        return None
    from ullage.app.replay import from_json

    return from_json(Path(path).read_bytes())[0]


def _live(target: ClusterTarget) -> Snapshot:
    """The cluster as seen by the operator, read with the user's own rights."""
    from ullage.cli.look import look
    from ullage.cluster.values.streams import STREAMS
    from ullage.kube.credentials import CredentialsError
    from ullage.ports import ApiError
    from ullage_simulate.trace import JobTraceError

    try:
        return asyncio.run(look(target, STREAMS))
    except (ApiError, CredentialsError) as error:
        raise JobTraceError(f"--from-cluster: {error}") from error
