# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every objective, by its word in ``SchedulingPolicy.spec.objective``.

Policies share only the program builder. ``import scipy`` loads its parts lazily: a cluster with a
FIFO queue never needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ullage.api.words import Objective as Objective
from ullage.engines.allocation.model import Allocation, Problem
from ullage.engines.allocation.policies import cost, finish_time, makespan, max_min, sums, waterfill


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationPolicy:
    """Division of time by an objective.

    Attributes:
        solve: From a problem to an allocation.
        costed: It needs a price above 0 of every type that a job may use.
        clocked: Depends on work left or time elapsed: time is divided again every round.
    """

    solve: Callable[[Problem], Allocation]
    costed: bool = False
    clocked: bool = False


POLICIES: Final[Mapping[Objective, AllocationPolicy]] = MappingProxyType(
    {
        Objective.FIFO: AllocationPolicy(solve=sums.fifo),
        Objective.MAX_MIN_FAIRNESS: AllocationPolicy(solve=max_min.solve),
        Objective.FINISH_TIME_FAIRNESS: AllocationPolicy(solve=finish_time.solve, clocked=True),
        Objective.MAKESPAN: AllocationPolicy(solve=makespan.solve, clocked=True),
        Objective.MAX_THROUGHPUT: AllocationPolicy(solve=sums.max_throughput),
        Objective.SJF: AllocationPolicy(solve=sums.sjf, clocked=True),
        Objective.MIN_COST: AllocationPolicy(solve=cost.min_cost, costed=True),
        Objective.MIN_COST_SLO: AllocationPolicy(
            solve=cost.min_cost_slo, costed=True, clocked=True
        ),
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
    return POLICIES[objective].solve(problem)
