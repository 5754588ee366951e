# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One objective each: from a problem to an allocation. They share the program builder only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from ullage.engines.allocation.model import Allocation, Objective, Problem
from ullage.engines.allocation.policies import cost, finish_time, makespan, max_min, sums, waterfill

Policy = Callable[[Problem], Allocation]

POLICIES: Final[Mapping[Objective, Policy]] = MappingProxyType(
    {
        Objective.MAX_MIN_FAIRNESS: max_min.solve,
        Objective.FINISH_TIME_FAIRNESS: finish_time.solve,
        Objective.MAKESPAN: makespan.solve,
        Objective.MIN_COST: cost.min_cost,
        Objective.MIN_COST_SLO: cost.min_cost_slo,
        Objective.FIFO: sums.fifo,
        Objective.SJF: sums.sjf,
        Objective.MAX_THROUGHPUT: sums.max_throughput,
    }
)


def allocate(objective: Objective, problem: Problem) -> Allocation:
    """Divide the cluster by an objective; tenants turn max-min fairness into water filling.

    Args:
        objective: What to optimise.
        problem: Jobs, types and speeds.

    Raises:
        PriceMissingError: a cost objective and a type without a price.
        SolveError: no optimum, and no earlier allocation to keep.
    """
    if objective is Objective.MAX_MIN_FAIRNESS and problem.tenants:
        return waterfill.solve(problem)
    return POLICIES[objective](problem)
