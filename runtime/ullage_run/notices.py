# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Turns SIGTERM into "checkpoint at the next step".

Kubernetes announces an eviction with SIGTERM and follows with SIGKILL after the grace. A process
that is PID 1 ignores SIGTERM unless it has a handler, so there must be one. It is installed only on
request (:meth:`StopSignal.watch` and its callers): a program that only counts steps must still be
ended by SIGTERM.
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
    """Kind of a notice."""

    STOP = "Stop"
    """The container must end within its grace period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A notice; ``received_ns`` is on CLOCK_MONOTONIC."""

    kind: NoticeKind
    received_ns: int


NoticeCallback = Callable[[Notice], None]


class StopSignal:
    """Records the receipt of SIGTERM and checkpoints written since."""

    __slots__ = ("_callbacks", "_forking", "_notice", "_previous", "_saved", "_watching")

    def __init__(self) -> None:
        self._forking = threading.local()
        self._callbacks: list[NoticeCallback] = []
        self._notice: Notice | None = None
        self._saved = False
        self._watching = False
        self._previous: Callable[[int, FrameType | None], object] | int | None = None

    def watch(self) -> bool:
        """Install a handler of SIGTERM; a previous handler is called after ours.

        Returns:
            True if installed. Only the main thread can do that: elsewhere ``False``.
        """
        if not self._watching and threading.current_thread() is threading.main_thread():
            try:
                self._previous = signal.signal(signal.SIGTERM, self._received)
            except ValueError:  # a main thread, but of a sub-interpreter
                return False
            self._watching = True
        return self._watching

    def stopping(self) -> bool:
        """True if the container has received SIGTERM or a notice."""
        if not self._watching:
            self.watch()
        return self._notice is not None

    def should_checkpoint(self) -> bool:
        """True if a checkpoint is due: stopping, and none was written since."""
        return self.stopping() and not self._saved

    def checkpointed(self) -> None:
        """Record that a checkpoint was written; one from before the notice does not count."""
        self._saved = self._notice is not None

    def on_notice(self, callback: NoticeCallback) -> None:
        """Call back once on a stop, in the main thread like any signal handler.

        Exceptions of the callback are raised in the main thread. After an earlier notice it is
        called at once.
        """
        self.watch()
        self._callbacks.append(callback)
        if self._notice is not None:
            callback(self._notice)

    def before_fork(self) -> None:
        """Block SIGTERM: a child would swallow it between the fork and :meth:`forget`."""
        if self._watching:
            self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def after_fork(self) -> None:
        """Unblock SIGTERM in the thread that forked."""
        mask = self._forking.__dict__.pop("mask", None)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def forget(self) -> None:
        """In a forked child: restore SIGTERM, since worker pools end their workers with it."""
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
