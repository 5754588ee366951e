# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Limits of containers that take more of a volume than their fair share while another starves.

A limit is the max-min fair share of the newest window, so it follows the volume when that becomes
faster or slower, and a container is never held below what all would get. Once no one waits for the
volume, limits are widened step by step and go.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Final

from ullage.engines.dataio.fairness import HOG_LEAST, VolumeJudgement, VolumeUse

WIDEN: Final = 1.25
"""Factor by which a limit is widened in a window in which no one waits. Chosen."""
BINDS: Final = 0.8
"""Part of its limit that a container reaches while the limit binds. Chosen."""
FLOOR_BYTES: Final = 1 << 20
"""Least limit, bytes per second: below it a container can no longer be told from a hung one."""


def next_limits(
    limits: Mapping[Hashable, float],
    uses: Sequence[VolumeUse],
    judgement: VolumeJudgement,
    starved: Collection[Hashable],
    exempt: Collection[Hashable] = (),
) -> dict[Hashable, float]:
    """Limits of a volume's containers for the next window.

    Args:
        limits: Limits in force, bytes per second.
        uses: The newest window.
        judgement: The judgement of that window.
        starved: Containers that starve on the volume.
        exempt: Containers that are never limited.

    Returns:
        Bytes per second by container; one that is missing has no limit.
    """
    present = {use.key: use for use in uses if use.key not in exempt}
    waiting = any(use.waits for use in uses if use.key not in limits)
    requests = sum(use.requests_per_s for use in uses)
    after: dict[Hashable, float] = {}
    for case in judgement.short:
        use = present.get(case.hog)
        if case.victim in starved and use is not None and case.hog not in limits:
            after[case.hog] = _equal(use, judgement, requests)
    for key, limit in limits.items():
        use = present.get(key)
        if use is None:
            continue
        if waiting:
            after[key] = min(_equal(use, judgement, requests), limit * WIDEN)
        elif use.bytes_per_s >= BINDS * limit:
            after[key] = limit * WIDEN
    return after


def _equal(use: VolumeUse, judgement: VolumeJudgement, requests: float) -> float:
    """Bytes per second with which a container takes no more than its fair share.

    A container that takes most of the requests moves few bytes with each: it is slowed by as much
    as its part of the requests is above an equal one.
    """
    fair = judgement.fair.get(use.key, judgement.moved)
    part = use.requests_per_s / requests if requests > 0 else 0.0
    equal = 1 / max(1, len(judgement.fair))
    if part > equal + HOG_LEAST:
        fair = min(fair, use.bytes_per_s * equal / part)
    return max(FLOOR_BYTES, fair)
