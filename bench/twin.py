# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The replay twin: two days of arrivals on a few devices, every sharing rule over the same ones.

``python -m bench.twin [--data FOLDER] [--seed N ...]`` writes ``build/bench/twin.json``. Goodput
is the sum of 1/slowdown over the windows in which a tenant's objective holds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np

from bench import report
from bench.progress import Progress
from bench.twin_data import BUSY_ALONE, SERVES, SLO, World, default_folder, load
from bench.twin_ours import Ours, certified, ours
from bench.twin_rules import Admitting, Exclusive, Halves, Uncontrolled, perfect
from bench.twin_world import NOISE_SD, WINDOW_S, Job, Rule, Tally, Twin

DEVICES: Final = ("v100", "p100", "k80")
SEEDS: Final = (1, 2)
HOURS: Final = 48.0
GPUS: Final = 12
MEAN_WORK_S: Final = 2400.0
BACKLOG: Final = 60
CROWDING: Final = 2.4
"""Work that arrives, in units of what the devices could do one job at a time."""
SERVING: Final = 0.2
"""Part of the arrivals that serve."""

ATTAINMENT: Final = 0.99
GOODPUT: Final = 1.3
VIOLATIONS: Final = 0.2

RULES: Final[Mapping[str, Callable[[World], Rule]]] = {
    "exclusive": Exclusive,
    "uncontrolled": Uncontrolled,
    "uncontrolled_guarded": lambda world: Uncontrolled(world, guarded=True),
    "static_50_50": Halves,
    "utilisation_sum": Admitting,
    "perfect_knowledge": perfect,
    "ours": ours,
}


@dataclass(frozen=True, slots=True)
class Score:
    """A rule over all seeds."""

    tally: Tally
    capacity: float
    """Windows that all devices have."""

    @property
    def attainment(self) -> float:
        """Windows of admitted tenants within their objective; trials counted apart."""
        return 1 - self.tally.violations / max(1, self.tally.windows)

    @property
    def attainment_shared(self) -> float:
        """The same over shared devices alone."""
        return 1 - self.tally.violations / max(1, self.tally.shared_windows)

    @property
    def attainment_with_trials(self) -> float:
        """The same with the windows of trials."""
        bad = self.tally.violations + self.tally.trial_violations
        return 1 - bad / max(1, self.tally.windows + self.tally.trial_windows)

    @property
    def all_violations(self) -> int:
        """Windows above an objective, those of trials too."""
        return self.tally.violations + self.tally.trial_violations

    @property
    def goodput(self) -> float:
        """Per device, in units of a device that one job has for itself."""
        return self.tally.goodput / self.capacity


def arrivals(world: World, hours: float, seed: int) -> list[tuple[float, Job]]:
    """A backlog and Poisson arrivals after it; the same for every rule."""
    draw = np.random.default_rng([seed, 1])
    training = [one for one in world.classes if not one.latency]
    serving = [one for one in world.classes if one.latency]
    rate = CROWDING * GPUS / MEAN_WORK_S
    moment = 0.0
    found: list[tuple[float, Job]] = []
    while moment < hours * 3600:
        if len(found) >= BACKLOG:
            moment += float(draw.exponential(1 / rate))
        kinds = serving if draw.random() < SERVING else training
        workload_class = kinds[int(draw.integers(len(kinds)))]
        work = float(draw.exponential(MEAN_WORK_S))
        found.append((moment, Job(len(found), workload_class, work)))
    return found


def play(
    world: World, make: Callable[[World], Rule], seeds: Sequence[int], hours: float
) -> tuple[Score, Rule]:
    """One rule over all seeds, each from nothing."""
    total = Tally()
    rule = make(world)
    for number, seed in enumerate(seeds):
        rule = make(world) if number else rule
        twin = Twin(world, rule, gpus=GPUS, arrivals=arrivals(world, hours, seed), seed=seed)
        tally = twin.run(hours * 3600)
        for one in fields(Tally):
            setattr(total, one.name, getattr(total, one.name) + getattr(tally, one.name))
    windows = GPUS * hours * 3600 / WINDOW_S * len(seeds)
    return Score(total, windows), rule


def compare(
    device: str, folder: Path, seeds: Sequence[int], hours: float, progress: Progress
) -> dict[str, Score]:
    """All rules on one kind of device, told while they run."""
    world = load(folder, device)
    scores: dict[str, Score] = {}
    task = progress.task(device, len(RULES))
    for name, make in RULES.items():
        started = time.monotonic()
        task.to(len(scores), f"{device} {name}, rules played")
        scores[name], rule = play(world, make, seeds, hours)
        one = scores[name]
        progress.say(
            f"{device} {name}: goodput {one.goodput:.3f}, attainment {one.attainment:.4f}, "
            f"{one.tally.evictions} evictions, {one.tally.trials} trials "
            f"({time.monotonic() - started:.0f} s)"
        )
        if isinstance(rule, Ours):
            progress.say(f"certified at the end: {certified(rule)}")
    task.end()
    return scores


