# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Results of a division that make the next one cheaper; they never change its outcome."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from operator import is_
from typing import Final

from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.allocation.model import Allocation, JobView
from ullage.scheduling.timeslicing.pair_records import Together

ANSWERS_MOST: Final = 4
"""Number of problems whose answers are kept; each grows with the number of jobs."""


@dataclass(frozen=True, slots=True)
class KeptPairs:
    """Forecasts of pairs with their inputs: values compared by equality, objects by identity."""

    values: object
    objects: tuple[object, ...]
    forecasts: Mapping[tuple[str, str], Mapping[str, Together]]

    def stands(self, values: object, objects: tuple[object, ...]) -> bool:
        """True when the inputs are the same."""
        same = self.values == values and len(self.objects) == len(objects)
        return same and all(map(is_, self.objects, objects))


@dataclass(slots=True)
class DivisionCache:
    """Jobs of the last problem, and the last answers of the engine.

    Attributes:
        jobs: By uid, with the record that a job follows from.
        answers: By objective, problem and solver; the oldest first.
        pairs: Forecasts of jobs that may share a device.
    """

    jobs: dict[str, tuple[WorkloadRecord, JobView]] = field(default_factory=dict)
    answers: OrderedDict[Hashable, Allocation] = field(default_factory=OrderedDict)
    pairs: KeptPairs | None = None

    def answer(self, key: Hashable) -> Allocation | None:
        """The kept answer, which becomes the most recent; ``None`` = there is none."""
        allocation = self.answers.get(key)
        if allocation is not None:
            self.answers.move_to_end(key)
        return allocation

    def keep(self, key: Hashable, answer: Allocation) -> None:
        """Keep an answer, and the most recent others."""
        self.answers[key] = answer
        while len(self.answers) > ANSWERS_MOST:
            self.answers.popitem(last=False)
