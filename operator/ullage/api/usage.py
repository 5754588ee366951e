# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Device time of one container: what it held, what it used, what it could not use.

The node measures it and adds it up, so that a reader who looks now and then loses nothing. The unit
is the millisecond of a whole device: a share of 40 % holds 400 of them in a second. Standard
library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from ullage.api.codec import Wire
from ullage.api.observations import Permille
from ullage.api.wire_fields import NEEDED, Counted, Flag, Listed, Schema, atomic

MOST_WINDOWS: Final = 3
"""Windows that a node keeps of a container: half an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageWindow(Wire):
    """Ten minutes of one container; ``at_s`` is seconds since the epoch."""

    at_s: Annotated[Counted, "at", NEEDED]
    """When the window ended, seconds since the epoch."""
    allocated_ms: Annotated[Counted, "allocatedMillis"] = 0
    """Device time that the container could use and that was measured."""
    used_ms: Annotated[Counted, "usedMillis"] = 0
    """The part of it in which multiprocessors worked for the container."""
    withheld_ms: Annotated[Counted, "withheldMillis"] = 0
    """Device time in which the container was stopped by the guard or waited for its lane."""
    peak_permille: Permille = 0
    """Largest use of a device in any minute, in thousandths of the whole device."""
    duty_permille: Permille = 0
    """Time in which a step was under way, as the container reports."""
    kernel_idle_permille: Permille = 0
    """Time without a kernel on the device; measured only while no other container ran on it."""
    memory_mib: Counted = 0
    """Most device memory in use, in MiB."""
    steps: Counted = 0
    """Steps, as the container reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedUsage(Wire):
    """Device time of one container since its slice was given, in milliseconds of a whole device."""

    allocated_ms: Annotated[Counted, "allocatedMillis"] = 0
    """Device time that the container could use and that was measured."""
    used_ms: Annotated[Counted, "usedMillis"] = 0
    """The part of it in which multiprocessors worked for the container."""
    withheld_ms: Annotated[Counted, "withheldMillis"] = 0
    """Device time in which the container was stopped by the guard or waited for its lane."""
    unmeasured_ms: Annotated[Counted, "unmeasuredMillis"] = 0
    """Device time without a usable counter; it is in no other sum."""
    estimated: Annotated[Flag, Schema(default=False)] = False
    """The device was shared and its counters are of the whole device: usedMillis is the most that
    the container can have used."""
    windows: Annotated[
        tuple[UsageWindow, ...], Listed(newest=MOST_WINDOWS), atomic(MOST_WINDOWS)
    ] = ()
    """The last windows of ten minutes, oldest first."""
