# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the owners of pods are told of their steps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

STUCK_TEXT: Final = "it was suspended and could not be resumed; restart the container"


class Fault(StrEnum):
    """What the owner of a pod is told of its steps; reasons of Events."""

    EXCEEDED = "MemoryContractExceeded"
    STALLED = "LaneStalled"
    QUEUED = "LaneQueued"
    RESIZED = "LaneResized"
    SUSPENDED = "LaneSuspended"
    RESUMED = "LaneResumed"
    SUSPEND_FAILED = "SuspendFailed"
    RESTORE_REFUSED = "RestoreRefused"
    RESTORE_FAILED = "RestoreFailed"
    UNKEPT = "LanesNotWritten"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Something that the owner of a job should know."""

    job: str
    fault: Fault
    message: str
