# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Number and size of concurrent reads of one reader, found by few measured windows.

Two windows with one request at a time, of the smallest and the largest size, give latency and
bandwidth. From there a climb changes one setting at a time, by a factor of four, then of two: a
store that collapses above some concurrency is entered from below. A start at the goal's own
concurrency (Little's law with the wanted rate) lands beyond that edge (``derived``).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final

GAIN: Final = 1.04
"""Rate over the best one from which a move is taken. Chosen."""
FACTORS: Final = (4, 2)
"""Factors of moves, the wide one first. Chosen."""
START_MOST: Final = 32
"""Most concurrent requests at the start. Chosen."""
AHEAD: Final = 1.5
"""Start over what Little's law gives. Chosen."""
ENOUGH: Final = 1.2
"""Rate over the wanted one at which the climb ends, for the sake of others. Chosen."""


@dataclass(frozen=True, slots=True, order=True)
class ReadSettings:
    """Concurrent requests, and bytes of each."""

    requests: int
    size: int


Climb = Generator[ReadSettings, float, ReadSettings]
"""Yields settings to try, is sent the bytes per second that they gave, returns the best."""


def climb(
    requests: Sequence[int],
    sizes: Sequence[int],
    *,
    windows: int = 12,
    wanted: float = math.inf,
    known: ReadSettings | None = None,
) -> Climb:
    """Search a grid of settings.

    Args:
        requests: Numbers of concurrent requests, ascending, each at least 1.
        sizes: Bytes of a request, ascending, each at least 1.
        windows: Most windows.
        wanted: Bytes per second that the reader needs; it ends at :data:`ENOUGH` times that.
        known: Settings of an earlier run on the same kind of volume, tried instead of the probes.
    """
    rates: dict[ReadSettings, float] = {}
    if known is not None:
        start = _on_grid(known.requests, known.size, requests, sizes)
    else:
        low = ReadSettings(requests[0], sizes[0])
        high = ReadSettings(requests[0], sizes[-1])
        for probe in dict.fromkeys((low, high)):
            if len(rates) < windows:
                rates[probe] = yield probe
        start = _start(rates, low, high, requests, sizes)
    best = start
    pending = [start]
    factors = iter((*FACTORS, None))
    factor = next(factors)
    while len(rates) < windows:
        if rates and max(rates.values()) >= ENOUGH * wanted:
            break
        if not pending:
            if factor is None or (factor := next(factors)) is None:
                break
            pending = _neighbours(best, factor, requests, sizes)
            continue
        tried = pending.pop(0)
        if tried in rates:
            continue
        rates[tried] = yield tried
        if tried == best or rates[tried] > GAIN * rates[best]:
            best = tried
            pending = _neighbours(best, factor or FACTORS[-1], requests, sizes)
    if not rates:
        return start
    top = max(rates.values())
    # the least load on the store among settings that are as good
    return min(
        settings for settings, rate in rates.items() if rate * GAIN >= min(top, ENOUGH * wanted)
    )


def _start(
    rates: dict[ReadSettings, float],
    low: ReadSettings,
    high: ReadSettings,
    requests: Sequence[int],
    sizes: Sequence[int],
) -> ReadSettings:
    """Settings at which the latency is hidden, from the times of a small and a large request."""
    if not all(rates.get(probe, 0.0) >= 1 for probe in (low, high)) or low == high:
        return low
    short = low.requests * low.size / rates[low]
    long = high.requests * high.size / rates[high]
    per_byte = max((long - short) / (high.size - low.size), 1e-15)
    latency = max(0.0, short - low.size * per_byte)
    size = max(sizes[0], min(sizes[-1], latency / per_byte / 4))
    in_flight = AHEAD * (1 + latency / per_byte / size)
    return _on_grid(min(START_MOST, math.ceil(in_flight)), math.ceil(size), requests, sizes)


def _on_grid(count: int, size: int, requests: Sequence[int], sizes: Sequence[int]) -> ReadSettings:
    """The next settings of the grid that are at least as large."""
    return ReadSettings(
        next((step for step in requests if step >= count), requests[-1]),
        next((step for step in sizes if step >= size), sizes[-1]),
    )


def _neighbours(
    at: ReadSettings, factor: int, requests: Sequence[int], sizes: Sequence[int]
) -> list[ReadSettings]:
    """Settings a factor away in one of both, more before fewer, within the grid."""
    around = (
        ReadSettings(at.requests * factor, at.size),
        ReadSettings(at.requests, at.size * factor),
        ReadSettings(max(1, at.requests // factor), at.size),
        ReadSettings(at.requests, max(1, at.size // factor)),
    )
    return [
        near
        for near in around
        if requests[0] <= near.requests <= requests[-1] and sizes[0] <= near.size <= sizes[-1]
    ]
