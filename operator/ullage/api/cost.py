# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a training may cost in money and time, and the accelerators recommended for it."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from ullage.api.base import Count, DecimalText, Line, LongCount, Model, ReasonWord, list_map
from ullage.api.durations import duration
from ullage.api.gpurequest import Accelerator
from ullage.api.profilerows import Source
from ullage.api.rules import (
    BUDGET_WITH_OBJECTIVE,
    COST_SAYS_SOMETHING,
    DEADLINE_HOLDS_WORK,
    DEADLINE_NEEDS_FALLBACK,
    DEADLINE_POSITIVE,
    DEADLINE_WITH_OBJECTIVE,
    ESTIMATED_WORK_POSITIVE,
    MAX_TIME_POSITIVE,
    validations,
)
from ullage.api.words import CostObjective

MAX_RECOMMENDATIONS = 20

Price = Annotated[str, Field(max_length=16, pattern=r"^[0-9]{1,9}(\.[0-9]{1,6})?$")]


class Cost(Model):
    """What capacity is chosen for; prices stand in DeviceProfiles and CapacityPools."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            COST_SAYS_SOMETHING,
            DEADLINE_WITH_OBJECTIVE,
            DEADLINE_NEEDS_FALLBACK,
            DEADLINE_HOLDS_WORK,
            BUDGET_WITH_OBJECTIVE,
        )
    )

    objective: CostObjective | None = None
    """`CostPerWork`: the cheapest that keeps maxTime; `Makespan`: the fastest that keeps maxCost
    and budgetPerHour; `Deadline`: spot as long as the deadline leaves room for it, on-demand when
    it does not. Absent = the quantity that no cap names is minimised, and pools are not chosen."""
    max_cost: Price | None = None
    """Most that the whole training may cost, as a quoted decimal number in the currency of the
    prices."""
    max_time: Annotated[str, duration(MAX_TIME_POSITIVE)] | None = None
    """Most time that the whole training may run, such as `60h` or `1h30m`."""
    deadline: Annotated[str, duration(DEADLINE_POSITIVE)] | None = None
    """Time from the creation of the job until it has to be done, such as `60h`; with objective
    Deadline."""
    estimated_work: Annotated[str, duration(ESTIMATED_WORK_POSITIVE)] | None = None
    """What the whole training runs on the pool of speed 1 when nothing disturbs it, such as `48h`;
    absent = spec.work.steps at the speed that is known of the class."""
    budget_per_hour: Price | None = None
    """Most that the instances of the job may cost per hour, as a quoted decimal number; with an
    objective."""
    allow_spot: bool = True
    """The job may run on capacity that can be taken away."""
    on_demand_fallback: bool = True
    """The job may run on on-demand and reserved capacity."""


class Recommended(Model):
    """An accelerator for the job and how many of it, and what speaks against them."""

    accelerator: Accelerator
    """Accelerator key."""
    rank: Count
    """Place in the list, from 0; the recommended one is first, then the other types, those that
    cannot be had last, then other numbers of devices."""
    devices: Count
    """Devices of the whole job. Of an elastic gang, the best number within its bounds; other
    numbers of the type that comes first have rows of their own, which are estimates."""
    seconds: LongCount | None = None
    """Time of the whole training; absent = not known."""
    low_seconds: LongCount | None = None
    """It takes at least this in four of five such estimates."""
    high_seconds: LongCount | None = None
    """It takes at most this in four of five such estimates."""
    cost: DecimalText | None = None
    """Price of the whole training, in the currency of the prices."""
    source: Source | None = None
    """Where the speed comes from; absent = nowhere."""
    confidence: DecimalText | None = None
    """How far the speed can be relied on, 0 to 1."""
    memory_need_mib: Annotated[LongCount | None, Field(alias="memoryNeedMiB")] = None
    """Device memory that each member needs, with what its context costs; absent = not known."""
    reason: ReasonWord
    """Recommended, Feasible, or what stands in the way."""
    message: Line | None = None
    """The same in words, with numbers."""


Recommendations = Annotated[
    tuple[Recommended, ...],
    Field(max_length=MAX_RECOMMENDATIONS, json_schema_extra=list_map("accelerator", "devices")),
]
