# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``ullage simulate``: what a policy would make of a trace, or of the jobs of a live cluster.

Reads files and, when asked to, a cluster; writes only the files that it is told to. What computes
is imported when the command runs: the others start without it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from ullage.cli import simulate_spot
from ullage.cli.comparing import followed, tell

if TYPE_CHECKING:
    from ullage.simulate.comparison import Asked, Comparison
    from ullage.state.records import Snapshot


def command(
    context: typer.Context,
    trace: Annotated[
        str,
        typer.Option(
            help="gavel (96 jobs; the default), synthetic, or the path of a trace; with --spot:"
            " zones (drawn; the default), or a file, folder or pattern of SkyPilot's JSON."
        ),
    ] = "",
    form: Annotated[
        str, typer.Option("--format", help="Of a file: auto, gavel, philly, sia, alibaba, csv.")
    ] = "auto",
    speeds: Annotated[
        str, typer.Option(help="Table of speeds: Gavel's JSON, Sia's step times, or a CSV.")
    ] = "",
    select: Annotated[
        list[str] | None, typer.Option(help="COLUMN=VALUE: these lines of a file only.")
    ] = None,
    cluster: Annotated[
        str, typer.Option(help="Types and numbers, or the path of a table of nodes.")
    ] = "v100=8,p100=16,k80=24",
    price: Annotated[
        list[str] | None, typer.Option(help="TYPE=DOLLARS per hour of one device.")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="Policy beside the baselines; may be repeated.")
    ] = None,
    mode: Annotated[
        str, typer.Option(help="fast: bare rounds; decide: every decision is the operator's.")
    ] = "fast",
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    jobs: Annotated[
        int, typer.Option(min=0, help="The first jobs only; 0 = all. With --spot: starts, 0 = 40.")
    ] = 0,
    load: Annotated[float, typer.Option(help="Of a synthetic trace: part of the cluster.")] = 0.7,
    length: Annotated[float, typer.Option(help="Of a synthetic trace: factor of durations.")] = 1.0,
    restart_cost: Annotated[
        float | None, typer.Option(help="Seconds of every start; 0, with --spot 720.")
    ] = None,
    checkpoint_every: Annotated[
        float | None,
        typer.Option(
            help="Seconds between checkpoints, 0 = only when asked to stop; 0, with --spot 1800."
        ),
    ] = None,
    failures: Annotated[
        float, typer.Option(help="Mean hours between failures of one device; 0 = none.")
    ] = 0.0,
    repair: Annotated[float, typer.Option(help="Seconds until a failed device is back.")] = 1800.0,
    round_seconds: Annotated[float, typer.Option(help="Length of a round.")] = 360.0,
    packing: Annotated[
        bool, typer.Option(help="Jobs of one device may share it, at the table's speeds.")
    ] = False,
    spot: Annotated[
        bool, typer.Option("--spot", help="One job on spot pools: ways to buy, side by side.")
    ] = False,
    work: Annotated[float, typer.Option(help="With --spot: hours of work.")] = 48.0,
    deadline: Annotated[float, typer.Option(help="With --spot: hours to the deadline.")] = 60.0,
    replicas: Annotated[int, typer.Option(help="With --spot: instances of the job.")] = 4,
    min_replicas: Annotated[
        int, typer.Option(help="With --spot: fewest for cost-per-work; 0 = all of them.")
    ] = 0,
    notice: Annotated[
        float, typer.Option(help="With --spot: seconds of warning before a loss; 0 = none.")
    ] = 120.0,
    flush: Annotated[
        float, typer.Option(help="With --spot: seconds of a checkpoint on notice.")
    ] = 30.0,
    from_cluster: Annotated[
        bool, typer.Option(help="Start from the jobs and devices of the live cluster.")
    ] = False,
    snapshot: Annotated[
        str, typer.Option(help="Start from what /debug/snapshot of the operator gave.")
    ] = "",
    json_file: Annotated[str, typer.Option("--json", help="Write the figures; - = stdout.")] = "",
    each: Annotated[bool, typer.Option(help="Every job in the JSON, too.")] = False,
    plot: Annotated[str, typer.Option(help="Folder for pictures (PNG).")] = "",
) -> None:
    """Try policies on a trace, or on the jobs of this cluster, before switching one on."""
    from ullage.simulate.comparison import PUBLISHED, Asked
    from ullage.simulate.spot.comparison import DRAWN, POLICIES, STARTS
    from ullage.simulate.spot.comparison import Asked as SpotAsked

    problems = Console(stderr=True, highlight=False)
    folder = Path(plot) if plot else None
    try:
        if spot:
            bought = simulate_spot.watched(
                SpotAsked(
                    trace=trace or DRAWN,
                    select=select or (),
                    prices=price or (),
                    policies=policy or POLICIES,
                    seed=seed,
                    starts=jobs or STARTS,
                    work_h=work,
                    deadline_h=deadline,
                    replicas=replicas,
                    min_replicas=min_replicas,
                    restart_s=720.0 if restart_cost is None else restart_cost,
                    checkpoint_s=1800.0 if checkpoint_every is None else checkpoint_every,
                    notice_s=notice,
                    flush_s=flush,
                ),
                problems,
            )
            simulate_spot.show(bought, json_file, folder, each=each)
            return
        seen = _live(str(context.obj)) if from_cluster else _saved(snapshot)
        found = watched(
            Asked(
                trace=trace or PUBLISHED,
                form=form,
                speeds=speeds,
                select=select or (),
                cluster=cluster,
                prices=price or (),
                policies=policy or ("las",),
                mode=mode,
                seed=seed,
                jobs=jobs,
                load=load,
                length=length,
                restart_s=restart_cost or 0.0,
                checkpoint_s=checkpoint_every or 0.0,
                failures_h=failures,
                repair_s=repair,
                round_s=round_seconds,
                packing=packing,
                snapshot=seen,
            ),
            problems,
        )
        show(found, json_file, folder, each=each)
    except (ValueError, RuntimeError, OSError) as error:
        problems.print(f"error: {error}", style="red", markup=False)
        raise typer.Exit(code=1) from error


