# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A control plane with KWOK nodes for benchmarks, beside whatever cluster runs already."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from demo.cluster import LOCALCLUSTER, start_localcluster
from demo.images import ROOT
from demo.progress import CommandFailed, run

SLOTS_PER_NODE: Final = 64
HOME: Final = ROOT / "build" / "kwok"


@contextmanager
def kwok_cluster(
    nodes: int, *, scheduler_qps: int = 2000, pods_per_node: int = 110
) -> Iterator[Path]:
    """Start it, install our CRDs, yield the kubeconfig's path, take it down.

    What an earlier benchmark left there is removed first: objects of it would be measured, too.

    Raises:
        CommandFailed: it did not start, or another benchmark uses it.
    """
    environment = {"LOCALCLUSTER_HOME": str(HOME)}
    with _alone(HOME):
        run(LOCALCLUSTER, "down", env=environment)
        try:
            start_localcluster(
                "--nodes", "0", "--kwok", str(nodes),
                "--kwok-resource", f"ullage.dev/slot={SLOTS_PER_NODE}",
                "--kwok-resource", f"pods={pods_per_node}",
                "--label", "ullage.dev/node=true", "--scheduler-qps", str(scheduler_qps),
                home=HOME,
            )  # fmt: skip
            status = json.loads(run(LOCALCLUSTER, "status", "--json", env=environment))
            kubeconfig = Path(status["kubeconfig"])
            run(
                status["kubectl"], "--kubeconfig", str(kubeconfig), "apply", "--server-side",
                "--filename", str(ROOT / "crds"),
            )  # fmt: skip
            yield kubeconfig
        finally:
            run(LOCALCLUSTER, "down", env=environment)


def kubectl() -> str:
    """Path of the cluster's own kubectl.

    Raises:
        CommandFailed: the cluster does not run.
    """
    status = json.loads(run(LOCALCLUSTER, "status", "--json", env={"LOCALCLUSTER_HOME": str(HOME)}))
    return str(status["kubectl"])


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Keep other benchmarks from a cluster until this one ends, however it ends."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CommandFailed(f"another benchmark uses {home}: wait until it ends") from error
        yield
