# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A bound on the judgements of one cycle, so that a cycle takes seconds in every cluster.

Where every workload has an objective and a class of its own, no judgement can be reused, and
judging all workloads on all devices would take minutes. Work is counted, not time and not cache
hits, so the same snapshot gives the same plan. Work beyond the bound is postponed, not refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")

MUCH: Final = 2000
"""Judgements after which a cycle looks at the most promising places only."""
MOST: Final = 4000
"""Judgements per cycle, approximately; each takes a third of a millisecond (measured)."""
FEW: Final = 32
"""Situations in which a request class is judged after ``MUCH`` judgements."""
_GOLDEN: Final = 0.6180339887498949
"""The fractional parts of its multiples lie evenly between 0 and 1."""
SEARCH: Final = 4
"""Cost of one pass over all devices, in judgements."""
SEATS: Final = 4
"""Members seated for the cost of one judgement (measured: a tenth of a millisecond each)."""
EXTRA: Final = 16
"""Members beyond the minimum for which one cycle counts room, all elastic gangs together: a spec
may ask for any number, and other workloads wait meanwhile."""


@dataclass(slots=True)
class Effort:
    """Judgements of one cycle so far."""

    spent: int = 0
    extra: int = EXTRA
    """Members beyond the minimum for which this cycle still counts room."""
    _seats: int = 0

    def seated(self, members: int) -> None:
        """Count members that were seated, for good or on trial."""
        judgements, self._seats = divmod(self._seats + members, SEATS)
        self.spent += judgements

    def counts(self, members: int) -> int:
        """Take members beyond a gang's minimum off ``extra``; returns the number that is left."""
        counted = min(members, self.extra)
        self.extra -= counted
        return counted

    @property
    def is_much(self) -> bool:
        """True when only the most promising places are still looked at."""
        return self.spent >= MUCH

    def is_spent(self, part: float = 1.0) -> bool:
        """True when this part of the cycle's judgements is used up."""
        return self.spent >= part * MOST


def in_turns(waiting: Sequence[T], now: float) -> Sequence[T]:
    """Rotate a sequence by a start that varies with the cycle, so that each item is first at times.

    Args:
        waiting: Items in their order.
        now: Time of the cycle, seconds since the epoch.
    """
    start = int(len(waiting) * (now * _GOLDEN % 1))
    return (*waiting[start:], *waiting[:start])
