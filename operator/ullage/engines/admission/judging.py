# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses the rung of each novelty group, its spread, and the scores for its threshold.

All from predictions of left-out rows: a pair, a class or a whole family at a time, as new as the
group. A prediction that saw its own row must never be used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.admission import pair_gp
from ullage.engines.admission.bias import fit_bias
from ullage.engines.admission.calibration import Scored, band_of
from ullage.engines.admission.colocations import Pairs, Sides
from ullage.engines.admission.ladder import RECALL_SLACK, RungOutcomes, Trim, choose, fit_trim
from ullage.engines.admission.novelty import History, Named, families_of, pair_of
from ullage.engines.admission.pair_gp import Hyper, Rows
from ullage.engines.admission.records import Group, Row, Rung

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FOLDS: Final = 10
"""Folds of left-out pairs; classes and families are left out one at a time, ..."""
MOST_FOLDS: Final = 12
"""... until there are more than this, and they share folds."""
PARTS: Final = 10
"""Parts that trials are divided into; each is scored by the choice made on the others."""
_LEAST_SD: Final = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """The risk budget that thresholds are calibrated for: eps and confidence as fractions."""

    eps: float = 0.05
    confidence: float = 0.80


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Rungs, trims and scores by left-out rows."""

    rungs: Mapping[Group, Rung] = field(default_factory=dict)
    trims: Mapping[tuple[Group, Rung], Trim] = field(default_factory=dict)
    scored: tuple[Scored, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Predictions of left-out rows: residual means and spreads by rung.

    ``fold`` numbers the rows that were left out together; a row may occur in several folds.
    """

    index: Ints
    fold: Ints
    mean: Mapping[Rung, Floats]
    sd: Mapping[Rung, Floats]

    def where(self, mask: NDArray[np.bool_]) -> LeftOut:
        """Some of the rows."""
        return LeftOut(
            index=self.index[mask],
            fold=self.fold[mask],
            mean={rung: values[mask] for rung, values in self.mean.items()},
            sd={rung: values[mask] for rung, values in self.sd.items()},
        )


def leave_out(
    rows: Rows, target: Floats, folds: Sequence[Ints], *, hyper: Hyper | None, plain: Rung
) -> LeftOut:
    """Predict every fold from the rows outside it, on every rung.

    Args:
        rows: Directional rows.
        target: Log residual of each, shape (n,).
        folds: Row indices left out together, each fold of shape (rows of the fold,).
        hyper: Hyper-parameters of the process; ``None`` = there is none.
        plain: The rung of the base forecast.
    """
    numbers: list[Ints] = [np.zeros(0, np.int64)]
    places: list[Ints] = [np.zeros(0, np.int64)]
    rungs = (plain, Rung.BIAS) if hyper is None else (plain, Rung.BIAS, Rung.GP)
    means: dict[Rung, list[Floats]] = {rung: [np.zeros(0)] for rung in rungs}
    sds: dict[Rung, list[Floats]] = {rung: [np.zeros(0)] for rung in rungs}
    classes = int(max(rows.victim.max(), rows.aggressor.max())) + 1
    for number, out in enumerate(folds):
        kept = np.ones(len(rows), bool)
        kept[out] = False
        if not kept.any():
            continue
        numbers.append(out)
        places.append(np.full(len(out), number))
        rest, seen = rows.take(kept), target[kept]
        spread = max(_LEAST_SD, float(np.sqrt(np.mean(seen**2))))
        bias = fit_bias(rest.victim, rest.aggressor, seen, classes)
        predicted = {
            plain: (np.zeros(len(out)), np.full(len(out), spread)),
            Rung.BIAS: (
                bias.predict(rows.victim[out], rows.aggressor[out]),
                np.full(len(out), bias.sd),
            ),
        }
        if hyper is not None:
            predicted[Rung.GP] = pair_gp.condition(rest, seen, hyper).predict(rows.take(out))
        for rung, (mean, sd) in predicted.items():
            means[rung].append(mean)
            sds[rung].append(sd)
    return LeftOut(
        index=np.concatenate(numbers),
        fold=np.concatenate(places),
        mean={rung: np.concatenate(parts) for rung, parts in means.items()},
        sd={rung: np.concatenate(parts) for rung, parts in sds.items()},
    )


