# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Creation latency of pods without a label of ours, with and without our admission policies.

Blocks of creations, one after the other, on one API server with KWOK nodes: without, with, with,
without, and so on, so that what drifts weighs on both alike.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import yaml
from numpy.typing import NDArray

from bench.kwok import kubectl, kwok_cluster
from bench.limits import remove, template
from bench.progress import Progress
from demo.cluster import LOCALCLUSTER
from demo.first_install import Json
from demo.install import CHARTS, NAMESPACE, RELEASE
from demo.progress import CommandFailed, run
from ullage.kube.client import K8sCluster
from ullage.kube.credentials import find_credentials
from ullage.kube.transport import TransportLimits
from ullage.ports import POD, ClusterPort, Selector

Floats = NDArray[np.float64]

NODES: Final = 50
POLICIES: Final = ("AdmissionPolicy", "AdmissionPolicyBinding")
"""Ends the kinds that the chart installs for the API server."""
LABEL: Final = "bench"
SETTLE_S: Final = 2.0
LIMIT_S: Final = 60.0
LOOK_S: Final = 0.25
DRAWS: Final = 4000
PERCENTILE: Final = 99


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Latencies in seconds, shape (pairs, pods of a block); row i of both is one pair of blocks."""

    without: Floats
    installed: Floats

    def ratio(self, percentile: float = PERCENTILE) -> float:
        """Percentile of all pods with the policies over that of all without."""
        return _ratio(self.without, self.installed, percentile)

    def interval(self, draws: int = DRAWS, seed: int = 1) -> tuple[float, float]:
        """95 % interval of the ratio: pairs are drawn again with replacement (bootstrap)."""
        random = np.random.default_rng(seed)
        pairs = len(self.without)
        chosen = random.integers(0, pairs, (draws, pairs))
        return _middle([_ratio(self.without[rows], self.installed[rows]) for rows in chosen])

    def noise(self, draws: int = DRAWS, seed: int = 2) -> tuple[float, float]:
        """Where 95 % of the ratios are if the policies change nothing.

        The blocks of each pair change their names at random (permutation test).
        """
        random = np.random.default_rng(seed)
        swapped = random.integers(0, 2, (draws, len(self.without), 1)).astype(bool)
        return _middle(
            [
                _ratio(
                    np.where(swap, self.installed, self.without),
                    np.where(swap, self.without, self.installed),
                )
                for swap in swapped
            ]
        )


def _ratio(without: Floats, installed: Floats, percentile: float = PERCENTILE) -> float:
    return float(np.percentile(installed, percentile) / np.percentile(without, percentile))


def _middle(ratios: list[float]) -> tuple[float, float]:
    low, high = np.percentile(ratios, (2.5, 97.5))
    return float(low), float(high)


async def measure(pods: int, pairs: int) -> Paired:
    """Create so many pods with the policies and as many without.

    Args:
        pods: On each side, in ``pairs`` blocks.
        pairs: Of blocks.

    Raises:
        CommandFailed: the control plane did not start, or a policy did not begin or end to hold.
        ApiError: a pod was refused.
    """
    size = pods // pairs
    with kwok_cluster(NODES) as kubeconfig, Progress() as progress:
        policies = Policies(kubeconfig)
        limits = TransportLimits(write_s=30.0)
        credentials = await find_credentials(str(kubeconfig))
        async with K8sCluster(credentials, limits=limits, user_agent="bench") as cluster:
            task = progress.task("create pods", 2 * pods)
            await _block(cluster, "warm", size, progress)
            rows: dict[bool, list[list[float]]] = {False: [], True: []}
            for pair in range(pairs):
                for installed in (False, True) if pair % 2 == 0 else (True, False):
                    await policies.switch(installed)
                    name = f"pair-{pair:02d}-{'with' if installed else 'without'}"
                    rows[installed].append(await _block(cluster, name, size, progress))
                    task.advance(size)
            task.end()
    return Paired(without=np.array(rows[False]), installed=np.array(rows[True]))


async def _block(cluster: ClusterPort, name: str, size: int, progress: Progress) -> list[float]:
    """Seconds of each creation, one at a time; the pods go at the end."""
    took = []
    for number in range(size):
        meta = {"name": f"{name}-{number:04d}", "labels": {LABEL: name}}
        body = {"metadata": meta, "spec": template()["spec"]}
        started = time.perf_counter()
        await cluster.create(POD, body, namespace="default")
        took.append(time.perf_counter() - started)
    await remove(cluster, Selector(labels=f"{LABEL}={name}"), progress)
    return took


class Policies:
    """All admission policies of the chart, switched on and off on an API server."""

    def __init__(self, kubeconfig: Path) -> None:
        self._command = (kubectl(), "--kubeconfig", str(kubeconfig))
        self._bodies = json.dumps(
            {"apiVersion": "v1", "kind": "List", "items": rendered(kubeconfig)}
        )
        self._installed = False

    async def switch(self, installed: bool) -> None:
        """Install or remove them and wait until the API server acts so; then let it rest."""
        if installed != self._installed:
            words = ("apply", "--server-side") if installed else ("delete", "--wait")
            await asyncio.to_thread(run, *self._command, *words, "-f", "-", stdin=self._bodies)
            self._installed = installed
            await _until(lambda: asyncio.to_thread(self._held), installed)
        await asyncio.sleep(SETTLE_S)

    def _held(self) -> bool | None:
        """Whether they hold; None while some do and some do not."""
        adopted = '"ullage.dev/adopted"' in self._tried({"ullage.dev/share": "30"}).stdout
        refused = self._tried({"ullage.dev/managed": "true"}).returncode != 0
        return adopted if adopted == refused else None

    def _tried(self, labels: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """What the API server would do with a pod."""
        meta = {"name": "tried", "labels": labels}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template()["spec"]}
        words = ("create", "--dry-run=server", "--output", "json", "--filename", "-")
        return subprocess.run(
            [*self._command, *words],
            input=json.dumps(body), capture_output=True, text=True, check=False,
        )  # fmt: skip


async def _until(look: Callable[[], Awaitable[bool | None]], wanted: bool) -> None:
    deadline = time.monotonic() + LIMIT_S
    while await look() is not wanted:
        if time.monotonic() > deadline:
            raise CommandFailed(f"policies do not {'hold' if wanted else 'end'}")
        await asyncio.sleep(LOOK_S)


def rendered(kubeconfig: Path) -> list[Json]:
    """The admission policies of the chart for the API server of a kubeconfig, all switched on.

    Raises:
        CommandFailed: Helm refuses, or the API server serves no mutating policies.
    """
    built = run(LOCALCLUSTER, "build", "--tools", "helm").splitlines()
    helm = dict(line.split(maxsplit=1) for line in built)["helm"]
    text = run(
        helm, "template", RELEASE, str(CHARTS / "ullage"), "--namespace", NAMESPACE, "--validate",
        "--kubeconfig", str(kubeconfig), "--set", "admissionPolicy.templates.enabled=true",
    )  # fmt: skip
    bodies: list[Json] = [body for body in yaml.safe_load_all(text) if body]
    found = [body for body in bodies if body["kind"].endswith(POLICIES)]
    if not any(body["kind"].startswith("Mutating") for body in found):
        raise CommandFailed("the API server serves no MutatingAdmissionPolicy")
    return found
