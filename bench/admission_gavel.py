# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pairs, configurations and families left out of one type's table: every predictor side by side.

All predictors see the same folds; every choice of ours is made inside the training rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bench.colocations import Gavel
from bench.single_numbers import point
from ullage.engines.admission import calibration, pair_gp
from ullage.engines.admission.bias import fit_bias
from ullage.engines.admission.calibration import Scored
from ullage.engines.admission.colocations import Pairs, Sides
from ullage.engines.admission.judging import (
    Risk,
    as_new_as,
    blocks_by,
    folds_of,
    leave_out,
    score,
    weigh,
)
from ullage.engines.admission.ladder import NOMINAL_Z, Trim
from ullage.engines.admission.records import ClassProfile, Group, Rung

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SLOW = 1.2
RISK = Risk()


@dataclass(slots=True)
class Tally:
    """Absolute relative errors of one predictor, with what was observed."""

    errors: list[Floats] = field(default_factory=list)
    slow: list[NDArray[np.bool_]] = field(default_factory=list)

    def add(self, said: Floats, observed: Floats) -> None:
        """Errors of slowdowns."""
        self.errors.append(np.abs(said / observed - 1.0))
        self.slow.append(observed >= SLOW)

    @property
    def mape(self) -> float:
        """Mean absolute percentage error of the rows."""
        return 100.0 * float(np.concatenate(self.errors).mean())

    @property
    def mape_slow(self) -> float:
        """The same for rows that slow down by 1.2 or more."""
        errors, slow = np.concatenate(self.errors), np.concatenate(self.slow)
        return 100.0 * float(errors[slow].mean())


