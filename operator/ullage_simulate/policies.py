# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The policies for comparison: the operator's objectives, and the baselines.

Every name refers to the code that decides in a cluster; only the baselines are defined here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from ullage.engines.allocation.model import Allocation, Floats, Problem, ThroughputTable
from ullage.engines.allocation.policies import POLICIES as OBJECTIVES
from ullage.engines.allocation.policies import Objective, allocate, max_min, waterfill
from ullage_simulate.priorities import Victims
from ullage_simulate.trace import JobTraceError

Solve = Callable[[Problem], Allocation]
Divide = Callable[[Floats, Floats, Floats, Floats], Floats | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPolicy:
    """One way of dividing the cluster.

    Attributes:
        name: Name on the command line and in the table.
        solve: Fractions of time; ``None`` = a plain queue without them.
        divide: The same fractions from gangs, weights, speeds and devices alone, without a program;
            ``None``, or its result is ``None``, where that is not possible.
        aware: It distinguishes the speeds of types.
        baseline: It is always shown for comparison.
        follows_progress: Its fractions depend on steps left or on age, not on the jobs alone.
        priced: It needs the prices of all types.
        objective: Its name in SchedulingPolicy, if any.
        strict: A plain queue without overtaking.
        victims: A priority queue with preemption of lower priorities, and the order of victims.
    """

    name: str
    solve: Solve | None
    divide: Divide | None = None
    aware: bool = True
    baseline: bool = False
    follows_progress: bool = False
    priced: bool = False
    objective: Objective | None = None
    strict: bool = False
    victims: Victims | None = None


def all_alike(problem: Problem) -> Problem:
    """Speeds of 1 on every allowed type: for max-min objectives."""
    rates = np.where(problem.throughputs.rates > 0, 1.0, 0.0)
    return replace(problem, throughputs=ThroughputTable(rates=rates))


def equal_parts(problem: Problem) -> Allocation:
    """Give every job an equal part of every type, even if another could use it better."""
    gangs = np.array([job.gang for job in problem.jobs], float)
    sizes = np.array([kind.devices for kind in problem.types], float)
    return Allocation(
        jobs=tuple(job.name for job in problem.jobs),
        types=tuple(kind.name for kind in problem.types),
        fractions=_equal(gangs, gangs, problem.throughputs.rates, sizes),
    )


def _equal(gang: Floats, weight: Floats, rates: Floats, sizes: Floats) -> Floats:
    """Fractions of equal parts; weights are ignored."""
    part = sizes[None, :] / len(gang) / gang[:, None]
    part = np.where(rates > 0, part, 0.0)
    divided: Floats = part / np.maximum(part.sum(axis=1, keepdims=True), 1.0)
    return divided


def _agnostic_las(problem: Problem) -> Allocation:
    return max_min.solve(all_alike(problem))


_NAMES: Final = {Objective.FIFO: "fifo-aware", Objective.MAX_MIN_FAIRNESS: "las"}
"""Objectives whose name is not their word in lower case."""


def _aware(objective: Objective) -> SimulatedPolicy:
    entry = OBJECTIVES[objective]
    return SimulatedPolicy(
        name=_NAMES.get(objective) or re.sub("(?<=[a-z])(?=[A-Z])", "-", objective).lower(),
        solve=partial(allocate, objective),
        divide=max_min.by_weight if objective is Objective.MAX_MIN_FAIRNESS else None,
        objective=objective,
        follows_progress=entry.clocked,
        priced=entry.costed,
    )


FIFO: Final = SimulatedPolicy(name="fifo", solve=None, aware=False, baseline=True)
FIFO_FASTEST: Final = SimulatedPolicy(name="fifo-fastest", solve=None)
"""The operator's own FIFO."""
ISOLATED: Final = SimulatedPolicy(
    name="isolated", solve=equal_parts, divide=_equal, aware=False, baseline=True
)
AGNOSTIC_LAS: Final = SimulatedPolicy(
    name="agnostic-las",
    solve=_agnostic_las,
    divide=max_min.by_weight,
    aware=False,
    baseline=True,
)
BASELINES: Final = (FIFO, ISOLATED, AGNOSTIC_LAS)
NONE: Final = "none"
"""No comparison."""

POLICIES: Final[Mapping[str, SimulatedPolicy]] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            *BASELINES,
            SimulatedPolicy(name="fifo-strict", solve=None, aware=False, strict=True),
            FIFO_FASTEST,
            *(
                SimulatedPolicy(name=f"priority-{rule}", solve=None, aware=False, victims=rule)
                for rule in Victims
            ),
            SimulatedPolicy(name="water-filling", solve=waterfill.solve),
            *(_aware(objective) for objective in OBJECTIVES),
        )
    }
)
_ALIKE: Final = {
    "maxminfairness": "las",
    "agnostic": "agnostic-las",
    "ftf": "finish-time-fairness",
}


def chosen(names: Sequence[str], against: Sequence[str] = ()) -> tuple[SimulatedPolicy, ...]:
    """The policies of these names after the baselines, each once.

    Args:
        names: Those of this module or of ``SchedulingPolicy.spec.objective``, in any case.
        against: Names of the baselines; empty = all, ``none`` alone = none.

    Raises:
        TraceError: a name is unknown; the text lists the known ones.
    """
    compared = [] if [_plain(name) for name in against] == [NONE] else list(against)
    policies = [_named(name) for name in compared] if against else list(BASELINES)
    policies += [_named(name) for name in names]
    return tuple(dict.fromkeys(policies))


def _named(name: str) -> SimulatedPolicy:
    known = {_plain(policy): policy for policy in POLICIES} | _ALIKE
    policy = POLICIES.get(known.get(_plain(name), ""))
    if policy is None:
        raise JobTraceError(f"no policy {name!r}; there are {', '.join(POLICIES)}")
    return policy


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
