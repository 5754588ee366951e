# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How time and memory of decisions grow from 1,000 to 5,000 nodes, ten jobs for each node.

Each size has processes of its own: one that holds the cluster as the operator does, and the
operator's solver, which decides. Jobs end and come between decisions, as many at every size. Then
20,000 adopted pods that never change, and nodes for them, are put beside the jobs of the smallest
size: what a decision costs with them and without. ``--nodes`` chooses sizes, ``--adopted 0`` leaves
the pods out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from bench.agent import usage
from bench.decide import CHURN, Bench, quantile
from bench.decide_world import World, a_mixture, add_profiles
from bench.progress import Progress
from bench.report import Figure, Row, judge, write
from ullage.api.devices import GPUMode
from ullage.api.gpurequest import GPURequest, Share
from ullage.api.labels import GATE
from ullage.app.memory import freeze_survivors
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.workload import AdoptedMember, WorkloadKind

SIZES: Final = (1000, 2000, 3500, 5000)
DEVICES: Final = 8
JOBS_OF_A_NODE: Final = 10
CYCLES: Final = 60
BEAT_PERIODS: Final = 60
"""Decisions in which every node reports once."""
ADOPTED: Final = 20_000
ADOPTED_PERCENT: Final = 25
P99_LIMIT_S: Final = 1.0
RSS_LIMIT_MIB: Final = 1536.0
ADOPTED_MOST: Final = 1.1
"""Times the cost of a decision without adopted pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Decisions on one cluster.

    Attributes:
        p50_s: Half of the decisions took no longer, with the way to the solver and back.
        p99_s: The same of 99 %.
        cpu_p50_s: CPU time of the solver in half of them.
        operator_mib: Resident memory of the process that holds the cluster.
        solver_mib: That of the solver.
    """

    p50_s: float
    p99_s: float
    cpu_p50_s: float
    operator_mib: float
    solver_mib: float

    @property
    def rss_mib(self) -> float:
        """Both processes."""
        return self.operator_mib + self.solver_mib


