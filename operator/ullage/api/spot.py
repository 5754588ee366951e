# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Terms for capacity that can be taken away: cost of a restart, gain that a move must bring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from ullage.api.rules import DECISION_PERIOD_POSITIVE, HAZARD_HALF_LIFE_POSITIVE, MIN_HOLD_POSITIVE
from ullage.api.scalars import duration
from ullage.api.spec import Elsewhere, Spec, Whole
from ullage.api.times import DECISION_PERIOD_S

DecisionPeriod = Annotated[float, duration(DECISION_PERIOD_POSITIVE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotTerms(Spec):
    """Cost of a restart and least gain of a move; for jobs with spec.cost.objective."""

    restart_cost_s: Annotated[int, Whole(1, 86_400), Field(alias="restartCostSeconds")] = 900
    """What one restart of a job costs: buying the machines, start, restore and the work since the
    last checkpoint. Deadlines keep twice this in reserve."""
    min_gain_percent: Annotated[int, Whole(0, 100)] = 3
    """A pool must be better by more than this to be taken instead of another."""
    min_hold_s: Annotated[float, duration(MIN_HOLD_POSITIVE), Field(alias="minHold")] = 600.0
    """A pool is given back for a better one no sooner than this after it was chosen."""
    hazard_half_life_s: Annotated[
        float, duration(HAZARD_HALF_LIFE_POSITIVE), Field(alias="hazardHalfLife")
    ] = 172_800.0
    """What was seen of a pool counts half after this time."""
    prior_hours: Annotated[int, Whole(1, 10_000)] = 10
    """Pool-hours that what the provider publishes counts as; what is seen soon outweighs it."""
    decision_period_s: Annotated[float, Elsewhere(held=DECISION_PERIOD_S)] = DECISION_PERIOD_S
    """``spec.decisionPeriod``."""
    min_savings_percent: Annotated[int, Elsewhere(held=0)] = 0
    """``spec.minSavingsPercent``."""
