# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks, node agents and operators are killed while steps are traced, on the local cluster.

``python -m bench.tracing_kills``. A job of four pods on two kubelets, whose ranks do not meet, runs
beside others. Requests follow each other, and at a random moment of each one a rank, the agent of a
node or the leader is killed without a word. Every request must end, with a trace or a reason;
no order and no part of a file may stay on a node; and no program may end but the ranks that were
killed, which start again. Figures are added to ``tracing.json``.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from bench import report
from bench.api_client import ApiClient, NotAnswered
from bench.faults_inject import Faults, kill, processes
from bench.hostile_objects import collection
from bench.local import installed
from bench.progress import Progress
from bench.tracing_cluster import DEVICES, NAMESPACE, Stage
from bench.tracing_programs import Json

KILLS: Final = 50
STEPS: Final = 50
KILLED_AFTER_S: Final = (0.0, 12.0)
"""From the request to the kill; a request takes about as long."""
LEFT_AFTER_S: Final = 90.0
"""Files of an order that was taken back are removed within this time."""
PARTS: Final = ("order", ".order", "*.tmp", ".ullage-trace-*")
"""Files that no directory keeps once its order has ended."""
BARS: Final[report.Bars] = {
    "kills": lambda kills: kills >= KILLS,
    "kills_stuck": lambda requests: requests == 0,
    "kills_files_left": lambda files: files == 0,
    "kills_programs_harmed": lambda programs: programs == 0,
}


@dataclass(slots=True, kw_only=True)
class Counts:
    """Everything that was counted."""

    kills: Counter[str] = field(default_factory=Counter)
    """By the kind of the victim."""
    ended: Counter[str] = field(default_factory=Counter)
    """Requests by the reason of their end."""
    stuck: list[str] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    """Files and orders that stayed."""
    harmed: set[str] = field(default_factory=set)
    """Programs that ended though they were not killed."""


Lives = dict[str, tuple[str, int]]
"""Uid of each pod by its name, and restarts of its container."""


def lives(stage: Stage) -> Lives:
    """The programs that run now."""
    return {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], status["restartCount"])
        for pod in stage.pods("")
        for status in pod["status"].get("containerStatuses", [])[:1]
    }


def kill_rank(stage: Stage, dice: random.Random) -> str:
    """Kill the program of a rank; returns the name of its pod, empty = there is none."""
    pods = [pod for pod in stage.pods("digits") if pod["status"].get("phase") == "Running"]
    if not pods:
        return ""
    pod = dice.choice(pods)["metadata"]
    pids = processes(f"HOSTNAME={pod['name']}", f"ULLAGE_SLICE={pod['uid']}_main")
    for pid in pids:
        kill(pid)
    return str(pod["name"]) if pids else ""


def kill_agent(dice: random.Random) -> str:
    """Kill the agent of a node; returns the node, empty = there is none."""
    node = dice.choice(sorted(DEVICES))
    pids = processes(f"ULLAGE_NODE_NAME={node}")
    for pid in pids[:1]:
        kill(pid)
    return node if pids else ""


def strike(stage: Stage, faults: Faults, dice: random.Random, counts: Counts) -> str:
    """Kill something; returns the pod of a rank that was killed, else an empty text."""
    victim = dice.choice(("rank", "agent", "operator"))
    with suppress(NotAnswered):
        if victim == "rank":
            name = kill_rank(stage, dice)
        elif victim == "agent":
            name = kill_agent(dice)
        elif name := faults.end_operator():
            # kubelet would wait ever longer before it starts the container again
            stage.api.delete(f"{collection('pods', 'ullage-system')}/{name}", at_once=True)
        if name:
            counts.kills[victim] += 1
            stage.say(f"kill {counts.kills.total()}: {victim} {name}")
            return name if victim == "rank" else ""
    return ""


