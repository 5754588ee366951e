# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reports of trials by epoch: each result counts once, and invalid ones have a reason."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ReportProblem(StrEnum):
    """Reason to ignore a report, or a trial without one."""

    NOT_A_NUMBER = "MetricNotANumber"
    MISSING = "MetricMissing"
    REPEATED = "EpochRepeated"
    BACKWARDS = "EpochBackwards"
    BEYOND_BUDGET = "EpochBeyondBudget"
    UNKNOWN_TRIAL = "UnknownTrial"


@dataclass(slots=True, kw_only=True)
class MetricHistory:
    """Values by trial and epoch; a restarted trial repeats epochs, which count once."""

    _values: dict[int, dict[int, float]] = field(init=False, default_factory=dict)
    _last: dict[int, int] = field(init=False, default_factory=dict)

    def record(self, trial: int, epoch: int, value: float | None) -> ReportProblem | None:
        """Record a report, or return the reason to ignore it.

        An epoch whose metric is missing or not a number has been reached nevertheless.

        Args:
            trial: Number of the trial.
            epoch: From 1 on.
            value: ``None`` where the trial reported no metric.
        """
        values = self._values.setdefault(trial, {})
        if epoch in values:
            return ReportProblem.REPEATED
        if epoch < max(1, self._last.get(trial, 0)):
            return ReportProblem.BACKWARDS
        if epoch == self._last.get(trial):
            return ReportProblem.REPEATED
        self._last[trial] = epoch
        if value is None:
            return ReportProblem.MISSING
        if not math.isfinite(value):
            return ReportProblem.NOT_A_NUMBER
        values[epoch] = value
        return None

    def value(self, trial: int, epoch: int) -> float | None:
        """The value in force at an epoch."""
        return self._values.get(trial, {}).get(epoch)

    def curve(self, trial: int) -> Mapping[int, float]:
        """All values of a trial."""
        return dict(self._values.get(trial, {}))
