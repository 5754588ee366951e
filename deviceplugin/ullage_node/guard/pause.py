# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One pause: which containers are frozen, for which tenant, since when, and what follows.

Pure; times are CLOCK_MONOTONIC seconds given by the caller.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ullage_node.model.devices import ContainerKey
from ullage_node.model.guard import ObjectiveWindow
from ullage_node.times import CLEAN_OVERLAP_S, PAUSE_LATE_S

WINDOWS_NEEDED: Final = 2
"""Windows without a cure after which the neighbours are innocent."""


class PauseStage(Enum):
    """Stage of a pause."""

    ASKED = "asked"
    JUDGING = "judging"
    CURED = "cured"


@dataclass(slots=True, kw_only=True)
class Pause:
    """The neighbours ``keys`` are frozen, or are being frozen, for ``victim``."""

    number: int
    victim: ContainerKey
    keys: tuple[ContainerKey, ...]
    asked_at: float
    limit_seconds: float
    before: ObjectiveWindow
    why: str
    stage: PauseStage = PauseStage.ASKED
    frozen_at: float = 0.0
    bad_windows: int = 0

    @property
    def frozen(self) -> bool:
        """True if the containers are frozen."""
        return self.stage is not PauseStage.ASKED

    @property
    def windows_needed(self) -> int:
        """Bad windows that acquit the neighbours: fewer where the limit leaves room for one."""
        clean_s = self.before.clean_seconds
        window = self.before.at_s - self.before.begin_s
        more = int((self.limit_seconds - clean_s) // max(window, clean_s - window, 1e-3))
        return max(1, min(WINDOWS_NEEDED, 1 + more))

    def froze(self, now: float) -> None:
        """The containers are frozen since ``now``."""
        self.stage = PauseStage.JUDGING
        self.frozen_at = now

    def takes(self, window: ObjectiveWindow) -> bool:
        """True if a window of the victim lies within the pause."""
        return self.frozen and window.begin_s >= self.frozen_at - CLEAN_OVERLAP_S

    def late(self, now: float) -> bool:
        """True if the freezer owes an answer for too long."""
        return self.stage is PauseStage.ASKED and now - self.asked_at > PAUSE_LATE_S

    def over(self, now: float) -> bool:
        """True if the containers must run again."""
        return self.frozen and now - self.asked_at >= self.limit_seconds
