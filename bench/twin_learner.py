# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The product's learner in virtual time: its schedule, and its worker's functions in this process.

In a cluster it looks every second. Here it looks now and then, which only delays what it learns:
two days of lessons would take hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.app.fit_schedule import FitSchedule, Pace
from ullage.app.fit_worker import Key, run_fit
from ullage.cluster.records.profile import ProfileRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.model import LearnedModel

LOOK_S: Final = 1800.0
TASKS: Final = 3
"""Of one look: rows are conditioned on, perhaps a fit, cells are widened."""
REST_S: Final = 120.0
"""Between two tasks: longer than the schedule asks for."""
MOST_SENT: Final = 1_000


class Lessons:
    """Learns what the profiles of a cluster hold."""

    def __init__(self) -> None:
        self._schedule = FitSchedule(Pace())
        self._shelf: dict[Key, ProfileRecord] = {}

    def look(self, snapshot: Snapshot, now: float) -> Mapping[str, LearnedModel] | None:
        """Learn what is due; the models where one is new."""
        schedule, fresh = self._schedule, False
        schedule.see(snapshot, now)
        for number in range(TASKS):
            moment = now + number * REST_S
            task = schedule.next(now, moment)
            if task is None:
                break
            changed, gone = schedule.unsent(MOST_SENT)
            self._shelf |= changed
            for key in gone:
                self._shelf.pop(key, None)
            fresh |= schedule.learned(task, run_fit(task, self._shelf), now, moment)
        return schedule.models() if fresh else None
