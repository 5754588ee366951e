# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The number of members that an elastic gang should have, and when another number is worth it.

Numbers only: who fits where is counted elsewhere, and nothing is started or stopped here.
"""

from __future__ import annotations

import math
from typing import Final

from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.spec_fields import Elasticity

DEFAULT_RESTART_S: Final = 30.0
"""What stopping and starting costs until it was seen: the default grace of a checkpoint."""
HOLD_S: Final = 300.0
"""Least time between two changes of a running gang's size that no one forced; as long as a stage of
reliability is held, because both cost a restart or a copy of the state."""
ROOM_LASTS_S: Final = DEFAULT_RESTART_S
"""How long room must last before a gang grows into it. To wait as long as the change costs loses
at most twice what the best choice in hindsight would (derived: the ski-rental rule)."""
HOLD_IN_PLACE_S: Final = 30.0
"""The same where members join in place. The others are not stopped, but elastic torchrun starts its
worker processes again at each change: no more than two a minute (not measured)."""
ROOM_LASTS_IN_PLACE_S: Final = 10.0
"""How long room must last before members join in place: about as long as a pod takes to start and
to meet the others (derived as for a restart, whose cost is that)."""
KEEP_S: Final = 120.0
"""How long the places of a gang are kept when its old pods are gone and the new ones are not there
(our choice: pods come within seconds; where the API takes none, others may have the devices)."""
PHI: Final = 0.97
"""Part of the speed that is left with each doubling of the members, until it was measured; the
curve that choosing pools rests on too."""


def wanted_members(bounds: Elasticity, room: int, *, limit: int | None = None) -> int:
    """Members that a gang should have.

    Args:
        bounds: what its owner allows.
        room: members that there is room for.
        limit: most that are wanted for another reason than room, such as their price; it never
            takes a gang below the fewest that it can train with.

    Returns:
        As many as there is room for within all bounds; the fewest where there is less room, because
        the gang then waits for these.
    """
    most = bounds.max_replicas if limit is None else min(limit, bounds.max_replicas)
    return max(bounds.min_replicas, min(room, most))


def speed(members: int) -> float:
    """Speed of a gang against a single member: n * .97^log2(n) (source: E_A's phi)."""
    return members * math.pow(PHI, math.log2(members))


def saved_s(left_s: float, members: int, more: int) -> float:
    """Seconds by which the rest is done sooner with more members.

    Args:
        left_s: seconds that it would take with the present ones.
        members: the present ones.
        more: as many as there would be.
    """
    return left_s * (1 - speed(members) / speed(more))


def left_s(job: WorkloadRecord, now: float) -> float:
    """Seconds that the rest of a job takes as it runs.

    Where no one said how much there is to do, as long again as it has run (the expectation of one
    who knows nothing but that).
    """
    progress = job.status.progress
    if progress is not None and progress.eta:
        return max(0.0, progress.eta - now)
    return max(0.0, now - job.status.start_time) if job.status.start_time else 0.0


def restart_s(job: WorkloadRecord) -> float:
    """Cost of a restart at a checkpoint: the duration of the last start, else the default."""
    books = job.status.allocation
    said = books.restart_seconds if books is not None else ""
    return float(said) if said else DEFAULT_RESTART_S


def is_worth_it(job: WorkloadRecord, more: int, now: float) -> bool:
    """True if more members save more time than the restart costs."""
    return saved_s(left_s(job, now), job.replicas, more) > restart_s(job)
