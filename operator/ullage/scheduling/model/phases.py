# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Progress of a workload as words; the enum has the values of ``status.phase``."""

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
        """True for a final phase."""
        return self in OVER


OVER: Final = (Phase.SUCCEEDED, Phase.FAILED)
"""Final phases; a phase as text is found among them too."""
