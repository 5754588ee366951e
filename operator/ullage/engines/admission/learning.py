# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Learns a model from rows, in the background and never inside a decision.

Rungs, spreads and thresholds come from predictions of left-out rows. The same rows give the same
bytes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ullage.engines.admission import pair_gp
from ullage.engines.admission.bias import BiasModel, fit_bias
from ullage.engines.admission.calibration import Scored, band_of, thresholds
from ullage.engines.admission.colocations import (
    Pairs,
    Sides,
    check_row,
    colocations,
    in_turn,
    meetings,
    mixture,
    pairs,
    with_rows,
)
from ullage.engines.admission.judging import (
    Judged,
    Risk,
    blocks_by,
    judge,
    left_out_by_group,
    named,
)
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.admission.model import STEPS, WIDE_SD, Cells, LearnedModel
from ullage.engines.admission.novelty import History
from ullage.engines.admission.pair_gp import Hyper, Posterior
from ullage.engines.admission.pair_kernel import KernelShape
from ullage.engines.admission.prior import base, side_of
from ullage.engines.admission.records import (
    ClassProfile,
    Group,
    Partner,
    Row,
    Rung,
    Tenant,
    origin_of,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_GP_ROWS = 10
"""Directional rows below which no process is fitted."""
MAX_CLASSES = 48
"""Classes in the table of cells: 48 x 10 shares on both sides are 230,000 cells."""
_PAIRS = 10
"""Pairs of classes predicted at once: 1,000 cells."""
DEFAULT_RISK = Risk()
NO_CELLS = Cells()


def learn(
    rows: Sequence[Row],
    profiles: Mapping[str, ClassProfile],
    *,
    accelerator: str,
    previous: LearnedModel | None,
    refit: bool,
    wanted: Iterable[str],
    risk: Risk = DEFAULT_RISK,
    hyper: Hyper | None = None,
    classes: int = MAX_CLASSES,
) -> LearnedModel:
    """Learn the model of one accelerator from its rows.

    Args:
        rows: Observations; those of other accelerators and of lone tenants do not count.
        profiles: Profiles by class.
        accelerator: Key of the type.
        previous: The model before, or one read from a summary.
        refit: Fit hyper-parameters, rungs and thresholds again. Otherwise condition on the rows
            with those of ``previous``, and fill only the cells of classes that changed; their
            effect on other cells comes with the next fit. Always true without a previous fit.
        wanted: Classes whose cells come first: tenants and waiting work.
        risk: Budget of the thresholds.
        hyper: Hyper-parameters fitted on these rows before, to fit only rungs and thresholds;
            ``None`` = fit them too.
        classes: Largest number of classes with cells; they take most of the time of a fit.

    Raises:
        ValueError: a row or a profile has an impossible number; the text names it.
    """
    windows = [row for row in rows if row.accelerator == accelerator and row.partners]
    for row in windows:
        check_row(row)
    met = meetings(windows)
    sides = Sides.of(with_rows(profiles, met))
    before = LearnedModel(accelerator=accelerator) if previous is None else previous
    data = pairs(met, sides)
    version = before.version + 1
    if not data.kept:
        return LearnedModel(accelerator=accelerator, version=version, classes=_table(sides))
    bias = fit_bias(data.rows.victim, data.rows.aggressor, data.target, len(sides.profiles))
    seek = refit or not before.rungs
    posterior = _posterior(data, hyper if seek else known_hyper(before))
    judged = Judged(rungs=before.rungs, trims=before.trims)
    if seek:
        plain, fitted = plain_rung(sides), None if posterior is None else posterior.hyper
        left_out = left_out_by_group(data, sides, fitted, plain=plain)
        judged = judge(data, sides, left_out, plain=plain, risk=risk)
    noted = marks(data, sides)
    keep = cells = Cells()
    if not seek:
        unchanged = {name for name, mark in noted.items() if before.marks.get(name) == mark}
        keep = before.cells.only(unchanged)
    if posterior is not None:
        cells = fill(posterior, sides, list(wanted), classes, keep=keep)
    model = _assemble(accelerator, version, sides, data, bias, posterior, judged, cells)
    model = replace(model, marks=noted)
    if not seek:
        return replace(model, thresholds=before.thresholds, scored=before.scored)
    scored = judged.scored + score_many(model, met)
    certified = thresholds(scored, eps=risk.eps, confidence=risk.confidence)
    return replace(model, thresholds=certified, scored=scored)


def plain_rung(sides: Sides) -> Rung:
    """The rung of the base forecast; the utilisation sum if any class lacks counters."""
    return base([side_of(profile, 100) for profile in sides.profiles])[1]


def score_many(model: LearnedModel, rows: Sequence[Row]) -> tuple[Scored, ...]:
    """Score co-locations of three or more tenants, which the model never learned from.

    Args:
        model: The model to score.
        rows: Observations; those with one partner are left out.

    Returns:
        A score for each co-location in which a tenant had an objective.
    """
    crowds = [row for row in rows if len(row.partners) > 1]
    scores = []
    for numbers in colocations(crowds):
        parts = [crowds[number] for number in numbers]
        asked = [part for part in parts if part.max_slowdown is not None]
        if not asked:
            continue
        margins, limits = [], []
        for row in asked:
            forecast = model.forecast(_tenants(model, row))
            limits.append(row.max_slowdown or 1.0)
            margins.append((math.log(limits[-1]) - forecast.mean[0]) / forecast.sd[0])
        classes = tuple(name for name, _ in mixture(parts[0]))
        scores.append(
            Scored(
                z=min(margins),
                violated=any(row.slowdown > (row.max_slowdown or 1.0) for row in asked),
                group=Group.MANY,
                band=band_of(min(limits)),
                pair=classes,
                trial=classes,
            )
        )
    return tuple(scores)


def _tenants(model: LearnedModel, row: Row) -> list[Tenant]:
    """The tenants of a row, the row's own class first."""
    parts: list[Row | Partner] = [row, *row.partners]
    return [
        Tenant(name=f"{place}", percent=part.percent, profile=model.classes[part.workload_class])
        for place, part in enumerate(parts)
    ]


def _table(sides: Sides) -> dict[str, ClassProfile]:
    return {profile.workload_class: profile for profile in sides.profiles}


def known_hyper(model: LearnedModel) -> Hyper | None:
    """Hyper-parameters of the model's process; ``None`` = it has none."""
    if not model.hyper:
        return None
    return Hyper(theta=model.hyper, tail=model.tail, shape=model.shape)


def _posterior(data: Pairs, hyper: Hyper | None) -> Posterior | None:
    if len(data.kept) < LEAST_GP_ROWS:
        return None
    if hyper is not None:
        return pair_gp.condition(data.rows, data.target, hyper)
    return pair_gp.learn(data.rows, data.target, blocks_by(data.colocation))


def _assemble(
    accelerator: str,
    version: int,
    sides: Sides,
    data: Pairs,
    bias: BiasModel,
    posterior: Posterior | None,
    judged: Judged,
    cells: Cells,
) -> LearnedModel:
    table = _table(sides)
    error = float(np.sqrt(np.mean(data.target**2)))
    return LearnedModel(
        accelerator=accelerator,
        version=version,
        hyper=() if posterior is None else posterior.hyper.theta,
        tail=0.0 if posterior is None else posterior.hyper.tail,
        shape=KernelShape.GAUSSIAN if posterior is None else posterior.hyper.shape,
        rows=len(data.kept),
        rungs=judged.rungs,
        trims=judged.trims,
        classes=table,
        history=History.of(named(row, sides) for row in data.kept),
        bias_index={
            profile.workload_class: number
            for number, profile in enumerate(sides.profiles)
            if profile.rows
        },
        bias=bias,
        base_sd=max(error, 0.01) if len(data.kept) >= LEAST_GP_ROWS else WIDE_SD,
        cells=cells,
    )


def marks(data: Pairs, sides: Sides) -> dict[str, str]:
    """A digest of the inputs of every class: its profile, its features, its rows.

    Features are standardised over all classes, so a new class may change every digest.

    Args:
        data: Rows that the model learns from.
        sides: Classes with their features.

    Returns:
        SHA-256 in hexadecimal digits, by workload class.
    """
    ids: dict[str, list[str]] = {profile.workload_class: [] for profile in sides.profiles}
    for row in data.kept:
        for workload_class in {row.workload_class, row.partners[0].workload_class}:
            ids[workload_class].append(row.id)
    digests: dict[str, str] = {}
    for profile, features in zip(sides.profiles, sides.features, strict=True):
        inputs = repr((replace(profile, rows=0), ids[profile.workload_class])).encode()
        digest = hashlib.sha256(inputs + features.tobytes())
        digests[profile.workload_class] = digest.hexdigest()
    return digests


def fill(
    posterior: Posterior,
    sides: Sides,
    wanted: Sequence[str],
    classes: int = MAX_CLASSES,
    *,
    keep: Cells = NO_CELLS,
) -> Cells:
    """Cells of the wanted classes first, then of those with the most rows, up to a bound.

    Args:
        posterior: The process.
        sides: Classes with their features.
        wanted: Classes that come first.
        classes: Largest number of classes with cells.
        keep: Cells to copy.
    """
    asked = set(wanted)
    order = sorted(
        sides.profiles,
        key=lambda profile: (
            profile.workload_class not in asked,
            -profile.rows,
            profile.workload_class,
        ),
    )
    chosen = [profile.workload_class for profile in order if profile.workload_class in asked]
    others = [profile.workload_class for profile in order if profile.workload_class not in asked]
    names = in_turn(chosen, origin_of, classes)
    names += in_turn(others, origin_of, classes - len(names))
    shape = (len(names), STEPS, len(names), STEPS)
    mean, sd = np.full(shape, np.nan, np.float32), np.full(shape, np.nan, np.float32)
    at = [place for place, name in enumerate(names) if name in keep.index]
    of = [keep.index[names[place]] for place in at]
    if at:
        to, source = (np.ix_(places, range(STEPS), places, range(STEPS)) for places in (at, of))
        mean[to], sd[to] = keep.mean[source], keep.sd[source]
    todo = np.argwhere(np.isnan(mean).any(axis=(1, 3)))
    number = np.array([sides.index[name] for name in names], np.int64)
    for start in range(0, len(todo), _PAIRS):
        victim, aggressor = todo[start : start + _PAIRS].T
        block = _block(posterior, sides, number[victim], number[aggressor])
        mean[victim, :, aggressor, :], sd[victim, :, aggressor, :] = block
    return Cells(index={name: place for place, name in enumerate(names)}, mean=mean, sd=sd)


def _block(
    posterior: Posterior, sides: Sides, victims: Ints, aggressors: Ints
) -> tuple[Floats, Floats]:
    """All shares of some pairs of classes: pair, share of the victim, of the aggressor."""
    steps = range(1, STEPS + 1)
    shares = list(product(steps, steps))
    names = [profile.workload_class for profile in sides.profiles]
    logs: list[float] = []
    for pair in zip(victims.tolist(), aggressors.tolist(), strict=True):
        at_steps = [
            [sides.at(names[number], step * WHOLE_PERCENT // STEPS) for step in steps]
            for number in pair
        ]
        logs += [base(mixed)[0][0] for mixed in product(*at_steps)]
    victim_shares, aggressor_shares = np.tile(np.array(shares, float) / STEPS, (len(victims), 1)).T
    rows = sides.rows(
        victims.repeat(len(shares)),
        aggressors.repeat(len(shares)),
        (victim_shares, aggressor_shares),
        np.array(logs),
    )
    mean, sd = posterior.predict_blocks(rows, len(shares))
    return mean.reshape(-1, STEPS, STEPS), sd.reshape(-1, STEPS, STEPS)
