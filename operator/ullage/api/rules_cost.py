# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Validation rules for cost, deadlines and spot capacity; listed in ``rules``."""

from __future__ import annotations

from typing import Final

from ullage.api.rule import Rule

COST_SAYS_SOMETHING: Final = Rule(
    name="cost-says-something",
    rule="has(self.objective) || has(self.maxCost) || has(self.maxTime)",
    message="spec.cost needs objective (CostPerWork, Deadline or Makespan), maxCost or maxTime: "
    "set one of them, or leave cost out",
)
DEADLINE_WITH_OBJECTIVE: Final = Rule(
    name="deadline-with-objective",
    rule="has(self.deadline) == (has(self.objective) && self.objective == 'Deadline')",
    message="cost.deadline and cost.objective Deadline belong together: set both, or neither",
)
DEADLINE_NEEDS_FALLBACK: Final = Rule(
    name="deadline-needs-fallback",
    rule="!has(self.objective) || self.objective != 'Deadline' || !self.allowSpot "
    "|| self.onDemandFallback",
    message="a job that runs only on spot cannot keep a deadline: set cost.onDemandFallback to "
    "true, or choose another objective",
    field=".onDemandFallback",
)
DEADLINE_HOLDS_WORK: Final = Rule(
    name="deadline-holds-work",
    rule="!has(self.estimatedWork) || !has(self.deadline) "
    "|| duration(self.deadline) >= duration(self.estimatedWork)",
    message="cost.deadline is shorter than cost.estimatedWork: allow more time, or make the job "
    "smaller or wider",
    field=".deadline",
)
BUDGET_WITH_OBJECTIVE: Final = Rule(
    name="budget-with-objective",
    rule="!has(self.budgetPerHour) || (has(self.objective) && double(self.budgetPerHour) > 0.0)",
    message="cost.budgetPerHour bounds what cost.objective chooses: it must be above 0, and "
    "objective must be set",
    field=".budgetPerHour",
)
COST_NEEDS_WORK: Final = Rule(
    name="cost-needs-work",
    rule="!has(self.cost) || has(self.work)",
    message="spec.cost covers the whole training: set its length in spec.work.steps",
    field=".cost",
)
_A_TIME: Final = "self.matches('^([0-9]+([.][0-9]+)?(h|m|s))+$') && duration(self) > duration('0s')"
MAX_TIME_POSITIVE: Final = Rule(
    name="max-time-positive",
    rule=_A_TIME,
    message="cost.maxTime must be a time above 0 such as 60h or 1h30m",
)
DEADLINE_POSITIVE: Final = Rule(
    name="deadline-positive",
    rule=_A_TIME,
    message="cost.deadline must be a time above 0 such as 60h or 1h30m, counted from the creation "
    "of the job",
)
ESTIMATED_WORK_POSITIVE: Final = Rule(
    name="estimated-work-positive",
    rule=_A_TIME,
    message="cost.estimatedWork must be a time above 0 such as 48h: the undisturbed run time of "
    "the whole training",
)
MIN_HOLD_POSITIVE: Final = Rule(
    name="min-hold-positive",
    rule=_A_TIME,
    message="spot.minHold must be a time above 0 such as 10m",
)
HAZARD_HALF_LIFE_POSITIVE: Final = Rule(
    name="hazard-half-life-positive",
    rule=_A_TIME,
    message="spot.hazardHalfLife must be a time above 0 such as 48h",
)
DECISION_PERIOD_POSITIVE: Final = Rule(
    name="decision-period-positive",
    rule=_A_TIME,
    message="spec.decisionPeriod must be a time above 0 such as 24h",
)
DEADLINE_NEEDS_CHECKPOINT: Final = Rule(
    name="deadline-needs-checkpoint",
    rule="!has(self.cost) || !has(self.cost.objective) || self.cost.objective != 'Deadline' "
    "|| !self.cost.allowSpot || has(self.checkpoint)",
    message="a job with a deadline runs on spot only if it can resume from a checkpoint: add "
    "spec.checkpoint, or set cost.allowSpot to false",
    field=".cost",
)
