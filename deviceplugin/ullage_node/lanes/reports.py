# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reports to the owners of pods about their steps."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

STUCK_TEXT: Final = "it was suspended and could not be resumed; restart the container"


class StepFault(StrEnum):
    """Reasons of Events about the steps of a pod."""

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
class StepReport:
    """A report to the owner of a job."""

    job: str
    fault: StepFault
    message: str
