# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A job's part of the cluster's time, as its status reports it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from ullage.api.base import DecimalText, LongCount, Model, SignedDecimal, Time


class SpeedSource(StrEnum):
    """Where the speeds behind a division come from."""

    MEASURED = "Measured"
    DECLARED = "Declared"
    ESTIMATED = "Estimated"
    NEUTRAL = "Neutral"


class ReceivedTime(Model):
    """Time on one accelerator type."""

    seconds: LongCount = 0
    """Seconds of earlier turns."""
    since: Time | None = None
    """When the current turn began; its time is not in `seconds` yet."""


class DropCause(StrEnum):
    """Why a deadline cannot be kept."""

    PASSED = "Passed"
    TOO_SLOW = "TooSlow"
    CONTENDED = "Contended"
    WORK_UNKNOWN = "WorkUnknown"


class DroppedDeadline(Model):
    """A deadline that the division of time does not keep."""

    cause: DropCause
    """`Passed`: it is over; `TooSlow`: not even its fastest accelerator, held all the time, is fast
    enough; `Contended`: other deadlines need the same devices; `WorkUnknown`: nothing says how much
    the job has to do."""
    needed_steps_per_second: DecimalText | None = None
    """Speed that the deadline requires."""
    best_steps_per_second: DecimalText | None = None
    """Speed on its fastest accelerator, held all the time."""
    approximate: bool = False
    """There were too many deadlines to find the fewest to drop; those that lack most were
    dropped."""


class Allocation(Model):
    """The job's part of the cluster's time, and what it has had of it.

    Written when the part changes or a turn begins or ends; what runs on follows from the times.
    """

    since: Time
    """Since when the fractions hold; the deficits are of that moment."""
    fractions: Annotated[dict[str, DecimalText], Field(default_factory=dict, max_length=64)]
    """Part of the time promised on each accelerator type, 0 to 1; absent types have none."""
    effective_throughput: DecimalText | None = None
    """Steps per second that the fractions amount to."""
    normalised_share: DecimalText | None = None
    """The same against holding every type in proportion to its size; 1 = as much as that."""
    source: SpeedSource | None = None
    """Weakest source of the speeds; Neutral = nothing is known, all types count as equal."""
    deficit_seconds: Annotated[dict[str, SignedDecimal], Field(default_factory=dict, max_length=64)]
    """Time promised less time had on each type; below 0 = it had more."""
    received_seconds: Annotated[dict[str, ReceivedTime], Field(default_factory=dict, max_length=64)]
    """Time had on each type."""
    isolated_seconds: DecimalText | None = None
    """What the steps done so far would have taken on an equal part of the cluster; under
    FinishTimeFairness."""
    skipped_since: Time | None = None
    """Since when smaller jobs pass it by; after gangSkipLimit rounds devices are kept for it."""
    restart_seconds: DecimalText | None = None
    """What its last start took, from getting devices to running; weighed before it is stopped."""
    dropped_deadline: DroppedDeadline | None = None
    """Why spec.cost.deadline is not kept, with the speeds as of when that was found; under
    MinCostSLO. Absent = it is kept, or there is none."""
