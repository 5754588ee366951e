# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A hundred random kills while searches run on the local cluster: every result counts once.

``python -m bench.tuning_kills``. Operator, its processes, agents, guards, kubelets, containerd, the
API server, pods and containers are killed one after the other while a search by successive halving
divides four devices; when it ends, another one begins. At the end each trial has one result for
each epoch that it was to reach, and those that went on are the best of their rung. Figures go into
``tuning.json``.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from bench import report
from bench.api_client import ApiClient, NotAnswered
from bench.faults_inject import Faults
from bench.hostile_objects import collection
from bench.local import installed
from bench.progress import Progress
from bench.tuning_search import Way, search
from demo.cluster import EmulatedDevice, LocalCluster
from demo.progress import CommandFailed

Json = dict[str, Any]
Said = Callable[[str], None]
T = TypeVar("T")

DEVICES: Final = {
    f"node-{at + 1}": [EmulatedDevice(core=at, percent=40), EmulatedDevice(core=at, percent=40)]
    for at in range(2)
}
NAMESPACE: Final = "kills"
KILLS: Final = 100
PAUSE_S: Final = (3.0, 7.0)
"""Shortest and longest time between two kills."""
LOOK_S: Final = 5.0
SETTLE_S: Final = 900.0
"""What is left of a search may take so long once nothing is killed any more."""
RESTARTS: Final = 1_000
"""A trial that is killed starts again, as often as it takes."""
BARS: Final[report.Bars] = {
    "kills": lambda found: found >= KILLS,
    "kills_results_lost": lambda found: found == 0,
    "kills_results_doubled": lambda found: found == 0,
    "kills_failed_trials": lambda found: found == 0,
    "kills_wrong_promotions": lambda found: found == 0,
}


@dataclass(slots=True, kw_only=True)
class Counted:
    """What searches came to."""

    searches: int = 0
    results: int = 0
    resizes: int = 0
    lost: int = 0
    doubled: int = 0
    failed: int = 0
    wrong: int = 0
    unfinished: list[str] = field(default_factory=list)

    def take(self, job: Json) -> None:
        """Count an ended search.

        Args:
            job: The TuningJob.
        """
        spec, status = job["spec"], job["status"]
        results: list[Json] = status.get("results", [])
        times = Counter((one["trial"], one["epoch"]) for one in results)
        self.searches += 1
        self.results += len(results)
        self.resizes += len(status.get("resizes", []))
        self.doubled += sum(count - 1 for count in times.values())
        self.failed += sum("value" not in one for one in results)
        best = set(range(spec["trials"]))
        for epoch, wanted in rungs(spec):
            reached = {trial for trial, at in times if at == epoch}
            self.lost += max(0, wanted - len(reached))
            self.wrong += len(reached - best)
            best = _best(results, epoch, spec["algorithm"]["reductionFactor"])


def rungs(spec: Json) -> Iterator[tuple[int, int]]:
    """Epochs of the rungs of successive halving, and how many trials are to reach each."""
    algorithm = spec["algorithm"]
    epoch, trials = algorithm["minEpochs"], spec["trials"]
    while epoch <= algorithm["maxEpochs"] and trials:
        yield epoch, trials
        epoch *= algorithm["reductionFactor"]
        trials //= algorithm["reductionFactor"]


def _best(results: Sequence[Json], epoch: int, factor: int) -> set[int]:
    """Trials that go on from an epoch."""
    values = {
        one["trial"]: float(one["value"])
        for one in results
        if one["epoch"] == epoch and "value" in one
    }
    ranked = sorted(values, key=lambda trial: (-values[trial], trial))
    return set(ranked[: len(ranked) // factor])


@dataclass(slots=True)
class Searches:
    """One search after the other."""

    api: ApiClient
    counted: Counted = field(default_factory=Counted)
    name: str = ""

    def look(self, *, more: bool) -> bool:
        """Begin a search where none runs; count one that has ended.

        Args:
            more: Another one begins when this one has ended.

        Returns:
            Whether one runs.

        Raises:
            NotAnswered: the API server is away.
        """
        path = collection("tuningjobs", NAMESPACE)
        if self.name:
            job = self.api.get(f"{path}/{self.name}")
            if job is None or job.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                return True
            self.counted.take(job)
            self.name = ""
        if more:
            name = f"search-{self.counted.searches}-{time.time():.0f}"
            body = search(Way.DIVIDED, name, NAMESPACE)
            body["spec"]["resources"] = {"devices": 4, "minPercent": 50}
            body["spec"]["trialTemplate"]["failurePolicy"] = {"maxRestarts": RESTARTS}
            self.api.create(path, body)
            self.name = name
        return bool(self.name)


def play(searches: Searches, faults: Faults, kills: int, dice: random.Random, said: Said) -> int:
    """Kill until enough was killed, then let the last search end.

    Returns:
        How often something was killed.
    """
    done = 0
    while done < kills:
        _tried(lambda: searches.look(more=True), said)
        time.sleep(dice.uniform(*PAUSE_S))
        told = _tried(faults.inject, said)
        if told is not None and not told.endswith("nothing to harm"):
            done += 1
            said(f"{done} of {kills}  {told}")
    end = time.monotonic() + SETTLE_S
    while time.monotonic() < end and _tried(lambda: searches.look(more=False), said) is not False:
        time.sleep(LOOK_S)
    if searches.name:
        searches.counted.unfinished.append(searches.name)
    return done


def _tried(act: Callable[[], T], said: Said) -> T | None:
    try:
        return act()
    except (NotAnswered, CommandFailed) as error:  # the fault, not the product
        said(f"not done: {error}")
        return None


def run(local: LocalCluster, kills: int, seed: int, said: Said) -> tuple[int, Counted, Faults]:
    """Kill and count on a cluster with Ullage."""
    api, dice = ApiClient(local.kubeconfig), random.Random(f"kills-{seed}")
    api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    searches = Searches(api)
    faults = Faults(api, local, NAMESPACE, dice)
    return play(searches, faults, kills, dice, said), searches.counted, faults


def main() -> int:
    """Kill, print one table, add the figures to build/bench/tuning.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logs = ("operator", "node")
    with (
        installed("tuning-kills", DEVICES, NotAnswered, logs=logs) as (local, _),
        Progress() as progress,
    ):
        kills, counted, faults = run(local, options.kills, options.seed, progress.say)
    for name in counted.unfinished:
        print(f"did not end: {name}", file=sys.stderr)
    figures: dict[str, report.Figure] = {
        "kills": kills,
        "kills_searches": counted.searches,
        "kills_results": counted.results,
        "kills_resizes": counted.resizes,
        "kills_results_lost": counted.lost + len(counted.unfinished),
        "kills_results_doubled": counted.doubled,
        "kills_failed_trials": counted.failed,
        "kills_wrong_promotions": counted.wrong,
        **{f"kills_{name}": count for name, count in faults.counts.items()},
    }
    rows = [
        report.Row(
            what=name, ours=str(value), limit="0" if name in BARS and name != "kills" else ""
        )
        for name, value in figures.items()
    ]
    report.write("tuning", report.figures_before("tuning") | figures, rows)
    return report.judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
