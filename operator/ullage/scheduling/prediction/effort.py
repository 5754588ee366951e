# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A bound on the evaluations of one cycle, so that a cycle takes seconds in every cluster.

If every workload has an objective and a class of its own, no evaluation can be reused, and
evaluating all workloads on all devices would take minutes. Work is counted, not time or cache hits,
so the same snapshot gives the same plan. Work beyond the bound is postponed, not refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")

MUCH: Final = 2000
"""Evaluations after which a cycle tries only the most promising places."""
MOST: Final = 4000
"""Evaluations per cycle, approximately; each takes a third of a millisecond (measured)."""
FEW: Final = 32
"""Situations in which a request class is evaluated after ``MUCH`` evaluations."""
_GOLDEN: Final = 0.6180339887498949
"""The fractional parts of its multiples lie evenly between 0 and 1."""
SEARCH: Final = 4
"""Cost of one pass over all devices, in evaluations."""
SEATS: Final = 4
"""Members seated for the cost of one evaluation (measured: a tenth of a millisecond each)."""
EXTRA: Final = 16
"""Members beyond the minimum for which one cycle counts room, all elastic gangs together: a spec
may request any number, and other workloads wait meanwhile."""


@dataclass(slots=True)
class Effort:
    """Evaluations of one cycle so far."""

    spent: int = 0
    extra: int = EXTRA
    """Members beyond the minimum for which this cycle still counts room."""
    _seats: int = 0

    def seated(self, members: int) -> None:
        """Count seated members, permanent or on trial."""
        judgements, self._seats = divmod(self._seats + members, SEATS)
        self.spent += judgements

    def counts(self, members: int) -> int:
        """Subtract members beyond a gang's minimum from ``extra``; returns the number left."""
        counted = min(members, self.extra)
        self.extra -= counted
        return counted

    @property
    def is_much(self) -> bool:
        """True when only the most promising places are still tried."""
        return self.spent >= MUCH

    def is_spent(self, part: float = 1.0) -> bool:
        """True when this part of the cycle's evaluations is used up."""
        return self.spent >= part * MOST


def in_turns(waiting: Sequence[T], now: float) -> Sequence[T]:
    """Rotate a sequence by a start that varies with the cycle, so that each item is first at times.

    Args:
        waiting: Items in their order.
        now: Time of the cycle, seconds since the epoch.
    """
    start = int(len(waiting) * (now * _GOLDEN % 1))
    return (*waiting[start:], *waiting[:start])
