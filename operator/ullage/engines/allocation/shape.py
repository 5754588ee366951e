# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The shape of a problem: jobs that are equal to a policy become one block of columns.

Equal rows have equal optima, so a thousand jobs of a few kinds are a program of a few columns. Only
equal rows are merged, and a block's time is split evenly again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from ullage.engines.allocation.model import Floats, Ints, Problem
from ullage.engines.allocation.pairs import pair_columns


@dataclass(frozen=True, kw_only=True)
class ProblemShape:
    """Groups of equal jobs and the columns of the program.

    A column is one way of using devices: a group alone on a type, or two groups side by side. Its
    variable is the time that all members spend in it, in job-seconds per second.

    Attributes:
        problem: The problem.
        group_of: Group of each job; -1 for a job that no type can run.
        count: Jobs in each group.
        rate: Steps/s of one member on each type; 0 where it is not allowed.
        gang: Devices of one member.
        first: One member's index in the problem.
        kind: Type of each column.
        left: Group of each column.
        right: Second group of a pair, else -1.
        left_rate: Steps/s of the left group in the column.
        right_rate: Steps/s of the right group; 0 for a single.
        pools: Names of the capacity rows.
        pool_of: Capacity row of each type.
        capacity: Devices of each capacity row.
    """

    problem: Problem
    group_of: Ints
    count: Floats
    rate: Floats
    gang: Floats
    first: Ints
    kind: Ints
    left: Ints
    right: Ints
    left_rate: Floats
    right_rate: Floats
    pools: tuple[str, ...]
    pool_of: Ints
    capacity: Floats

    @cached_property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.count)

    @cached_property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.kind)

    @cached_property
    def jobs(self) -> float:
        """Jobs that some type can run."""
        return float(self.count.sum())

    @cached_property
    def speed(self) -> scipy.sparse.csr_array:
        """Steps/s of one member of each group (rows) per unit of each column."""
        return self._incidence(
            self.left_rate / self.count[self.left],
            self.right_rate / self.count[self.right],
        )

    @cached_property
    def base(self) -> scipy.sparse.csr_array:
        """Rows of V: the time of each group, then the devices of each pool."""
        ones = np.ones(self.columns)
        time = self._incidence(ones / self.count[self.left], ones / self.count[self.right])
        devices = scipy.sparse.csr_array(
            (self.gang[self.left], (self.pool_of[self.kind], np.arange(self.columns))),
            shape=(len(self.pools), self.columns),
        )
        return _stacked(time, devices)

    @cached_property
    def base_limits(self) -> Floats:
        """Right-hand sides of V."""
        return np.concatenate([np.ones(self.groups), self.capacity])

    @cached_property
    def proportional(self) -> Floats:
        """e: steps/s of one member that always holds every pool in proportion to its size.

        Of two ways of placing a gang in one pool the faster counts.
        """
        total = self.capacity.sum()
        return np.asarray(self._best_in_pool() @ (self.capacity / total))

    @cached_property
    def isolated(self) -> Floats:
        """Steps/s of one member on its equal part of every pool."""
        part = self.capacity[None, :] / self.jobs / self.gang[:, None]
        part /= np.maximum(part.sum(axis=1, keepdims=True), 1.0)
        return np.asarray((self._best_in_pool() * part).sum(axis=1))

    def of_jobs(self, values: Mapping[str, float] | Floats) -> Floats:
        """A value of each group, from the value of its first member."""
        if isinstance(values, np.ndarray):
            return np.asarray(values[self.first], float)
        return np.array([values[self.problem.jobs[index].name] for index in self.first])

    def _best_in_pool(self) -> Floats:
        best = np.zeros((self.groups, len(self.pools)))
        for kind, pool in enumerate(self.pool_of):
            np.maximum(best[:, pool], self.rate[:, kind], out=best[:, pool])
        return best

    def _incidence(self, left: Floats, right: Floats) -> scipy.sparse.csr_array:
        """Rows of groups over columns; both entries of a pair within one group add up."""
        pairs = np.flatnonzero(self.right >= 0)
        return scipy.sparse.csr_array(
            (
                np.concatenate([left, right[pairs]]),
                (
                    np.concatenate([self.left, self.right[pairs]]),
                    np.concatenate([np.arange(self.columns), pairs]),
                ),
            ),
            shape=(self.groups, self.columns),
        )


