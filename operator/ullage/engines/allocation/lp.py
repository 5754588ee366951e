# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Linear programs of the policies: built as sparse rows, solved by HiGHS, checked afterwards.

Variables are never negative and rows are upper limits. A status other than optimal is an error, on
which the caller keeps the last good allocation; no half-solved point leaves this module.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from ullage.engines.allocation.model import Floats, Ints
from ullage.engines.allocation.shape import ProblemShape

HELD: Final = 1e-7
"""Part of the optimum that a second solve may give up."""
_MANY: Final = 200
"""Minimum of groups for which finding redundant rows pays off."""
_SURE: Final = 1e-6
"""Relative margin by which a bound must hold to be used."""
_PRICINGS: Final = 24
"""Number of price vectors tried for a bound."""

Bools = NDArray[np.bool_]


class SolveError(RuntimeError):
    """The solver found no optimum; the text is the solver's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """Rows beside V: ``speeds @ x + tail * z <= limits`` with one further variable z >= 0.

    Attributes:
        speeds: Rows over the columns.
        tail: Coefficient of z in each row.
        limits: Right-hand sides.
    """

    speeds: scipy.sparse.csr_array
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


def at_least(shape: ProblemShape, floors: Floats, rise: Floats | None = None) -> Extra:
    """Rows ``speed of a group >= floor + rise * z``, scaled so that coefficients are near 1.

    Args:
        shape: Groups and columns.
        floors: Steps/s of one member, shape (groups,); -inf where there is none.
        rise: Steps/s for a unit of z, shape (groups,); ``None`` = 0 for all.
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
    """Groups that have a row in ``at_least``, in its order.

    Args:
        floors: Steps/s of one member, shape (groups,).
        rise: Steps/s for a unit of z, shape (groups,).

    Returns:
        Indices of groups, rising.
    """
    return np.flatnonzero((rise > 0) | (floors > 0))


def scaled(rows: scipy.sparse.csr_array, by: Floats) -> scipy.sparse.csr_array:
    """Each row multiplied by its factor.

    Args:
        rows: Shape (rows, columns).
        by: Factor of each row, shape (rows,).
    """
    return scipy.sparse.csr_array(
        (rows.data * np.repeat(by, np.diff(rows.indptr)), rows.indices, rows.indptr),
        shape=rows.shape,
    )


def maximise(
    shape: ProblemShape,
    gain: Floats,
    gain_z: float,
    extra: Extra,
    *,
    corner: bool = False,
    ample: Bools | None = None,
) -> Solved:
    """Max ``gain @ x + gain_z * z`` over V and the extra rows.

    Args:
        shape: Groups and columns.
        gain: Goal of each column, shape (columns,).
        gain_z: Goal of the further variable.
        extra: Rows beside V.
        corner: Only the value and the prices matter: never pay for the centre.
        ample: Groups whose time no optimum can use up (see ``_ample``), shape (groups,): their rows
            are omitted.

    Raises:
        SolveError: no optimum was found.
    """
    kept = np.ones(shape.base.shape[0], dtype=bool)
    if ample is not None:
        kept[: shape.groups] = ~ample
    base, rows = shape.base[np.flatnonzero(kept)].tocoo(), extra.speeds.tocoo()
    heights = base.shape[0], rows.shape[0]
    tails = np.flatnonzero(extra.tail)
    matrix = scipy.sparse.coo_array(
        (
            np.concatenate([base.data, rows.data, extra.tail[tails]]),
            (
                np.concatenate([base.row, rows.row + heights[0], tails + heights[0]]),
                np.concatenate([base.col, rows.col, np.full(len(tails), shape.columns)]),
            ),
        ),
        shape=(sum(heights), shape.columns + 1),
    ).tocsr()
    limits = np.concatenate([shape.base_limits[kept], extra.limits])
    goal = np.append(gain, gain_z)
    chosen = _corner if corner else shape.problem.centre or _corner
    point, duals = chosen(matrix, limits, goal)
    prices = np.zeros(len(kept))
    prices[kept] = duals[: heights[0]]
    x = np.maximum(point[:-1], 0.0)
    if ample is not None:
        used = shape.base[: shape.groups] @ x
        # a group with more time than exists has more than it needs
        x /= np.where(ample, np.maximum(used, 1.0), 1.0)[shape.left]
    return Solved(
        x=x,
        z=float(point[-1]),
        value=float(goal @ point),
        time=prices[: shape.groups],
        devices=prices[shape.groups :],
        rows=duals[heights[0] :],
    )


