# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows in, model out: runs in the background, never inside a decision.

Every judgement (which rung, how wide, which threshold) rests on rows that were left out when they
were predicted. The same rows give the same bytes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

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
from ullage.engines.admission.judging import Judged, Risk, judge, left_out_by_group, named
from ullage.engines.admission.model import STEPS, WIDE_SD, Cells, LearnedModel
from ullage.engines.admission.novelty import History
from ullage.engines.admission.pair_gp import Hyper, Posterior
from ullage.engines.admission.pair_kernel import Shape
from ullage.engines.admission.prior import base, side_of
from ullage.engines.admission.records import ClassProfile, Group, Row, Rung, Tenant, origin_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_GP_ROWS = 10
"""Directional rows below which no process is fitted."""
MAX_CLASSES = 48
"""Classes in the table of cells: 48 x 10 shares on both sides are 230,000 cells."""
WHOLE = 100
_PAIRS = 10
"""Pairs of classes asked about at once: 1,000 cells."""


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
    """Learn one accelerator again from its rows.

    Args:
        rows: Observations; those of other accelerators and of lone tenants do not count.
        profiles: What was measured alone, by class.
        accelerator: Key of the type.
        previous: The model before, or one read from a summary.
        refit: Seek hyper-parameters, rungs and thresholds again; otherwise only condition on the
            rows with those of ``previous``, and ask again only for cells of classes of which
            something changed; what that says of others comes with the next fit. Without a
            previous fit it always seeks.
        wanted: Classes whose cells come first: tenants and waiting work.
        risk: Budget of the thresholds.
        hyper: Hyper-parameters found on these rows before, where rungs and thresholds alone are
            sought again; ``None`` = they are sought too.
        classes: Most classes whose cells are filled; most of the time of a fit goes into these.

    Raises:
        ValueError: a row or a profile holds what is no number; names it.
    """
    windows = [row for row in rows if row.accelerator == accelerator and row.partners]
    for row in windows:
        check_row(row)
    own = meetings(windows)
    sides = Sides.of(with_rows(profiles, own))
    known = LearnedModel(accelerator=accelerator) if previous is None else previous
    data = pairs(own, sides)
    version = known.version + 1
    if not data.kept:
        return LearnedModel(accelerator=accelerator, version=version, classes=_table(sides))
    bias = fit_bias(data.rows.victim, data.rows.aggressor, data.target, len(sides.profiles))
    seek = refit or not known.rungs
    posterior = _posterior(data, hyper if seek else known_hyper(known))
    judged = Judged(rungs=known.rungs, trims=known.trims)
    if seek:
        plain, found = plain_rung(sides), None if posterior is None else posterior.hyper
        left_out = left_out_by_group(data, sides, found, plain=plain)
        judged = judge(data, sides, left_out, plain=plain, risk=risk)
    noted = marks(data, sides)
    keep = Cells() if seek else _unchanged(known, noted)
    cells = Cells()
    if posterior is not None:
        cells = fill(posterior, sides, list(wanted), classes, keep=keep)
    model = _assemble(accelerator, version, sides, data, bias, posterior, judged, cells)
    model = replace(model, marks=noted)
    if not seek:
        return replace(model, thresholds=known.thresholds, scored=known.scored)
    many = score_many(model, own)
    scored = judged.scored + many
    certified = thresholds(scored, eps=risk.eps, confidence=risk.confidence)
    return replace(model, thresholds=certified, scored=scored)


def plain_rung(sides: Sides) -> Rung:
    """The rung of the base forecast where any class lacks counters: the sum of utilisations."""
    everyone = [side_of(profile, 100) for profile in sides.profiles]
    return base(everyone)[1]


def score_many(model: LearnedModel, rows: Sequence[Row]) -> tuple[Scored, ...]:
    """Score co-locations of three or more; the model never learned from them.

    Args:
        model: The model to score.
        rows: Observations; those with one partner are left out.

    Returns:
        One score for each co-location in which a tenant had an objective.
    """
    crowds = [row for row in rows if len(row.partners) > 1]
    found = []
    for numbers in colocations(crowds):
        parts = [crowds[number] for number in numbers]
        asked = [part for part in parts if part.max_slowdown is not None]
        if not asked:
            continue
        margins, limits = [], []
        for row in asked:
            told = model.forecast(_tenants(model, row))
            limits.append(row.max_slowdown or 1.0)
            margins.append((math.log(limits[-1]) - told.mean[0]) / told.sd[0])
        classes = tuple(name for name, _ in mixture(parts[0]))
        found.append(
            Scored(
                z=min(margins),
                violated=any(row.slowdown > (row.max_slowdown or 1.0) for row in asked),
                group=Group.MANY,
                band=band_of(min(limits)),
                pair=classes,
                trial=classes,
            )
        )
    return tuple(found)


