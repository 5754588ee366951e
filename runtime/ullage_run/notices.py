# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Turns SIGTERM into "checkpoint at the next step".

Kubernetes announces an eviction with SIGTERM and follows with SIGKILL after the grace. A process
that is PID 1 ignores SIGTERM unless it has a handler, so there must be one. It is installed only
for a program that asks (:meth:`StopSignal.watch` and everything that calls it): a program that
merely counts steps must still die of SIGTERM.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic_ns
from types import FrameType


class NoticeKind(StrEnum):
    """Kind of an announcement."""

    STOP = "Stop"
    """The container is to end within its grace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An announcement; ``received_ns`` is on CLOCK_MONOTONIC."""

    kind: NoticeKind
    received_ns: int


NoticeCallback = Callable[[Notice], None]


class StopSignal:
    """Remembers that SIGTERM came and whether a checkpoint was written since."""

    __slots__ = ("_callbacks", "_forking", "_notice", "_previous", "_saved", "_watching")

    def __init__(self) -> None:
        self._forking = threading.local()
        self._callbacks: list[NoticeCallback] = []
        self._notice: Notice | None = None
        self._saved = False
        self._watching = False
        self._previous: Callable[[int, FrameType | None], object] | int | None = None

    def watch(self) -> bool:
        """Begin to listen for SIGTERM; a handler that was there before is called after ours.

        Returns:
            Whether we listen. Only the main thread can begin: elsewhere ``False``.
        """
        if not self._watching and threading.current_thread() is threading.main_thread():
            try:
                self._previous = signal.signal(signal.SIGTERM, self._received)
            except ValueError:  # a main thread, but of a sub-interpreter
                return False
            self._watching = True
        return self._watching

    def stopping(self) -> bool:
        """True if the container got SIGTERM or a notice."""
        if not self._watching:
            self.watch()
        return self._notice is not None

    def should_checkpoint(self) -> bool:
        """True if a checkpoint is due: told to end, and none was written since."""
        return self.stopping() and not self._saved

    def checkpointed(self) -> None:
        """Note that a checkpoint was written; one from before the notice does not count."""
        self._saved = self._notice is not None

    def on_notice(self, callback: NoticeCallback) -> None:
        """Call back once when told to end, in the main thread as any signal handler.

        What the callback raises surfaces in the main thread. If the notice came already it is
        called at once.
        """
        self.watch()
        self._callbacks.append(callback)
        if self._notice is not None:
            callback(self._notice)

    def before_fork(self) -> None:
        """Hold SIGTERM back: between its birth and :meth:`forget` a child would swallow it."""
        if self._watching:
            self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def after_fork(self) -> None:
        """Let SIGTERM through again in the thread that forked."""
        mask = self._forking.__dict__.pop("mask", None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def forget(self) -> None:
        """In a forked child: give SIGTERM back, since worker pools end their workers with it."""
        previous = self._previous
        was_watching = self._watching
        self._callbacks = []
        self._notice = None
        self._saved = False
        self._watching = False
        self._previous = None
        if was_watching:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if previous is None else previous)
        self.after_fork()

    def _received(self, number: int, frame: FrameType | None) -> None:
        if self._notice is None:
            self._notice = Notice(kind=NoticeKind.STOP, received_ns=monotonic_ns())
            for callback in tuple(self._callbacks):
                callback(self._notice)
        if callable(self._previous):
            self._previous(number, frame)
