# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The number of members that an elastic gang should have, and when another number is worth it.

Numbers only: who fits where is counted elsewhere, and nothing is started or stopped here.
"""

from __future__ import annotations

import math
from typing import Final

from ullage.cluster.records.spec_fields import Elasticity
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.times import GANG_RESTART_S

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
    return float(said) if said else GANG_RESTART_S


def is_worth_it(job: WorkloadRecord, more: int, now: float) -> bool:
    """True if more members save more time than the restart costs."""
    return saved_s(left_s(job, now), job.replicas, more) > restart_s(job)
