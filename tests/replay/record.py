# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Records decisions: of simulated clusters, random stress, a large cluster, or a running operator.

``python -m replay.record simulated`` (or ``stress``, ``fill``) with ``tests`` on the path, and
``python -m replay.record cluster --every 20`` beside end-to-end tests. ``again`` keeps the
snapshots and records the plans of this code, for a change that is meant to change plans.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench.decide_world import World as LargeWorld
from bench.decide_world import a_mixture, add_profiles
from demo.cluster import LocalCluster
from fakes.toy_stress import StressRun
from replay.recording import FOLDER, Recording, recordings
from ullage.app.replay import Inputs, UnreadableSnapshot, from_json
from ullage.engines.allocation.round_records import RoundSettings
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import DecideSettings
from ullage_simulate.decided import ClusterPlay, begun_play
from ullage_simulate.events import TraceSettings
from ullage_simulate.failures import FailureLaw
from ullage_simulate.policies import POLICIES
from ullage_simulate.speeds import built_in
from ullage_simulate.trace import Fleet, JobTrace, TraceJob, fitted, in_order
from ullage_simulate.work import Costs

SIMULATED: Final = (
    "fifo", "las", "finish-time-fairness", "makespan", "max-throughput", "sjf", "min-cost",
)  # fmt: skip
STRESS_SEEDS: Final = range(24)
FILL_NODES, FILL_JOBS, DEVICES = 40, 400, 4
FETCH: Final = (
    "import sys, urllib.request as r; "
    "sys.stdout.buffer.write(r.urlopen('http://127.0.0.1:8082/debug/snapshot').read())"
)


def simulated() -> Iterator[tuple[str, Inputs]]:
    """Two moments of a trace under each objective, with devices that fail."""
    for policy in SIMULATED:
        play = _play(policy)
        settings = DecideSettings(epoch=play.epoch)
        play.settle()
        for moment, steps in enumerate((9, 14)):
            for _ in range(steps):
                play.step()
            yield f"{policy}-{moment}", (play.world.snapshot(), play.world.now, settings)


def _play(policy: str) -> ClusterPlay:
    fleet = Fleet(devices={"v100": 4, "k80": 3}, prices={"v100": 2.5, "k80": 0.9})
    law = FailureLaw(mtbf_h=20.0, repair_s=300.0)
    settings = TraceSettings(
        rounds=RoundSettings(round_s=300.0),
        costs=Costs(restart_s=30.0, every_s=120.0),
        failures=law,
    )
    return begun_play(_trace(fleet), fleet, POLICIES[policy], settings, built_in())


def _trace(fleet: Fleet) -> JobTrace:
    draw = random.Random(11)
    jobs = [
        TraceJob(
            name=f"j{number}",
            gang=draw.choice((1, 1, 1, 2, 4)),
            steps=draw.randrange(500, 9_000),
            arrival_s=draw.uniform(0.0, 3_000.0),
            speeds={"v100": draw.uniform(1.0, 4.0), "k80": draw.uniform(0.3, 1.0)},
            kind=f"kind {number % 5}",
        )
        for number in range(30)
    ]
    return fitted(in_order("recorded", jobs), fleet)


def stress() -> Iterator[tuple[str, Inputs]]:
    """A toy cluster after random events, some of whose actions were lost."""
    for seed in STRESS_SEEDS:
        stress = StressRun(seed)
        stress.run(120 + 20 * seed)
        toy = stress.toy
        yield f"{seed:02d}", (toy.snapshot(), toy.now, DecideSettings(epoch=toy.epoch))


def fill() -> Iterator[tuple[str, Inputs]]:
    """An empty cluster before a mixture of jobs, while it fills, full, and with jobs that ended."""
    world = LargeWorld()
    world.add_nodes(FILL_NODES, DEVICES)
    add_profiles(world)
    for number in range(FILL_JOBS):
        a_mixture(world, number)
    settings = DecideSettings(epoch=1)
    for moment in ("empty", "filling", "full"):
        yield moment, (world.snapshot(), world.now, settings)
        for _ in range(2):
            snapshot = world.snapshot()
            plan = decide(snapshot, world.now, settings)
            world.carry_out(diff(plan, snapshot))
    for job in list(world.workloads.values())[:40]:
        world.finish(job)
    yield "ended", (world.snapshot(), world.now, settings)


def watch(every_s: float, folder: Path) -> None:
    """Ask a running operator until interrupted; snapshots that are decided alike are kept once."""
    local, seen = LocalCluster(), set[str]()
    while True:
        time.sleep(every_s)
        found = _from_cluster(local)
        if found is None:
            continue
        snapshot, now, settings = found
        plan = decide(snapshot, now, settings)
        if plan.inputs_hash in seen or not snapshot.workloads:
            continue
        seen.add(plan.inputs_hash)
        Recording(name=f"cluster-{len(seen):03d}", folder=folder).write(found)
        print(f"{len(seen)} recorded, {len(snapshot.workloads)} workloads", flush=True)


def _from_cluster(local: LocalCluster) -> Inputs | None:
    """The newest decision of the leader; ``None`` = no one leads just now."""
    pods = local.kubectl(
        "get", "pods", "--namespace", "ullage-system", "--output", "name",
        "--selector", "app.kubernetes.io/component=operator", check=False,
    ).stdout.split()  # fmt: skip
    for pod in pods:
        done = local.kubectl(
            "exec", "--namespace", "ullage-system", pod, "--", "python", "-c", FETCH, check=False
        )
        try:
            return from_json(done.stdout.encode())
        except UnreadableSnapshot:
            continue  # a standby, or one that restarts
    return None


def main() -> int:
    """Record what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    sources: dict[str, Callable[[], Iterator[tuple[str, Inputs]]]] = {
        "simulated": simulated, "stress": stress, "fill": fill,
    }  # fmt: skip
    parser.add_argument("source", choices=(*sources, "cluster", "again"))
    parser.add_argument("--every", type=float, default=20.0, help="seconds between two looks")
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    if options.source == "cluster":
        watch(options.every, options.out)
    elif options.source == "again":
        for one in recordings(options.out):
            one.write(one.inputs(), snapshot=False)
    else:
        for name, inputs in sources[options.source]():
            Recording(name=f"{options.source}-{name}", folder=options.out).write(inputs)
            print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