@dataclass(slots=True)
class Split:
    """All predictors on one way of leaving out, and whether bounds held."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    covered: list[Floats] = field(default_factory=list)
    covered_reference: list[Floats] = field(default_factory=list)
    selected: dict[str, list[tuple[bool, bool]]] = field(default_factory=dict)
    pairs: list[Ints] = field(default_factory=list)
    """The pair of each row that was left out."""

    def tally(self, name: str) -> Tally:
        """The tally of a predictor."""
        return self.tallies.setdefault(name, Tally())

    def ratio(self, draws: int = 2000) -> tuple[float, float, float]:
        """Error of ours over that of the reference, with the 95 % interval.

        Pairs are drawn with replacement: rows of one pair, in whatever split, say the same.
        """
        pairs = np.concatenate(self.pairs)
        ours, other = (
            np.bincount(pairs, np.concatenate(self.tally(name).errors))
            for name in ("ours", "reference")
        )
        there = np.flatnonzero(np.bincount(pairs))
        chosen = np.random.default_rng(0).choice(there, (draws, len(there)))
        ratios = ours[chosen].sum(axis=1) / other[chosen].sum(axis=1)
        low, high = np.quantile(ratios, (0.025, 0.975))
        return float(ours.sum() / other.sum()), float(low), float(high)


def sides_of(table: Gavel, features: Floats) -> Sides:
    """The jobs as classes; features are those of the table."""
    profiles = tuple(
        ClassProfile(workload_class=job, family=family)
        for job, family in zip(table.jobs, table.families, strict=True)
    )
    index = {job: number for number, job in enumerate(table.jobs)}
    return Sides(profiles=profiles, index=index, features=features)


def part(data: Pairs, mask: NDArray[np.bool_]) -> Pairs:
    """Rows of a mask."""
    return Pairs(
        kept=tuple(one for one, wanted in zip(data.kept, mask, strict=True) if wanted),
        rows=data.rows.take(mask),
        log_base=data.log_base[mask],
        observed=data.observed[mask],
        colocation=data.colocation[mask],
    )


def pair_folds(data: Pairs, seed: int, folds: int = 5) -> list[NDArray[np.bool_]]:
    """Both directions of a pair fall into the same fold."""
    order = np.random.default_rng(seed).permutation(int(data.colocation.max()) + 1)
    fold = np.empty(len(order), np.int64)
    fold[order] = np.arange(len(order)) % folds
    return [fold[data.colocation] == one for one in range(folds)]


def class_folds(data: Pairs, keys: Iterable[tuple[int, ...]]) -> list[NDArray[np.bool_]]:
    """Every pair in which one of the classes takes part is left out; none where none ran."""
    found = [np.isin(data.rows.victim, key) | np.isin(data.rows.aggressor, key) for key in keys]
    return [test for test in found if test.any()]


def run_fold(
    split: Split, data: Pairs, sides: Sides, test: NDArray[np.bool_], group: Group, use: Floats
) -> None:
    """Train every predictor on one fold and add what it says of the rest."""
    train, asked = part(data, ~test), part(data, test)
    observed = np.exp(asked.observed)
    split.pairs.append(asked.colocation)
    split.tally("no interference").add(np.ones(len(observed)), observed)
    crowd = np.maximum(1.0, use[asked.rows.victim] + use[asked.rows.aggressor])
    split.tally("utilisation sum").add(crowd, observed)
    bias = fit_bias(train.rows.victim, train.rows.aggressor, train.target, len(use))
    said = np.exp(bias.predict(asked.rows.victim, asked.rows.aggressor))
    split.tally("bias").add(np.maximum(1.0, said), observed)
    hyper = pair_gp.fit(train.rows, train.target, pair_gp.REFERENCE)
    mean, sd = pair_gp.condition(train.rows, train.target, hyper).predict(asked.rows)
    split.tally("reference").add(np.exp(mean), observed)
    split.covered_reference.append((asked.observed <= mean + NOMINAL_Z * sd).astype(float))
    ours(split, train, asked, sides, group)


def ours(split: Split, train: Pairs, asked: Pairs, sides: Sides, group: Group) -> None:
    """The engine: process, rung and trim from left-out training rows, then the forecast."""
    posterior = pair_gp.learn(train.rows, train.target, blocks_by(train.colocation))
    folds = folds_of(train, sides)[group]
    out = leave_out(
        train.rows, train.target, folds, hyper=posterior.hyper, plain=Rung.UTILISATION_SUM
    )
    rung, trims = weigh(train, out, group, plain=Rung.UTILISATION_SUM, risk=RISK)
    mean, sd = forecast(train, asked, posterior, rung, trims[rung])
    observed = np.exp(asked.observed)
    split.tally("ours").add(point(mean, sd), observed)
    split.covered.append((asked.observed <= mean + NOMINAL_Z * sd).astype(float))
    if asked.kept[0].max_slowdown is not None:
        out = out.where(as_new_as(group, train, sides, out))
        past = score(train, sides, out, rung, trims[rung], group)
        select(split, past, group, asked, mean, sd)


def forecast(
    train: Pairs, asked: Pairs, posterior: pair_gp.Posterior, rung: Rung, trim: Trim
) -> tuple[Floats, Floats]:
    """Log slowdown of new rows on a rung, as the learned model answers."""
    if rung is Rung.GP:
        mean, sd = posterior.predict(asked.rows)
    elif rung is Rung.BIAS:
        classes = 1 + int(max(one.rows.victim.max() for one in (train, asked)))
        classes = max(classes, 1 + int(max(one.rows.aggressor.max() for one in (train, asked))))
        bias = fit_bias(train.rows.victim, train.rows.aggressor, train.target, classes)
        mean = bias.predict(asked.rows.victim, asked.rows.aggressor)
        sd = np.full(len(mean), bias.sd)
    else:
        spread = float(np.sqrt(np.mean(train.target**2)))
        mean, sd = np.zeros(len(asked.kept)), np.full(len(asked.kept), spread)
    return np.maximum(asked.log_base + trim.mean(mean), 0.0), trim.spread * sd


def select(
    split: Split, past: list[Scored], group: Group, asked: Pairs, mean: Floats, sd: Floats
) -> None:
    """Admit test pairs by the certified rule and by the mean alone."""
    certified = calibration.thresholds(past, eps=RISK.eps, confidence=RISK.confidence)
    for rows in blocks_by(asked.colocation):
        slo = asked.kept[rows[0]].max_slowdown or 1.0
        z = float(((math.log(slo) - mean[rows]) / sd[rows]).min())
        violated = bool((asked.observed[rows] > math.log(slo)).any())
        threshold = certified[group, calibration.band_of(slo)]
        for rule, limit in (("certified", threshold.value), ("mean", 0.0)):
            split.selected.setdefault(rule, []).append((z >= limit, violated))


def pair_out(table: Gavel, gpu: str, seeds: int, *, slo: float | None) -> Split:
    """Five folds of pairs, some seeds."""
    features = table.features(families=True)
    data, sides = table.rows(gpu, features, slo), sides_of(table, features)
    split = Split()
    for seed in range(seeds):
        for test in pair_folds(data, seed):
            run_fold(split, data, sides, test, Group.KNOWN, table.self_use(gpu))
    return split


def config_out(table: Gavel, gpu: str) -> Split:
    """One configuration left out, siblings known."""
    features = table.features(families=True)
    data, sides = table.rows(gpu, features), sides_of(table, features)
    split = Split()
    keys = [
        (number,)
        for number, family in enumerate(table.families)
        if table.families.count(family) > 1
    ]
    for test in class_folds(data, keys):
        run_fold(split, data, sides, test, Group.NEW_CONFIG, table.self_use(gpu))
    return split


def family_out(table: Gavel, gpu: str) -> Split:
    """One family left out."""
    features = table.features(families=False)
    data, sides = table.rows(gpu, features), sides_of(table, features)
    split = Split()
    keys = [
        tuple(number for number, one in enumerate(table.families) if one == family)
        for family in sorted(set(table.families))
    ]
    for test in class_folds(data, keys):
        run_fold(split, data, sides, test, Group.NEW_FAMILY, table.self_use(gpu))
    return split


def rates(selected: list[tuple[bool, bool]]) -> tuple[float, float, float]:
    """Admitted, violations among the admitted, and recall of what was safe; percent."""
    admitted, violated = np.array(selected, bool).T
    safe = ~violated
    wrong = 100.0 * float(violated[admitted].mean()) if admitted.any() else 0.0
    return 100.0 * float(admitted.mean()), wrong, 100.0 * float(admitted[safe].mean())
