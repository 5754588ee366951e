# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Device time of one container: what it held, what it used, what it could not use.

The node measures it and adds it up, so that a reader at long intervals loses nothing. The unit
is the millisecond of a whole device: a share of 40 % holds 400 of them in a second. Standard
library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from ullage.api.codec import Wire
from ullage.api.wire_fields import KEPT, Counted, Flag, Schema, count

_Percent: TypeAlias = Annotated[int, count(100)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentUsage(Wire):
    """The last two windows of one container, together; each a quarter of an hour by default.

    One record instead of two, because every heartbeat stores it for every container.
    """

    allocated_ms: Counted = 0
    """Device time that the container could use and that was measured."""
    used_ms: Counted = 0
    """The part of it in which multiprocessors worked for the container."""
    withheld_ms: Counted = 0
    """Device time in which the container was stopped by the guard or waited for its lane."""
    needed_percent: _Percent = 0
    """Smallest share of a device on which the work would have taken 2 % longer at most, in
    percent of the whole device, of the window that needed more."""
    duty_percent: _Percent = 0
    """Time in which a step was under way, as the container reports, in percent, of the window with
    more of it; absent with fewer than five steps in one of the windows."""
    kernel_idle_percent: _Percent = 0
    """Time without a kernel on the device, in percent; measured only while no other container ran
    on it."""
    memory_mib: Counted = 0
    """Most device memory in use, in MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime(Wire):
    """Device time in milliseconds of a whole device; used + wasted = allocated, exactly."""

    allocated_ms: Annotated[Counted, KEPT] = 0
    """Device time that could be used and was measured."""
    used_ms: Counted = 0
    """The part of it in which multiprocessors worked."""
    withheld_ms: Counted = 0
    """Device time while stopped by the guard or waiting for a lane; in no other sum."""
    unmeasured_ms: Counted = 0
    """Device time without a usable counter; in no other sum."""

    @property
    def wasted_ms(self) -> int:
        """The part of the allocated time that was not used."""
        return max(0, self.allocated_ms - self.used_ms)

    @property
    def held_ms(self) -> int:
        """All device time that was held."""
        return self.allocated_ms + self.withheld_ms + self.unmeasured_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedUsage(DeviceTime):
    """Device time of one container since its slice was given."""

    estimated: Annotated[Flag, Schema(default=False)] = False
    """The device was shared and its counters are of the whole device: usedMs is the most that
    the container can have used."""
    recent: RecentUsage | None = None
    """The last two windows, of a quarter of an hour by default; absent until there are two."""
