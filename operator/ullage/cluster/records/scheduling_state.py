# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What later cycles need to know of earlier ones: ``status.scheduling``, as a record.

It outlives the operator. Texts in it are for readers; nothing is decided by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from ullage.api.wire_fields import (
    IF_KNOWN,
    INT32_MAX,
    Listed,
    Moment,
    Name,
    ReasonWord,
    Time,
    atomic,
    count,
    cut,
)
from ullage.cluster.values.device_ref import DeviceRef

MOST_EXCLUSIONS: Final = 16
"""Exclusions that one status holds; the oldest go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A device that failed the workload and is left out for it."""

    reason: ReasonWord
    """How it failed."""
    node: Name
    """Node of the device."""
    gpu: Name
    """UUID of the device."""
    since: Moment
    """When it failed."""
    until: Time
    """Until when it is left out; absent = with its whole node, until the node's agent reports."""
    message: Annotated[str, cut(1024)]
    """What happened, in a sentence."""

    @property
    def device(self) -> DeviceRef:
        """The device that is left out."""
        return DeviceRef(self.node, self.gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingState:
    """What the operator remembers between its decisions; the operator alone writes it."""

    exclusions: Annotated[
        tuple[Annotated[Exclusion, IF_KNOWN], ...],
        Listed(newest=MOST_EXCLUSIONS),
        atomic(MOST_EXCLUSIONS),
    ] = ()
    """Devices that are left out, the latest last; one whose time is over binds nothing."""
    preemptions: Annotated[int, count(INT32_MAX)] = 0
    """Preemptions in a row: each doubles the wait before the next start."""
    preempted_at: Time = 0.0
    """When the last preemption happened."""


NOTHING: Final = SchedulingState()