def folds_of(data: Pairs, sides: Sides) -> dict[Group, list[Ints]]:
    """Folds whose left-out rows are as new as each group.

    Args:
        data: Directional rows.
        sides: Their classes.

    Returns:
        For each group of two tenants, row indices of every fold; empty where the group cannot be
        imitated with these rows.
    """
    victim, aggressor = data.rows.victim, data.rows.aggressor
    family = np.array([profile.family or profile.workload_class for profile in sides.profiles])
    pair = np.minimum(victim, aggressor) * len(family) + np.maximum(victim, aggressor)
    repeated = [
        out
        for key in np.unique(pair)
        if len(numbers := np.unique(data.colocation[pair == key])) > 1
        for out in (np.flatnonzero(data.colocation == number) for number in numbers)
    ]
    present = np.unique(np.concatenate([victim, aggressor]))
    number = np.unique(family, return_inverse=True)[1]
    low = np.minimum(number[victim], number[aggressor])
    strangers = low * len(family) + np.maximum(number[victim], number[aggressor])
    siblings = [index for index in present if (family[present] == family[index]).sum() > 1]
    return {
        Group.SEEN_PAIR: _deal(repeated, FOLDS),
        Group.KNOWN: _deal(blocks_by(pair), FOLDS),
        Group.NEW_CONFIG: [  # a class with few partners, and two unpaired families
            *_deal(
                [np.flatnonzero((victim == index) | (aggressor == index)) for index in siblings],
                MOST_FOLDS,
            ),
            *_deal(blocks_by(strangers), FOLDS),
        ],
        Group.NEW_FAMILY: _deal(
            [
                np.flatnonzero((family[victim] == name) | (family[aggressor] == name))
                for name in np.unique(family[present])
            ],
            MOST_FOLDS,
        ),
    }


def as_new_as(group: Group, data: Pairs, sides: Sides, out: LeftOut) -> NDArray[np.bool_]:
    """Left-out rows that were as new as the group, given the rows of the same fold that stayed.

    A fold that leaves out a pair may leave a class without any row: its prediction is one for a new
    class.

    Args:
        group: The group of the folds.
        data: Directional rows.
        sides: Their classes.
        out: Their left-out predictions.

    Returns:
        Mask of the predictions that count, shape (n,).
    """
    pairs = [named(row, sides) for row in data.kept]
    counts = np.zeros(len(out.index), bool)
    for fold in np.unique(out.fold):
        places = np.flatnonzero(out.fold == fold)
        rest = np.setdiff1d(np.arange(len(pairs)), out.index[places])
        history = History.of(pairs[number] for number in rest)
        for place in places:
            counts[place] = history.group_of(pairs[out.index[place]]) is group
    return counts


def named(row: Row, sides: Sides) -> tuple[Named, Named]:
    """The two classes of a row of two tenants, with their families."""
    victim, aggressor = (
        sides.profiles[sides.index[name]]
        for name in (row.workload_class, row.partners[0].workload_class)
    )
    return (victim.workload_class, victim.family), (aggressor.workload_class, aggressor.family)


def trial_of(classes: tuple[Named, Named], group: Group) -> tuple[str, str]:
    """The two classes, or the two families, that are left out with a row of this group."""
    if group in (Group.SEEN_PAIR, Group.KNOWN):
        return pair_of(*(name for name, _ in classes))
    return families_of(*classes)


def blocks_by(numbers: Ints) -> list[Ints]:
    """Indices of the rows that have the same number, in ascending order of the number."""
    return [np.flatnonzero(numbers == number) for number in np.unique(numbers)]


def _deal(blocks: Sequence[Ints], folds: int) -> list[Ints]:
    count = min(folds, len(blocks))
    return [np.unique(np.concatenate(blocks[start::count])) for start in range(count)]


def left_out_by_group(
    data: Pairs, sides: Sides, hyper: Hyper | None, *, plain: Rung
) -> dict[Group, LeftOut]:
    """Left-out predictions of rows as new as each group, by group.

    Args:
        data: Directional rows.
        sides: Their classes.
        hyper: Hyper-parameters of the process; ``None`` = there is none.
        plain: The rung of the base forecast.

    Returns:
        Predictions of each group of two tenants for which the rows suffice; none is empty.
    """
    by_group: dict[Group, LeftOut] = {}
    for group, folds in folds_of(data, sides).items():
        if folds:
            out = leave_out(data.rows, data.target, folds, hyper=hyper, plain=plain)
            out = out.where(as_new_as(group, data, sides, out))
            by_group |= {group: out} if len(out.index) else {}
    return by_group


def judge(
    data: Pairs, sides: Sides, left_out: Mapping[Group, LeftOut], *, plain: Rung, risk: Risk
) -> Judged:
    """Rung, trim and scores of every novelty group of two tenants.

    Args:
        data: Directional rows.
        sides: Their classes.
        left_out: Their left-out predictions, see :func:`left_out_by_group`.
        plain: The rung of the base forecast.
        risk: The budget at which recall is compared.
    """
    rungs: dict[Group, Rung] = {}
    trims: dict[tuple[Group, Rung], Trim] = {}
    scored: list[Scored] = []
    for group, out in left_out.items():
        rungs[group], by_rung = weigh(data, out, group, plain=plain, risk=risk)
        trims |= {(group, rung): trim for rung, trim in by_rung.items()}
        scored += score_apart(data, sides, out, group, plain=plain, risk=risk)
    if Group.KNOWN in rungs:
        rungs.setdefault(Group.SEEN_PAIR, rungs[Group.KNOWN])
        rungs[Group.MANY] = rungs[Group.KNOWN]
        for rung in (Rung.BIAS, Rung.GP):
            trim = trims.get((Group.KNOWN, rung), Trim())
            trims.setdefault((Group.SEEN_PAIR, rung), trim)
            trims[Group.MANY, rung] = trim
    return Judged(rungs=rungs, trims=trims, scored=tuple(scored))


