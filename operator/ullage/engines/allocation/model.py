# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs of a policy.

They hold facts and results only; nothing in this module solves anything, and records are immutable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ullage.api.words import Inner as Inner

if TYPE_CHECKING:
    import scipy

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

FEASIBLE: Final = 1e-6
"""Largest allowed violation of a constraint in an allocation."""


class ProblemError(ValueError):
    """The inputs do not describe a cluster and its jobs; the text names the fault."""


class PriceMissingError(ProblemError):
    """A cost objective met a type without a price above 0; it names the type."""


class SolveResult(StrEnum):
    """End of a solve."""

    OPTIMAL = "Optimal"
    KEPT_LAST = "KeptLast"
    """The solver did not finish; the last good allocation stands."""
    NOTHING_TO_DIVIDE = "NothingToDivide"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job as policies see it.

    Attributes:
        name: Stable key; ties are broken by it.
        gang: Devices that all its workers hold together; below 1 = a fraction of one.
        weight: Of the fair share, above 0.
        steps_left: Steps still to do.
        age_s: Seconds since it arrived.
        isolated_s: Time that the finished steps would have taken on an isolated share.
        deadline_in_s: Seconds from now until its deadline; ``None`` where there is none.
        tenant: Entity of hierarchical fairness; empty for the one unnamed tenant.
        kind: Jobs of one kind have the same speeds in every pair; empty for a job without pairs.
    """

    name: str
    gang: float = 1
    weight: float = 1.0
    steps_left: float = 1.0
    age_s: float = 0.0
    isolated_s: float = 0.0
    deadline_in_s: float | None = None
    tenant: str = ""
    kind: str = ""

    def __post_init__(self) -> None:
        if not self.gang > 0:
            raise ProblemError(f"{self.name}: a gang is above 0 devices, not {self.gang}")
        if not (self.weight > 0 and math.isfinite(self.weight)):
            raise ProblemError(f"{self.name}: a weight is above 0, not {self.weight}")
        if not (self.steps_left > 0 and math.isfinite(self.steps_left)):
            raise ProblemError(f"{self.name}: steps left must be above 0, not {self.steps_left}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeView:
    """One accelerator type, or one way of placing a gang on it.

    Attributes:
        name: Column of the speeds.
        devices: Number of devices.
        dollars_per_hour: Price of one device; 0 = no price.
        pool: Types of one pool share its devices (consolidated and spread); the name by default.
    """

    name: str
    devices: float
    dollars_per_hour: float = 0.0
    pool: str = ""

    def __post_init__(self) -> None:
        if self.devices < 0:
            raise ProblemError(f"{self.name}: devices cannot be negative ({self.devices})")

    @property
    def capacity_row(self) -> str:
        """The pool that provides its devices."""
        return self.pool or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantView:
    """One entity of hierarchical fairness."""

    name: str
    weight: float = 1.0
    inner: Inner = Inner.FAIRNESS


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """Two kinds side by side on the devices of one gang.

    Attributes:
        left: Kind of one job, or its name.
        right: Kind of the other; may equal ``left``.
        gang: Devices that both hold.
        left_rates: Steps/s of the left job on each type; 0 = refused or not known.
        right_rates: The same of the right one.
    """

    left: str
    right: str
    gang: int
    left_rates: tuple[float, ...]
    right_rates: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputTable:
    """Steps/s of each job (row) on each type (column); 0 = does not fit or is not allowed."""

    rates: Floats
    pairs: tuple[PairRow, ...] = ()

    def __post_init__(self) -> None:
        if self.rates.ndim != 2:
            raise ProblemError("speeds are a table: one row a job, one column a type")
        if not (np.isfinite(self.rates).all() and (self.rates >= 0).all()):
            raise ProblemError("a speed is a number of steps/s, 0 where the job cannot run")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairShare:
    """Fraction of time that two jobs run side by side on one type."""

    left: str
    right: str
    type: str
    fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedSLO:
    """A deadline that cannot be met, with the required rate and the best it could reach alone.

    ``approximate``: the search was cut short; the dropped deadlines need not be the fewest.
    """

    job: str
    needed_steps_per_s: float
    best_steps_per_s: float
    approximate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A policy's answer: long-run fractions of time, never an instantaneous placement.

    Attributes:
        jobs: Rows.
        types: Columns.
        fractions: Time of each job on each type, alone or in pairs.
        pairs: The part of it that is spent beside another job.
        objective: Value of the policy's goal, in its own unit (see the policy).
        result: How the solve ended.
        residual: Largest violation of a constraint.
        unplaceable: Jobs that no type can run (NoFeasibleAccelerator).
        dropped: Deadlines that are missed.
        capacity_prices: Dual of each pool's devices: the value of one more device.
        time_prices: Dual of each job's own time: above 0 when it already runs all the time.
        effective: Steps/s of each job.
    """

    jobs: tuple[str, ...]
    types: tuple[str, ...]
    fractions: Floats
    pairs: tuple[PairShare, ...] = ()
    objective: float = 0.0
    result: SolveResult = SolveResult.OPTIMAL
    residual: float = 0.0
    unplaceable: tuple[str, ...] = ()
    dropped: tuple[DroppedSLO, ...] = ()
    capacity_prices: Mapping[str, float] = field(default_factory=dict)
    time_prices: Mapping[str, float] = field(default_factory=dict)
    effective: Mapping[str, float] = field(default_factory=dict)

    def of(self, job: str) -> dict[str, float]:
        """Fractions of one job by type; empty for a job that was not in the problem."""
        if job not in self.jobs:
            return {}
        row = self.fractions[self.jobs.index(job)]
        return dict(zip(self.types, row.tolist(), strict=True))


Centre = Callable[["scipy.sparse.csr_array", Floats, Floats], tuple[Floats, Floats]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Inputs of a policy; the same problem gives the same allocation.

    Attributes:
        jobs: Rows of the speeds.
        types: Columns of the speeds.
        throughputs: Speeds, alone and in pairs.
        previous: The allocation in force; ties among optima go to the nearest to it.
        tenants: Entities; jobs of a tenant that is not named here have weight 1 and Fairness.
        min_service: Floor of the cost policies: fraction of a proportional share that every job
            keeps.
        min_combined: Pairs whose normalised speeds sum to no more than this are not considered.
        centre: Computes a point of the optimal face that is no corner, from rows, limits and goal;
            ``None`` = a corner.
    """

    jobs: tuple[JobView, ...]
    types: tuple[TypeView, ...]
    throughputs: ThroughputTable
    previous: Allocation | None = None
    tenants: tuple[TenantView, ...] = ()
    min_service: float = 0.0
    min_combined: float = 1.1
    centre: Centre | None = None

    def __post_init__(self) -> None:
        shape = (len(self.jobs), len(self.types))
        if self.throughputs.rates.shape != shape:
            raise ProblemError(
                f"speeds have shape {self.throughputs.rates.shape}, jobs and types need {shape}"
            )
        if len({job.name for job in self.jobs}) != len(self.jobs):
            raise ProblemError("two jobs have one name")
        if not 0 <= self.min_service <= 1:
            raise ProblemError(f"min_service is a part of a fair share, not {self.min_service}")
        _one_size_per_pool(self.types)


def _one_size_per_pool(types: Sequence[TypeView]) -> None:
    """Check that types of one pool describe the same devices."""
    sizes: dict[str, float] = {}
    for kind in types:
        if sizes.setdefault(kind.capacity_row, kind.devices) != kind.devices:
            raise ProblemError(f"types of pool {kind.capacity_row} give two numbers of devices")
