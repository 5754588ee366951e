# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What stopping an aggressor did to its victim: how much quicker it became, and how soon."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

LEAST: Final = 5
"""Iterations that are needed on both sides of the stop."""
CURED: Final = 0.95
"""An iteration time after the stop over that before, below which the stop cured anything."""
SLOW: Final = 1.1
"""Times the quick iteration: such a one still suffers."""


def freeze_figures(
    durations_ms: Sequence[float], ends_s: Sequence[float], stop_s: float
) -> dict[str, float | None]:
    """Median before and at the end, and when the last slow iteration ended after the stop.

    Args:
        durations_ms: The victim's iterations.
        ends_s: When each ended, from the start of the measured part.
        stop_s: When the aggressor was stopped.

    Returns:
        ``latency_ms`` is ``None`` where nothing was cured, or too little was seen to say so.
    """
    both = list(zip(ends_s, durations_ms, strict=True))
    before = [took for end, took in both if end <= stop_s]
    after = [(end, took) for end, took in both if end > stop_s]
    if len(before) < LEAST or len(after) < 2 * LEAST:
        return {"before_ms": None, "after_ms": None, "latency_ms": None}
    slow_ms, quick_ms = median(before), median(took for _, took in after[len(after) // 2 :])
    late = [end - stop_s for end, took in after if took > SLOW * quick_ms]
    cured = quick_ms < CURED * slow_ms
    latency_ms = 1000 * max(late, default=0.0) if cured else None
    return {"before_ms": slow_ms, "after_ms": quick_ms, "latency_ms": latency_ms}
