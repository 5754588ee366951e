# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The replay twin: arrivals on a few devices in virtual time, the operator's own decisions.

``python -m bench.twin [--data FOLDER] [--seed N]`` writes ``build/bench/twin.json``. Every rule is
the operator's cycle under another SchedulingPolicy or with other knowledge. Goodput is the sum of
1/slowdown over the windows in which a tenant's objective holds, per device; an exclusive device
gives 1.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from bench import report
from bench.progress import Progress
from bench.twin_cluster import POLICY, QUEUE, Cluster, Job, Rule, Tally
from bench.twin_data import BUSY_ALONE, SERVES, SLO, Tables, default_folder, load
from bench.twin_models import blind, truth
from bench.twin_node import WINDOW_S
from ullage.engines.admission.calibration import Threshold

DEVICES: Final = ("v100", "p100", "k80")
SEED: Final = 1
HOURS: Final = {"v100": 10.0, "p100": 3.0, "k80": 3.0}
"""The bars stand on the first kind of device; others are shown, and learn for a shorter time."""
GPUS: Final = 12
MEAN_WORK_S: Final = 2400.0
SERVING: Final = 0.2
"""Part of the arrivals that serve."""
PROCESSES: Final = 2

ATTAINMENT: Final = 0.99
GOODPUT: Final = 1.3

