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
    count,
    cut,
)
from ullage.cluster.values.device_ref import DeviceRef

MOST_EXCLUSIONS: Final = 16
"""Exclusions that one status holds; the oldest go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A device that failed a workload and is left out for it until a moment.

    With ``until`` 0 the whole node is left out, until its agent reports something newer than
    ``since``.
    """

    reason: ReasonWord
    node: Name
    gpu: Name
    since: Moment
    until: Time
    message: Annotated[str, cut(1024)]

    @property
    def device(self) -> DeviceRef:
        """The device that is left out."""
        return DeviceRef(self.node, self.gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingState:
    """Memory of placing one workload.

    ``preemptions`` counts those in a row, the last of them at ``preempted_at``.
    """

    exclusions: Annotated[
        tuple[Annotated[Exclusion, IF_KNOWN], ...], Listed(newest=MOST_EXCLUSIONS)
    ] = ()
    preemptions: Annotated[int, count(INT32_MAX)] = 0
    preempted_at: Time = 0.0


NOTHING: Final = SchedulingState()
