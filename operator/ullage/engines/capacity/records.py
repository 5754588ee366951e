# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Offers, holdings and decisions: values without behaviour.

A pool is one instance type in one zone under one capacity type, as seen by one job. It must never
have a price per GPU: whole instances are bought.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from ullage.api.words import CapacityType as CapacityType
from ullage.api.words import CostObjective


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityAim:
    """Objective by which capacity is chosen.

    Attributes:
        fastest: Maximise work first, then minimise cost; else the other way round.
        due: A deadline decides between spot and on-demand, and cost ranks the pools of that kind.
    """

    fastest: bool = False
    due: bool = False


OBJECTIVES: Final[Mapping[CostObjective, CapacityAim]] = MappingProxyType(
    {
        CostObjective.COST_PER_WORK: CapacityAim(),
        CostObjective.DEADLINE: CapacityAim(due=True),
        CostObjective.MAKESPAN: CapacityAim(fastest=True),
    }
)
"""Every objective of ``spec.cost``, by its word."""


class CapacityWhy(StrEnum):
    """Reason for the choice of an allocation."""

    ACQUIRED = "PoolAcquired"
    """Instances are added: work gets cheaper, or faster where time is minimised."""
    RELEASED = "PoolReleased"
    """Instances are released: work gets cheaper without them."""
    SWITCHED = "OfferSwitched"
    """Instances move from one pool to another."""
    KEPT = "GainTooSmall"
    """No change gains enough."""
    HOLDING = "MinimumHold"
    """The instances to release have not been held for the minimum time."""
    LIMITED = "LimitsShrank"
    """The holdings exceed the limits: budget, replicas, or removed pools."""
    BUDGET = "BudgetTooSmall"
    """The minimum of replicas costs more than the budget."""
    NO_CAPACITY = "NoCapacity"
    """The pools cannot provide the minimum of replicas."""
    NOT_PRICED = "PriceMissing"
    """No pool has a price."""
    ON_SPOT = "SpotAvailable"
    """The deadline allows spot, and it is available."""
    STAYS_ON_SPOT = "SpotRunning"
    """Spot runs until it is interrupted."""
    BEHIND = "FallbackToOnDemand"
    """Progress is behind the line to the deadline and there is no spot."""
    ON_DEMAND_HELD = "OnDemandHeld"
    """Releasing on-demand would cost a second start that progress does not pay yet."""
    SAFETY_NET = "DeadlineSafetyNet"
    """The remaining time is needed: on-demand until the end."""
    AHEAD = "WaitingForSpot"
    """Progress is ahead of the line: waiting for spot is free."""
    FINISHED = "WorkDone"
    """All work is done."""
    NO_ON_DEMAND = "OnDemandMissing"
    """The deadline requires on-demand and no pool has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A source of instances as seen by one job.

    Attributes:
        name: Unique.
        capacity_type: Purchase option.
        price_per_hour: Of one instance, the last accepted; ``None`` = there never was one.
        hazard_per_hour: Expected loss events per hour in which instances are held; 0 = never.
        speed: Work per hour of one instance relative to the reference type.
        most: Most instances for this job, those held included; ``None`` = no limit.
        available: New instances are available now; held ones stay either way.
    """

    name: str
    capacity_type: CapacityType = CapacityType.SPOT
    price_per_hour: float | None
    hazard_per_hour: float = 0.0
    speed: float = 1.0
    most: int | None = None
    available: bool = True

    def __post_init__(self) -> None:
        """Reject impossible values.

        Raises:
            ValueError: a negative price, hazard, speed or limit.
        """
        signed = (self.price_per_hour or 0.0, self.hazard_per_hour, self.speed, self.most or 0)
        if not all(value >= 0 for value in signed):
            raise ValueError(f"pool {self.name}: price, hazard, speed and most are never below 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHolding:
    """Instances of one pool held by a job.

    Attributes:
        pool: Name.
        instances: Number of instances.
        held_s: Seconds since the first of them was acquired.
    """

    pool: str
    instances: int
    held_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PoolInstances:
    """Instances of one pool in an allocation."""

    pool: str
    instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Request of a job.

    Attributes:
        objective: Objective to optimise.
        least: Fewest instances it runs on; 1 for a job that shrinks freely.
        most: Most instances.
        gang: Instances are added and released in multiples of this.
        budget_per_hour: Most dollars per hour, reliable machines included; ``None`` = no limit.
        allow_spot: Spot may be used.
        allow_on_demand: On-demand and reserved capacity may be used.
        held: Current holdings.
    """

    objective: CostObjective = CostObjective.COST_PER_WORK
    least: int = 1
    most: int
    gang: int = 1
    budget_per_hour: float | None = None
    allow_spot: bool = True
    allow_on_demand: bool = True
    held: tuple[PoolHolding, ...] = ()

    def __post_init__(self) -> None:
        """Reject inconsistent requests.

        Raises:
            ValueError: fewest above most, or a gang that fits neither.
        """
        if not self.gang >= 1 or not 1 <= self.least <= self.most:
            raise ValueError(f"replicas {self.least}..{self.most} in gangs of {self.gang}")
        if -(-self.least // self.gang) * self.gang > self.most:
            raise ValueError(f"no multiple of {self.gang} lies in {self.least}..{self.most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySettings:
    """Settings from ``SchedulingPolicy.spec.spot``; each is a default to sweep.

    Attributes:
        min_gain: Fraction by which another allocation must be better.
        min_hold_s: Minimum time before instances are released.
        horizon_h: Hours ahead that costs and work are counted.
        period_s: Seconds between decisions without events.
    """

    min_gain: float = 0.03
    min_hold_s: float = 600.0
    horizon_h: float = 1.0
    period_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Expected cost and work of an allocation over the horizon.

    Attributes:
        cost: Dollars.
        work: Hours of the reference instance.
        per_hour: Dollars per hour while everything runs.
    """

    cost: float
    work: float
    per_hour: float

    @property
    def per_work(self) -> float:
        """E_A: dollars per hour of work; infinite without work."""
        return self.cost / self.work if self.work > 0 else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOption:
    """An allocation with its expected cost and work."""

    shares: tuple[PoolInstances, ...]
    expected: Expected


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityDecision:
    """The capacity to hold from now on.

    Attributes:
        chosen: The allocation; without shares nothing is held.
        runner_up: The best alternative.
        current: The previous holdings, with their expected cost and work.
        reason: Reason of the choice.
        text: The reason with figures.
        inputs_hash: Hash of all inputs of the decision.
        next_in_s: Seconds until the next decision if nothing happens.
        committed: On-demand until the end; part of the next inputs.
    """

    chosen: CapacityOption
    runner_up: CapacityOption | None
    current: CapacityOption
    reason: CapacityWhy
    text: str
    inputs_hash: str
    next_in_s: float
    committed: bool = field(default=False)
