# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What is left out when a row is predicted, and how wrong the prediction was.

Errors are of the slowdown itself, never of its logarithm. Intervals come from a bootstrap over
pairs, not rows: the rows of one pair are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.gpu.catalogue import PROBES
from bench.gpu.measured import Measured
from bench.gpu.predictors import PREDICTORS, Predictor, World
from bench.single_numbers import point
from ullage.engines.admission.novelty import History, Named

Floats = NDArray[np.float64]
FOLDS: Final = 5
SLOW: Final = 1.2
"""From here on a row counts as slowed down."""
LEAST_TRAIN: Final = 10
BOUND_Z: Final = 1.2816
"""Standard normal 90 % quantile."""
RESAMPLES: Final = 500

Fold = tuple[list[Measured], list[Measured]]
"""Training rows and test rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One row beside what was predicted of it without having seen it."""

    row: Measured
    mean: float
    sd: float
    group: str

    @property
    def error(self) -> float:
        """Relative error of the slowdown."""
        spread = 0.0 if math.isnan(self.sd) else self.sd
        value = float(point(np.array([self.mean]), np.array([spread]))[0])
        return abs(value - self.row.slowdown) / self.row.slowdown


def pair_rows(rows: Sequence[Measured]) -> list[Measured]:
    """Rows of two tenants at normal priority in a closed loop; probes among them."""
    return [
        one
        for one in rows
        if len(one.others) == 1
        and one.rate is None
        and one.block not in ("priority", "freeze", "open")
    ]


def _of_tenants(one: Measured) -> bool:
    return not set(one.pair) & set(PROBES)


def _by(rows: Sequence[Measured], key: Callable[[Measured], Hashable], seed: int) -> Iterator[Fold]:
    """Five folds of whole keys, dealt in random order; test rows are of tenants only."""
    keys = sorted({key(one) for one in rows if _of_tenants(one)}, key=repr)
    order = np.random.default_rng(seed).permutation(len(keys))
    for start in range(min(FOLDS, len(keys))):
        out = {keys[number] for number in order[start::FOLDS]}
        test = [one for one in rows if key(one) in out and _of_tenants(one)]
        yield [one for one in rows if key(one) not in out], test


def _each(rows: Sequence[Measured], key: Callable[[Measured], Hashable]) -> Iterator[Fold]:
    """Every key left out once."""
    for out in sorted({key(one) for one in rows if _of_tenants(one)}, key=repr):
        test = [one for one in rows if key(one) == out and _of_tenants(one)]
        yield [one for one in rows if key(one) != out], test


def _workloads(rows: Sequence[Measured], probes: int) -> Iterator[Fold]:
    """A workload never seen beside another, but for so many probes at half shares."""
    kept = set(PROBES[:probes])
    for name in sorted({one.tenant for one in rows if _of_tenants(one)}):
        others = [one for one in rows if name not in one.pair]
        known = [one for one in rows if name in one.pair and kept & set(one.pair)]
        known = [one for one in known if one.percent == 50]
        test = [one for one in rows if name in one.pair and _of_tenants(one)]
        yield others + known, test


def _shares(one: Measured) -> Hashable:
    return tuple(sorted((one.percent, one.others[0][1])))


SPLITS: Final[Mapping[str, Callable[[Sequence[Measured], int], Iterator[Fold]]]] = {
    "leave-window-out": lambda rows, seed: _by(rows, lambda one: one.window, seed),
    "leave-pair-out": lambda rows, seed: _by(rows, lambda one: one.pair, seed),
    "leave-workload-out, 0 probes": lambda rows, seed: _workloads(rows, 0),
    "leave-workload-out, 2 probes": lambda rows, seed: _workloads(rows, 2),
    "leave-workload-out, 3 probes": lambda rows, seed: _workloads(rows, 3),
    "leave-share-out": lambda rows, seed: _each(rows, _shares),
    "leave-run-out": lambda rows, seed: _each(rows, lambda one: one.run),
}


def foretell(world: World, fit: Predictor, folds: Sequence[Fold]) -> list[Told]:
    """Every test row of every fold, predicted from the training rows of its fold."""
    found = []
    for train, test in folds:
        if len(train) < LEAST_TRAIN or not test:
            continue
        means, spreads = fit(world, train)(test)
        history = History.of(_named(world, one) for one in train)
        for one, mean, sd in zip(test, means, spreads, strict=True):
            group = history.group_of(_named(world, one))
            found.append(Told(row=one, mean=float(mean), sd=float(sd), group=str(group.value)))
    return found


def _named(world: World, one: Measured) -> tuple[Named, Named]:
    first, second = ((name, world.profiles[name].family) for name in one.pair)
    return first, second


def all_splits(
    world: World, rows: Sequence[Measured], seed: int, names: Sequence[str] = tuple(SPLITS)
) -> dict[str, dict[str, list[Told]]]:
    """Split, then predictor, to what it predicted; splits that the rows cannot make are absent."""
    found: dict[str, dict[str, list[Told]]] = {}
    for split in names:
        folds = list(SPLITS[split](rows, seed))
        told = {name: foretell(world, fit, folds) for name, fit in PREDICTORS.items()}
        if any(told.values()):
            found[split] = told
    return found


def figures(told: Sequence[Told], seed: int) -> dict[str, object]:
    """Errors in percent, all rows and the slowed ones apart; coverage by novelty group."""
    errors = np.array([one.error for one in told])
    slow = np.array([one.row.slowdown >= SLOW for one in told], bool)
    out: dict[str, object] = {
        "n": len(told),
        "mape": _percent(errors),
        "mape_ci95": _interval(told, errors, seed),
        "n_slow": int(slow.sum()),
        "mape_slow": _percent(errors[slow]),
        "p90_error": round(100 * float(np.quantile(errors, 0.9)), 3) if len(errors) else None,
    }
    groups: dict[str, list[bool]] = {}
    for one in told:
        if not math.isnan(one.sd):
            inside = math.log(one.row.slowdown) <= one.mean + BOUND_Z * one.sd
            groups.setdefault(one.group, []).append(inside)
    out["coverage90"] = {
        name: {
            "n": len(groups[name]),
            "percent": round(100 * sum(groups[name]) / len(groups[name]), 2),
        }
        for name in sorted(groups)
    }
    return out


def _percent(errors: Floats) -> float | None:
    return round(100 * float(errors.mean()), 3) if len(errors) else None


def _interval(told: Sequence[Told], errors: Floats, seed: int) -> list[float] | None:
    """95 % of the mean error, by a bootstrap over pairs."""
    pairs: dict[tuple[str, ...], list[int]] = {}
    for place, one in enumerate(told):
        pairs.setdefault(one.row.pair, []).append(place)
    if len(pairs) < 2:
        return None
    sums = np.array([errors[places].sum() for places in pairs.values()])
    counts = np.array([len(places) for places in pairs.values()])
    drawn = np.random.default_rng(seed).integers(0, len(pairs), (RESAMPLES, len(pairs)))
    means = sums[drawn].sum(1) / counts[drawn].sum(1)
    return [round(100 * float(value), 3) for value in np.quantile(means, (0.025, 0.975))]