def leftovers(stage: Stage) -> set[str]:
    """Orders, and files of orders that have ended."""
    orders = {
        f"order {order['id']} of {node['metadata']['name']}"
        for node in stage.api.list(collection("gpunodes", ""))
        for order in node["spec"].get("traces", [])
    }
    files = {
        f"{node}: {file.relative_to(folder)}"
        for node, folder in stage.folders.items()
        for part in PARTS
        for file in folder.glob(f"*/trace/{part}")
    }
    return orders | files


def play(stage: Stage, target: Json, kills: int, dice: random.Random) -> Counts:
    """Request and kill until there were enough kills."""
    counts = Counts()
    faults = Faults(stage.api, stage.local, NAMESPACE, dice)
    while counts.kills.total() < kills:
        stage.wait(lambda: stage.running("digits") == stage.ranks, 300.0, "all ranks run")
        before = lives(stage)
        name = stage.ask(target, STEPS)
        time.sleep(dice.uniform(*KILLED_AFTER_S))
        killed = strike(stage, faults, dice, counts)
        traced = stage.follow(name)
        last = traced.phases_s[-1][0] if traced.phases_s else ""
        if last not in ("Done", "Failed"):
            counts.stuck.append(f"{name}: {traced.why}")
        counts.ended[last] += 1
        stage.say(f"{name}: {traced.done_s:.0f} s, {traced.why}")
        counts.harmed |= _harmed(stage, before, killed)
        with suppress(NotAnswered):
            stage.api.delete(f"{collection('profilerequests', NAMESPACE)}/{name}")
        counts.left |= _left(stage)
    return counts


def _harmed(stage: Stage, before: Lives, killed: str) -> set[str]:
    """Programs that ended; where a rank was killed, its job may start again as a whole."""
    after = lives(stage)
    return {
        name
        for name, life in before.items()
        if after.get(name) != life and not (killed and name.startswith("digits-"))
    }


def _left(stage: Stage) -> set[str]:
    until = time.monotonic() + LEFT_AFTER_S
    while True:
        left = {"the API server did not answer"}
        with suppress(NotAnswered):
            left = leftovers(stage)
        if not left or time.monotonic() > until:
            return left
        time.sleep(1.0)


def figures(counts: Counts) -> dict[str, report.Figure]:
    """Flat figures for the report."""
    for what, names in (
        ("stuck", counts.stuck),
        ("left", counts.left),
        ("harmed", counts.harmed),
    ):
        for name in sorted(names):
            print(f"{what}: {name}", file=sys.stderr)
    return {
        "kills": counts.kills.total(),
        **{f"kills_of_{victim}": counts.kills[victim] for victim in ("rank", "agent", "operator")},
        "kills_done": counts.ended["Done"],
        "kills_failed": counts.ended["Failed"],
        "kills_stuck": len(counts.stuck),
        "kills_files_left": len(counts.left),
        "kills_programs_harmed": len(counts.harmed),
    }


def rows(counted: Mapping[str, report.Figure]) -> list[report.Row]:
    """Lines of the table."""
    return [
        report.Row(
            what=name, ours=str(value), limit="0" if name in BARS and name != "kills" else ""
        )
        for name, value in counted.items()
    ]


def main() -> int:
    """Kill, print one table, add the figures to build/bench/tracing.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    dice = random.Random(f"tracing-{options.seed}")
    with (
        installed("tracing-kills", DEVICES, NotAnswered, logs=("operator", "node")) as (local, _),
        Progress() as progress,
    ):
        # ranks that do not meet: a kill ends one program, not all that wait for it
        stage = Stage(local, ApiClient(local.kubeconfig), "", progress.say)
        stage.begin()
        target = stage.start_training()
        stage.start_others()
        counted = figures(play(stage, target, options.kills, dice))
    report.write("tracing", report.figures_before("tracing") | counted, rows(counted))
    return report.judge(counted, BARS)


if __name__ == "__main__":
    sys.exit(main())
