# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Mixed arrivals on real processes: ours, uncontrolled sharing and exclusive devices side by side.

One local cluster, two emulated devices, one seeded sequence of training jobs beside a service under
load, played once per rule. ``python -m bench.mixed``; ``--again`` judges the last recordings again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.local import installed
from bench.mixed_judge import NoReference, Outcome, judge, seen_alone, solo_ns, unit_s, windows
from bench.mixed_look import step_folders
from bench.mixed_picture import NoPlotter, draw
from bench.mixed_plan import calm, mixed, reference
from bench.mixed_play import NotMeasured, Stage, play
from bench.mixed_record import Recording
from bench.mixed_report import tell
from bench.mixed_rules import Rule
from bench.mixed_weight import NoWeight, outweigh
from bench.progress import Progress
from bench.report import FOLDER
from demo.cluster import LOCALCLUSTER, EmulatedDevice, LocalCluster
from demo.progress import run
from ullage.kube.client import K8sCluster
from ullage.kube.credentials import find_credentials

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


def reference_of(rule: str, folder: Path = FOLDER) -> Path:
    """The file of each class alone, as seen in the session in which the rule was played."""
    return recording_of(f"{rule}-{ALONE}", folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to measure."""

    seed: int
    seconds: float
    history_s: float
    rules: Sequence[Rule]


async def measure(local: LocalCluster, wanted: Wanted) -> None:
    """The reference first, then every rule; each recording is kept as soon as it is there.

    The reference is kept with every rule of its session: rules may be played on different days.
    """
    plan = mixed(wanted.seed, wanted.seconds)
    history = calm(wanted.seed + 1, wanted.history_s) if wanted.history_s else None
    credentials = await find_credentials(str(local.kubeconfig))
    async with K8sCluster(credentials, user_agent="bench") as cluster:
        with Progress() as progress:
            stage = Stage(
                local=local,
                cluster=cluster,
                folders=step_folders(local, tuple(DEVICES)),
                cores={node: device.core for node, (device,) in DEVICES.items()},
                progress=progress,
            )
            alone = await play(stage, Rule.EXCLUSIVE, reference(), name=ALONE)
            # better to fail now, without a reference, than after half an hour
            stage = replace(stage, alone=seen_alone(alone, solo_ns(alone)))
            for rule in wanted.rules:
                known = history if rule is Rule.OURS else None
                recording = await play(stage, rule, plan, name=rule, history=known)
                recording.save(recording_of(rule))
                alone.save(reference_of(rule))


def report(picture: Path | None, rules: Sequence[Rule] = ORDER) -> list[Outcome]:
    """Judge the recordings, print, write the figures and the picture.

    Raises:
        SystemExit: a recording is missing, or the picture cannot be drawn.
    """
    references = {rule: Recording.load_from(reference_of(rule)) for rule in rules}
    solo = {rule: solo_ns(one) for rule, one in references.items()}
    units = {rule: unit_s(one) for rule, one in references.items()}
    recordings = {rule: Recording.load_from(recording_of(rule)) for rule in rules}
    outcomes = [judge(one, solo[rule], units[rule]) for rule, one in recordings.items()]
    plan = recordings[rules[0]].plan
    if any(one.plan != plan for one in recordings.values()):
        raise SystemExit("the recordings are of different arrivals: run make bench-mixed again")
    title = f"mixed arrivals: {len(plan.jobs)} jobs in {plan.seconds / 60:g} min, seed {plan.seed}"
    settings = {"seed": plan.seed, "seconds": plan.seconds, "jobs": len(plan.jobs)}
    tell(outcomes, title, settings)
    if picture is not None:
        seen = {
            rule.value: windows(one, solo[rule], units[rule]) for rule, one in recordings.items()
        }
        try:
            draw(picture, outcomes, seen, title)
        except NoPlotter as error:
            raise SystemExit(str(error)) from error
        print(f"picture: {picture}")
    return outcomes


def _on_a_cluster(wanted: Wanted) -> None:
    """Measure on a cluster of its own.

    Raises:
        SystemExit: it did not start, or a step failed; the reason was told.
    """
    kinds = (NotMeasured, NoReference, NoWeight)
    with installed("mixed", DEVICES, *kinds, logs=("operator", "node")) as (local, _):
        outweigh(json.loads(run(LOCALCLUSTER, "status", "--json"))["nodes"][0]["cgroup"])
        asyncio.run(measure(local, wanted))


def main() -> None:
    """Measure, or judge what was measured; print, and write figures and picture."""
    parser = argparse.ArgumentParser(prog="make bench-mixed", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="of arrivals, for each rule")
    parser.add_argument(
        "--history", type=float, default=6.0, help="minutes of calm sharing that ours learns from"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rule", type=Rule, action="append", choices=ORDER, help="default: all")
    parser.add_argument("--again", action="store_true", help="judge the last recordings again")
    parser.add_argument("--picture", type=Path, help="PNG (default: build/bench/mixed.png)")
    options = parser.parse_args()
    if options.minutes <= 0 or options.history < 0:
        parser.error("--minutes: give more than 0; --history: 0 or more")
    rules = tuple(options.rule or ORDER)
    if not options.again:
        _on_a_cluster(
            Wanted(
                seed=options.seed,
                seconds=60 * options.minutes,
                history_s=60 * options.history,
                rules=rules,
            )
        )
    report(options.picture or FOLDER / "mixed.png", rules)


if __name__ == "__main__":
    main()
