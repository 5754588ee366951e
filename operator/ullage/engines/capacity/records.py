# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Offers, holdings and decisions: values without behaviour.

A pool is one instance type in one zone under one capacity type, as one job sees it. It must never
carry a price per GPU: whole instances are bought.
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
        fastest: The most work comes first, and its cost second; else the other way round.
        due: Spot or on-demand is said by a deadline, and cost ranks the pools of that kind.
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
    """Instances are added: work gets cheaper, or faster where time is the aim."""
    RELEASED = "PoolReleased"
    """Instances go: work gets cheaper without them."""
    SWITCHED = "OfferSwitched"
    """Instances move from one pool to another."""
    KEPT = "GainTooSmall"
    """Nothing gains enough over what is held."""
    HOLDING = "MinimumHold"
    """What would gain enough is held too short a time to be given back."""
    LIMITED = "LimitsShrank"
    """What is held is more than the limits allow: budget, replicas, pools that are gone."""
    BUDGET = "BudgetTooSmall"
    """The fewest replicas cost more than the budget."""
    NO_CAPACITY = "NoCapacity"
    """The pools cannot give the fewest replicas."""
    NOT_PRICED = "PriceMissing"
    """No pool has a price."""
    ON_SPOT = "SpotAvailable"
    """The deadline leaves room for spot, and there is some."""
    STAYS_ON_SPOT = "SpotRunning"
    """Spot runs until it is taken."""
    BEHIND = "FallbackToOnDemand"
    """Progress lies behind the line to the deadline and there is no spot."""
    ON_DEMAND_HELD = "OnDemandHeld"
    """Giving on-demand back would cost a second start that progress does not pay yet."""
    SAFETY_NET = "DeadlineSafetyNet"
    """What is left of the time is needed: on-demand until the end."""
    AHEAD = "WaitingForSpot"
    """Progress lies ahead of the line: waiting for spot costs nothing."""
    FINISHED = "WorkDone"
    """Nothing is left to do."""
    NO_ON_DEMAND = "OnDemandMissing"
    """The deadline asks for on-demand and no pool gives it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A source of instances as one job sees it.

    Attributes:
        name: Unique.
        capacity_type: How it is bought.
        price_per_hour: Of one instance, the last one believed; ``None`` = there never was one.
        hazard_per_hour: Expected loss events per hour in which instances are held; 0 = never.
        speed: Work per hour of one instance relative to the reference type.
        most: Instances that it gives this job at most, those held too; ``None`` = no limit.
        available: New instances can be had now; what is held stays either way.
    """

    name: str
    capacity_type: CapacityType = CapacityType.SPOT
    price_per_hour: float | None
    hazard_per_hour: float = 0.0
    speed: float = 1.0
    most: int | None = None
    available: bool = True

    def __post_init__(self) -> None:
        """Refuse what no provider can mean.

        Raises:
            ValueError: a negative price, hazard, speed or limit.
        """
        signed = (self.price_per_hour or 0.0, self.hazard_per_hour, self.speed, self.most or 0)
        if not all(value >= 0 for value in signed):
            raise ValueError(f"pool {self.name}: price, hazard, speed and most are never below 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolHolding:
    """Instances of one pool that a job has.

    Attributes:
        pool: Name.
        instances: How many.
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
        objective: What is optimised.
        least: Fewest instances it runs on; 1 for a job that shrinks freely.
        most: Most instances.
        gang: Instances come and go in multiples of this.
        budget_per_hour: Most dollars per hour, reliable machines included; ``None`` = no limit.
        allow_spot: Spot may be used.
        allow_on_demand: On-demand and reserved capacity may be used.
        held: What it has.
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
        """Refuse what cannot be asked for.

        Raises:
            ValueError: fewest above most, or a gang that fits neither.
        """
        if not self.gang >= 1 or not 1 <= self.least <= self.most:
            raise ValueError(f"replicas {self.least}..{self.most} in gangs of {self.gang}")
        if -(-self.least // self.gang) * self.gang > self.most:
            raise ValueError(f"no multiple of {self.gang} lies in {self.least}..{self.most}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacitySettings:
    """Of ``SchedulingPolicy.spec.spot``; every one is a default to sweep.

    Attributes:
        min_gain: Part by which an allocation must be better to be taken.
        min_hold_s: Instances are given back no sooner.
        horizon_h: Hours ahead that costs and work are counted.
        period_s: Seconds between decisions where nothing happens.
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
        """E_A: dollars per hour of work; infinite where nothing is done."""
        return self.cost / self.work if self.work > 0 else float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityOption:
    """An allocation with what is expected of it."""

    shares: tuple[PoolInstances, ...]
    expected: Expected


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityDecision:
    """The capacity to hold from now on.

    Attributes:
        chosen: The allocation; without shares nothing is held.
        runner_up: The best other one that was looked at.
        current: What was held, with what is expected of it.
        reason: Why.
        text: The reason with numbers.
        inputs_hash: Of everything the decision saw.
        next_in_s: Seconds until it should be decided again if nothing happens.
        committed: On-demand until the end; belongs into the next inputs.
    """

    chosen: CapacityOption
    runner_up: CapacityOption | None
    current: CapacityOption
    reason: CapacityWhy
    text: str
    inputs_hash: str
    next_in_s: float
    committed: bool = field(default=False)