def score_apart(
    data: Pairs, sides: Sides, out: LeftOut, group: Group, *, plain: Rung, risk: Risk
) -> list[Scored]:
    """Scores of left-out rows, by a rung and a trim that were chosen on other trials.

    Choosing on the same rows would over-fit the choice and the threshold. Trials are divided into
    ``PARTS``, and each part is scored by the choice on the others. Source: cross-fitting
    (Chernozhukov et al. 2018).

    Args:
        data: Directional rows.
        sides: Their classes.
        out: Their left-out predictions.
        group: Novelty of the left-out rows.
        plain: The rung of the base forecast.
        risk: The budget at which recall is compared.
    """
    trials = [trial_of(named(data.kept[number], sides), group) for number in out.index]
    order = {trial: place for place, trial in enumerate(sorted(set(trials)))}
    part = np.array([order[trial] for trial in trials]) % PARTS
    scores: list[Scored] = []
    for number in np.unique(part):
        rung, trims = weigh(data, out.where(part != number), group, plain=plain, risk=risk)
        scores += score(data, sides, out.where(part == number), rung, trims[rung], group)
    return scores


def weigh(
    data: Pairs, out: LeftOut, group: Group, *, plain: Rung, risk: Risk
) -> tuple[Rung, dict[Rung, Trim]]:
    """The rung in force for rows as new as these, and the trim of each rung.

    Args:
        data: Directional rows.
        out: Their left-out predictions.
        group: Novelty of the left-out rows.
        plain: The rung of the base forecast.
        risk: The budget at which recall is compared.
    """
    observed, target = data.observed[out.index], data.target[out.index]
    asked = [data.kept[number].max_slowdown for number in out.index]
    middle = math.exp(float(np.median(observed))) if len(observed) else 1.0
    objective = np.log(np.array([middle if slo is None else slo for slo in asked], float))
    centre = float(data.target[np.unique(out.index)].mean()) if len(observed) else 0.0
    trims: dict[Rung, Trim] = {}
    outcomes: dict[Rung, RungOutcomes] = {}
    for rung, mean in out.mean.items():
        around = 0.0 if rung is plain else centre
        trims[rung] = fit_trim(mean, out.sd[rung], target, around)
        raw = data.log_base[out.index] + trims[rung].mean(mean)
        outcomes[rung] = RungOutcomes(
            mean=np.maximum(raw, 0.0),
            sd=trims[rung].spread * out.sd[rung],
            observed=observed,
            objective=objective,
        )
    slack = RECALL_SLACK if group in (Group.SEEN_PAIR, Group.KNOWN) else 0.0
    return choose(outcomes, eps=risk.eps, start=plain, slack=slack), trims


def score(
    data: Pairs, sides: Sides, out: LeftOut, rung: Rung, trim: Trim, group: Group
) -> list[Scored]:
    """One score for every co-location and fold in which a tenant had an objective.

    Args:
        data: Directional rows.
        sides: Their classes.
        out: Their left-out predictions.
        rung: The rung in force.
        trim: Its trim.
        group: Novelty of the left-out rows.
    """
    by_colocation: dict[tuple[int, int], list[int]] = {}
    for place, (number, fold) in enumerate(zip(out.index, out.fold, strict=True)):
        if data.kept[number].max_slowdown is not None:
            by_colocation.setdefault((int(fold), int(data.colocation[number])), []).append(place)
    mean = np.maximum(data.log_base[out.index] + trim.mean(out.mean[rung]), 0.0)
    sd = trim.spread * out.sd[rung]
    scores = []
    for _, places in sorted(by_colocation.items()):
        rows = [data.kept[out.index[place]] for place in places]
        classes = named(rows[0], sides)
        logs = [math.log(row.max_slowdown or 1.0) for row in rows]
        seen = data.observed[out.index[places]]
        z = (np.array(logs) - mean[places]) / sd[places]
        scores.append(
            Scored(
                z=float(z.min()),
                violated=bool((seen > np.array(logs)).any()),
                group=group,
                band=band_of(min(math.exp(value) for value in logs)),
                pair=pair_of(*(name for name, _ in classes)),
                trial=trial_of(classes, group),
            )
        )
    return scores
