# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Traces of a sample of the running jobs, as the SchedulingPolicy asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ullage.api.captures import CAPTURE_STEPS_MOST
from ullage.api.spec import Spec, Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiling(Spec):
    """Traces of a sample of the running TrainingJobs, as if users asked for them.

    Off unless `samplePercent` is set. Only jobs whose pods have the step hook and make steps are
    traced, never one that was traced in the period already. Each trace is a ProfileRequest that
    belongs to its job and is deleted with it, or after a period.
    """

    sample_percent: Annotated[int, Whole(0, 100)] = 0
    """Part of the jobs that is traced in each period, in percent; 0 = none, 100 = every job.
    Another part is drawn in each period."""
    every_hours: Annotated[int, Whole(1, 168)] = 24
    """Length of a period, in hours. The traces of a period are spread over it."""
    steps: Annotated[int, Whole(1, CAPTURE_STEPS_MOST)] = 5
    """Number of consecutive steps of each trace; findings need five."""
    max_concurrent: Annotated[int, Whole(1, 16)] = 2
    """Most of these traces under way at a time in the cluster, and at most one in a namespace."""
    max_per_day: Annotated[int, Whole(1, 10_000)] = 100
    """Most of these traces that begin in any 24 hours."""

    @property
    def is_on(self) -> bool:
        """True when any job is traced."""
        return self.sample_percent > 0