def _tenants(model: LearnedModel, row: Row) -> list[Tenant]:
    everyone = [
        (row.workload_class, row.percent),
        *((partner.workload_class, partner.percent) for partner in row.partners),
    ]
    return [
        Tenant(name=f"{place}", percent=percent, profile=model.classes[workload_class])
        for place, (workload_class, percent) in enumerate(everyone)
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


def blocks_by(numbers: Ints) -> list[Ints]:
    """Indices of the rows that carry the same number."""
    return [np.flatnonzero(numbers == one) for one in np.unique(numbers)]


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
        shape=Shape.GAUSSIAN if posterior is None else posterior.hyper.shape,
        rows=len(data.kept),
        rungs=judged.rungs,
        trims=judged.trims,
        classes=table,
        history=History.of(named(row, sides) for row in data.kept),
        bias_index={
            one.workload_class: number for number, one in enumerate(sides.profiles) if one.rows
        },
        bias=bias,
        base_sd=max(error, 0.01) if len(data.kept) >= LEAST_GP_ROWS else WIDE_SD,
        cells=cells,
    )


def marks(data: Pairs, sides: Sides) -> dict[str, str]:
    """A digest of what is known of every class: measured alone, its features, its rows.

    Features are standardised over all classes, so a new class may give every one a new mark.

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
    return {
        one.workload_class: hashlib.sha256(
            repr((replace(one, rows=0), ids[one.workload_class])).encode() + features.tobytes()
        ).hexdigest()
        for one, features in zip(sides.profiles, sides.features, strict=True)
    }


def _unchanged(known: LearnedModel, noted: Mapping[str, str]) -> Cells:
    """The cells between classes of which nothing new is known."""
    return known.cells.only({one for one, mark in noted.items() if known.marks.get(one) == mark})


def fill(
    posterior: Posterior,
    sides: Sides,
    wanted: Sequence[str],
    classes: int = MAX_CLASSES,
    *,
    keep: Cells = NO_CELLS,
) -> Cells:
    """Cells of the wanted classes first, then of those with most rows, up to a bound.

    Args:
        posterior: The process.
        sides: Classes with their features.
        wanted: Classes that come first.
        classes: Most classes whose cells are filled.
        keep: Cells that stand as they are.
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
        to, source = (np.ix_(one, range(STEPS), one, range(STEPS)) for one in (at, of))
        mean[to], sd[to] = keep.mean[source], keep.sd[source]
    todo = np.argwhere(np.isnan(mean).any(axis=(1, 3)))
    number = np.array([sides.index[name] for name in names], np.int64)
    for start in range(0, len(todo), _PAIRS):
        victim, aggressor = todo[start : start + _PAIRS].T
        told = _block(posterior, sides, number[victim], number[aggressor])
        mean[victim, :, aggressor, :], sd[victim, :, aggressor, :] = told
    return Cells(index={name: place for place, name in enumerate(names)}, mean=mean, sd=sd)


def _block(
    posterior: Posterior, sides: Sides, victims: Ints, aggressors: Ints
) -> tuple[Floats, Floats]:
    """All shares of some pairs of classes: pair, share of the victim, of the aggressor."""
    shares = [(own, other) for own in range(1, STEPS + 1) for other in range(1, STEPS + 1)]
    names = [profile.workload_class for profile in sides.profiles]
    logs: list[float] = []
    for victim, aggressor in zip(victims.tolist(), aggressors.tolist(), strict=True):
        here, there = (
            [sides.at(names[one], step * WHOLE // STEPS) for step in range(1, STEPS + 1)]
            for one in (victim, aggressor)
        )
        logs += [base((here[own - 1], there[other - 1]))[0][0] for own, other in shares]
    own, other = np.tile(np.array(shares, float) / STEPS, (len(victims), 1)).T
    rows = sides.rows(
        victims.repeat(len(shares)), aggressors.repeat(len(shares)), (own, other), np.array(logs)
    )
    mean, sd = posterior.predict_blocks(rows, len(shares))
    return mean.reshape(-1, STEPS, STEPS), sd.reshape(-1, STEPS, STEPS)
