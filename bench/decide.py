# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How long one decision for a large cluster takes, with the way to the deciding process and back.

The operator's own solver runs it: a process of its own, changes pickled there, actions back. Two
loads: a nearly full cluster of 1,000 nodes x 8 devices and 10,000 jobs with arrivals and
departures between decisions, and 4,000 jobs at once on 500 empty nodes. ``--objectives each`` runs
the worst case instead: all 10,000 jobs wait, each with a class and an objective of its own.
``--policy MaxMinFairness`` (or another objective) lets the 10,000 jobs take turns, beside FIFO.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import time
from dataclasses import replace
from pathlib import Path

from bench.decide_rough import Rough, Twice
from bench.decide_world import START, World, a_mixture, add_profiles
from bench.progress import Progress
from bench.report import Row, write
from ullage.api.gpurequest import GPURequest
from ullage.app.memory import freeze_survivors
from ullage.app.solver import Solver
from ullage.app.transfer import Packer, Unpacker
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.model.plan import DecideSettings

NODES, DEVICES, JOBS = 1000, 8, 10_000
FILL_NODES, FILL_JOBS = 500, 4000
CYCLES = 60
EACH_CYCLES = 30
EQUAL_CYCLES = 200
"""Cycles of one random cluster before the next."""
TURN_CYCLES = 20
CHURN = 40
"""Jobs that end, and that come, between two decisions."""
BEAT_S = 60
"""Decisions, a second apart, between two heartbeats of a node."""
SMALL, LARGE = 2_000, 20_000
"""Jobs whose decisions are compared: the cost follows what changed, not what exists."""
GROWTH_CYCLES = 20
MOST_GROWTH = 1.5
LIMIT_S = 0.5
TURN_LIMIT_S = 0.7
DEADLINE_S = 60.0
SETTINGS = DecideSettings(epoch=1)
MIB = 2**20


class Bench:
    """One world and the solver that decides on it."""

    def __init__(self, jobs: int = JOBS) -> None:
        """``jobs`` is how many the churn keeps."""
        self.world = World()
        self.jobs = jobs
        self.solver = Solver(DEADLINE_S)
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []
        self.actions = 0

    async def cycle(self) -> int:
        """Decide once and carry it out; returns how many actions that were."""
        snapshot = self.world.snapshot()
        before_s = self._child_cpu_s()
        started = time.perf_counter()
        _, actions = await self.solver.run(snapshot, self.world.now, SETTINGS)
        self.seconds.append(time.perf_counter() - started)
        self.cpu_seconds.append(self._child_cpu_s() - before_s)
        self.world.carry_out(actions)
        self.actions += len(actions)
        return len(actions)

    async def settle(self) -> None:
        """Decide until nothing is left to do."""
        while await self.cycle():
            pass

    def churn(self, step: int) -> None:
        """Some jobs end, some that ended are deleted, as many come; some nodes say they live."""
        world = self.world
        jobs = list(world.workloads.values())
        world.chance.shuffle(jobs)
        ended = [job for job in jobs if job.status.phase == "Succeeded"]
        for job in ended[:CHURN]:
            world.forget(job)
        running = [job for job in jobs if job.status.phase == "Running"]
        for job in running[:CHURN]:
            world.finish(job)
        for _ in range(self.jobs - len(world.workloads)):
            a_mixture(world, world.jobs_made)
        names, beats = sorted(world.gpu_nodes), len(world.gpu_nodes) // BEAT_S
        world.beat(names[(step * beats) % len(names) :][:beats])

    def forget_figures(self) -> None:
        """Start measuring again."""
        self.seconds.clear()
        self.cpu_seconds.clear()
        self.actions = 0

    def _child_cpu_s(self) -> float:
        """CPU seconds of the deciding process so far."""
        pid = self.solver.pid()
        if pid is None:
            return 0.0
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def child_rss_mib(self) -> float:
        """Resident memory of the deciding process."""
        pid = self.solver.pid()
        if pid is None:
            return 0.0
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * resource.getpagesize() / MIB


