# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How the policy weighs capacity that can be taken away: what a restart costs, when to move."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ullage.api.base import Model
from ullage.api.durations import duration
from ullage.api.rules import (
    DECISION_PERIOD_POSITIVE,
    HAZARD_HALF_LIFE_POSITIVE,
    MIN_HOLD_POSITIVE,
)

_Int32 = Field(json_schema_extra={"format": "int32"})
DecisionPeriod = Annotated[str, duration(DECISION_PERIOD_POSITIVE)]


class Spot(Model):
    """What a restart costs and how much a move must bring; for jobs with spec.cost.objective."""

    restart_cost_seconds: Annotated[int, Field(ge=1, le=86400), _Int32] = 900
    """What one restart of a job costs: buying the machines, start, restore and the work since the
    last checkpoint. Deadlines keep twice this in reserve."""
    min_gain_percent: Annotated[int, Field(ge=0, le=100), _Int32] = 3
    """A pool must be better by more than this to be taken instead of another."""
    min_hold: Annotated[str, duration(MIN_HOLD_POSITIVE)] = "10m"
    """A pool is given back for a better one no sooner than this after it was chosen."""
    hazard_half_life: Annotated[str, duration(HAZARD_HALF_LIFE_POSITIVE)] = "48h"
    """What was seen of a pool counts half after this time."""
    prior_hours: Annotated[int, Field(ge=1, le=10000), _Int32] = 10
    """Pool-hours that what the provider publishes counts as; what is seen soon outweighs it."""
