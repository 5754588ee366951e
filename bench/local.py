# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The local cluster with Ullage on it, for the time of a benchmark."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.report import FOLDER
from demo.cluster import LOCALCLUSTER, Devices, LocalCluster
from demo.install import NAMESPACE, install
from demo.progress import CommandFailed, Progress, ending_with_a_reason, run
from demo.start import start

QUIET: Final = 0.15
"""A busier machine measures its own load."""


@contextmanager
def installed(
    name: str, devices: Devices, *kinds: type[Exception], logs: Sequence[str] = ("operator",)
) -> Iterator[tuple[LocalCluster, Progress]]:
    """:func:`started`, with Ullage installed."""
    with started(name, devices, *kinds, logs=logs) as (local, steps):
        install(local, steps)
        yield local, steps


@contextmanager
def started(
    name: str, devices: Devices, *kinds: type[Exception], logs: Sequence[str] = ("operator",)
) -> Iterator[tuple[LocalCluster, Progress]]:
    """Bring the cluster up, with our images on its nodes; take it down whatever happens.

    Args:
        name: The benchmark; begins the names of the kept logs.
        devices: Of each node.
        kinds: Exceptions of the benchmark whose text is all that a user needs.
        logs: Components whose logs are kept in ``build/bench``.

    Raises:
        SystemExit: no root, another cluster that runs, or a step that failed; the reason was told.
    """
    if os.geteuid() != 0:
        raise SystemExit("the local cluster starts real kubelets and needs root")
    steps, local = Progress(), LocalCluster()
    with ending_with_a_reason():
        _refuse_another()
        if (busy := machine_busy()) > QUIET:
            steps.say(f"[yellow]the machine is {100 * busy:.0f} % busy: figures will show it[/]")
        try:
            with ending_with_a_reason(*kinds):
                start(local, devices, steps)
                yield local, steps
        finally:
            try:
                for component in logs:
                    _keep_log(local, component, FOLDER / f"{name}-{component}.log")
            finally:
                with steps.step("take the cluster down"):
                    local.down()


def _refuse_another() -> None:
    """A cluster that runs already is not ours to use or to take down."""
    state = json.loads(run(LOCALCLUSTER, "status", "--json"))["state"]
    if state != "stopped":
        raise CommandFailed(f"a local cluster is {state}: end it first with localcluster/run down")


def _keep_log(local: LocalCluster, component: str, file: Path) -> None:
    """Keep a component's log for those who want to know why; a dead cluster has none.

    What containers printed before a restart, and how they ended, stands in a file beside it.
    """
    words = ("--namespace", NAMESPACE, "--selector", f"app.kubernetes.io/component={component}")
    try:
        log = local.kubectl(
            "logs", *words, "--all-containers", "--prefix", "--tail=-1", check=False
        ).stdout
        pods = json.loads(local.kubectl("get", "pods", *words, "--output", "json").stdout)["items"]
        before = "".join(_ended(local, pod) for pod in pods)
    except (CommandFailed, OSError) as error:
        print(f"no log of {component}: {error}")
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(log, encoding="utf-8")
    file.with_suffix(".before.log").write_text(before, encoding="utf-8")


def _ended(local: LocalCluster, pod: dict[str, Any]) -> str:
    """How the containers of a pod ended that were restarted, and what they printed."""
    name, text = pod["metadata"]["name"], ""
    for one in pod.get("status", {}).get("containerStatuses", []):
        if one["restartCount"]:
            log = local.kubectl(
                "logs", name, "--namespace", NAMESPACE, "--container", one["name"], "--previous",
                check=False,
            ).stdout  # fmt: skip
            text += f"# {name} {one['name']}: {one['restartCount']} restarts, {one['lastState']}\n"
            text += log
    return text


def machine_busy(seconds: float = 3.0) -> float:
    """Part of all cores that is in use, 0 to 1."""
    first = _cpu_ticks()
    time.sleep(seconds)
    total, idle = (now - then for now, then in zip(_cpu_ticks(), first, strict=True))
    return 1 - idle / total if total else 0.0


def _cpu_ticks() -> tuple[int, int]:
    """All ticks of the machine since it started, and the idle ones of them."""
    words = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
    ticks = [int(word) for word in words]
    return sum(ticks), ticks[3] + ticks[4]
