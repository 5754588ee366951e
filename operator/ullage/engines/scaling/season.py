# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The load of a season such as a day, in slots of a quarter of an hour.

Small enough for a status: 96 figures a day. A slot is the mean of its loads, with weight one half
for the newest season; a load seen once raises it by half at most. 0 = not seen, or no load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.scaling.times import SEASON_SLOT_S

Floats = NDArray[np.float64]

NEWEST: Final = 0.5
"""Weight of the newest season in a slot (not measured)."""
MOST_GROWTH: Final = 1.5
"""Maximum raise of a slot by one season (not measured)."""


def slots_of(season_s: float) -> int:
    """Slots of a season; 0 = there is none.

    Args:
        season_s: Its length, seconds.
    """
    return math.ceil(season_s / SEASON_SLOT_S)


def learned(
    slots: Sequence[float], rates: Sequence[float], *, now_s: float, bin_s: float, season_s: float
) -> tuple[float, ...]:
    """The slots after a bin; they change only with the last bin of a slot.

    Args:
        slots: Requests per second by slot, of earlier seasons; a wrong number of slots = none.
        rates: Requests per second by bin, the newest last.
        now_s: End of the newest bin, seconds; 0 = start of a season.
        bin_s: Length of a bin, seconds.
        season_s: Length of a season, seconds; 0 = there is none.
    """
    count = slots_of(season_s)
    means = list(slots) if len(slots) == count else [0.0] * count
    if not count:
        return ()
    slot, following = (
        min(int((now_s + half * bin_s) % season_s // SEASON_SLOT_S), count - 1)
        for half in (-0.5, 0.5)
    )
    bins = max(1, round(SEASON_SLOT_S / bin_s))
    if slot == following or 2 * len(rates) < bins:
        return tuple(means)
    newest, before = float(np.mean(rates[-bins:])), means[slot]
    mean = NEWEST * newest + (1 - NEWEST) * before
    means[slot] = min(mean, MOST_GROWTH * before) if before > 0 else newest
    return tuple(means)


def expected(
    slots: Sequence[float], *, now_s: float, bin_s: float, season_s: float, bins: int, ahead: int
) -> Floats:
    """The season's load in bins around now; 0 where unknown.

    Args:
        slots: Result of :func:`learned`.
        now_s: End of the newest bin, seconds.
        bin_s: Length of a bin, seconds.
        season_s: Length of a season, seconds.
        bins: Bins up to now.
        ahead: Bins after now.

    Returns:
        Requests per second of ``bins + ahead`` bins.
    """
    if not slots or len(slots) != slots_of(season_s):
        return np.zeros(bins + ahead)
    middles = now_s + (np.arange(bins + ahead) - bins + 0.5) * bin_s
    at = (middles % season_s // SEASON_SLOT_S).astype(np.int64)
    return np.asarray(slots, dtype=np.float64)[np.minimum(at, len(slots) - 1)]
