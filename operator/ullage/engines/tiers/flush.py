# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Decides if a notice leaves time to save pending state, and what would help.

The bulk case counts: all owners are notified at once and share the path into the backup. A flush
must never exceed its part of the notice.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

NOTICE_PART: Final = 0.5
"""Fraction of a notice that a flush may take: the rest is for detection, handover and exit."""
STATE_STORES: Final = 1
"""The coordinator's process has the whole copy; reliable members hold none of it."""
BYTES_PER_SECOND: Final = 125_000_000
"""Assumed of every machine, in and out (our choice: 1 Gbit/s, which any machine with a device has).
The only source for leads and for values reported before members run."""


class NoticeAnswer(StrEnum):
    """Action of an owner on the running step when it must leave."""

    FINISH = "FinishStep"
    """Finish it, then flush."""
    ABORT = "AbortStep"
    """Abort it, flush the last finished one: the others repeat the step."""
    TOO_LATE = "TooLate"
    """The pending state does not fit into the notice: as a loss without notice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Size of the state and the speed of its transfers.

    Attributes:
        state_bytes: The whole state, all shards.
        dirty_bytes_per_step: Bytes changed by a step, all shards; at most the state.
        host_bytes_per_s: Out of one owner.
        keeper_bytes_per_s: Into one holder of the copy, all owners together.
        every_steps: Steps between two pushes.
        max_lag_steps: The job waits rather than exceed this lag of the copy.
    """

    state_bytes: int
    dirty_bytes_per_step: int
    host_bytes_per_s: float
    state_store_bytes_per_s: float
    every_steps: int = 1
    max_lag_steps: int = 2

    def __post_init__(self) -> None:
        """Reject a link that would block for ever or transfers nothing.

        Raises:
            ValueError: sizes below 0, no bandwidth, or a lag shorter than the interval.
        """
        if not 0 <= self.dirty_bytes_per_step <= self.state_bytes:
            raise ValueError("a step changes between nothing and the whole state")
        if not (self.host_bytes_per_s > 0 and self.state_store_bytes_per_s > 0):
            raise ValueError("bandwidth to the state store must be above 0")
        if not 1 <= self.every_steps <= self.max_lag_steps:
            raise ValueError(
                f"backup.maxLagSteps {self.max_lag_steps} is below everySteps {self.every_steps}: "
                "the job would wait for a push that is not due; raise maxLagSteps"
            )

    @property
    def pending_bytes(self) -> int:
        """Maximum not in the copy yet: the longest lag, at most the whole state (derived)."""
        return min(self.state_bytes, self.dirty_bytes_per_step * self.max_lag_steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush:
    """The verdict on a notice.

    Attributes:
        flush_s: Seconds until everything pending is in the copy; infinite without a holder.
        allowed_s: Seconds it may take; infinite where members are never notified because they stay.
        feasible: The flush fits.
        owners_needed: Fewest owners with which it fits; ``None`` = their number does not help.
        keepers_needed: Fewest holders of the copy with which it fits, owners as they are; ``None``
            = their number does not help.
        lag_needed: Longest lag of the copy with which it fits; ``None`` = none that is as long as
            an interval.
    """

    flush_s: float
    allowed_s: float
    feasible: bool
    owners_needed: int | None = None
    state_stores_needed: int | None = None
    lag_needed: int | None = None


def flush_time_s(link: Link, *, owners: int, state_stores: int, shards: int = 0) -> float:
    """Seconds to save the pending state, all owners at once.

    The bytes of the fullest owner over its own egress, or all bytes over the ingress (derived).

    Args:
        link: Sizes (bytes) and bandwidths (bytes/s).
        owners: Hosts that push.
        state_stores: Hosts that receive.
        shards: Number of indivisible pieces; 0 = the state divides evenly.
    """
    if link.pending_bytes == 0 or owners == 0:
        return 0.0
    if state_stores == 0:
        return math.inf
    way_out_s = link.pending_bytes * _part(owners, shards) / link.host_bytes_per_s
    way_in_s = link.pending_bytes / (link.state_store_bytes_per_s * state_stores)
    return max(way_out_s, way_in_s)


def feasibility(
    link: Link, *, owners: int, state_stores: int, notice_s: float | None, shards: int = 0
) -> Flush:
    """Check that owners under notice can flush in half of it, else find what would help.

    Args:
        link: Sizes (bytes) and bandwidths (bytes/s).
        owners: Transient members that own shards; 0 = nothing to save.
        state_stores: Reliable members that hold the copy.
        notice_s: Seconds of the shortest notice; ``None`` = none: then nothing can be flushed.
        shards: Number of indivisible pieces; 0 = the state divides evenly.
    """
    allowed_s = math.inf if owners == 0 else NOTICE_PART * (notice_s or 0.0)
    taken_s = flush_time_s(link, owners=owners, state_stores=state_stores, shards=shards)
    verdict = Flush(flush_s=taken_s, allowed_s=allowed_s, feasible=taken_s <= allowed_s)
    if verdict.feasible or allowed_s <= 0:
        return verdict

    def fits(owners: int, state_stores: int, lag: int = link.max_lag_steps) -> bool:
        made = replace(link, max_lag_steps=lag)
        return (
            flush_time_s(made, owners=owners, state_stores=state_stores, shards=shards) <= allowed_s
        )

    most_owners = shards or _smallest(link.pending_bytes / link.host_bytes_per_s / allowed_s)
    most_state_stores = _smallest(link.pending_bytes / link.state_store_bytes_per_s / allowed_s)
    lags = range(link.max_lag_steps - 1, link.every_steps - 1, -1)
    return replace(
        verdict,
        owners_needed=_fewest(most_owners, lambda n: fits(n, state_stores)),
        state_stores_needed=_fewest(most_state_stores, lambda n: fits(owners, n)),
        lag_needed=next((lag for lag in lags if fits(owners, state_stores, lag)), None),
    )


def answer_notice(*, step_left_s: float, flush_s: float, notice_left_s: float) -> NoticeAnswer:
    """Decide if the running step is still finished.

    Args:
        step_left_s: Seconds left of the running step.
        flush_s: Seconds for saving the pending state.
        notice_left_s: Seconds until the machine goes.
    """
    if step_left_s + flush_s <= NOTICE_PART * notice_left_s:
        return NoticeAnswer.FINISH
    return NoticeAnswer.ABORT if flush_s <= notice_left_s else NoticeAnswer.TOO_LATE


def _part(owners: int, shards: int) -> float:
    """Fraction of the state at the fullest owner."""
    return math.ceil(shards / owners) / shards if shards else 1 / owners


def _smallest(needed: float) -> int:
    """Whole machines for a need, after rounding errors are removed."""
    return max(1, math.ceil(needed)) + 1


def _fewest(most: int, fits: Callable[[int], bool]) -> int | None:
    """The first count that fits; larger counts fit as well (derived)."""
    fewest = bisect.bisect_left(range(1, most + 1), x=True, key=fits) + 1
    return fewest if fewest <= most else None
