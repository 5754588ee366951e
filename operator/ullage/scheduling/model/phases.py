# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Words for how far a workload has come; the enum is what ``status.phase`` may say."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """Phase of a TrainingJob (all but the last two) or of an InferenceDeployment."""

    PENDING = "Pending"
    RESERVING = "Reserving"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    READY = "Ready"
    DEGRADED = "Degraded"

    @property
    def terminal(self) -> bool:
        """True if nothing will run any more."""
        return self in OVER


OVER: Final = (Phase.SUCCEEDED, Phase.FAILED)
"""Phases from which nothing goes on; a phase as text is found among them too."""
