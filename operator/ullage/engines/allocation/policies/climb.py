# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The path on which the levels of all jobs rise while devices suffice.

A tenant's weight is divided among those of its jobs that still rise; a job that has reached its
best leaves its part to the others. With height as the time of the rise, every level is piecewise
linear in it and never falls (derived from the increment form of water filling, Gavel, OSDI 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ullage.engines.allocation.lp import Bools
from ullage.engines.allocation.model import Floats, Inner, Ints, TenantView
from ullage.engines.allocation.shape import ProblemShape


@dataclass(frozen=True, slots=True, kw_only=True)
class RisingGroups:
    """Groups of one tenant that rise at once, each at its own weight.

    Attributes:
        groups: Their indices.
        own: Weight of a member of each.
        heights: Heights at which some group reaches its best, rising, from 0.
        rises: Rise of a group of weight 1 at each height.
    """

    groups: Ints
    own: Floats
    heights: Floats
    rises: Floats

    def risen(self, height: float) -> Floats:
        """Rise of each group at a height, without the limit of its best."""
        return self.own * np.interp(height, self.heights, self.rises)

    def rates(self) -> Floats:
        """Rise of each group for a unit of height at the beginning."""
        return self.own * float(self.rises[1] / self.heights[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class InTurn:
    """Groups of one tenant that rise one after the other, in order of arrival.

    Attributes:
        groups: Their indices, the oldest first.
        weight: Of the tenant: rise of a group per unit of height.
        begins: Height at which each begins.
    """

    groups: Ints
    weight: float
    begins: Floats

    def risen(self, height: float) -> Floats:
        """Rise of each group at a height, without the limit of its best."""
        return self.weight * np.maximum(height - self.begins, 0.0)

    def rates(self) -> Floats:
        """Rise of each group for a unit of height at the beginning."""
        return np.where(np.arange(len(self.groups)) == 0, self.weight, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """Levels by height.

    Attributes:
        level: Of each group at height 0.
        best: The highest level of each group, with all open devices for it.
        tenants: Levels of each tenant.
        top: Height at which all have reached their best.
    """

    level: Floats
    best: Floats
    tenants: Sequence[RisingGroups | InTurn]
    top: float

    def at(self, height: float) -> Floats:
        """Levels at a height, shape (groups,)."""
        level = self.level.copy()
        for tenant in self.tenants:
            here = tenant.groups
            level[here] = np.minimum(self.level[here] + tenant.risen(height), self.best[here])
        return level

    def rates(self) -> Floats:
        """Rise of each group for a unit of height at the beginning, shape (groups,)."""
        rates = np.zeros(len(self.level))
        for tenant in self.tenants:
            rates[tenant.groups] = tenant.rates()
        return rates


def climb(shape: ProblemShape, level: Floats, best: Floats, rising: Bools) -> Climb:
    """The path from some levels.

    Args:
        shape: Groups and columns.
        level: Where each group begins, shape (groups,).
        best: The highest level of each, shape (groups,).
        rising: Groups that are to rise, shape (groups,).
    """
    problem = shape.problem
    known = {tenant.name: tenant for tenant in problem.tenants}
    own = shape.of_jobs(np.array([job.weight for job in problem.jobs]))
    names = np.array([problem.jobs[index].tenant for index in shape.first])
    left = np.maximum(best - level, 0.0)
    tenants: list[RisingGroups | InTurn] = []
    top = 0.0
    for name in sorted(set(names[rising])):
        groups = np.flatnonzero(rising & (names == name))
        tenant = known.get(name, TenantView(name=name))
        if tenant.inner is Inner.FIFO:
            ages = [-problem.jobs[index].age_s for index in shape.first[groups]]
            groups = groups[np.lexsort((shape.first[groups], ages))]
            takes = left[groups] / tenant.weight
            ends = np.cumsum(takes)
            tenants.append(InTurn(groups=groups, weight=tenant.weight, begins=ends - takes))
            top = max(top, float(ends[-1]))
            continue
        rises = left[groups] / own[groups]
        order = np.argsort(rises, kind="stable")
        steps = np.diff(rises[order], prepend=0.0)
        if problem.tenants:
            parts = (own * shape.count)[groups][order]
            steps *= parts[::-1].cumsum()[::-1] / tenant.weight
        heights = np.concatenate([[0.0], np.cumsum(steps)])
        together = RisingGroups(
            groups=groups,
            own=own[groups],
            heights=heights,
            rises=np.concatenate([[0.0], rises[order]]),
        )
        tenants.append(together)
        top = max(top, float(heights[-1]))
    return Climb(level=level, best=best, tenants=tenants, top=top)
