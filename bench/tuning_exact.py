# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The shortest schedule there is, for tiny cases: what tests compare planners with.

Every way to run trials beside each other is enumerated; a linear program says for how long each is
used. Resizes are free and may happen at any time, so that no planner does better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

import numpy as np
from scipy.optimize import linprog

from ullage.engines.tuning.records import PlannedTrial
from ullage.engines.tuning.speed_curves import Widths

MOST_TRIALS: Final = 6
MOST_DEVICES: Final = 3


def shortest_s(trials: Sequence[PlannedTrial], devices: int, widths: Widths) -> float:
    """End of the last trial at best, in seconds.

    min sum of t over configurations with sum of t s(w) at least h for each trial. Source: derived.

    Args:
        trials: With their whole work left, in seconds at width 1; memory is not looked at.
        devices: How many there are.
        widths: That trials may have.

    Raises:
        ValueError: there are too many trials or devices to enumerate.
    """
    if len(trials) > MOST_TRIALS or not 1 <= devices <= MOST_DEVICES:
        raise ValueError(f"at most {MOST_TRIALS} trials on 1 to {MOST_DEVICES} devices")
    work = np.asarray([trial.work_s for trial in trials])
    if not trials or work.max() == 0:
        return 0.0
    sizes = (0, *(size for size in widths.sizes if size <= devices * widths.parts))
    placements = list(_full(_configurations(sizes, len(trials), devices, widths.parts), sizes))
    speeds = np.asarray([(0.0, *trial.curve.speeds[: len(sizes) - 1]) for trial in trials])
    rates = speeds[np.arange(len(trials))[:, None], np.asarray(placements).T]
    scale = float(work.max())
    answer = linprog(np.ones(len(placements)), A_ub=-rates, b_ub=-work / scale, method="highs")
    if not answer.success:
        raise ValueError(f"no schedule was found: {answer.message}")
    return float(answer.fun) * scale


def _configurations(
    sizes: tuple[int, ...], trials: int, devices: int, parts: int
) -> set[tuple[int, ...]]:
    """Places of sizes by trial that fit on the devices together."""
    prefixes: set[tuple[int, ...]] = {()}
    for _ in range(trials):
        prefixes = {
            (*prefix, place)
            for prefix in prefixes
            for place in range(len(sizes))
            if _fits(
                tuple(sorted((sizes[at] for at in (*prefix, place)), reverse=True)), devices, parts
            )
        }
    return prefixes


def _full(placements: set[tuple[int, ...]], sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Those in which no trial can be wider."""
    for placement in placements:
        wider = (
            (*placement[:at], place + 1, *placement[at + 1 :])
            for at, place in enumerate(placement)
            if place + 1 < len(sizes)
        )
        if not any(other in placements for other in wider):
            yield placement


@cache
def _fits(sizes: tuple[int, ...], devices: int, parts: int) -> bool:
    """Whole widths take whole devices; shares are packed into the rest."""
    whole = sum(size // parts for size in sizes if size >= parts)
    shares = tuple(size for size in sizes if 0 < size < parts)
    return whole <= devices and _packs(shares, (parts,) * (devices - whole))


def _packs(shares: tuple[int, ...], room: tuple[int, ...]) -> bool:
    """Each share, the largest first, is tried in each device that differs."""
    if not shares:
        return True
    return any(
        _packs(shares[1:], (*room[:at], free - shares[0], *room[at + 1 :]))
        for at, free in enumerate(room)
        if free >= shares[0] and free not in room[:at]
    )
