# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Public run times and learning curves as trials; what is missing is left out, never made up.

Oboe gives run times of 219 configurations on each data set, MLPerf evaluations of many runs of one
network. Speeds at other widths than one device are those of the synthetic set.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from bench import report
from bench.progress import Progress
from ullage.engines.tuning.baselines import first_come, longest_first
from ullage.engines.tuning.bounds import lower_bound_s
from ullage.engines.tuning.planner import plan
from ullage.engines.tuning.records import PlannedTrial, Planner, PlanRules
from ullage.engines.tuning.rungs import SyncHalving
from ullage.engines.tuning.simulator import PlayedTrials, TrialFacts, play
from ullage.engines.tuning.speed_curves import SpeedCurve
from ullage_simulate.tuning import pool

DEVICES: Final = 8
TRIALS: Final = 81
MEAN_S: Final = 600.0
"""Run times are stretched to this mean: the tables are of small data on a CPU."""
DATA_SETS: Final = 20
NETWORK: Final = "unet3d"
EPOCHS: Final = (1, 3, 9)
COST_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Figures of one source and its line of the table."""

    figures: dict[str, report.Figure]
    row: report.Row


def replays(data: Path, rules: PlanRules, curve: SpeedCurve, progress: Progress) -> list[Replay]:
    """What of the tables is there."""
    found = []
    times = data / "hpo" / "oboe_runtime_s.csv.gz"
    if times.exists():
        progress.say("Oboe's run times")
        found.append(oboe(times, rules, curve))
    curves = data / "hpo" / "mlperf_learning_curves.csv.gz"
    if curves.exists():
        progress.say("MLPerf's learning curves")
        found.append(mlperf(curves, rules, curve))
    return found


def oboe(path: Path, rules: PlanRules, curve: SpeedCurve) -> Replay:
    """81 configurations on each of some data sets, with a cost of 30 s for each resize."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        table = [[float(cell) for cell in row[1:]] for row in list(csv.reader(lines))[1:]]
    chance = np.random.default_rng(1)
    over: dict[str, list[float]] = defaultdict(list)
    for at in chance.choice(len(table), DATA_SETS, replace=False).tolist():
        times = chance.choice(np.maximum(table[at], 1e-6), TRIALS, replace=False)
        works = (times * MEAN_S / times.mean()).tolist()
        facts = [_facts(number, work, curve) for number, work in enumerate(works)]
        waiting = [
            PlannedTrial(number=one.number, work_s=one.epoch_s, curve=curve) for one in facts
        ]
        bound = lower_bound_s(waiting, DEVICES, rules.widths)
        for name, planner in _PLANNERS.items():
            played = play(facts, planner, rules, pool(DEVICES))
            over[name].append(played.makespan_s / bound)
    return Replay(
        figures={f"oboe_vs_bound_{name}": float(np.mean(found)) for name, found in over.items()},
        row=_row(f"Oboe, {DATA_SETS} data sets, {TRIALS} trials: last end over the bound", over),
    )


def mlperf(path: Path, rules: PlanRules, curve: SpeedCurve) -> Replay:
    """Successive halving over runs of one network that differ in seed, batch and system."""
    runs = _runs(path)
    facts = [
        replace(_facts(at, 1.0, curve), epoch_s=epoch_s, epochs=len(values))
        for at, (epoch_s, values) in enumerate(runs)
    ]

    def metric(trial: int, epoch: int) -> float:
        return runs[trial][1][epoch - 1]

    def halved(planner: Planner, devices: int) -> tuple[PlayedTrials, object]:
        rungs = SyncHalving(members=tuple(range(len(runs))), epochs=EPOCHS)
        played = play(facts, planner, rules, pool(devices), algorithm=rungs, metric=metric)
        return played, rungs.promotions

    alone = halved(first_come, 1)[1]
    found = {name: halved(planner, DEVICES) for name, planner in _PLANNERS.items()}
    ours_s = found["planned"][0].makespan_s
    figures: dict[str, report.Figure] = {
        f"mlperf_halving_vs_{name}": played.makespan_s / ours_s
        for name, (played, _) in found.items()
        if name != "planned"
    }
    figures["mlperf_promotions_equal"] = all(one == alone for _, one in found.values())
    over = {name: [played.makespan_s / ours_s] for name, (played, _) in found.items()}
    return Replay(
        figures=figures,
        row=_row(f"MLPerf {NETWORK}, halving of {len(runs)} runs: last end over ours", over),
    )


_PLANNERS: Final[dict[str, Planner]] = {
    "planned": plan,
    "longest": longest_first,
    "fifo": first_come,
}


def _facts(number: int, work_s: float, curve: SpeedCurve) -> TrialFacts:
    return TrialFacts(number=number, epoch_s=work_s, curve=curve, resize_cost_s=COST_S)


def _runs(path: Path) -> list[tuple[float, list[float]]]:
    """Seconds between evaluations, stretched, and values of each run with evaluations enough."""
    times: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["benchmark"] == NETWORK:
                key = tuple(row[name] for name in ("round", "submitter", "system", "run", "metric"))
                moment = float(row["time_s_since_run_start"])
                times[key].append((moment, float(row["value"])))
    whole = [sorted(one) for _, one in sorted(times.items()) if len(one) >= EPOCHS[-1]]
    chosen = np.random.default_rng(1).choice(len(whole), min(TRIALS, len(whole)), replace=False)
    picked = [whole[at] for at in chosen.tolist()]
    steps = [one[EPOCHS[-1] - 1][0] / EPOCHS[-1] for one in picked]
    stretch = MEAN_S / EPOCHS[-1] / float(np.mean(steps))
    return [
        (step * stretch, [value for _, value in one])
        for step, one in zip(steps, picked, strict=True)
    ]


def _row(what: str, over: dict[str, Sequence[float]] | dict[str, list[float]]) -> report.Row:
    means = {name: f"{float(np.mean(found)):.3f}" for name, found in over.items()}
    return report.Row(
        what=what,
        ours=means["planned"],
        baseline=f"longest {means['longest']}, fifo {means['fifo']}",
    )