def _stacked(*blocks: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Row blocks over the same columns, stacked."""
    indptr = [np.zeros(1, dtype=np.int64)]
    for block in blocks:
        indptr.append(block.indptr[1:].astype(np.int64) + indptr[-1][-1])
    return scipy.sparse.csr_array(
        (
            np.concatenate([block.data for block in blocks]),
            np.concatenate([block.indices for block in blocks]),
            np.concatenate(indptr),
        ),
        shape=(sum(block.shape[0] for block in blocks), blocks[0].shape[1]),
    )


def shape_of(problem: Problem, *extra: Floats) -> ProblemShape:
    """Group the jobs that have equal speeds, gang, weight, tenant and further values.

    Args:
        problem: Jobs, types and speeds.
        extra: Further values by which a policy distinguishes jobs.
    """
    types = problem.types
    pools = tuple(dict.fromkeys(kind.capacity_row for kind in types))
    pool_of = np.array([pools.index(kind.capacity_row) for kind in types], dtype=np.intp)
    devices = np.array([float(kind.devices) for kind in types])
    gang = np.array([float(job.gang) for job in problem.jobs])
    # A gang larger than the type can never be placed there and must not get time.
    rate = np.where(gang[:, None] > devices[None, :], 0.0, problem.throughputs.rates)
    possible = np.flatnonzero((rate > 0).any(axis=1)) if rate.size else np.zeros(0, np.intp)
    kinds = _numbers([job.kind or job.name for job in problem.jobs])
    keys = [
        gang,
        np.array([job.weight for job in problem.jobs]),
        _numbers([job.tenant for job in problem.jobs]),
        *((kinds,) if problem.throughputs.pairs else ()),
        *extra,
    ]
    first, inverse, count = _equal_rows(np.column_stack([rate, *keys])[possible])
    group_of = np.full(len(problem.jobs), -1, dtype=np.intp)
    group_of[possible] = inverse
    first = possible[first]
    rate, gang = rate[first], gang[first]
    left, kind = np.nonzero(rate > 0)
    blank = np.full(len(left), -1, dtype=np.intp)
    parts = [(kind, left, blank, rate[left, kind], np.zeros(len(left)))]
    parts += pair_columns(problem, kinds[first], rate, gang, count)
    joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return ProblemShape(
        problem=problem,
        group_of=group_of,
        count=count,
        rate=rate,
        gang=gang,
        first=first,
        kind=joined[0],
        left=joined[1],
        right=joined[2],
        left_rate=joined[3],
        right_rate=joined[4],
        pools=pools,
        pool_of=pool_of,
        capacity=np.array([devices[pool_of == pool][0] for pool in range(len(pools))]),
    )


def _numbers(names: list[str]) -> Floats:
    """A number for each distinct name, in order of appearance."""
    seen: dict[str, int] = {}
    return np.array([float(seen.setdefault(name, len(seen))) for name in names])


def _equal_rows(table: Floats) -> tuple[Ints, Ints, Floats]:
    """First index, group of each row and size of each group, groups in order of appearance."""
    seen: dict[bytes, int] = {}
    # + 0.0 gives a negative zero the bytes of zero.
    whole = np.ascontiguousarray(table + 0.0)
    data, width = whole.tobytes(), whole.shape[1] * whole.itemsize
    rows = (data[at : at + width] for at in range(0, len(data), width))
    inverse = np.array([seen.setdefault(row, len(seen)) for row in rows], np.intp)
    first = np.full(len(seen), len(table), dtype=np.intp)
    np.minimum.at(first, inverse, np.arange(len(table)))
    return first, inverse, np.bincount(inverse, minlength=len(seen)).astype(float)
