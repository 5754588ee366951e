# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Models never seen on one device, and the same models once thirty of their pairs are known.

The engine's own path from profiles and rows. What is left out of the training rows to judge by is
what the question leaves out: whole models, or all but thirty pairs of one. Thresholds and the limit
of the utilisation sum come from training rows alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bench.admission_gavel import forecast, part
from bench.colocations import Lucid
from bench.single_numbers import point
from ullage.engines.admission import pair_gp
from ullage.engines.admission.calibration import fixed_sequence
from ullage.engines.admission.colocations import Pairs, Sides, pairs, with_rows
from ullage.engines.admission.judging import (
    LeftOut,
    Risk,
    blocks_by,
    folds_of,
    leave_out,
    score,
    weigh,
)
from ullage.engines.admission.ladder import NOMINAL_Z, Trim
from ullage.engines.admission.pair_gp import Hyper
from ullage.engines.admission.records import Group, Rung

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

MAX_SLOWDOWN = 1.25
"""Both tenants keep 80 % of their speed."""
RISK = Risk(eps=0.02)
KNOWN_PAIRS = 30


@dataclass(slots=True)
class Unseen:
    """What each predictor said of the left-out rows."""

    speed: dict[str, list[Floats]] = field(default_factory=dict)
    slow: list[Mask] = field(default_factory=list)
    covered: list[Floats] = field(default_factory=list)
    selected: dict[str, list[tuple[bool, bool]]] = field(default_factory=dict)
    rungs: list[Rung] = field(default_factory=list)

    def add(self, name: str, slowdown: Floats, observed: Floats) -> None:
        """Errors of speed, relative to the speed seen."""
        self.speed.setdefault(name, []).append(np.abs(observed / slowdown - 1.0))

    def mape(self, name: str, *, slow: bool = False) -> float:
        """Mean absolute percentage error of speed, of all rows or of the slow ones."""
        errors = np.concatenate(self.speed[name])
        return 100.0 * float((errors[np.concatenate(self.slow)] if slow else errors).mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Training rows of one fold, and the process fitted on them."""

    data: Pairs
    hyper: Hyper


def prepared(table: Lucid) -> tuple[Pairs, Sides]:
    """All rows as kernel inputs."""
    sides = Sides.of(with_rows(table.profiles, table.rows))
    return pairs(table.rows, sides), sides


def run(table: Lucid, *, seeds: int) -> tuple[Unseen, Unseen]:
    """Leave each model out; then let it have thirty pairs, for several draws of them."""
    data, sides = prepared(table)
    family = np.array([one.family for one in sides.profiles])
    unseen, history = Unseen(), Unseen()
    for name in sorted(set(family)):
        test: Mask = (family[data.rows.victim] == name) | (family[data.rows.aggressor] == name)
        if not test.any():
            continue
        train = part(data, ~test)
        posterior = pair_gp.learn(train.rows, train.target, blocks_by(train.colocation))
        trained = Trained(data=train, hyper=posterior.hyper)
        folds = folds_of(train, sides)[Group.NEW_FAMILY]
        judge_fold(unseen, trained, part(data, test), sides, Group.NEW_FAMILY, folds)
        numbers = np.unique(data.colocation[test])
        for seed in range(seeds if len(numbers) > KNOWN_PAIRS else 0):
            drawn = np.random.default_rng(seed).choice(numbers, KNOWN_PAIRS, replace=False)
            known = test & np.isin(data.colocation, drawn)
            more = Trained(data=part(data, ~test | known), hyper=posterior.hyper)
            judge_fold(
                history,
                more,
                part(data, test & ~known),
                sides,
                Group.KNOWN,
                cut_down(more.data, family, seed),
            )
    return unseen, history


def cut_down(data: Pairs, family: NDArray[np.str_], seed: int) -> list[Ints]:
    """For every model all rows but those of thirty of its pairs, to be left out together.

    The engine's own folds for known classes leave one pair in ten out, and so judge by models that
    are known better than by thirty pairs.
    """
    random = np.random.default_rng(seed)
    found = []
    for name in np.unique(family):
        own = (family[data.rows.victim] == name) | (family[data.rows.aggressor] == name)
        numbers = np.unique(data.colocation[own])
        if len(numbers) > KNOWN_PAIRS:
            kept = random.choice(numbers, KNOWN_PAIRS, replace=False)
            found.append(np.flatnonzero(own & ~np.isin(data.colocation, kept)))
    return found


def judge_fold(
    result: Unseen,
    trained: Trained,
    asked: Pairs,
    sides: Sides,
    group: Group,
    folds: Sequence[Ints],
) -> None:
    """Forecast, bounds and admissions of one fold, with the baselines.

    ``folds`` are the training rows that are left out together.
    """
    train, observed = trained.data, np.exp(asked.observed)
    base = Rung.UTILISATION_SUM
    out = leave_out(train.rows, train.target, folds, hyper=trained.hyper, plain=base)
    rung, trims = weigh(train, out, group, plain=base, risk=RISK)
    posterior = pair_gp.condition(train.rows, train.target, trained.hyper)
    mean, sd = forecast(train, asked, posterior, rung, trims[rung])
    result.rungs.append(rung)
    result.slow.append(observed >= 1.2)
    result.add("no interference", np.ones(len(observed)), observed)
    result.add("utilisation sum", np.maximum(1.0, np.exp(asked.log_base)), observed)
    raw, raw_sd = posterior.predict(asked.rows)
    result.add("process alone", point(asked.log_base + raw, raw_sd), observed)
    result.add("ours", point(mean, sd), observed)
    result.covered.append((asked.observed <= mean + NOMINAL_Z * sd).astype(float))
    _select(result, trained, asked, sides, (out, group, rung, trims[rung]), (mean, sd))


def _select(
    result: Unseen,
    trained: Trained,
    asked: Pairs,
    sides: Sides,
    judged: tuple[LeftOut, Group, Rung, Trim],
    said: tuple[Floats, Floats],
) -> None:
    out, group, rung, trim = judged
    train = trained.data
    past = score(train, sides, out, rung, trim, group)
    margin = fixed_sequence(past, eps=RISK.eps, confidence=RISK.confidence).value
    rules = {"ours": margin}
    rules["tuned"] = tuned([one.z for one in past], [one.violated for one in past])
    use = utilisation_sums(train, sides)
    busiest = -tuned([-value for value, _ in use], [broken for _, broken in use])
    slack = math.log(MAX_SLOWDOWN)
    sums = [value for value, _ in utilisation_sums(asked, sides)]
    for place, rows in enumerate(blocks_by(asked.colocation)):
        violated = bool((asked.observed[rows] > slack).any())
        z = float(((slack - said[0][rows]) / said[1][rows]).min())
        answers = {name: z >= limit for name, limit in rules.items()}
        answers["utilisation sum, tuned"] = sums[place] <= busiest
        for name, admitted in answers.items():
            result.selected.setdefault(name, []).append((admitted, violated))


def utilisation_sums(data: Pairs, sides: Sides) -> list[tuple[float, bool]]:
    """Sum of both utilisations of every co-location, and whether it broke the objective."""
    use = np.array([one.fingerprint.duty_cycle or 0.0 for one in sides.profiles])
    sums = use[data.rows.victim] + use[data.rows.aggressor]
    broken = data.observed > math.log(MAX_SLOWDOWN)
    return [(float(sums[rows[0]]), bool(broken[rows].any())) for rows in blocks_by(data.colocation)]


def tuned(margins: list[float], violated: list[bool]) -> float:
    """The loosest margin with at most 2 % violations among the rows at hand; no certificate."""
    order = np.argsort(-np.array(margins), kind="stable")
    counts = np.cumsum(np.array(violated)[order])
    good = np.flatnonzero(counts <= RISK.eps * np.arange(1, len(order) + 1))
    return float(np.array(margins)[order][good[-1]]) if len(good) else math.inf
