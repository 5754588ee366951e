# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a choice of type costs beside the best one, with one measured type and the engine's choice.

The table has no memory peaks: memory is taken as vouched for, except that a type where the
configuration did not run is known to be too small. How often it would be chosen without that is
counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.devicechoice_tables import PRICES, TYPES, Job, Steps
from bench.report import Row
from ullage.api.words import CostObjective
from ullage.engines.devicechoice.choose import MARGIN, choose
from ullage.engines.devicechoice.intervals import LEVEL, around
from ullage.engines.devicechoice.memory import MemoryEvidence, MemoryFit, MemoryVerdict
from ullage.engines.devicechoice.offers import (
    AcceleratorOffer,
    ChoiceGoal,
    OfferCandidate,
    Source,
    StepForecast,
)
from ullage.engines.devicechoice.predict import TrainingWork
from ullage.engines.devicechoice.transfer import Config, Transfer, learn_transfer

Group = Callable[[Job], object]
GOAL = ChoiceGoal(objective=CostObjective.COST_PER_WORK)
FITS = MemoryVerdict(
    verdict=MemoryFit.FITS, evidence=MemoryEvidence.PEAK, need_bytes=1.0, device_bytes=1.0
)
FAILED = MemoryVerdict(
    verdict=MemoryFit.TOO_LARGE, evidence=MemoryEvidence.FAILED, need_bytes=None, device_bytes=1.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """Cost of choices over the best type's, with what went wrong.

    Attributes:
        ratios: One per configuration that ran where it was sent.
        families: Their families.
        infeasible: Configurations sent where they do not run.
        inside: Estimates whose interval held.
        estimates: Estimates with a measured truth.
    """

    ratios: tuple[float, ...]
    families: tuple[str, ...]
    infeasible: int
    inside: int = 0
    estimates: int = 0

    @property
    def mean(self) -> float:
        """Mean ratio."""
        return float(np.mean(self.ratios))

    @property
    def by_family(self) -> float:
        """Mean ratio with the same weight for each family."""
        groups: dict[str, list[float]] = {}
        for family, ratio in zip(self.families, self.ratios, strict=True):
            groups.setdefault(family, []).append(ratio)
        return float(np.mean([np.mean(many) for many in groups.values()]))

    def text(self) -> str:
        """For a table."""
        p90 = float(np.percentile(self.ratios, 90))
        return (
            f"mean {self.mean:.3f}, p90 {p90:.2f}, by family {self.by_family:.2f}, "
            f"infeasible {self.infeasible}"
        )


def costs(steps: Steps, job: Job) -> dict[str, float]:
    """Price of a step on each type; types where it does not run are absent."""
    return {
        kind: PRICES[kind] * job.gpus * steps[job, kind]
        for kind in TYPES
        if steps.get((job, kind), 0.0) > 0
    }


def regret_of(steps: Steps, picks: Mapping[Job, str]) -> Regret:
    """Score a choice of type for each configuration."""
    ratios: list[float] = []
    families: list[str] = []
    infeasible = 0
    for job, kind in picks.items():
        table = costs(steps, job)
        if kind in table:
            ratios.append(table[kind] / min(table.values()))
            families.append(job.family)
        else:
            infeasible += 1
    return Regret(ratios=tuple(ratios), families=tuple(families), infeasible=infeasible)


def one_measured(
    steps: Steps, jobs: Sequence[Job], known: str, left: Group, *, margin: float, told: bool
) -> Regret:
    """Every configuration measured on one type only, the rest learned from other groups.

    Args:
        steps: The table.
        jobs: Configurations.
        known: The measured type; configurations that do not run there are left out.
        left: What is left out together.
        margin: As in ``choose``.
        told: Failures to run are known.
    """
    learned: dict[tuple[object, str], Transfer] = {}
    picks: dict[Job, str] = {}
    inside = estimates = 0
    for job in jobs:
        if steps[job, known] <= 0:
            continue
        candidates = []
        for kind in TYPES:
            step = around(steps[job, known], 1.0)
            if kind != known:
                key = left(job), kind
                if key not in learned:
                    learned[key] = _learn(steps, jobs, known, kind, left, left(job))
                step = learned[key].step(_config(steps, job, known))
                if steps[job, kind] > 0:
                    estimates += 1
                    inside += step.low_s <= steps[job, kind] <= step.high_s
            source = Source.MEASURED if kind == known else Source.ESTIMATED
            failed = told and steps[job, kind] <= 0
            candidates.append(
                OfferCandidate(
                    offer=AcceleratorOffer(
                        accelerator=kind, gpus=job.gpus, price_per_hour=PRICES[kind] * job.gpus
                    ),
                    forecast=StepForecast(step=step, source=source),
                    memory=FAILED if failed else FITS,
                )
            )
        work = TrainingWork(samples=1_000_000, epochs=1, batch_per_gpu=job.batch)
        chosen = choose(candidates, GOAL, work, margin=margin).chosen
        if chosen is not None:
            picks[job] = chosen.offer.accelerator
    scored = regret_of(steps, picks)
    return Regret(
        ratios=scored.ratios,
        families=scored.families,
        infeasible=scored.infeasible,
        inside=inside,
        estimates=estimates,
    )


def _learn(
    steps: Steps, jobs: Sequence[Job], known: str, kind: str, left: Group, away: object
) -> Transfer:
    rows = [
        (_config(steps, job, known), steps[job, kind])
        for job in jobs
        if left(job) != away and min(steps[job, known], steps[job, kind]) > 0
    ]
    return learn_transfer(rows)


def _config(steps: Steps, job: Job, known: str) -> Config:
    return Config(family=job.family, batch=job.batch, gpus=job.gpus, step_s=steps[job, known])


def measure(steps: Steps, tick: Callable[[str], None]) -> tuple[dict[str, float], list[Row]]:
    """Figures and table of this section."""
    jobs = sorted({job for job, _ in steps})
    rows = [Row(what=f"cost of the chosen type / best, {len(jobs)} configurations", ours="")]
    for name, kind in (("newest", "v100"), ("cheapest", "k80"), ("P100", "p100")):
        fixed = regret_of(steps, dict.fromkeys(jobs, kind))
        rows.append(Row(what=f"  always {name}", ours=fixed.text()))
    groups: dict[str, Group] = {
        "configuration": lambda job: job,
        "model and batch": lambda job: job.name,
        "family": lambda job: job.family,
    }
    figures: dict[str, float] = {}
    for name, left in groups.items():
        results = [
            one_measured(steps, jobs, known, left, margin=MARGIN, told=True) for known in TYPES
        ]
        limit = "<= 1.05, infeasible 0" if name == "configuration" else ""
        mean = float(np.mean([one.mean for one in results]))
        rows.append(
            Row(what=f"  {name} left out, one type measured", ours=f"{mean:.3f}", limit=limit)
        )
        rows += [
            Row(what=f"    measured: {known}", ours=one.text())
            for known, one in zip(TYPES, results, strict=True)
        ]
        held = sum(one.inside for one in results) / sum(one.estimates for one in results)
        rows.append(
            Row(what="    interval holds", ours=f"{held:.0%}", baseline=f"nominal {LEVEL:.0%}")
        )
        word = {"configuration": "", "model and batch": "_job", "family": "_family"}[name]
        figures |= {
            f"regret{word}": mean,
            f"infeasible_chosen{word}": float(sum(one.infeasible for one in results)),
            f"coverage_transfer{word}": held,
        }
        blind = [one_measured(steps, jobs, known, left, margin=0.0, told=False) for known in TYPES]
        rows.append(
            Row(
                what="    without margin, and failures not known",
                ours=f"{np.mean([one.mean for one in blind]):.3f}, "
                f"infeasible {sum(one.infeasible for one in blind)}",
            )
        )
        tick(f"regret, {name} left out")
    return figures, rows


def measure_torchvision(
    steps: Mapping[str, Mapping[str, float]], batch: int = 12
) -> tuple[dict[str, float], list[Row]]:
    """Transfer between types on another table, one family of models left out at a time."""
    errors: list[float] = []
    inside: list[bool] = []
    kinds = sorted(steps)
    for known in kinds:
        for kind in kinds:
            if known == kind:
                continue
            models = sorted(set(steps[known]) & set(steps[kind]))
            for away in sorted({_family(model) for model in models}):
                rows = [
                    (_single(model, steps[known][model], batch), steps[kind][model])
                    for model in models
                    if _family(model) != away
                ]
                transfer = learn_transfer(rows)
                for model in models:
                    if _family(model) == away:
                        truth = steps[kind][model]
                        said = transfer.step(_single(model, steps[known][model], batch))
                        errors.append(abs(said.value_s / truth - 1.0))
                        inside.append(said.low_s <= truth <= said.high_s)
    mape, held = 100.0 * float(np.mean(errors)), float(np.mean(inside))
    what = f"step on another type, {len(kinds)} types of torchvision models, family left out"
    return (
        {"torchvision_mape_family": mape, "coverage_torchvision_family": held},
        [
            Row(
                what=what,
                ours=f"MAPE {mape:.1f} %, interval holds {held:.0%}",
                baseline=f"nominal {LEVEL:.0%}",
            )
        ],
    )


def _family(model: str) -> str:
    return "".join(letter for letter in model.split("_", maxsplit=1)[0] if letter.isalpha())


def _single(model: str, step_s: float, batch: int) -> Config:
    return Config(family=_family(model), batch=batch, gpus=1, step_s=step_s)
