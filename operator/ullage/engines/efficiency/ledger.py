# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The ledger of device time: the growth of the nodes' counters, counted once.

Counters of the nodes grow while a slice exists. A row holds the sums so far and a mark: the sum of
the counters at its last entry. The next entry adds the difference, so an operator that was away
loses nothing, and one that enters twice adds nothing the second time. Where the difference cannot
be trusted, the time is entered as unmeasured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

from ullage.api.usage import DeviceTime, ObservedUsage
from ullage.api.wire_fields import KEPT, Counted

NO_TIME: Final = DeviceTime()


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageMark(DeviceTime):
    """Sum of the counters of a row's slices at its last entry."""

    slices: Annotated[Counted, KEPT] = 0
    """Slices whose counters are in it."""


def plus(first: DeviceTime, second: DeviceTime) -> DeviceTime:
    """The sum of two device times; use beyond the allocated time is cut."""
    return DeviceTime(
        allocated_ms=first.allocated_ms + second.allocated_ms,
        used_ms=min(first.used_ms, first.allocated_ms) + min(second.used_ms, second.allocated_ms),
        withheld_ms=first.withheld_ms + second.withheld_ms,
        unmeasured_ms=first.unmeasured_ms + second.unmeasured_ms,
    )


def total_of(times: Iterable[DeviceTime]) -> DeviceTime:
    """The sum of several device times."""
    allocated = used = withheld = unmeasured = 0
    for time in times:
        allocated += time.allocated_ms
        used += min(time.used_ms, time.allocated_ms)
        withheld += time.withheld_ms
        unmeasured += time.unmeasured_ms
    return DeviceTime(
        allocated_ms=allocated, used_ms=used, withheld_ms=withheld, unmeasured_ms=unmeasured
    )


def mark_of(reports: Sequence[ObservedUsage | None]) -> UsageMark:
    """The mark of slices with these counters; ``None`` = the node does not report the slice."""
    known = [report for report in reports if report is not None]
    total = total_of(known)
    return UsageMark(
        slices=len(known),
        allocated_ms=total.allocated_ms,
        used_ms=total.used_ms,
        withheld_ms=total.withheld_ms,
        unmeasured_ms=total.unmeasured_ms,
    )


def growth(
    mark: UsageMark, reports: Sequence[ObservedUsage | None], *, held_ms: float, slack_ms: float
) -> DeviceTime:
    """Device time since a mark.

    Args:
        mark: Made of the same slices at the last entry.
        reports: Counters of these slices now; ``None`` = the node does not report the slice.
        held_ms: Device time that the slices can have held since, by the clock.
        slack_ms: Device time by which reports may be older or newer than the clock says.

    Returns:
        The difference of the counters; ``held_ms`` as unmeasured time where a slice is missing, a
        counter went back, or more grew than the clock allows.
    """
    now = mark_of(reports)
    if now.slices == len(reports) == mark.slices:
        grown = (
            now.allocated_ms - mark.allocated_ms,
            now.used_ms - mark.used_ms,
            now.withheld_ms - mark.withheld_ms,
            now.unmeasured_ms - mark.unmeasured_ms,
        )
        allocated, used, withheld, unmeasured = grown
        most = held_ms + slack_ms
        if min(grown) >= 0 and used <= allocated and allocated + withheld + unmeasured <= most:
            return DeviceTime(
                allocated_ms=allocated,
                used_ms=used,
                withheld_ms=withheld,
                unmeasured_ms=unmeasured,
            )
    return replace(NO_TIME, unmeasured_ms=max(0, int(held_ms)))
