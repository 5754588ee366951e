# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Fills 500 KWOK nodes with 8 devices each: 4,000 TrainingJobs from first create to last Running.

Beside it, measured in the same run, the limits of the pipeline itself. ``python -m bench.fill``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.kwok import kubectl, kwok_cluster
from bench.limits import for_each, job, limit_bare, limit_same_objects, until_running
from bench.progress import Progress
from bench.report import ROOT, Row, write
from bench.request_counts import Counts, counted, rows_of
from demo.progress import CommandFailed, ending_with_a_reason
from ullage.api.readers import objects, section, text
from ullage.cluster.values.streams import PODS
from ullage.kube.client import K8sCluster
from ullage.kube.credentials import find_credentials
from ullage.kube.transport import TransportLimits
from ullage.ports import GPU_NODE, TRAINING_JOB, ApiError, ClusterPort, JsonObject, Kind, Selector

PORT = 18080
DEVICES_PER_NODE = 8
WARM_UP = 200
KAI_JOBS_PER_S = 10.1
"""KAI's own scale test: 4,000 single-GPU jobs on 500 KWOK nodes in 6 m 38 s."""
LOOK_S = 1.0
"""How often it is looked whether a process still lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a process and its children used so far."""

    cpu_s: float
    rss_mib: float


def usage(pid: int) -> Usage:
    """CPU seconds and peak memory of a process tree, from /proc."""
    ticks = os.sysconf("SC_CLK_TCK")
    cpu = rss = 0.0
    for member in (pid, *_children(pid)):
        folder = Path("/proc") / str(member)
        fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        cpu += sum(map(int, fields[11:15])) / ticks
        lines = (folder / "status").read_text().splitlines()
        peak = next((line for line in lines if line.startswith("VmHWM")), "VmHWM 0")
        rss += int(peak.split()[1]) / 1024
    return Usage(cpu_s=cpu, rss_mib=rss)


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    direct = [int(word) for word in text.split()]
    return direct + [child for one in direct for child in _children(one)]