def raise_floors(
    shape: ProblemShape, rise: Floats, floors: Floats | None = None, *, corner: bool = False
) -> Solved:
    """Max z with speed >= floor + rise * z for each group.

    Args:
        shape: Groups and columns.
        rise: Steps/s for a unit of z, shape (groups,).
        floors: Steps/s of one member, shape (groups,); ``None`` = 0 for all.
        corner: Only the value and the prices matter: never pay for the centre.

    Raises:
        SolveError: no optimum was found.
    """
    low = np.zeros(shape.groups) if floors is None else floors
    rows = at_least(shape, low, rise)
    inside = shape.problem.centre is not None and not corner
    ample = None if inside else _ample(shape, low, rise)
    return maximise(shape, np.zeros(shape.columns), 1.0, rows, corner=corner, ample=ample)


def _ample(shape: ProblemShape, low: Floats, rise: Floats) -> Bools | None:
    """Groups that reach any reachable z on their slowest type, with time to spare.

    Their rows of time never bind: an optimum that breaks one is scaled back to it and stays
    optimal, and a price of 0 is right. z is bounded by the job nearest to its best speed, and by
    all devices when each job takes the cheapest by some prices (weak duality); both bounds rest on
    rows that stay. Derived. ``None`` where the search does not pay off.
    """
    raised = np.flatnonzero(rise > 0)
    if not len(raised) or shape.groups < _MANY or (shape.right >= 0).any():
        return None
    floors = np.maximum(low, 0.0)
    best = shape.rate.max(axis=1)
    most = float(((best - floors)[raised] / rise[raised]).min())
    most = min(most, _by_devices(shape, floors, rise))
    slowest = np.where(shape.rate > 0, shape.rate, np.inf).min(axis=1)
    return np.asarray((floors + rise * most) * (1 + _SURE) <= slowest)


def _by_devices(shape: ProblemShape, floors: Floats, rise: Floats) -> float:
    """Upper bound of z by the devices alone: the least over a few price vectors."""
    size = (shape.gang * shape.count)[:, None]
    with np.errstate(divide="ignore"):
        each = np.where(shape.rate > 0, size / shape.rate, np.inf)
    prices = np.ones(len(shape.pools))
    most_scaled = np.inf
    for _ in range(_PRICINGS):
        cost = each * prices[shape.pool_of]
        kind = cost.argmin(axis=1)
        least = cost[np.arange(shape.groups), kind]
        spent, room = float(least @ rise), float(prices @ shape.capacity)
        if not spent > 0:
            return most_scaled
        most_scaled = min(most_scaled, (room - float(least @ floors)) / spent)
        # the price of a pool with excess demand rises
        asked = np.zeros(len(shape.pools))
        np.add.at(asked, shape.pool_of[kind], least * (floors + rise * max(most_scaled, 0.0)))
        prices *= np.sqrt((asked + _SURE * room) / (prices * shape.capacity + _SURE * room))
    return most_scaled


def nearest(
    shape: ProblemShape, floors: Floats, target: Floats, gain: Floats, value: float
) -> Floats:
    """Among points that keep the floors and the goal, the one that moves the fewest devices.

    Args:
        shape: Groups and columns.
        floors: Steps/s that each group keeps, shape (groups,).
        target: Time of each column in the allocation in force, shape (columns,).
        gain: Goal of each column, shape (columns,); zeros where the floors are the goal.
        value: Minimum value of the goal.

    Returns:
        Time of each column, shape (columns,).

    Raises:
        SolveError: no optimum was found.
    """
    held = at_least(shape, floors)
    goal = (
        scipy.sparse.csr_array(-gain[None, :])
        if gain.any()
        else scipy.sparse.csr_array((0, shape.columns))
    )
    count = shape.columns
    rows = [block.tocoo() for block in (shape.base, held.speeds, goal)]
    offsets = np.cumsum([0, *(block.shape[0] for block in rows)])
    upper = scipy.sparse.coo_array(
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
    moved = scipy.sparse.coo_array(
        (
            np.concatenate([np.ones(count), -np.ones(count), np.ones(count)]),
            (np.tile(each, 3), np.arange(3 * count)),
        ),
        shape=(count, 3 * count),
    ).tocsr()
    devices = shape.gang[shape.left]
    answer = scipy.optimize.linprog(
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


def _corner(matrix: scipy.sparse.csr_array, limits: Floats, goal: Floats) -> tuple[Floats, Floats]:
    """A vertex of the optimal face, by HiGHS' interior point with crossover."""
    answer = scipy.optimize.linprog(-goal, A_ub=matrix, b_ub=limits, method="highs-ipm")
    if answer.status != 0:
        raise SolveError(str(answer.message))
    return np.asarray(answer.x), -np.asarray(answer.ineqlin.marginals)
