# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Intervals of an estimate, from the errors of estimates of left-out work.

The factor is an empirical quantile with the correction for few errors (split conformal). It must
never claim more than the errors show: with too few of them the widest is doubled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LEVEL: Final = 0.8
"""Nominal fraction of true values inside an interval."""
UNKNOWN_FACTOR: Final = 4.0
"""Width without any errors: a quarter to four times the estimate."""
TOO_FEW_FACTOR: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A time in seconds with its bounds.

    Attributes:
        value_s: The estimate.
        low_s: Lower bound.
        high_s: Upper bound.
    """

    value_s: float
    low_s: float
    high_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.low_s <= self.value_s <= self.high_s or not math.isfinite(self.high_s):
            raise ValueError(f"want 0 <= low <= value <= high, not {self}")

    def overlaps(self, other: Interval) -> bool:
        """True if both may be the same time."""
        return self.low_s <= other.high_s and other.low_s <= self.high_s

    def times(self, factor: float) -> Interval:
        """The interval of ``factor`` such times."""
        return Interval(
            value_s=self.value_s * factor, low_s=self.low_s * factor, high_s=self.high_s * factor
        )


def factor_of(errors: Sequence[float], *, level: float = LEVEL) -> float:
    """Factor, at least 1, within which the truth lies of an estimate, at the level.

    Source: the finite-sample quantile of split conformal prediction, of log errors (derived).

    Args:
        errors: predicted / measured - 1 of left-out work, each above -1.
        level: Nominal fraction inside, 0 to 1.

    Raises:
        ValueError: the level is not between 0 and 1, or an error is not above -1.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, not {level}")
    off = sorted(abs(math.log1p(error)) for error in errors)
    if not off:
        return UNKNOWN_FACTOR
    rank = math.ceil((len(off) + 1) * level)
    if rank > len(off):
        return math.exp(off[-1]) * TOO_FEW_FACTOR
    return math.exp(off[rank - 1])


def around(value_s: float, factor: float) -> Interval:
    """From ``value / factor`` to ``value * factor``; a measured time has factor 1.

    Args:
        value_s: Estimate, seconds.
        factor: At least 1.

    Raises:
        ValueError: the factor is below 1.
    """
    if factor < 1:
        raise ValueError(f"factor must be at least 1, not {factor}")
    return Interval(value_s=value_s, low_s=value_s / factor, high_s=value_s * factor)
