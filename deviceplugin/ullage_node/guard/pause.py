# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""State of a tenant with an objective, its last windows and their verdict; and of one pause.

A pause holds the frozen containers, the tenant they are frozen for, the time, and the result. Pure;
times are CLOCK_MONOTONIC seconds given by the windows or the caller.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ullage_node.model.devices import ContainerKey
from ullage_node.model.guard import ObjectiveWindow, WindowTally, WindowVerdict
from ullage_node.times import CLEAN_OVERLAP_S, PAUSE_LATE_S, WINDOWS_KEPT_S

HISTORY: Final = 3
VIOLATED: Final = 2
"""Above the objective in this many of the last :data:`HISTORY` windows that count."""


@dataclass(slots=True)
class WatchedTenant:
    """One tenant with windows."""

    recent: deque[ObjectiveWindow] = field(default_factory=lambda: deque(maxlen=HISTORY))
    tally: WindowTally = field(default_factory=WindowTally)
    violating: bool = False
    at_risk: bool = False
    self_made: bool = False
    """Its violation is due to its own load, as long as it has no new neighbour."""
    crowd: frozenset[ContainerKey] = frozenset()
    """Neighbours at the time of that finding."""
    begun: str = ""
    """Figures at the start of the violation; newer ones would change the status every second."""
    because: str = ""

    @property
    def note(self) -> str:
        """Text of the violation for the status."""
        return f"{self.begun}; {self.because}" if self.because else self.begun

    @property
    def violated(self) -> int:
        """The number of recent windows above the objective."""
        return sum(window.verdict is WindowVerdict.VIOLATED for window in self.recent)

    def count(self, window: ObjectiveWindow) -> None:
        """Add a window to the sums."""
        self.tally = WindowTally(
            windows=self.tally.windows + 1,
            violations=self.tally.violations + (window.verdict is WindowVerdict.VIOLATED),
            latency_micros=window.latency_micros,
        )

    def remember(self, window: ObjectiveWindow) -> None:
        """Add a window to the history; enough good ones end a violation."""
        while self.recent and window.at_s - self.recent[0].at_s > WINDOWS_KEPT_S:
            self.recent.popleft()
        self.recent.append(window)
        if not self.violated and len(self.recent) == HISTORY:
            self.violating = self.self_made = False


def figures(window: ObjectiveWindow) -> str:
    """Text of a window's figures."""
    return f"{window.ratio:.2f} of its objective"


WINDOWS_NEEDED: Final = 2
"""Windows without improvement after which the neighbours are cleared."""


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
        """Bad windows that clear the neighbours: one if the time limit has no room for more."""
        clean_s = self.before.clean_seconds
        window = self.before.at_s - self.before.begin_s
        more = int((self.limit_seconds - clean_s) // max(window, clean_s - window, 1e-3))
        return max(1, min(WINDOWS_NEEDED, 1 + more))

    def froze(self, now: float) -> None:
        """Record that the containers are frozen since ``now``."""
        self.stage = PauseStage.JUDGING
        self.frozen_at = now

    def takes(self, window: ObjectiveWindow) -> bool:
        """True if a window of the victim lies within the pause."""
        return self.frozen and window.begin_s >= self.frozen_at - CLEAN_OVERLAP_S

    def late(self, now: float) -> bool:
        """True if the freezer's answer is overdue."""
        return self.stage is PauseStage.ASKED and now - self.asked_at > PAUSE_LATE_S

    def over(self, now: float) -> bool:
        """True if the containers must run again."""
        return self.frozen and now - self.asked_at >= self.limit_seconds
