# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The desired number of members of an elastic gang, and the benefit of another number.

Numbers only: room is counted elsewhere, and nothing is started or stopped here.
"""

from __future__ import annotations

import math
from typing import Final

from ullage.cluster.records.spec_fields import Elasticity
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.times import GANG_RESTART_S

PHI: Final = 0.97
"""Factor of the speed for each doubling of the members, until it is measured; also the curve used
for choosing pools."""


def wanted_members(bounds: Elasticity, room: int, *, limit: int | None = None) -> int:
    """Desired number of members of a gang.

    Args:
        bounds: Bounds set by its owner.
        room: Number of members that fit.
        limit: Maximum for another reason than room, such as their price; it never takes a gang
            below its minimum.

    Returns:
        As many as fit within all bounds; the minimum if fewer fit, because the gang then waits for
        these.
    """
    most = bounds.max_replicas if limit is None else min(limit, bounds.max_replicas)
    return max(bounds.min_replicas, min(room, most))


def speed(members: int) -> float:
    """Speed of a gang against a single member: n * .97^log2(n) (source: E_A's phi)."""
    return members * math.pow(PHI, math.log2(members))


def saved_s(left_s: float, members: int, more: int) -> float:
    """Seconds saved for the rest of the work with more members.

    Args:
        left_s: Seconds left with the present number.
        members: The present number.
        more: The larger number.
    """
    return left_s * (1 - speed(members) / speed(more))


def left_s(job: WorkloadRecord, now: float) -> float:
    """Seconds left of a job at its present speed.

    Without declared work, as long again as it has run (the expectation without other information).
    """
    progress = job.status.progress
    if progress is not None and progress.eta:
        return max(0.0, progress.eta - now)
    return max(0.0, now - job.status.start_time) if job.status.start_time else 0.0


def restart_s(job: WorkloadRecord) -> float:
    """Cost of a restart at a checkpoint: the duration of the last start, else the default."""
    books = job.status.allocation
    stated = books.restart_seconds if books is not None else ""
    return float(stated) if stated else GANG_RESTART_S


def is_worth_it(job: WorkloadRecord, more: int, now: float) -> bool:
    """True if more members save more time than the restart costs."""
    return saved_s(left_s(job, now), job.replicas, more) > restart_s(job)
