# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Mixed arrivals on real processes: ours, uncontrolled sharing and exclusive devices side by side.

One local cluster, two emulated devices, one seeded sequence of training jobs beside a service under
load, played once per rule. ``python -m bench.mixed``; ``--again`` judges the last recordings anew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from bench.mixed_judge import NoReference, Outcome, judge, solo_ns, windows
from bench.mixed_look import step_folders
from bench.mixed_picture import NoPlotter, draw
from bench.mixed_plan import mixed, reference
from bench.mixed_play import NotMeasured, Stage, play
from bench.mixed_record import Recording
from bench.mixed_report import tell
from bench.mixed_rules import Rule
from bench.report import FOLDER
from demo.cluster import LOCALCLUSTER, EmulatedDevice, LocalCluster
from demo.images import build_all
from demo.install import install
from demo.progress import CommandFailed, run
from demo.progress import Progress as Steps
from ullage.adapters.credentials import find_credentials
from ullage.adapters.k8s import K8sCluster

DEVICES: Final = {
    "node-1": [EmulatedDevice(core=0)],
    "node-2": [EmulatedDevice(core=1)],
}
"""Whole cores, so that sharing above 100 percent finds an end: a part of a core would not."""
ALONE: Final = "alone"
ORDER: Final = (Rule.OURS, Rule.UNCONTROLLED, Rule.EXCLUSIVE)


def recording_of(rule: str, folder: Path = FOLDER) -> Path:
    """The file in which a rule's recording is kept."""
    return folder / f"mixed-{rule}.json"


async def measure(local: LocalCluster, seed: int, seconds: float, rules: Sequence[Rule]) -> None:
    """The reference first, then every rule; each recording is kept as soon as it is there."""
    plan = mixed(seed, seconds)
    credentials = await find_credentials(str(local.kubeconfig))
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    async with K8sCluster(credentials, user_agent="bench") as cluster:
        with Progress(*columns) as progress:
            stage = Stage(
                local=local,
                cluster=cluster,
                folders=step_folders(local, tuple(DEVICES)),
                progress=progress,
            )
            alone = await play(stage, Rule.EXCLUSIVE, reference(), name=ALONE)
            alone.save(recording_of(ALONE))
            solo_ns(alone)  # better to fail now than after half an hour
            for rule in rules:
                recording = await play(stage, rule, plan, name=rule)
                recording.save(recording_of(rule))


def report(picture: Path | None, rules: Sequence[Rule] = ORDER) -> list[Outcome]:
    """Judge the recordings, print, write the figures and the picture.

    Raises:
        SystemExit: a recording is missing, or the picture cannot be drawn.
    """
    solo = solo_ns(Recording.load_from(recording_of(ALONE)))
    recordings = {rule: Recording.load_from(recording_of(rule)) for rule in rules}
    outcomes = [judge(one, solo) for one in recordings.values()]
    plan = recordings[rules[0]].plan
    if any(one.plan != plan for one in recordings.values()):
        raise SystemExit("the recordings are of different arrivals: run make bench-mixed anew")
    title = f"mixed arrivals: {len(plan.jobs)} jobs in {plan.seconds / 60:g} min, seed {plan.seed}"
    settings = {"seed": plan.seed, "seconds": plan.seconds, "jobs": len(plan.jobs)}
    tell(outcomes, title, settings)
    if picture is not None:
        seen = {rule.value: windows(one, solo) for rule, one in recordings.items()}
        try:
            draw(picture, outcomes, seen, title)
        except NoPlotter as error:
            raise SystemExit(str(error)) from error
        print(f"picture: {picture}")
    return outcomes


def _on_a_cluster(seed: int, seconds: float, rules: Sequence[Rule]) -> None:
    """Bring the cluster up, measure, and take it down whatever happens.

    Raises:
        SystemExit: no root, somebody else's cluster, or a step that failed.
    """
    if os.geteuid() != 0:
        raise SystemExit("the local cluster starts real kubelets and needs root")
    state = json.loads(run(LOCALCLUSTER, "status", "--json"))["state"]
    if state != "stopped":
        raise SystemExit(f"a local cluster is {state}: end it first with localcluster/run down")
    steps, local = Steps(), LocalCluster()
    try:
        with steps.step("start a real Kubernetes", expect_s=20):
            local.up(DEVICES)
        archives = build_all(steps)
        with steps.step("load the images into every node", expect_s=20):
            local.load_images(list(archives.values()))
        install(local, steps)
        asyncio.run(measure(local, seed, seconds, rules))
    except (CommandFailed, NotMeasured, NoReference) as error:
        raise SystemExit(f"failed: {error}") from error
    finally:
        with steps.step("take the cluster down"):
            local.down()


def main() -> None:
    """Measure, or judge what was measured; print, and write figures and picture."""
    parser = argparse.ArgumentParser(prog="make bench-mixed", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of arrivals, for each rule")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rule", type=Rule, action="append", choices=ORDER, help="default: all")
    parser.add_argument("--again", action="store_true", help="judge the last recordings anew")
    parser.add_argument("--picture", type=Path, help="PNG (default: build/bench/mixed.png)")
    options = parser.parse_args()
    if options.minutes <= 0:
        parser.error("--minutes: give more than 0")
    rules = tuple(options.rule or ORDER)
    if not options.again:
        _on_a_cluster(options.seed, 60 * options.minutes, rules)
    report(options.picture or FOLDER / "mixed.png", rules)


if __name__ == "__main__":
    main()
