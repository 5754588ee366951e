# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Trials of a tuning job on a pool, in virtual time: our planner beside one device a trial.

The synthetic set has log-normal work and speeds that grow by w^.6 on a part of a device and by
w^.85 on several. Makespans are told over two bounds that no schedule beats. Every planner plays the
same trials; a resize takes 1 % of the bound where it costs something. Public tables give real run
times and learning curves where DATA has them; they set no bar.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from bench import report
from bench.progress import Progress
from bench.tuning_exact import shortest_s
from bench.tuning_replay import replays
from ullage.engines.tuning.baselines import first_come, longest_first
from ullage.engines.tuning.bounds import fluid_bound_s, lower_bound_s
from ullage.engines.tuning.planner import plan
from ullage.engines.tuning.records import PlanRules
from ullage.engines.tuning.rungs import SyncHalving
from ullage.engines.tuning.simulator import (
    ChangeKind,
    PlayedTrials,
    SimulatedChange,
    TrialFacts,
    play,
)
from ullage.engines.tuning.speed_curves import SpeedCurve, Widths
from ullage_simulate.tuning import TuningQuestion, drawn, planners, pool, powers

WIDTHS: Final = Widths(per_device=4, devices=4)
RULES: Final = PlanRules(widths=WIDTHS)
EAGER: Final = PlanRules(widths=WIDTHS, gain_factor=0.0, rest_s=0.0)
DEVICES: Final = 8
SIZES: Final = (9, 27, 81)
COST: Final = 0.01
"""Of a resize, in parts of the bound."""
EPOCHS: Final = (1, 3, 9, 27)
MANY: Final = 1000
POWERS: Final = ((1.0, 0.0), (1.0, 0.5), (1.0, 1.0), (0.8, 0.3), (0.6, 0.0))
"""Other curves: powers of the width below one device, and above."""
BARS: Final[report.Bars] = {
    "vs_bound_81": lambda found: found <= 1.15,
    "vs_bound_81_cost": lambda found: found <= 1.25,
    "worst_vs_lpt": lambda found: found <= 1.0,
    "worst_vs_lpt_other_curves": lambda found: found <= 1.01,
    "worst_vs_fifo": lambda found: found >= 1.5,
    "promotions_equal": lambda found: found == 1,
    "thousand_done": lambda found: found == 1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One draw of trials: makespans by planner, over the bound, and the tight bound over it."""

    bound_s: float
    fluid: float
    ends: Mapping[str, float]
    resizes: float

    def over(self, planner: str, other: str) -> float:
        """How many times as long the first takes."""
        return self.ends[planner] / self.ends[other]


def draw(count: int, seed: int) -> Draw:
    """Play one draw with all planners."""
    facts = drawn(count, seed, WIDTHS, 0.0)
    asked = TuningQuestion(name="", facts=facts, names=(), devices=DEVICES, rules=RULES)
    bound = lower_bound_s(asked.waiting, DEVICES, WIDTHS)
    costly = [replace(one, resize_cost_s=COST * bound) for one in facts]
    found: dict[str, PlayedTrials] = {
        name: play(facts, planner, RULES, pool(DEVICES))
        for name, planner in planners(asked).items()
    }
    found["cost"] = play(costly, plan, RULES, pool(DEVICES))
    found["eager"] = play(costly, plan, EAGER, pool(DEVICES))
    return Draw(
        bound_s=bound,
        fluid=fluid_bound_s(asked.waiting, DEVICES, WIDTHS) / bound,
        ends={name: one.makespan_s / bound for name, one in found.items()},
        resizes=found["cost"].resizes / count,
    )


def synthetic(seeds: int, progress: Progress) -> dict[int, list[Draw]]:
    """All draws by number of trials."""
    found = {}
    for count in SIZES:
        progress.say(f"{count} trials, {seeds} draws")
        found[count] = [draw(count, seed) for seed in range(seeds)]
    return found


def synthetic_figures(found: Mapping[int, Sequence[Draw]]) -> dict[str, report.Figure]:
    """Means and worst draws; the bars are of the means, of LPT also of the worst draw."""
    last = found[SIZES[-1]]
    means = [mean([one.over("fifo", "planned") for one in draws]) for draws in found.values()]
    every = [one for draws in found.values() for one in draws]
    figures: dict[str, report.Figure] = {
        "vs_bound_81": mean([one.ends["planned"] for one in last]),
        "vs_bound_81_worst": max(one.ends["planned"] for one in last),
        "vs_bound_81_cost": mean([one.ends["cost"] for one in last]),
        "vs_bound_81_cost_worst": max(one.ends["cost"] for one in last),
        "vs_bound_81_cost_eager": mean([one.ends["eager"] for one in last]),
        "worst_vs_lpt": max(
            max(one.over("planned", "longest"), one.over("cost", "longest")) for one in every
        ),
        "worst_vs_fifo": min(means),
        "worst_draw_vs_fifo": min(one.over("fifo", "planned") for one in every),
        "worst_draw_vs_fifo_possible": min(one.ends["fifo"] / one.fluid for one in every),
    }
    for count, draws in found.items():
        figures[f"vs_tight_bound_{count}"] = mean(
            [one.ends["planned"] / one.fluid for one in draws]
        )
        figures[f"vs_tight_bound_{count}_worst"] = max(
            one.ends["planned"] / one.fluid for one in draws
        )
        figures[f"resizes_per_trial_{count}_cost"] = mean([one.resizes for one in draws])
        for name in draws[0].ends:
            figures[f"vs_bound_{count}_{name}_mean"] = mean([one.ends[name] for one in draws])
    return figures


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean."""
    return float(np.mean(values))


def other_curves(seeds: int) -> dict[str, report.Figure]:
    """Trials that gain nothing by sharing, or by a second device, beside the longest first."""
    ratios = []
    for below, above in POWERS:
        speeds = tuple(w**below if w < 1 else w**above for w in WIDTHS.widths)
        for count in SIZES[:2]:
            for seed in range(seeds):
                facts = [
                    replace(one, curve=SpeedCurve(speeds=speeds))
                    for one in drawn(count, seed, WIDTHS, 30.0)
                ]
                ours, longest = (
                    play(facts, planner, RULES, pool(DEVICES)).makespan_s
                    for planner in (plan, longest_first)
                )
                ratios.append(ours / longest)
    return {"worst_vs_lpt_other_curves": max(ratios)}


def exact_figures(seeds: int) -> dict[str, report.Figure]:
    """Tiny cases beside the shortest schedule there is, in which resizes are free."""
    ratios = []
    for seed in range(seeds):
        chance = np.random.default_rng(seed)
        devices, count = int(chance.integers(1, 4)), int(chance.integers(1, 7))
        widths = Widths(per_device=2, devices=3)
        facts = drawn(count, seed, widths, 0.0)
        asked = TuningQuestion(
            name="", facts=facts, names=(), devices=devices, rules=PlanRules(widths=widths)
        )
        best = shortest_s(asked.waiting, devices, widths)
        ratios.append(play(facts, plan, asked.rules, pool(devices)).makespan_s / best)
    return {"vs_optimum_mean": mean(ratios), "vs_optimum_worst": max(ratios)}


def promotions_equal(seed: int) -> bool:
    """Resized trials, one device lost on the way, beside one trial after the other."""
    chance = np.random.default_rng(seed)
    rates, ends = chance.uniform(0.05, 1.0, 81), chance.random(81)
    facts = [
        replace(one, epoch_s=one.epoch_s / EPOCHS[-1], checkpoint_epochs=1 + one.number % 3)
        for one in drawn(81, seed, WIDTHS, 5.0)
    ]

    def metric(trial: int, epoch: int) -> float:
        return math.nan if trial % 20 == 7 else ends[trial] * (1 - math.exp(-rates[trial] * epoch))

    def promoted(devices: int, changes: tuple[SimulatedChange, ...], **how: object) -> object:
        rungs = SyncHalving(members=tuple(range(81)), epochs=EPOCHS)
        planner = plan if how["resized"] else first_come
        played = play(
            facts, planner, RULES, pool(devices), algorithm=rungs, metric=metric, changes=changes
        )
        return (rungs.promotions, rungs.rungs[-1].best(1, maximise=True), played.stuck)

    lost_s = float(chance.uniform(10, 600))
    changes = (
        SimulatedChange(at_s=lost_s, kind=ChangeKind.LOST, number=0),
        SimulatedChange(at_s=lost_s + 200, kind=ChangeKind.GAINED, number=0),
    )
    return promoted(DEVICES, changes, resized=True) == promoted(1, (), resized=False)


def thousand() -> dict[str, report.Figure]:
    """A thousand trials on two devices, and how planning grows with four times as many."""
    facts = drawn(MANY, 1, WIDTHS, 30.0)
    played = play(facts, plan, RULES, pool(2))
    waits_s = {count: _planning_s(drawn(count, 1, WIDTHS, 30.0)) for count in (MANY, 4 * MANY)}
    return {
        "thousand_done": len(played.ends_s) == MANY and not played.stuck,
        "thousand_plans": played.plans,
        "planning_1000_ms": 1e3 * waits_s[MANY],
        "planning_growth_4x": waits_s[4 * MANY] / waits_s[MANY],
    }


def _planning_s(facts: Sequence[TrialFacts]) -> float:
    """Processor time of the quickest of some plans."""
    asked = TuningQuestion(name="", facts=tuple(facts), names=(), devices=2, rules=RULES)
    took = []
    for _ in range(9):
        began = time.process_time()
        plan(asked.waiting, pool(2), RULES, 0.0)
        took.append(time.process_time() - began)
    return min(took)


def rows_of(found: Mapping[int, Sequence[Draw]]) -> list[report.Row]:
    """Lines of the synthetic set."""
    lines = []
    for count, draws in found.items():
        best = mean([one.fluid for one in draws])
        for name, baseline in (("planned", "longest"), ("cost", "fifo"), ("eager", "static")):
            lines.append(
                report.Row(
                    what=f"{count} trials, {name}: last end over the bound",
                    ours=f"{mean([one.ends[name] for one in draws]):.3f}"
                    f" (worst {max(one.ends[name] for one in draws):.3f})",
                    baseline=f"{baseline} {mean([one.ends[baseline] for one in draws]):.3f}",
                    limit=f"none below {best:.3f}",
                )
            )
    return lines


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=report.DATA)
    parser.add_argument("--seeds", type=int, default=40)
    given = parser.parse_args(words)
    with Progress() as progress:
        found = synthetic(given.seeds, progress)
        figures = synthetic_figures(found)
        progress.say("tiny cases beside the optimum")
        figures |= exact_figures(given.seeds)
        progress.say("other curves")
        figures |= other_curves(max(1, given.seeds // 2))
        progress.say("promotions of resized trials")
        equal = [promotions_equal(seed) for seed in range(max(1, given.seeds // 4))]
        figures["promotions_equal"] = all(equal)
        progress.say(f"{MANY} trials on two devices")
        figures |= thousand()
        replayed = replays(given.data, RULES, powers(WIDTHS), progress)
    lines = rows_of(found)
    for one in replayed:
        figures |= one.figures
        lines.append(one.row)
    report.write("tuning", report.figures_before("tuning") | figures, lines)
    return report.judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
