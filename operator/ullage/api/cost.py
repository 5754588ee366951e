# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Cost and time bounds of a training, and the accelerators recommended for it."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from ullage.api.base import Model
from ullage.api.durations import duration
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

Price = Annotated[str, Field(max_length=16, pattern=r"^[0-9]{1,9}(\.[0-9]{1,6})?$")]


class Cost(Model):
    """Objective and bounds for choosing capacity; DeviceProfiles and CapacityPools set prices."""

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
    """`CostPerWork`: the cheapest capacity within maxTime; `Makespan`: the fastest capacity within
    maxCost and budgetPerHour; `Deadline`: spot while the deadline leaves room for it, on-demand
    otherwise. Absent = the recommendation minimises the quantity without a cap, and Ullage chooses
    no pools."""
    max_cost: Price | None = None
    """Maximum cost of the whole training, as a quoted decimal number in the currency of the
    prices."""
    max_time: Annotated[str, duration(MAX_TIME_POSITIVE)] | None = None
    """Maximum run time of the whole training, such as `60h` or `1h30m`."""
    deadline: Annotated[str, duration(DEADLINE_POSITIVE)] | None = None
    """Time from the creation of the job to its deadline, such as `60h`; with objective
    Deadline."""
    estimated_work: Annotated[str, duration(ESTIMATED_WORK_POSITIVE)] | None = None
    """Undisturbed run time of the whole training on a pool of speed 1, such as `48h`; absent =
    spec.work.steps at the known speed of the class."""
    budget_per_hour: Price | None = None
    """Maximum cost of the job's instances per hour, as a quoted decimal number; with an
    objective."""
    allow_spot: bool = True
    """The job may run on capacity that the provider can take back."""
    on_demand_fallback: bool = True
    """The job may run on on-demand and reserved capacity."""
