# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Most normalised work for a dollar, with a floor of service and with deadlines.

The ratio is a linear program in Y = tau X (Charnes and Cooper). Without a floor the optimum serves
the cheapest job only; a type without a price would make it unbounded and is refused.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import scipy

from ullage.engines.allocation.answer import answer, guarded, settled
from ullage.engines.allocation.deadlines import keepable, needed_rates
from ullage.engines.allocation.lp import HELD, Solved, SolveError, at_least, maximise
from ullage.engines.allocation.model import (
    Allocation,
    DroppedSLO,
    Floats,
    PriceMissingError,
    Problem,
)
from ullage.engines.allocation.policies.sums import normalised_gain
from ullage.engines.allocation.shape import ProblemShape, shape_of

_CLOSE: Final = 1e-4
"""Fraction of the best ratio that may be given up for more work."""


def min_cost(problem: Problem) -> Allocation:
    """Max normalised work per dollar; the objective is that ratio (best-speed hours a dollar).

    Raises:
        PriceMissingError: a type has no price above 0.
        SolveError: no optimum, and no earlier allocation to keep.
    """
    _priced(problem)
    none = np.zeros(len(problem.jobs))
    return guarded(problem, lambda shape: _solve(shape, none, ()), shape_of(problem))


def min_cost_slo(problem: Problem) -> Allocation:
    """Like :func:`min_cost`, with deadlines: the fewest are dropped, and each is named.

    Raises:
        PriceMissingError: a type has no price above 0.
        SolveError: no optimum, and no earlier allocation to keep.
    """
    _priced(problem)
    needed = needed_rates(problem)

    def both(shape: ProblemShape) -> Allocation:
        kept, dropped = keepable(shape, needed)
        return _solve(shape, kept, dropped)

    # Each deadline is met or dropped on its own: jobs with one are not grouped.
    own = np.where(needed > 0, np.arange(1, len(needed) + 1), 0.0)
    return guarded(problem, both, shape_of(problem, own))


def _priced(problem: Problem) -> None:
    """A type that no job can run on needs no price."""
    used: list[bool] = np.asarray((problem.throughputs.rates > 0).any(axis=0)).tolist()
    missing = [
        kind.name
        for kind, needed in zip(problem.types, used, strict=True)
        if needed and kind.devices and not kind.dollars_per_hour > 0
    ]
    if missing:
        raise PriceMissingError(
            f"no price above 0 for {', '.join(missing)}: give one in a CapacityPool or in "
            "spec.pricePerHour of the DeviceProfile, or choose an objective without cost"
        )


def _solve(shape: ProblemShape, needed: Floats, dropped: tuple[DroppedSLO, ...]) -> Allocation:
    prices = np.array([kind.dollars_per_hour for kind in shape.problem.types])
    cost = prices[shape.kind] * shape.gang[shape.left]
    crowd = min(1.0, float(shape.capacity.sum() / (shape.gang * shape.count).sum()))
    service = shape.problem.min_service * shape.proportional * crowd
    floors = np.maximum(service, shape.of_jobs(needed))
    try:
        ratio, x = _ratio(shape, cost, floors)
    except SolveError:
        # Deadlines leave too little for every floor; the deadlines were found feasible alone.
        floors = shape.of_jobs(needed)
        ratio, x = _ratio(shape, cost, floors)
    # A scaled-down optimum has the same ratio: of all optima, take the one with the most work.
    net = normalised_gain(shape, np.ones(shape.groups)) - ratio * (1.0 - _CLOSE) * cost
    try:
        most = maximise(shape, net, 0.0, at_least(shape, floors * (1 - HELD)))
    except SolveError:
        most = Solved(x=x, z=0.0, value=float(net @ x))
    x = settled(shape, most, floors, net, float(net @ most.x))
    return answer(shape, x, objective=ratio, dropped=dropped)


def _ratio(shape: ProblemShape, cost: Floats, floors: Floats) -> tuple[float, Floats]:
    """Best ratio and its point: max gain @ Y with cost @ Y = 1 and every row homogeneous in tau."""
    gain = normalised_gain(shape, np.ones(shape.groups))
    held = at_least(shape, floors)
    blocks = [shape.base.tocoo(), held.speeds.tocoo()]
    limits = np.concatenate([shape.base_limits, held.limits])
    height, offset = len(limits), shape.base.shape[0]
    matrix = scipy.sparse.coo_array(
        (
            np.concatenate([blocks[0].data, blocks[1].data, -limits]),
            (
                np.concatenate([blocks[0].row, blocks[1].row + offset, np.arange(height)]),
                np.concatenate([blocks[0].col, blocks[1].col, np.full(height, shape.columns)]),
            ),
        ),
        shape=(height, shape.columns + 1),
    ).tocsr()
    answered = scipy.optimize.linprog(
        -np.append(gain, 0.0),
        A_ub=matrix,
        b_ub=np.zeros(height),
        A_eq=scipy.sparse.csr_array(np.append(cost, 0.0)[None, :]),
        b_eq=np.ones(1),
        method="highs-ipm",
    )
    if answered.status != 0:
        raise SolveError(str(answered.message))
    point = np.asarray(answered.x, float)
    return float(-answered.fun), np.maximum(point[:-1], 0.0) / point[-1]
