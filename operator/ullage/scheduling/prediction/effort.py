# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How much judging one cycle does, so that no cluster makes it last for ages.

Where every workload has an objective and a class of its own, no two judgements are alike, and all
of them beside all devices would take minutes. What is counted is work done, never time or what is
remembered: the same snapshot gives the same plan. What a cycle leaves undone is postponed, not
refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")

MUCH: Final = 2000
"""Judgements from which on a cycle looks at the most promising places only."""
MOST: Final = 4000
"""Judgements that a cycle makes, about; one takes a third of a millisecond (measured)."""
FEW: Final = 32
"""Situations that a class of request is judged in once much was done."""
_GOLDEN: Final = 0.6180339887498949
"""Multiples of it, their whole part left out, lie evenly between 0 and 1."""
SEARCH: Final = 4
"""What it costs to go through all devices once, in judgements."""
SEATS: Final = 4
"""Members that are seated for the cost of one judgement (measured: a tenth of a millisecond)."""
EXTRA: Final = 16
"""Members beyond the fewest that elastic gangs are counted for in one cycle, all gangs together: a
spec says how many it would like, and others wait for the answer."""


@dataclass(slots=True)
class Effort:
    """Judgements of one cycle so far."""

    spent: int = 0
    extra: int = EXTRA
    """Members beyond the fewest that this cycle still counts room for."""
    _seats: int = 0

    def seated(self, members: int) -> None:
        """Count members that were seated, for good or to see whether they fit."""
        judgements, self._seats = divmod(self._seats + members, SEATS)
        self.spent += judgements

    def counts(self, members: int) -> int:
        """How many members beyond the fewest are counted for one gang now; takes them off."""
        counted = min(members, self.extra)
        self.extra -= counted
        return counted

    @property
    def is_much(self) -> bool:
        """Whether only the most promising places are still looked at."""
        return self.spent >= MUCH

    def is_spent(self, part: float = 1.0) -> bool:
        """Whether what is left, or what is left of a part, has to wait for the next cycle."""
        return self.spent >= part * MOST


def in_turns(ones: Sequence[T], now: float) -> Sequence[T]:
    """The same in the same order, begun elsewhere each time, so that everyone is first some day.

    Args:
        ones: who waits.
        now: the moment of the cycle, seconds since the epoch.
    """
    start = int(len(ones) * (now * _GOLDEN % 1))
    return (*ones[start:], *ones[:start])
