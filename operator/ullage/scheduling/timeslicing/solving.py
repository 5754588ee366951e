# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Asks the engine, once for every problem, and has an answer where the engine has none.

A solver that fails never stops a decision: what was told stands, else equal parts. It never keeps
anything that a later cycle would decide by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ullage.engines.allocation.lp import SolveError
from ullage.engines.allocation.model import (
    Allocation,
    Problem,
    ProblemError,
    Result,
)
from ullage.engines.allocation.policies import Objective
from ullage.engines.allocation.policies import allocate as divide_by
from ullage.scheduling.timeslicing.division_cache import DivisionCache

Allocate = Callable[[Objective, Problem], Allocation]
"""Divides by an objective; the engine's unless someone wants to look on."""


def solved(
    objective: Objective, problem: Problem, allocate: Allocate | None, cache: DivisionCache
) -> Allocation:
    """The engine's answer; what was told before, or equal parts, where it has none."""
    if not problem.jobs:
        return Allocation(
            jobs=(),
            types=tuple(kind.name for kind in problem.types),
            fractions=np.zeros((0, len(problem.types))),
            result=Result.NOTHING_TO_DIVIDE,
        )
    key = (objective, _Key(problem), allocate)
    allocation = cache.answer(key)
    if allocation is None:  # a problem stands until its answer was written and read back
        allocation = _answer(objective, problem, allocate)
        cache.keep(key, allocation)
    return allocation


class _Key:
    """A problem as a key: equal content, equal key."""

    __slots__ = ("_content", "_hash")

    def __init__(self, problem: Problem) -> None:
        previous = problem.previous
        said: tuple[object, ...] = (
            problem.jobs,
            problem.types,
            problem.tenants,
            problem.min_service,
            problem.throughputs.rates.tobytes(),
        )
        if previous is not None:
            said += (previous.jobs, previous.types, previous.fractions.tobytes())
        self._content = said
        # a hash may be of less than what is compared: names and numbers tell problems apart
        self._hash = hash((tuple(job.name for job in problem.jobs), *said[1:]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other._content == self._content

    def __hash__(self) -> int:
        return self._hash


def _answer(objective: Objective, problem: Problem, allocate: Allocate | None) -> Allocation:
    try:
        return (allocate or divide_by)(objective, problem)
    except (SolveError, ProblemError):
        if problem.previous is not None:
            return replace(problem.previous, result=Result.KEPT_LAST)
    gangs = np.array([float(job.gang) for job in problem.jobs])
    room = np.array([float(kind.devices) for kind in problem.types])
    able = (problem.throughputs.rates > 0) & (gangs[:, None] <= room[None, :])
    wanted = np.maximum((able * gangs[:, None]).sum(axis=0), 1.0)
    table = able * np.minimum(1.0, room / wanted)[None, :]
    table /= np.maximum(table.sum(axis=1, keepdims=True), 1.0)
    return Allocation(
        jobs=tuple(job.name for job in problem.jobs),
        types=tuple(kind.name for kind in problem.types),
        fractions=table,
        result=Result.KEPT_LAST,
    )
