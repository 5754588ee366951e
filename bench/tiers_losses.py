# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Cost of a loss with a copy in memory and with checkpoints, and cost of keeping the copy.

Formulas are derived from memoryless losses; the classic optimum of checkpoints is Young's. Figures
are expectations for choosing and explaining, and must never be reported as measured ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ullage.engines.tiers.flush import Link

OVERHEAD_LIMIT: Final = 0.10
"""Part of the step time that the copy may cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a job runs beside its copy.

    Attributes:
        step_s: Seconds of one step without a copy; above 0.
        pause_s: Seconds for which a push stops the job, to take the values out.
        recover_s: Seconds from a loss until steps are done again, with a copy.
        restart_s: The same with checkpoints: start of all members and reading of the state.
        notified: Part of the losses that are announced long enough before.
    """

    step_s: float
    pause_s: float = 0.0
    recover_s: float = 0.0
    restart_s: float = 0.0
    notified: float = 0.0

    def __post_init__(self) -> None:
        """Refuse times that none can be.

        Raises:
            ValueError: a step without length, a negative time, a part outside 0..1.
        """
        times = (self.pause_s, self.recover_s, self.restart_s)
        if not self.step_s > 0 or not all(one >= 0 for one in times):
            raise ValueError("a step takes time, and no time is negative")
        if not 0 <= self.notified <= 1:
            raise ValueError("the announced part of losses lies in 0..1")


def push_s(link: Link, *, owners: int, state_stores: int) -> float:
    """Seconds that one push of all owners travels; the whole interval's changes, at most the state.

    Bytes over the slower of all senders and all receivers (derived).

    Args:
        link: Sizes (bytes) and rates (bytes/s) of the copy.
        owners: Hosts that send.
        state_stores: Hosts that receive.

    Raises:
        ValueError: no one to send or to receive.
    """
    if owners < 1 or state_stores < 1:
        raise ValueError("a push needs an owner and a holder of the copy")
    size = min(link.state_bytes, link.dirty_bytes_per_step * link.every_steps)
    way = min(link.host_bytes_per_s * owners, link.state_store_bytes_per_s * state_stores)
    return size / way


def overhead(pace: Pace, *, every_steps: int, travel_s: float) -> float:
    """Part by which the copy lengthens the job.

    Pushes travel behind the steps, so they cost their pause; a push that takes longer than its
    interval sets the pace (derived).

    Args:
        pace: Of the job.
        every_steps: Steps between pushes.
        travel_s: Seconds that one push travels.
    """
    alone_s = every_steps * pace.step_s
    return max(alone_s + pace.pause_s, travel_s) / alone_s - 1.0


def lost_with_copy_s(pace: Pace, *, every_steps: int, travel_s: float) -> float:
    """Expected seconds lost by one loss: half an interval, the push on its way, the recovery.

    An announced loss costs its recovery only (derived).

    Args:
        pace: Of the job.
        every_steps: Steps between pushes.
        travel_s: Seconds that one push travels.
    """
    interval_s = max(every_steps * pace.step_s + pace.pause_s, travel_s)
    return (1 - pace.notified) * (interval_s / 2 + travel_s) + pace.recover_s


def lost_with_checkpoints_s(pace: Pace, *, interval_s: float, losses_per_hour: float) -> float:
    """Expected seconds lost by one loss: since the last checkpoint, and the restart.

    1/r - T e^{-rT} / (1 - e^{-rT}), which is T/2 for rare losses (derived).

    Args:
        pace: Of the job.
        interval_s: T: seconds between checkpoints; above 0.
        losses_per_hour: r, memoryless.

    Raises:
        ValueError: no interval.
    """
    if not interval_s > 0:
        raise ValueError("checkpoints need an interval above 0 s")
    phase = losses_per_hour / 3600 * interval_s
    if phase < 1e-4:  # the closed form cancels there; the next term of its series is enough
        since_s = interval_s * (0.5 - phase / 12)
    else:
        since_s = interval_s * (1 / phase - 1 / math.expm1(phase))
    return since_s + pace.restart_s


def times_less(
    pace: Pace, link: Link, *, travel_s: float, interval_s: float, losses_per_hour: float
) -> float:
    """How many times less a loss costs with the copy than with checkpoints.

    Args:
        pace: Of the job.
        link: Interval of the copy.
        travel_s: Seconds that one push travels.
        interval_s: Seconds between checkpoints.
        losses_per_hour: Memoryless.
    """
    ours_s = lost_with_copy_s(pace, every_steps=link.every_steps, travel_s=travel_s)
    theirs_s = lost_with_checkpoints_s(pace, interval_s=interval_s, losses_per_hour=losses_per_hour)
    return theirs_s / ours_s if ours_s > 0 else math.inf