class _Cluster(Bench):
    """A nearly full cluster of any size."""

    def __init__(self, nodes: int, jobs: int, adopted: int) -> None:
        super().__init__()
        self.jobs = jobs
        more = -(-adopted * ADOPTED_PERCENT // 100 // DEVICES)
        self.world.add_nodes(nodes + more, DEVICES)
        add_profiles(self.world)
        for number in range(adopted):
            add_adopted(self.world, number)
        for number in range(jobs):
            a_mixture(self.world, number)
        self._adopted = adopted

    def churn(self, step: int) -> None:
        """As many jobs end and come at every size; every node reports in turn."""
        world = self.world
        jobs = [job for job in world.workloads.values() if job.kind is WorkloadKind.TRAINING_JOB]
        for job in [job for job in jobs if job.status.phase == "Succeeded"][:CHURN]:
            world.forget(job)
        running = [job for job in jobs if job.status.phase == "Running"]
        for job in world.chance.sample(running, min(CHURN, len(running))):
            world.finish(job)
        for _ in range(self.jobs + self._adopted - len(world.workloads)):
            a_mixture(world, world.jobs_made)
        world.beat(sorted(world.gpu_nodes)[step % BEAT_PERIODS :: BEAT_PERIODS])


def add_adopted(world: World, number: int) -> None:
    """A pod of another controller that shares a device by its label and waits for its place."""
    name, namespace = f"adopted-{number}", f"team-{number % 5}"
    share = Share(min_percent=ADOPTED_PERCENT, max_percent=ADOPTED_PERCENT)
    made = world.add_job(gpu=GPURequest(mode=GPUMode.FRACTIONAL, share=share))
    del world.workloads[made.ref.uid]
    ref = ObjectRef(kind=WorkloadKind.POD, namespace=namespace, name=name, uid=f"uid-{name}")
    workload = replace(
        made,
        ref=ref,
        kind=WorkloadKind.POD,
        template_hash="",
        trust_domain=namespace,
        adopted=(AdoptedMember(pod=ref, is_current=True),),
    )
    world.workloads[ref.uid] = workload
    world.pods[ref.uid] = PodRecord(
        uid=ref.uid,
        namespace=namespace,
        name=name,
        owner=ref,
        created=world.now,
        stage=PodStage.GATED,
        stage_since=world.now,
        shape=made.shape,
        rank=0,
        gates=(GATE,),
    )
    world.pods_of[ref.uid] = {ref.uid}


async def measure(nodes: int, jobs: int, adopted: int, cycles: int) -> Measured:
    """Fill a cluster, then decide on it while jobs end and come."""
    with Progress() as progress:
        beside = f" and {adopted} adopted pods" if adopted else ""
        progress.say(f"{nodes} nodes x {DEVICES} devices, {jobs} jobs{beside}: filling")
        cluster = _Cluster(nodes, jobs, adopted)
        await cluster.settle()
        waiting = sum(
            pod.stage is not PodStage.RUNNING
            for pod in cluster.world.pods.values()
            if pod.owner.kind == WorkloadKind.POD
        )
        if waiting:
            sys.exit(f"{waiting} of {adopted} adopted pods found no place")
        cluster.forget_figures()
        freeze_survivors()  # as the operator does every minute
        task = progress.task("decisions", cycles)
        for step in range(cycles):
            cluster.churn(step)
            await cluster.cycle()
            task.advance()
        task.end()
        solver_mib = cluster.child_rss_mib()
        cluster.solver.close()
    return Measured(
        p50_s=quantile(cluster.seconds, 0.5),
        p99_s=quantile(cluster.seconds, 0.99),
        cpu_p50_s=quantile(cluster.cpu_seconds, 0.5),
        operator_mib=usage("self").rss_mib,
        solver_mib=solver_mib,
    )


def in_a_process(nodes: int, jobs: int, adopted: int, cycles: int) -> Measured:
    """The same in a process of its own: its memory is that of this size alone.

    Raises:
        CalledProcessError: the measurement failed; what it said stands on standard error.
    """
    size = json.dumps([nodes, jobs, adopted, cycles])
    command = [sys.executable, "-m", "bench.scale", "--measure", size]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Measured(**json.loads(done.stdout))


def figures_of(
    sizes: dict[int, Measured], without: Measured | None, beside: Measured | None
) -> dict[str, Figure]:
    """What is written; ``p99_s`` and ``rss_mib`` are those of the largest size."""
    largest = sizes[max(sizes)]
    figures: dict[str, Figure] = {
        "nodes": max(sizes),
        "jobs": max(sizes) * JOBS_OF_A_NODE,
        "p99_s": round(largest.p99_s, 4),
        "rss_mib": round(largest.rss_mib, 1),
    }
    for nodes, measured in sizes.items():
        figures |= {f"nodes_{nodes}_{key}": round(v, 4) for key, v in asdict(measured).items()}
        figures[f"nodes_{nodes}_rss_mib"] = round(measured.rss_mib, 1)
    if without is not None and beside is not None:
        figures |= {
            "without_adopted_cpu_p50_s": round(without.cpu_p50_s, 4),
            "adopted_cpu_p50_s": round(beside.cpu_p50_s, 4),
            "adopted_ratio": round(beside.p50_s / without.p50_s, 3),
        }
    return figures


def _rows(sizes: dict[int, Measured], figures: dict[str, Figure]) -> list[Row]:
    rows = []
    for nodes, measured in sorted(sizes.items()):
        last = nodes == max(sizes)
        of = f"{nodes:,} nodes, {nodes * JOBS_OF_A_NODE:,} jobs"
        rows.append(
            Row(
                what=f"decision p99, {of}",
                ours=f"{measured.p99_s:.2f} s (p50 {measured.p50_s:.2f} s)",
                limit=f"{P99_LIMIT_S:g} s" if last else "",
            )
        )
        rows.append(
            Row(
                what="  operator + solver",
                ours=f"{measured.operator_mib:.0f} + {measured.solver_mib:.0f} MiB",
                limit=f"{RSS_LIMIT_MIB:.0f} MiB" if last else "",
            )
        )
    if "adopted_ratio" in figures:
        rows.append(
            Row(
                what=f"decision beside {figures['adopted']:,} adopted pods, to one without",
                ours=f"{figures['adopted_ratio']:.2f}",
                limit=f"{ADOPTED_MOST:g}",
            )
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each size, print, write.

    Returns:
        0, or 1 when a limit is passed.
    """
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=SIZES, help="sizes")
    parser.add_argument("--adopted", type=int, default=ADOPTED, help="adopted pods that stay")
    parser.add_argument("--cycles", type=int, default=CYCLES, help="decisions at each size")
    parser.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.measure:
        print(json.dumps(asdict(asyncio.run(measure(*asked.measure)))))
        return 0
    sizes = {
        nodes: in_a_process(nodes, nodes * JOBS_OF_A_NODE, 0, asked.cycles) for nodes in asked.nodes
    }
    without = beside = None
    if asked.adopted:
        nodes = min(sizes)
        without = sizes[nodes]
        beside = in_a_process(nodes, nodes * JOBS_OF_A_NODE, asked.adopted, asked.cycles)
    figures = figures_of(sizes, without, beside) | {"adopted": asked.adopted}
    write("scale", figures, _rows(sizes, figures))
    bars: dict[str, Callable[[float], bool]] = {
        "p99_s": lambda seconds: seconds <= P99_LIMIT_S,
        "rss_mib": lambda mib: mib <= RSS_LIMIT_MIB,
    }
    if asked.adopted:
        bars["adopted_ratio"] = lambda ratio: ratio <= ADOPTED_MOST
    return judge(figures, bars)


if __name__ == "__main__":
    sys.exit(main())