def figures(scores: Mapping[str, Mapping[str, Score]]) -> dict[str, report.Figure]:
    """Everything flat; the bars stand on the V100 rows."""
    main_, base = scores[DEVICES[0]]["ours"], scores[DEVICES[0]]["exclusive"]
    loose = scores[DEVICES[0]]["uncontrolled"]
    found: dict[str, report.Figure] = {
        "attainment": round(main_.attainment, 5),
        "goodput_vs_exclusive": round(main_.goodput / base.goodput, 4),
        "violations_vs_uncontrolled": round(main_.all_violations / loose.all_violations, 5),
        "violations_vs_static": round(
            main_.all_violations / scores[DEVICES[0]]["static_50_50"].all_violations, 5
        ),
        "hours": HOURS,
        "gpus": GPUS,
    }
    for device, rules in scores.items():
        for name, one in rules.items():
            head = f"{device}_{name}"
            found[f"{head}_goodput"] = round(one.goodput / rules["exclusive"].goodput, 4)
            found[f"{head}_attainment"] = round(one.attainment, 5)
            found[f"{head}_attainment_shared"] = round(one.attainment_shared, 5)
            found[f"{head}_attainment_with_trials"] = round(one.attainment_with_trials, 5)
            found[f"{head}_violations"] = one.tally.violations
            found[f"{head}_trial_violations"] = one.tally.trial_violations
            found[f"{head}_evictions"] = one.tally.evictions
            found[f"{head}_trials"] = one.tally.trials
            found[f"{head}_finished"] = one.tally.finished
    return found


def table(scores: Mapping[str, Mapping[str, Score]]) -> list[report.Row]:
    """The bars first, then every rule."""
    rules = scores[DEVICES[0]]
    ours_, base, loose = rules["ours"], rules["exclusive"], rules["uncontrolled"]
    rows = [
        report.Row(
            what="SLO attainment of admitted work",
            ours=f"{ours_.attainment:.2%}",
            baseline=f"{loose.attainment:.2%} uncontrolled",
            limit=f">= {ATTAINMENT:.0%}",
        ),
        report.Row(
            what="goodput against exclusive devices",
            ours=f"{ours_.goodput / base.goodput:.2f} x",
            baseline=f"{loose.goodput / base.goodput:.2f} x uncontrolled",
            limit=f">= {GOODPUT} x",
        ),
        report.Row(
            what="violations, trials too, against uncontrolled",
            ours=f"{ours_.all_violations / loose.all_violations:.4f}",
            limit=f"<= {VIOLATIONS}",
        ),
    ]
    for device, found in scores.items():
        for name, one in found.items():
            rows.append(
                report.Row(
                    what=f"{device} {name.replace('_', ' ')}",
                    ours=f"goodput {one.goodput / found['exclusive'].goodput:.2f} x, "
                    f"attainment {one.attainment:.2%}",
                    baseline=f"{one.all_violations} violations, {one.tally.evictions} evictions, "
                    f"{one.tally.finished} finished",
                )
            )
    return rows


def said() -> str:
    """What the figures stand on."""
    mapped = ", ".join(f"{model} = {job}" for model, job in SERVES.items())
    return (
        f"Devices: Gavel's measured pairs, one GPU, shares 100 %; pairs without a row are offered "
        f"to no rule. {SERVING:.0%} of arrivals serve: service time from ParvaGPU (A100, whole), "
        f"contention from Gavel's rows of a like model ({mapped}), load {BUSY_ALONE:.0%} alone, "
        f"exponential service; no public table pairs serving with training. SLO {SLO:g}, windows "
        f"of {WINDOW_S:g} s with {NOISE_SD:.0%} noise, {GPUS} devices, {HOURS:g} h, queue never "
        "empty. static 50/50: two hard halves, each as slow as beside its own copy, at most 2."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Play all rules and judge ours.

    Returns:
        0, or 1 when a bar on the V100 rows is missed; 0 without data, which is said.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, default=default_folder(), help="folder of the tables")
    parser.add_argument(
        "--seed", type=int, nargs="+", default=list(SEEDS), help="seeds of the arrivals"
    )
    options = parser.parse_args(arguments)
    try:
        load(options.data, DEVICES[0])
    except FileNotFoundError as error:
        print(f"bench twin: no tables ({error}); name their folder with --data. Nothing was run.")
        return 0
    scores = {}
    with Progress() as progress:
        for one in DEVICES:
            # the bars stand on the first kind of device; the others are shown, one seed is enough
            seeds = options.seed[: None if one == DEVICES[0] else 1]
            scores[one] = compare(one, options.data, seeds, HOURS, progress)
    found = figures(scores)
    report.write("twin", found, table(scores))
    print(said())
    ours_, rules = scores[DEVICES[0]]["ours"], scores[DEVICES[0]]
    met = (
        ours_.attainment >= ATTAINMENT
        and ours_.goodput >= GOODPUT * rules["exclusive"].goodput
        and ours_.all_violations <= VIOLATIONS * rules["uncontrolled"].all_violations
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
