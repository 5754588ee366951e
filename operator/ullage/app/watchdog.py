# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Interrupts work on one object that blocks a decision, so that others are decided in time.

Checks the object under work at intervals of the process's CPU time. Waiting does not count, so a
busy machine blames no object. Only work on objects of tenants is interrupted: a slow node has the
work of many on it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType
from typing import Self

from ullage.app.times import WATCHDOG_PATIENCE_S, WATCHDOG_TICK_S
from ullage.cluster.records.snapshot import Snapshot
from ullage.scheduling.model.faults import TENANTS, Late, Subject, subject_of_frames


class Watchdog:
    """Interrupts the code inside when it works on one object for too long; main thread only."""

    def __init__(self, snapshot: Snapshot, patience_s: float = WATCHDOG_PATIENCE_S) -> None:
        """Nothing is watched before it is entered."""
        self._snapshot = snapshot
        self._patience_s = patience_s
        self._subject: Subject | None = None
        self._ticks = 0

    def __enter__(self) -> Self:
        """Start checking."""
        self._before = signal.signal(signal.SIGVTALRM, self._look)
        signal.setitimer(signal.ITIMER_VIRTUAL, WATCHDOG_TICK_S, WATCHDOG_TICK_S)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop checking."""
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, self._before)

    def _look(self, _: int, frame: FrameType | None) -> None:
        """Check the object under work.

        Raises:
            Late: it has been the same object for too long.
        """
        subject = subject_of_frames(_stack(frame), self._snapshot, arguments_only=True)
        if subject is None or subject[0] not in TENANTS:
            subject = None
        if subject is None or subject != self._subject:
            self._subject, self._ticks = subject, 0
            return
        self._ticks += 1
        if self._ticks * WATCHDOG_TICK_S >= self._patience_s:
            self._ticks = 0
            raise Late(f"not decided within {self._patience_s:g} s of computing")


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