def watched(asked: Asked, console: Console) -> Comparison:
    """Compare, with a progress bar for every policy.

    Raises:
        ValueError: what was asked for makes no sense; the text says what to mend.
    """
    from ullage.simulate.comparison import compare

    return followed(partial(compare, asked), console)


def table_of(found: Comparison) -> Table:
    """The figures of every policy, the best mean completion time in bold."""
    fleet = ", ".join(f"{count} {kind}" for kind, count in found.fleet.devices.items())
    priced = any(one.dollars > 0 for one in found.outcomes)
    broken = any(one.failures > 0 for one in found.outcomes)
    table = Table(
        title=f"{found.trace.name}: {len(found.trace.jobs)} jobs on {fleet}",
        caption=(
            "mean, p99: arrival to end; all: the last end; rho: largest arrival to end\n"
            "over the time on an equal part of the cluster"
        ),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
    )
    table.add_column("policy", no_wrap=True)
    numbers = ["mean h", "p99 h", "x fifo", "all h", "used", "rho", "stops"]
    for name in (*numbers, *(("lost h",) if broken else ()), *(("$",) if priced else ())):
        table.add_column(name, justify="right", no_wrap=True)
    base = found.outcomes[0].mean_jct_s
    best = min(one.mean_jct_s for one in found.outcomes)
    for one in found.outcomes:
        figures = one.figures()
        row = [
            one.policy,
            f"{figures['mean_jct_h']:.2f}",
            f"{figures['p99_jct_h']:.2f}",
            f"{base / one.mean_jct_s:.2f}" if one.mean_jct_s > 0 else "",
            f"{figures['makespan_h']:.2f}",
            f"{100 * one.utilisation:.0f}%",
            f"{figures['rho_max']:.2f}",
            str(one.stops),
        ]
        row += [f"{figures['lost_device_h']:.1f}"] if broken else []
        row += [f"{one.dollars:.0f}"] if priced else []
        table.add_row(*row, style="bold" if one.mean_jct_s == best else "")
    return table


def show(found: Comparison, json_file: str, folder: Path | None, *, each: bool) -> None:
    """Print the table and write what was asked for.

    Raises:
        NoPlotter: pictures were asked for and matplotlib is missing.
    """
    from ullage.simulate.comparison import to_json

    def pictures() -> tuple[Path, ...]:
        from ullage.simulate.plots import draw

        assert folder is not None
        return draw(found.outcomes, folder, found.trace.name)

    tell(
        table_of(found),
        found.trace.notes,
        json_file,
        lambda: to_json(found, jobs=each),
        pictures if folder is not None else None,
    )


def _saved(path: str) -> Snapshot | None:
    if not path:
        return None
    from ullage.app.replay import from_json

    return from_json(Path(path).read_bytes())[0]


def _live(kubeconfig: str) -> Snapshot:
    """The cluster as the operator sees it, read with the user's own rights."""
    from ullage.adapters.credentials import CredentialsError
    from ullage.cli.look import look
    from ullage.ports import ApiError
    from ullage.simulate.trace import TraceError
    from ullage.state.streams import STREAMS

    try:
        return asyncio.run(look(kubeconfig, STREAMS))
    except (ApiError, CredentialsError) as error:
        raise TraceError(f"--from-cluster: {error}") from error
