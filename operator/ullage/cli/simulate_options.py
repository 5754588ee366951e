# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The options of ``ullage simulate``, in groups that belong together.

They only say what may be asked for, in the order of ``--help``; what they mean is said where they
are used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar, get_type_hints

import typer

from ullage.cli.forms import PLOT

Group = TypeVar("Group")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Work and devices."""

    trace: Annotated[
        str,
        typer.Option(
            help="gavel (96 jobs; the default), synthetic, or the path of a trace; with --spot:"
            " zones (drawn; the default), or a file, folder or pattern of SkyPilot's JSON."
        ),
    ] = ""
    form: Annotated[
        str,
        typer.Option("--format", help="Of a file: auto, gavel, philly, sia, alibaba, openb, csv."),
    ] = "auto"
    speeds: Annotated[
        str, typer.Option(help="Table of speeds: Gavel's JSON, Sia's step times, or a CSV.")
    ] = ""
    select: Annotated[
        list[str] | None, typer.Option(help="COLUMN=VALUE: these lines of a file only.")
    ] = None
    cluster: Annotated[
        str, typer.Option(help="Types and numbers, or the path of a table of nodes.")
    ] = "v100=8,p100=16,k80=24"
    price: Annotated[
        list[str] | None, typer.Option(help="TYPE=DOLLARS per hour of one device.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayOptions:
    """Policies, and how they are played."""

    policy: Annotated[
        list[str] | None, typer.Option(help="Policy beside the baselines; may be repeated.")
    ] = None
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Baseline to compare with, instead of all; may be repeated; none = none."
        ),
    ] = None
    mode: Annotated[
        str, typer.Option(help="fast: bare rounds; decide: every decision is the operator's.")
    ] = "fast"
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0
    jobs: Annotated[
        int,
        typer.Option(
            min=0,
            help="The first jobs only; 0 = all. With --spot: starts, 0 = 40; with"
            " --tuning synthetic: trials, 0 = 81.",
        ),
    ] = 0
    load: Annotated[float, typer.Option(help="Of a synthetic trace: part of the cluster.")] = 0.7
    length: Annotated[float, typer.Option(help="Of a synthetic trace: factor of durations.")] = 1.0
    restart_cost: Annotated[
        float | None, typer.Option(help="Seconds of every start; 0, with --spot 720.")
    ] = None
    checkpoint_every: Annotated[
        float | None,
        typer.Option(
            help="Seconds between checkpoints, 0 = only when asked to stop; 0, with --spot 1800."
        ),
    ] = None
    failures: Annotated[
        float, typer.Option(help="Mean hours between failures of one device; 0 = none.")
    ] = 0.0
    repair: Annotated[float, typer.Option(help="Seconds until a failed device is back.")] = 1800.0
    policy_file: Annotated[
        str,
        typer.Option(help="SchedulingPolicy (YAML) whose objective, tenants and rounds hold."),
    ] = ""
    round_seconds: Annotated[
        float | None, typer.Option(help="Length of a round; that of the policy, else 360.")
    ] = None
    packing: Annotated[
        bool, typer.Option(help="Jobs of one device may share it, at the table's speeds.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotOptions:
    """One job on spot pools."""

    spot: Annotated[
        bool, typer.Option("--spot", help="One job on spot pools: ways to buy, side by side.")
    ] = False
    work: Annotated[float, typer.Option(help="With --spot: hours of work.")] = 48.0
    deadline: Annotated[float, typer.Option(help="With --spot: hours to the deadline.")] = 60.0
    replicas: Annotated[int, typer.Option(help="With --spot: instances of the job.")] = 4
    min_replicas: Annotated[
        int, typer.Option(help="With --spot: fewest for cost-per-work; 0 = all of them.")
    ] = 0
    notice: Annotated[
        float, typer.Option(help="With --spot: seconds of warning before a loss; 0 = none.")
    ] = 120.0
    flush: Annotated[
        float, typer.Option(help="With --spot: seconds of a checkpoint on notice.")
    ] = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A service under a load."""

    requests: Annotated[
        str,
        typer.Option(
            help="Table of request times (arrival_s, or timestamp): which share and how many"
            " replicas keep --slo."
        ),
    ] = ""
    slo: Annotated[str, typer.Option(help="With --requests: percentile and limit, p99<=250ms.")] = (
        ""
    )
    replica: Annotated[
        list[str] | None,
        typer.Option(
            help="With --requests: ACCELERATOR:SHARE=MEANms[,p99=MSms][,price=DOLLARS], its service"
            " time there and the price of a whole device for an hour; may be repeated."
        ),
    ] = None
    launch: Annotated[
        float, typer.Option(min=0, max=86400, help="With --requests: seconds until one serves.")
    ] = 45.0
    season: Annotated[
        float, typer.Option(min=0, max=720, help="With --requests: hours of a season; 0 = none.")
    ] = 24.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """Jobs that share one device by lanes."""

    lanes: Annotated[
        str,
        typer.Option(
            help="Table of jobs (arrival_s, persistent_mib, ephemeral_mib, duration_s; name,"
            " step_s, duty) on one device, by packing and by lanes under every policy."
        ),
    ] = ""
    memory: Annotated[
        float, typer.Option(min=0.1, max=10_000, help="With --lanes: GiB of the device.")
    ] = 80.0
    slowdown: Annotated[
        float,
        typer.Option(
            min=0, max=10, help="With --lanes: how much longer a step takes for each other lane."
        ),
    ] = 0.1
    aim: Annotated[
        str,
        typer.Option(
            help="With --lanes: Residents (the most jobs on the device), Throughput (jobs share a"
            " lane only where it has time for them) or RulesAlone (lanes never merge)."
        ),
    ] = "Residents"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Trials of a tuning job."""

    tuning: Annotated[
        str,
        typer.Option(
            help="Table of trials (work_s), or synthetic: how soon they end, each on a part of a"
            " device, one, or several."
        ),
    ] = ""
    devices: Annotated[
        int, typer.Option(min=1, max=1024, help="With --tuning: devices of the pool.")
    ] = 8
    min_share: Annotated[
        str, typer.Option(help="With --tuning: the least part of a device, as 1/4.")
    ] = "1/4"
    max_devices: Annotated[
        int, typer.Option(min=1, max=64, help="With --tuning: the most devices of a trial.")
    ] = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A cluster to start from."""

    submit: Annotated[
        str,
        typer.Option(
            help="Manifest of a TrainingJob, - = stdin: what the operator would do if it were"
            " submitted to the cluster now."
        ),
    ] = ""
    from_cluster: Annotated[
        bool, typer.Option(help="Start from the jobs and devices of the live cluster.")
    ] = False
    snapshot: Annotated[
        str, typer.Option(help="Start from what /debug/snapshot of the operator gave.")
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Places of figures and pictures."""

    json_file: Annotated[str, typer.Option("--json", help="Write the figures; - = stdout.")] = ""
    each: Annotated[bool, typer.Option(help="Every job in the JSON, too.")] = False
    plot: Annotated[str, typer.Option(help=PLOT)] = ""


def takes(*groups: type[object]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command, after what it takes itself, the options of the groups in their order."""

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        parameters = [
            parameter.replace(annotation=hints[parameter.name])
            for parameter in inspect.signature(command).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        for group in groups:
            of_group = get_type_hints(group, include_extras=True)
            parameters += [
                parameter.replace(annotation=of_group[parameter.name])
                for parameter in inspect.signature(group).parameters.values()
            ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorated


def of(group: type[Group], given: Mapping[str, object]) -> Group:
    """A group from what a command was given."""
    made: Callable[..., Group] = group
    names = inspect.signature(group).parameters
    return made(**{name: given[name] for name in names})
