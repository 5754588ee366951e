# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Estimates a container's speed from the few moments at which its step count changed.

Both times of a step, as it is and as it would be alone, come from the same stretch of steps, so
that their ratio means something. Pure: marks in, microseconds out; it never reads a clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from ullage_node.times import PACE_SPAN_LEAST_NS, PACE_WINDOW_NS

WINDOW_STEPS: Final = 20
STEPS_MIN: Final = 3
MARKS_MAX: Final = 128
STEP_MOST_MICROS: Final = 86_400 * 10**6
"""A longer mean is no step, whatever the container says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceMark:
    """The step count when it had changed.

    ``last_step_ns`` is CLOCK_MONOTONIC; ``busy_ns`` the sum of all step times, 0 = not known;
    ``solo_ns`` the time that the work so far would have taken alone on the whole device, 0 = not
    known.
    """

    steps: int
    last_step_ns: int
    busy_ns: int = 0
    solo_ns: int = 0


class StepPace:
    """The recent marks of one container."""

    def __init__(self) -> None:
        self._marks: deque[PaceMark] = deque(maxlen=MARKS_MAX)

    def take(self, mark: PaceMark) -> None:
        """Add what was seen; anything that went backwards is a restart and a new beginning."""
        last = self._marks[-1] if self._marks else None
        if last is not None:
            if _went_back(last, mark):
                self._marks.clear()
            elif mark.steps == last.steps or (last.solo_ns and not mark.solo_ns):
                return  # nothing new, or the node could not read its own counter this time
        self._marks.append(mark)
        while len(self._marks) > 2 and _enough(self._marks[1], mark):
            self._marks.popleft()

    def step_micros(self, ewma_ns: int) -> int:
        """Mean time of the recent steps; before two marks are there, the container's own average.

        From the sum of step times, so a server's waiting between requests does not count; from
        the clock for a writer that keeps no sum. A running average will not do: of 1 ms steps
        under a quota of 40 % it says 1.05 ms where 2.51 ms are true, as bursts hide the pauses.
        """
        steps, span_ns = self._stretch()
        if not steps:
            return ewma_ns // 1000
        first, last = self._marks[0], self._marks[-1]
        micros = ((last.busy_ns - first.busy_ns) or span_ns) // steps // 1000
        return micros if micros <= STEP_MOST_MICROS else 0

    def solo_step_micros(self) -> int:
        """Time of one step alone on the whole device; 0 until enough was seen.

        time alone = (solo_ns at the end - at the beginning) / steps between, ``derived``.
        """
        steps, span_ns = self._stretch()
        if steps < STEPS_MIN or span_ns < PACE_SPAN_LEAST_NS or not self._marks[0].solo_ns:
            return 0
        return (self._marks[-1].solo_ns - self._marks[0].solo_ns) // steps // 1000

    def _stretch(self) -> tuple[int, int]:
        """Steps and nanoseconds between the first and the last mark."""
        if len(self._marks) < 2:
            return 0, 0
        first, last = self._marks[0], self._marks[-1]
        return last.steps - first.steps, last.last_step_ns - first.last_step_ns


def _went_back(last: PaceMark, mark: PaceMark) -> bool:
    return (
        mark.steps < last.steps
        or mark.last_step_ns < last.last_step_ns
        or mark.busy_ns < last.busy_ns
        or 0 < mark.solo_ns < last.solo_ns
    )


def _enough(second: PaceMark, newest: PaceMark) -> bool:
    """True if the stretch from the second mark on is long enough without the first."""
    return (
        newest.last_step_ns - second.last_step_ns >= PACE_WINDOW_NS
        and newest.steps - second.steps >= WINDOW_STEPS
    )