@contextmanager
def process(
    *command: str, env: dict[str, str] | None = None, log: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A process for the time of the benchmark; its output goes to a file under build/bench."""
    folder = ROOT / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{log}.log").open("w") as output:
        child = subprocess.Popen(
            command, env={**os.environ, **(env or {})}, stdout=output, stderr=output
        )
        try:
            yield child
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(timeout=30)


async def while_alive(
    what: str, child: subprocess.Popen[bytes], work: Coroutine[None, None, None]
) -> None:
    """Do something that cannot end well without a process.

    Raises:
        CommandFailed: the process ended first.
    """
    doing = asyncio.create_task(work)
    while not (await asyncio.wait({doing}, timeout=LOOK_S))[0]:
        if child.poll() is not None:
            doing.cancel()
            await asyncio.wait({doing})
            raise CommandFailed(f"{what} ended with {child.returncode}; see build/bench/*.log")
    await doing


async def _devices_reported(cluster: ClusterPort, nodes: int) -> None:
    """Wait until every GPUNode exists and its agent has spoken."""
    deadline = time.monotonic() + 180
    while True:
        known = 0
        async for page in cluster.list_paged(GPU_NODE, Selector()):
            known += sum(bool(objects(section(n, "status"), "devices")) for n in page.items)
        if known >= nodes:
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"only {known} of {nodes} nodes reported; see build/bench/*.log")
        await asyncio.sleep(1.0)


async def _all_told(cluster: ClusterPort, count: int) -> None:
    """Wait until the status of every job says that it runs."""
    while True:
        told = 0
        async for page in cluster.list_paged(TRAINING_JOB, Selector()):
            told += sum(text(section(j, "status"), "phase", "") == "Running" for j in page.items)
        if told >= count:
            return
        await asyncio.sleep(1.0)


async def _all_looked_at(cluster: ClusterPort, kind: Kind) -> None:
    """Wait until every object of a kind has a status."""
    while True:
        async for page in cluster.list_paged(kind, Selector()):
            if not all(section(item, "status") for item in page.items):
                break
        else:
            return
        await asyncio.sleep(1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """One fill by the operator."""

    seconds: float
    """From the first create to the last pod that runs."""
    told_s: float
    """From the first create until every job's status says so."""
    used: Usage
    """By the operator until the last pod ran."""
    rss_later_mib: float
    """Peak memory of the operator when it has looked at what came later, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A checkout whose operator fills, and objects that come when all jobs run."""

    source: Path = ROOT
    later: Sequence[tuple[Kind, JsonObject]] = ()


async def fill_ours(
    cluster: ClusterPort,
    kubeconfig: Path,
    nodes: int,
    count: int,
    progress: Progress,
    beside: Beside = Beside(),
) -> Filled:
    """Let the operator fill the cluster."""
    settings = {
        "ULLAGE_KUBECONFIG": str(kubeconfig),
        "ULLAGE_LEASE_NAMESPACE": "default",
        "ULLAGE_WRITE_PER_SECOND": "1000",
        "ULLAGE_WRITE_IN_FLIGHT": "100",
        "ULLAGE_HTTP_PORT": str(PORT),
        "PYTHONPATH": str(beside.source / "operator"),
    }
    operator = (sys.executable, "-m", "ullage.app.main", "run")
    agents = (sys.executable, "-m", "bench.fleet", str(kubeconfig), str(DEVICES_PER_NODE))
    with process(*operator, env=settings, log="operator") as child, process(*agents, log="fleet"):
        await while_alive("the operator", child, _devices_reported(cluster, nodes))
        before = usage(child.pid)
        started = time.monotonic()

        async def one(number: int) -> None:
            await cluster.create(TRAINING_JOB, job(f"fill-{number:05d}"), namespace="default")

        async def fill() -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(for_each(count, one))
                tasks.create_task(until_running(cluster, PODS.selector, count, progress, "ours"))

        await while_alive("the operator", child, fill())
        seconds = time.monotonic() - started
        after = usage(child.pid)
        await while_alive("the operator", child, _all_told(cluster, count))
        told_s = time.monotonic() - started
        for kind, item in beside.later:
            await cluster.create(kind, item, namespace="default")
        for kind in {kind for kind, _ in beside.later}:
            await while_alive("the operator", child, _all_looked_at(cluster, kind))
        later = usage(child.pid)
    used = Usage(cpu_s=after.cpu_s - before.cpu_s, rss_mib=after.rss_mib)
    return Filled(seconds=seconds, told_s=told_s, used=used, rss_later_mib=later.rss_mib)


async def measure(nodes: int, count: int) -> tuple[dict[str, float], list[Row]]:
    """Run both limits and ours on one cluster; figures, and what a job costs the API server."""

    async def counts(kubeconfig: Path) -> Counts:
        return await asyncio.to_thread(counted, kubectl(), kubeconfig)

    with kwok_cluster(nodes) as kubeconfig, Progress() as progress:
        credentials = await find_credentials(str(kubeconfig))
        patient = TransportLimits(
            write_s=30.0
        )  # on a busy machine a late answer is part of the figure
        async with K8sCluster(credentials, limits=patient, user_agent="bench") as cluster:
            await limit_bare(cluster, nodes, WARM_UP, progress, "warm")  # connections, caches
            bare = await limit_bare(cluster, nodes, count, progress)
            marks = [await counts(kubeconfig)]
            same = await limit_same_objects(cluster, nodes, count, progress)
            marks.append(await counts(kubeconfig))
            load = os.getloadavg()[0]
            ours = await fill_ours(cluster, kubeconfig, nodes, count, progress)
            marks.append(await counts(kubeconfig))
    figures = {
        "jobs": count,
        "seconds": round(ours.seconds, 2),
        "told_seconds": round(ours.told_s, 2),
        "jobs_per_s": round(count / ours.seconds, 2),
        "limit_seconds": round(bare, 2),
        "limit_same_objects_seconds": round(same, 2),
        "ratio_to_limit": round(ours.seconds / same, 3),
        "cpu_s": round(ours.used.cpu_s, 2),
        "rss_mib": round(ours.used.rss_mib, 1),
        "load_before": round(load, 2),
    }
    return figures, rows_of(marks[2].since(marks[1]), marks[1].since(marks[0]), count)


def main() -> None:
    """Measure, print one table, write build/bench/fill.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=4000)
    options = parser.parse_args()
    with ending_with_a_reason(ApiError):
        figures, requests = asyncio.run(measure(options.nodes, options.jobs))
    rows = [
        Row(
            what=f"fill {options.jobs} devices, seconds",
            ours=f"{figures['seconds']:.1f}",
            baseline=f"{options.jobs / KAI_JOBS_PER_S:.0f} (KAI, published, larger machines)",
            limit=f"{figures['limit_seconds']:.1f} bare pods, "
            f"{figures['limit_same_objects_seconds']:.1f} same objects",
        ),
        Row(
            what="jobs a second",
            ours=f"{figures['jobs_per_s']:.1f}",
            baseline=f"{KAI_JOBS_PER_S} (KAI)",
            limit=f"{options.jobs / figures['limit_same_objects_seconds']:.1f} same objects",
        ),
        Row(what="until every status says Running, seconds", ours=f"{figures['told_seconds']:.1f}"),
        Row(what="operator, CPU seconds", ours=f"{figures['cpu_s']:.1f}"),
        Row(what="operator, peak RSS MiB (with solver)", ours=f"{figures['rss_mib']:.0f}"),
    ]
    write("fill", figures, [*rows, *requests])


if __name__ == "__main__":
    main()
