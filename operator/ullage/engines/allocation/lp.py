# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Linear programs of the policies: built as sparse rows, solved by HiGHS, checked afterwards.

Variables are never negative and rows are upper limits. A status other than optimal is an error that
the caller answers by keeping the last good allocation; no half-solved point leaves this module.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array

from ullage.engines.allocation.central import centre
from ullage.engines.allocation.model import Floats, Ints
from ullage.engines.allocation.shape import Shape

HELD: Final = 1e-7
"""Part of the optimum that a second solve may give up."""


class SolveError(RuntimeError):
    """The solver gave no optimum; the text is the solver's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """Rows beside V: ``speeds @ x + tail * z <= limits`` with one further variable z >= 0.

    Attributes:
        speeds: Rows over the columns.
        tail: Coefficient of z in each row.
        limits: Right-hand sides.
    """

    speeds: csr_array
    tail: Floats
    limits: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Solved:
    """An optimum.

    Attributes:
        x: Time of each column.
        z: The further variable.
        value: Of the goal.
        time: Duals of the groups' time.
        devices: Duals of the pools.
        rows: Duals of the extra rows.
    """

    x: Floats
    z: float
    value: float
    time: Floats = field(default_factory=lambda: np.zeros(0))
    devices: Floats = field(default_factory=lambda: np.zeros(0))
    rows: Floats = field(default_factory=lambda: np.zeros(0))


def at_least(shape: Shape, floors: Floats, rise: Floats | None = None) -> Extra:
    """Rows ``speed of a group >= floor + rise * z``, scaled so that coefficients are near 1.

    Args:
        shape: Groups and columns.
        floors: Steps/s of one member; -inf where there is none.
        rise: Steps/s for a unit of z.
    """
    lift = np.zeros(shape.groups) if rise is None else rise
    wanted = np.flatnonzero((lift > 0) | (floors > 0))
    scale = 1.0 / np.maximum(lift[wanted], np.maximum(floors[wanted], 0.0))
    return Extra(
        speeds=scaled(shape.speed[wanted], -scale),
        tail=lift[wanted] * scale,
        limits=-np.where(np.isfinite(floors[wanted]), floors[wanted], 0.0) * scale,
    )


def wanted_rows(floors: Floats, rise: Floats) -> Ints:
    """Groups that have a row in ``at_least``, in its order."""
    return np.flatnonzero((rise > 0) | (floors > 0))


def scaled(rows: csr_array, by: Floats) -> csr_array:
    """Each row times a number."""
    return csr_array(
        (rows.data * np.repeat(by, np.diff(rows.indptr)), rows.indices, rows.indptr),
        shape=rows.shape,
    )


def maximise(
    shape: Shape, gain: Floats, gain_z: float, extra: Extra, *, corner: bool = False
) -> Solved:
    """Max ``gain @ x + gain_z * z`` over V and the extra rows.

    Args:
        shape: Groups and columns.
        gain: Goal of each column.
        gain_z: Goal of the further variable.
        extra: Rows beside V.
        corner: Only the value and the prices matter: never pay for the middle.

    Raises:
        SolveError: no optimum was found.
    """
    base, rows = shape.base.tocoo(), extra.speeds.tocoo()
    heights = base.shape[0], rows.shape[0]
    tails = np.flatnonzero(extra.tail)
    matrix = coo_array(
        (
            np.concatenate([base.data, rows.data, extra.tail[tails]]),
            (
                np.concatenate([base.row, rows.row + heights[0], tails + heights[0]]),
                np.concatenate([base.col, rows.col, np.full(len(tails), shape.columns)]),
            ),
        ),
        shape=(sum(heights), shape.columns + 1),
    ).tocsr()
    limits = np.concatenate([shape.base_limits, extra.limits])
    goal = np.append(gain, gain_z)
    if shape.problem.central and not corner:
        point, duals = centre(matrix, limits, goal)
    else:
        point, duals = _corner(matrix, limits, goal)
    groups, pools = shape.groups, shape.groups + len(shape.pools)
    return Solved(
        x=np.maximum(point[:-1], 0.0),
        z=float(point[-1]),
        value=float(goal @ point),
        time=duals[:groups],
        devices=duals[groups:pools],
        rows=duals[pools:],
    )


def raise_floors(
    shape: Shape, rise: Floats, floors: Floats | None = None, *, corner: bool = False
) -> Solved:
    """Max z with speed >= floor + rise * z for each group."""
    low = np.zeros(shape.groups) if floors is None else floors
    rows = at_least(shape, low, rise)
    return maximise(shape, np.zeros(shape.columns), 1.0, rows, corner=corner)


def nearest(shape: Shape, floors: Floats, target: Floats, gain: Floats, value: float) -> Floats:
    """Among points that keep the floors and the goal, the one with the fewest devices moved.

    Args:
        shape: Groups and columns.
        floors: Steps/s that each group keeps.
        target: Time of each column in the allocation in force.
        gain: Goal of each column; zeros where the floors are the goal.
        value: What the goal must reach.
    """
    held = at_least(shape, floors)
    goal = csr_array(-gain[None, :]) if gain.any() else csr_array((0, shape.columns))
    count = shape.columns
    rows = [block.tocoo() for block in (shape.base, held.speeds, goal)]
    offsets = np.cumsum([0, *(block.shape[0] for block in rows)])
    upper = coo_array(
        (
            np.concatenate([block.data for block in rows]),
            (
                np.concatenate([b.row + o for b, o in zip(rows, offsets, strict=False)]),
                np.concatenate([block.col for block in rows]),
            ),
        ),
        shape=(int(offsets[-1]), 3 * count),
    ).tocsr()
    limits = [shape.base_limits, held.limits, *([np.array([-value])] if gain.any() else [])]
    each = np.arange(count)
    moved = coo_array(
        (
            np.concatenate([np.ones(count), -np.ones(count), np.ones(count)]),
            (np.tile(each, 3), np.arange(3 * count)),
        ),
        shape=(count, 3 * count),
    ).tocsr()
    devices = shape.gang[shape.left]
    answer = linprog(
        np.concatenate([np.zeros(count), devices, devices]),
        A_ub=upper,
        b_ub=np.concatenate(limits),
        A_eq=moved,
        b_eq=target,
        method="highs-ipm",
    )
    if answer.status != 0:
        raise SolveError(str(answer.message))
    point: Floats = np.maximum(answer.x[:count], 0.0)
    return point


def _corner(matrix: csr_array, limits: Floats, goal: Floats) -> tuple[Floats, Floats]:
    """A vertex of the optimal face, by HiGHS' interior point with crossover."""
    answer = linprog(-goal, A_ub=matrix, b_ub=limits, method="highs-ipm")
    if answer.status != 0:
        raise SolveError(str(answer.message))
    return np.asarray(answer.x), -np.asarray(answer.ineqlin.marginals)
