# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Detects within a step that its memory is being freed, so that the next step may start."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ullage.engines.lanes.records import mib


@dataclass(slots=True, kw_only=True)
class EarlyRelease:
    """Watches one job's use of its lane (rule of Salus @7b7f5e0, `iteralloctracker.cpp`).

    ``threshold`` is the minimum fraction of the expected peak while the use falls, ``window`` the
    samples over which it falls. The expected peak is the mean of those seen; nothing is released
    early during the first step.

    Raises:
        ValueError: a figure is out of range.
    """

    threshold: float = 0.9
    window: int = 50
    expected_mib: float = field(init=False, default=0.0)
    steps: int = field(init=False, default=0)
    _samples: deque[int] = field(init=False)
    _peak_mib: int = field(init=False, default=0)
    _released: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1 or self.window < 2:
            raise ValueError("the threshold is a part above 0, the window at least 2 samples")
        self._samples = deque(maxlen=self.window)

    def sample(self, used_mib: int) -> bool:
        """True if the lane may be released now; true at most once per step.

        Args:
            used_mib: Memory used of the lane, at equal intervals, MiB.

        Raises:
            ValueError: the amount is impossible.
        """
        self._samples.append(mib(used_mib, "memory in use"))
        self._peak_mib = max(self._peak_mib, used_mib)
        if self._released or not self.steps or len(self._samples) == 1:
            return False
        falls = self._samples[-1] < self._samples[0]
        self._released = falls and used_mib >= self.threshold * self.expected_mib
        return self._released

    def end_step(self) -> None:
        """End a step; its peak updates the expected one."""
        self.steps += 1
        self.expected_mib += (self._peak_mib - self.expected_mib) / self.steps
        self._samples.clear()
        self._peak_mib, self._released = 0, False
