# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What one division leaves for the next; it changes nothing but the cost of the next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from operator import is_
from typing import Final

from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.engines.allocation.model import Allocation, JobView
from ullage.scheduling.timeslicing.pair_records import Together

ANSWERS_MOST: Final = 4
"""Problems whose answer is kept: each is as large as the jobs that existed then."""


@dataclass(frozen=True, slots=True)
class KeptPairs:
    """Predictions of pairs, and what they rest on: equal values, and the very same objects."""

    said: object
    objects: tuple[object, ...]
    forecasts: Mapping[tuple[str, str], Mapping[str, Together]]

    def stands(self, said: object, objects: tuple[object, ...]) -> bool:
        """Whether they rest on just these."""
        same = self.said == said and len(self.objects) == len(objects)
        return same and all(map(is_, self.objects, objects))


@dataclass(slots=True)
class DivisionCache:
    """Jobs of the last problem, and the last answers of the engine.

    Attributes:
        jobs: By uid, with the record that a job follows from.
        answers: By objective, problem and solver; the oldest first.
        pairs: What was predicted of jobs that may share a device.
    """

    jobs: dict[str, tuple[WorkloadRecord, JobView]] = field(default_factory=dict)
    answers: OrderedDict[Hashable, Allocation] = field(default_factory=OrderedDict)
    pairs: KeptPairs | None = None

    def answer(self, key: Hashable) -> Allocation | None:
        """The answer of before, which is now the newest; ``None`` = not known."""
        allocation = self.answers.get(key)
        if allocation is not None:
            self.answers.move_to_end(key)
        return allocation

    def keep(self, key: Hashable, answer: Allocation) -> None:
        """Keep an answer, and the most recent others."""
        self.answers[key] = answer
        while len(self.answers) > ANSWERS_MOST:
            self.answers.popitem(last=False)