RULES: Final[Mapping[str, Callable[[Tables], Rule]]] = {
    "exclusive": lambda _: Rule(shares=False, agents=False),
    "uncontrolled": lambda tables: Rule(model=blind(tables), agents=False),
    "utilisation_sum": lambda _: Rule(predictor="UtilisationSum", knows_use=True),
    "oracle": lambda tables: Rule(model=truth(tables)),
    "ours": lambda _: Rule(learns=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a rule came to on one kind of device."""

    tally: Tally
    windows: float
    """That all devices have."""
    certified: Mapping[str, str]
    """Thresholds in force at the end, for people."""
    seconds: float
    """Of this machine."""

    @property
    def goodput(self) -> float:
        """Per device, in units of a device that one job has for itself."""
        return self.tally.goodput / self.windows

    @property
    def attainment(self) -> float:
        """Windows within their objective, of all tenants but those on trial."""
        return 1 - self.tally.violations / max(1, self.tally.windows)

    @property
    def attainment_with_trials(self) -> float:
        """The same of all tenants."""
        tally = self.tally
        bad = tally.violations + tally.trial_violations
        return 1 - bad / max(1, tally.windows + tally.trial_windows)


def arrivals(tables: Tables, seed: int) -> Iterator[Job]:
    """Work without end; the same for every rule."""
    draw = np.random.default_rng([seed, 1])
    training = [one for one in tables.classes if one.serving is None]
    serving = [one for one in tables.classes if one.serving is not None]
    for number in itertools.count():
        kinds = serving if draw.random() < SERVING else training
        workload_class = kinds[int(draw.integers(len(kinds)))]
        yield Job(f"{number:06d}", workload_class, float(draw.exponential(MEAN_WORK_S)))


def play(device: str, name: str, *, folder: Path, seed: int) -> Score:
    """One rule on one kind of device, from nothing."""
    began, tables = time.monotonic(), load(folder, device)
    rule, hours = RULES[name](tables), HOURS[device]
    cluster = Cluster(tables, rule, arrivals(tables, seed), gpus=GPUS, seed=seed)
    tally = cluster.run(hours)
    model = cluster.models.get(device)
    thresholds = model.thresholds if model is not None else {}
    return Score(
        tally=tally,
        windows=GPUS * hours * 3600 / WINDOW_S,
        certified={
            f"{group} {band}": _margin(threshold)
            for (group, band), threshold in sorted(thresholds.items())
            if threshold.rows
        },
        seconds=time.monotonic() - began,
    )


def _margin(threshold: Threshold) -> str:
    """The smallest margin that is admitted, or why there is none."""
    if not threshold.refuses:
        return f"{threshold.value:.2f}"
    if threshold.needed:
        return f"none yet: rows {threshold.rows} of {threshold.needed}"
    return "none is safe"


def compare(folder: Path, seed: int, progress: Progress) -> dict[str, dict[str, Score]]:
    """All rules on all kinds of devices, the longest first."""
    pairs = sorted(
        itertools.product(DEVICES, RULES), key=lambda at: (-HOURS[at[0]], at[1] != "ours")
    )
    task = progress.task("rules", len(pairs))
    scores: dict[str, dict[str, Score]] = {device: {} for device in DEVICES}
    with ProcessPoolExecutor(PROCESSES) as pool:
        one = partial(play, folder=folder, seed=seed)
        found = pool.map(one, *zip(*pairs, strict=True))
        for done, ((device, name), score) in enumerate(zip(pairs, found, strict=True), start=1):
            scores[device][name] = score
            task.to(done, f"{device} {name}")
            progress.say(
                f"{device} {name}: goodput {score.goodput:.3f}, attainment {score.attainment:.4f}, "
                f"{score.tally.evictions} evictions, {score.tally.cycles} cycles, "
                f"{score.seconds:.0f} s {dict(score.certified) or ''}"
            )
    task.end()
    return {device: {name: scores[device][name] for name in RULES} for device in DEVICES}


def figures(scores: Mapping[str, Mapping[str, Score]]) -> dict[str, report.Figure]:
    """Everything flat; the bars stand on the V100 rows. Goodput is against exclusive devices."""
    found: dict[str, report.Figure] = {"gpus": GPUS}
    for device, rules in scores.items():
        found[f"hours_{device}"] = HOURS[device]
        for name, one in rules.items():
            tail = device if name == "ours" else f"{device}_{name}"
            found[f"goodput_{tail}"] = round(one.goodput / rules["exclusive"].goodput, 4)
            found[f"attainment_{tail}"] = round(one.attainment, 5)
            found[f"attainment_with_trials_{tail}"] = round(one.attainment_with_trials, 5)
            found[f"evictions_{tail}"] = one.tally.evictions
            found[f"finished_{tail}"] = one.tally.finished
    return found


def table(scores: Mapping[str, Mapping[str, Score]]) -> list[report.Row]:
    """Every rule on every kind of device."""
    rows = []
    for device, rules in scores.items():
        for name, one in rules.items():
            barred = name == "ours" and device == DEVICES[0]
            rows.append(
                report.Row(
                    what=f"{device}, {HOURS[device]:g} h, {name.replace('_', ' ')}",
                    ours=f"goodput {one.goodput / rules['exclusive'].goodput:.2f} x, attainment "
                    f"{one.attainment:.2%} ({one.attainment_with_trials:.2%} with trials)",
                    baseline=f"{one.tally.evictions} evictions, {one.tally.finished} finished",
                    limit=f">= {GOODPUT} x, >= {ATTAINMENT:.0%}" if barred else "",
                )
            )
    return rows


def said(folder: Path) -> str:
    """What the figures stand on."""
    mapped = ", ".join(f"{model} = {job}" for model, job in SERVES.items())
    measured = ", ".join(f"{one} {load(folder, one).measured:.0%}" for one in DEVICES)
    return (
        f"Devices: Gavel's pairs, one GPU, shares 100 %; measured {measured}, the rest as the same "
        f"two models at the nearest batch sizes. {SERVING:.0%} of arrivals serve: service time "
        f"from ParvaGPU (A100, whole), contention from Gavel's rows of a like model ({mapped}), "
        f"load {BUSY_ALONE:.0%} alone, exponential service. Objective {SLO:g}, windows of "
        f"{WINDOW_S:g} s, {GPUS} devices, {QUEUE} always wait. SchedulingPolicy: maxPercentSum "
        f"{POLICY.max_percent_sum}, else its defaults."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Play all rules and judge ours.

    Returns:
        0, or 1 when a bar on the V100 rows is missed; 0 without data, which is said.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, default=default_folder(), help="folder of the tables")
    parser.add_argument("--seed", type=int, default=SEED, help="of the arrivals and the noise")
    options = parser.parse_args(arguments)
    try:
        load(options.data, DEVICES[0])
    except FileNotFoundError as error:
        print(f"bench twin: no tables ({error}); name their folder with --data. Nothing was run.")
        return 0
    with Progress() as progress:
        scores = compare(options.data, options.seed, progress)
    found = figures(scores)
    report.write("twin", found, table(scores))
    print(said(options.data))
    bars = {
        f"goodput_{DEVICES[0]}": lambda one: one >= GOODPUT,
        f"attainment_{DEVICES[0]}": lambda one: one >= ATTAINMENT,
    }
    return report.judge(found, bars)


if __name__ == "__main__":
    sys.exit(main())
