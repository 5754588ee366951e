# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Access to the cluster, output and errors, shared by commands.

Commands import this when they run: it imports the client of the API server.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Final, TypeVar

import typer
from rich.console import RenderableType

from ullage.cli import kinds as kinds_of
from ullage.cli import profiles
from ullage.cli.look import look, look_as_allowed
from ullage.cli.printing import console as console
from ullage.cli.printing import fail as fail
from ullage.cli.printing import problems as problems
from ullage.cli.target import ClusterTarget
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.values.streams import (
    DEVICE_PROFILES,
    GPU_NODES,
    PODS,
    PROFILE_REQUESTS,
    SCHEDULING_POLICIES,
    WORKLOAD_PROFILES,
    Stream,
)
from ullage.kube.credentials import CredentialsError
from ullage.ports import ApiError, ClusterPort, Forbidden, NotFound

WATCH_S = 2.0
"""Seconds between two reads of ``--watch``."""

Answer = TypeVar("Answer")


def target_of(context: typer.Context) -> ClusterTarget:
    """The target named by options before the command."""
    target: ClusterTarget = context.obj
    return target


def namespace_of(context: typer.Context, stated: str) -> str:
    """The namespace of a command."""
    try:
        return target_of(context).namespace_or(stated)
    except CredentialsError as error:
        fail(str(error))


def name_of(given: str, *kinds: str) -> str:
    """The name in ``NAME``, or in ``KIND/NAME`` of one of these kinds."""
    try:
        return kinds_of.name_of(given, *kinds)
    except ValueError as error:
        fail(str(error))


def one_or_all(context: typer.Context, stated: str, everywhere: bool) -> str:
    """Namespace to read; "" = all namespaces."""
    if everywhere and (stated or target_of(context).namespace):
        fail("give a namespace with -n, or all of them with -A")
    return "" if everywhere else namespace_of(context, stated)


def shown(render: Callable[[], RenderableType], watch: bool) -> None:
    """Print it once; or each time that it changes, until the user interrupts it."""
    before = ""
    while True:
        with console.capture() as printed:
            console.print(render())
        if printed.get() != before:
            if before and console.is_terminal:
                console.clear()
            before = printed.get()
            sys.stdout.write(before)
            sys.stdout.flush()
        if not watch:
            return
        time.sleep(WATCH_S)


_WITHOUT: Final = {
    PODS.kind.kind: "without pods, and those that share devices by a label",
    GPU_NODES.kind.kind: "without what nodes observe of pods that share devices by a label",
    PROFILE_REQUESTS.kind.kind: "without findings of step traces",
    WORKLOAD_PROFILES.kind.kind: "without what is known of classes of work",
    SCHEDULING_POLICIES.kind.kind: "the tenant is the one that work names, else its namespace",
}


def allowed(context: typer.Context, wanted: list[Stream], optional: Collection[Stream]) -> Snapshot:
    """Read without streams that the user may not list; they are left out from now on."""
    seen, refused = answered(lambda: look_as_allowed(target_of(context), wanted, optional))
    say_left_out(refused)
    wanted[:] = [stream for stream in wanted if stream.kind.kind not in refused]
    return seen


def say_left_out(refused: Mapping[str, str]) -> None:
    """Name what is not read, from the API server's error by kind."""
    for kind, message in refused.items():
        problems.print(f"{_WITHOUT[kind]}: {message}", markup=False)


def known_accelerators(context: typer.Context) -> set[str] | None:
    """Accelerators of the cluster; ``None`` where the user may not list them."""

    async def looked() -> set[str] | None:
        try:
            return profiles.accelerators(
                await look(target_of(context), (GPU_NODES, DEVICE_PROFILES))
            )
        except Forbidden as error:
            problems.print(f"accelerators are not checked: {error.message}")
            return None

    return answered(looked)


def look_at(context: typer.Context, wanted: Sequence[Stream]) -> Snapshot:
    """Read these streams."""
    return answered(lambda: look(target_of(context), wanted))


def asked(
    context: typer.Context, ask: Callable[[ClusterPort], Coroutine[None, None, Answer]]
) -> Answer:
    """The API server's answer to this query."""

    async def asked() -> Answer:
        async with target_of(context).connect() as api:
            return await ask(api)

    return answered(asked)


def answered(ask: Callable[[], Coroutine[None, None, Answer]]) -> Answer:
    """The cluster's answer; a refusal ends the command with the reason."""
    try:
        return asyncio.run(ask())
    except NotFound:
        fail("this cluster does not know Ullage's kinds: install the chart ullage-crds")
    except Forbidden as error:
        fail(f"not allowed: {error.message}")
    except (ApiError, CredentialsError) as error:
        fail(str(error))