async def churn(progress: Progress) -> tuple[Bench, float, float]:
    """The nearly full cluster; returns also seconds of the first decision and resident MiB."""
    bench = await _full(JOBS, progress)
    first = await _first(bench)
    bench.forget_figures()
    freeze_survivors()  # as the operator does every minute
    task = progress.task("decisions", CYCLES)
    for step in range(CYCLES):
        bench.churn(step)
        await bench.cycle()
        task.advance()
    task.end()
    rss = bench.child_rss_mib()
    bench.solver.close()
    return bench, first, rss


async def growth(progress: Progress) -> float:
    """How much longer a decision takes in a cluster ten times as large, both equally full.

    The two take turns, so that a busy machine slows both down.
    """
    benches = [await _full(jobs, progress) for jobs in (SMALL, LARGE)]
    task = progress.task(f"decisions at {SMALL} and {LARGE} jobs", GROWTH_CYCLES)
    for step in range(GROWTH_CYCLES):
        for bench in benches:
            bench.churn(step)
            await bench.cycle()
        task.advance()
    task.end()
    for bench in benches:
        bench.solver.close()
    small, large = (quantile(bench.seconds, 0.5) for bench in benches)
    return large / small


async def _full(jobs: int, progress: Progress) -> Bench:
    """A nearly full cluster with this many jobs."""
    bench = Bench(jobs)
    bench.world.add_nodes(jobs * NODES // JOBS, DEVICES)
    add_profiles(bench.world)
    for number in range(jobs):
        a_mixture(bench.world, number)
    progress.say(f"{len(bench.world.nodes)} nodes x {DEVICES} devices, {jobs} jobs: filling")
    await bench.settle()
    bench.forget_figures()
    return bench


async def _first(bench: Bench) -> float:
    """A decision whose process knows nothing yet, as after a change of leader."""
    bench.solver.close()
    bench.solver = Solver(DEADLINE_S)
    bench.solver.start()
    await asyncio.sleep(1.0)
    await bench.cycle()
    return bench.seconds[-1]


async def fill(progress: Progress) -> Bench:
    """4,000 jobs at once on empty nodes, decided until all run."""
    bench = Bench()
    bench.world.add_nodes(FILL_NODES, DEVICES)
    await bench.settle()
    bench.forget_figures()
    for _ in range(FILL_JOBS):
        bench.world.add_job(gpu=GPURequest())
    progress.say(f"{FILL_JOBS} jobs at once on {FILL_NODES} nodes")
    await bench.settle()
    bench.solver.close()
    return bench


async def each(progress: Progress) -> Bench:
    """Everyone waits, no two alike; some end and come between decisions, as ever."""
    bench = Bench()
    bench.world.own_objectives = True
    bench.world.add_nodes(NODES, DEVICES)
    add_profiles(bench.world)
    for number in range(JOBS):
        a_mixture(bench.world, number)
    progress.say(f"{NODES} nodes x {DEVICES} devices, {JOBS} jobs, no two alike")
    task = progress.task("decisions", EACH_CYCLES)
    for step in range(EACH_CYCLES):
        await bench.cycle()
        if step >= EACH_CYCLES // 2:
            bench.churn(step)
        task.to(step + 1, f"decisions, {_running(bench)} jobs run")
    bench.solver.close()
    return bench


async def turns(objective: str, progress: Progress) -> Bench:
    """All jobs can checkpoint and wait; they are placed, and end and come, under an objective."""
    bench = Bench()
    bench.world.policy = replace(bench.world.policy, uid="uid-policy", objective=objective)
    bench.world.add_nodes(NODES, DEVICES)
    add_profiles(bench.world)
    for number in range(JOBS):
        a_mixture(bench.world, number)
    for uid, job in bench.world.workloads.items():
        bench.world.workloads[uid] = replace(job, checkpoint=True)
    progress.say(f"{NODES} nodes x {DEVICES} devices, {JOBS} jobs, {objective}")
    task = progress.task(f"decisions, {objective}", TURN_CYCLES)
    await bench.cycle()
    bench.forget_figures()
    for step in range(TURN_CYCLES):
        if step >= TURN_CYCLES // 2:
            bench.churn(step)
        await bench.cycle()
        task.advance()
    task.end()
    bench.solver.close()
    return bench


def report_turns(ours: Bench, fifo: Bench) -> None:
    """Print and write what taking turns costs, beside a plain queue."""
    figures = {
        "cpu_p50_s": round(quantile(ours.cpu_seconds, 0.5), 3),
        "cpu_max_s": round(max(ours.cpu_seconds), 3),
        "p50_s": round(quantile(ours.seconds, 0.5), 4),
        "p99_s": round(quantile(ours.seconds, 0.99), 4),
        "fifo_p99_s": round(quantile(fifo.seconds, 0.99), 4),
        "fifo_cpu_p50_s": round(quantile(fifo.cpu_seconds, 0.5), 3),
        "fifo_cpu_max_s": round(max(fifo.cpu_seconds), 3),
        "cycles": len(ours.seconds),
        "running": _running(ours),
        "jobs": len(ours.world.workloads),
    }
    rows = [
        Row(
            what=f"decision, {part} (baseline: FIFO)",
            ours=f"{figures[f'cpu_{key}_s']:.2f} s CPU",
            baseline=f"{figures[f'fifo_cpu_{key}_s']:.2f} s CPU",
        )
        for part, key in (("half of them", "p50"), ("the longest", "max"))
    ]
    rows.append(
        Row(
            what="  p99, by the clock",
            ours=f"{figures['p99_s']:.2f} s",
            baseline=f"{figures['fifo_p99_s']:.2f} s",
            limit=f"{TURN_LIMIT_S:g} s",
        )
    )
    write("decide-turns", figures, rows)


def _running(bench: Bench) -> int:
    return sum(job.status.phase == "Running" for job in bench.world.workloads.values())


def equal(cycles: int, seed: int, progress: Progress) -> tuple[int, int]:
    """Decide with what the last cycle left and without, under churn and faults of many kinds.

    Returns:
        Cycles, and how many of them gave another plan or other actions, byte for byte.
    """
    task, different = progress.task("cycles, decided twice", cycles), 0
    chance = random.Random(seed)
    for number in range(cycles):
        if number % EQUAL_CYCLES == 0:
            rough, twice = Rough.drawn(chance), Twice()
        snapshot, settings = rough.snapshot(), DecideSettings(epoch=rough.epoch)
        actions, same = twice.decided(snapshot, rough.world.now, settings)
        if not same:
            different += 1
            progress.say(f"seed {seed}: cycle {number} differs")
        rough.go_on(actions)
        task.advance()
    task.end()
    return cycles, different


def report_equal(cycles: int, different: int) -> None:
    """Print and write how many decisions differ."""
    figures = {"cycles": cycles, "different": different}
    row = Row(what=f"of {cycles} cycles, decided otherwise", ours=f"{different}", limit="0")
    write("decide-equal", figures, [row])


def report_each(bench: Bench) -> None:
    """Print and write the figures of the worst case."""
    wall_s, cpu_s = max(bench.seconds), max(bench.cpu_seconds)
    figures = {
        "p50_s": round(quantile(bench.seconds, 0.5), 4),
        "max_s": round(wall_s, 4),
        "cpu_p50_s": round(quantile(bench.cpu_seconds, 0.5), 3),
        "cpu_max_s": round(cpu_s, 3),
        "cycles": len(bench.seconds),
        "running": _running(bench),
        "jobs": JOBS,
    }
    rows = [
        Row(what="decision, worst, no two jobs alike", ours=f"{wall_s:.2f} s", limit="3 s"),
        Row(what="  of it CPU, worst", ours=f"{cpu_s:.2f} s"),
        Row(what=f"jobs that run after {len(bench.seconds)} decisions", ours=f"{_running(bench)}"),
    ]
    write("decide-each", figures, rows)


def quantile(values: list[float], share: float) -> float:
    """The value below which this share of the values lies, the next larger one if between."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def sending(first: Snapshot, second: Snapshot) -> tuple[float, float, int]:
    """Seconds to send changes and to send everything, both ways of the pipe; bytes of the whole."""
    packer, unpacker = Packer(), Unpacker()
    started = time.perf_counter()
    payload = packer.pack(first, START, SETTINGS)
    unpacker.unpack(payload)
    whole_s = time.perf_counter() - started
    started = time.perf_counter()
    unpacker.unpack(packer.pack(second, START, SETTINGS))
    return time.perf_counter() - started, whole_s, len(payload)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m bench.decide", description=__doc__)
    parser.add_argument("--objectives", choices=("class", "each"), default="class")
    parser.add_argument("--policy", default="FIFO", help="objective of the SchedulingPolicy")
    parser.add_argument(
        "--equal", type=int, metavar="CYCLES", help="decide twice, and count different decisions"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the churn for --equal")
    asked = parser.parse_args()
    with Progress() as progress:
        if asked.equal:
            report_equal(*equal(asked.equal, asked.seed, progress))
        elif asked.policy != "FIFO":
            ours = asyncio.run(turns(asked.policy, progress))
            report_turns(ours, asyncio.run(turns("FIFO", progress)))
        elif asked.objectives == "each":
            report_each(asyncio.run(each(progress)))
        else:
            full, first_s, rss_mib = asyncio.run(churn(progress))
            burst, grown = asyncio.run(fill(progress)), asyncio.run(growth(progress))
            report_churn(full, first_s, rss_mib, burst, grown)


def report_churn(full: Bench, first_s: float, rss_mib: float, burst: Bench, grown: float) -> None:
    """Print and write what a decision costs in a nearly full cluster and in a sudden fill."""
    first = full.world.snapshot()
    full.churn(0)
    changes_s, whole_s, whole_bytes = sending(first, full.world.snapshot())
    p50, p99 = quantile(full.seconds, 0.5), quantile(full.seconds, 0.99)
    fill_p99 = quantile(burst.seconds, 0.99)
    figures = {
        "p50_s": round(p50, 4),
        "p99_s": round(p99, 4),
        "rss_mib": round(rss_mib, 1),
        "pickled_mib": round(whole_bytes / MIB, 2),
        "cpu_p50_s": round(quantile(full.cpu_seconds, 0.5), 3),
        "cpu_p99_s": round(quantile(full.cpu_seconds, 0.99), 3),
        "first_s": round(first_s, 4),
        "at_once_p99_s": round(fill_p99, 4),
        "fill_p99_s": round(fill_p99, 4),
        "growth_20000_to_2000": round(grown, 3),
        "send_changes_s": round(changes_s, 4),
        "send_whole_s": round(whole_s, 4),
        "cycles": len(full.seconds),
        "actions": full.actions,
        "jobs": JOBS,
        "nodes": NODES,
        "devices": NODES * DEVICES,
    }
    limit = f"{LIMIT_S:g} s"
    rows = [
        Row(what="decision p50, changes between", ours=f"{p50:.3f} s"),
        Row(what="decision p99, changes between", ours=f"{p99:.3f} s", limit=limit),
        Row(what="  of it CPU, p99", ours=f"{figures['cpu_p99_s']:.2f} s"),
        Row(what="first decision of a new process", ours=f"{first_s:.3f} s"),
        Row(what=f"{FILL_JOBS} jobs at once, p99", ours=f"{fill_p99:.3f} s", limit=limit),
        Row(
            what=f"{LARGE} jobs, changes between (baseline: {SMALL} jobs)",
            ours=f"{grown:.2f}",
            baseline="1",
            limit=f"{MOST_GROWTH:g}",
        ),
        Row(
            what="sending the picture (baseline: whole)",
            ours=f"{changes_s:.3f} s",
            baseline=f"{whole_s:.3f} s",
        ),
        Row(what="the whole picture, pickled", ours=f"{whole_bytes / MIB:.2f} MiB"),
        Row(what="deciding process", ours=f"{rss_mib:.0f} MiB"),
    ]
    write("decide", figures, rows)


if __name__ == "__main__":
    main()
