# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage``: what runs, why something waits, who shares which device. Reads only."""

from __future__ import annotations

import asyncio
import difflib
import os
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from ullage.adapters.credentials import CredentialsError
from ullage.api.reasons import Reason
from ullage.cli import tables
from ullage.cli.look import WORKLOADS, inside, look, workloads
from ullage.ports import ApiError, Forbidden, NotFound
from ullage.state.records import Snapshot
from ullage.state.streams import GPU_NODES, PODS, Stream

app = typer.Typer(
    name="kubectl ullage",
    help="What shares your GPUs, and why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console(highlight=False)
problems = Console(stderr=True, highlight=False)

Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="Namespace; all of them when absent.")
]


@app.callback(invoke_without_command=True)
def configure(
    context: typer.Context,
    kubeconfig: Annotated[
        str, typer.Option(help="Path of a kubeconfig.", envvar="KUBECONFIG")
    ] = "",
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Read what holds for every command."""
    if show_version:
        console.print(version("ullage"))
        raise typer.Exit
    context.obj = kubeconfig or os.path.expanduser("~/.kube/config")


@app.command()
def status(context: typer.Context, namespace: Namespace = "") -> None:
    """Every workload in one line: phase, reason, place, share, predicted and observed slowdown."""
    seen = _look(context, inside(WORKLOADS, namespace))
    console.print(tables.overview(workloads(seen), time.time()))


@app.command()
def why(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of a TrainingJob or InferenceService.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace.")] = "default",
) -> None:
    """Why a workload is where it is, or waits; what binds, by how much, and what would help."""
    seen = _look(context, inside(WORKLOADS, namespace, name))
    found = workloads(seen)
    if not found:
        _fail(f"no TrainingJob or InferenceService {name} in namespace {namespace}")
    for workload in found:
        console.print(tables.why(workload))


@app.command()
def top(context: typer.Context) -> None:
    """Every device and its tenants: percent, memory, phase, predicted and observed slowdown."""
    seen = _look(context, (GPU_NODES, PODS, *WORKLOADS))
    console.print(tables.top(seen, time.time()))


@app.command()
def explain(
    reason: Annotated[str, typer.Argument(help="A reason or condition, as it stands in a status.")],
) -> None:
    """What a reason or a condition means, and what to do about it."""
    said = tables.explanation(reason)
    if said is None:
        words = [item.value for item in Reason]
        near = difflib.get_close_matches(reason, words, n=3, cutoff=0.4)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        _fail(f"no reason or condition {reason!r}{hint}")
    console.print(said)


def _look(context: typer.Context, wanted: Sequence[Stream]) -> Snapshot:
    try:
        return asyncio.run(look(str(context.obj), wanted))
    except NotFound:
        _fail("this cluster does not know Ullage's kinds: install the chart ullage-crds")
    except Forbidden as error:
        _fail(f"not allowed: {error.message}")
    except (ApiError, CredentialsError) as error:
        _fail(str(error))


def _fail(text: str) -> NoReturn:
    problems.print(f"error: {text}", style="red")
    raise typer.Exit(code=1)


def run() -> None:
    """Entry point of ``ullage`` and ``kubectl-ullage``."""
    app()


if __name__ == "__main__":
    run()
