# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""State of one tenant with an objective: its last windows and their verdict.

Pure; times are CLOCK_MONOTONIC seconds given by the windows themselves.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from ullage_node.model.devices import ContainerKey
from ullage_node.model.guard import ObjectiveWindow, WindowTally, WindowVerdict
from ullage_node.times import WINDOWS_KEPT_S

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
    """Its violation is its own load, as long as no one new is beside it."""
    crowd: frozenset[ContainerKey] = frozenset()
    """Neighbours at the time of that finding."""
    begun: str = ""
    """What was seen when the violation began; later figures would make every second a news."""
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
        """Add a window to the last few; enough good ones end a violation."""
        while self.recent and window.at_s - self.recent[0].at_s > WINDOWS_KEPT_S:
            self.recent.popleft()
        self.recent.append(window)
        if not self.violated and len(self.recent) == HISTORY:
            self.violating = self.self_made = False


def figures(window: ObjectiveWindow) -> str:
    """Text of a window's figures."""
    return f"{window.ratio:.2f} of its objective"
