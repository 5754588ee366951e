# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The process above the guard: it thaws every container when the guard no longer can.

It is the container's first process and only reads a pipe. End of file means that the guard ended,
silence that it hangs: either way the journal is emptied at once, and a hanging guard is killed. The
end of the watchdog itself closes the pipe, which ends the guard. It never freezes a container.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

from ullage_node.guard.keeper import Keeper
from ullage_node.guard.log import Log
from ullage_node.times import AGENT_SILENCE_S, FORK_PAUSE_S, WATCHDOG_GRACE_S, WATCHDOG_LOOK_S

TRIES: Final = 20
"""Attempts to thaw remaining containers, half a second apart."""
FORK_TRIES: Final = 60

_log: Final = Log(__name__)


class Lifeline:
    """The guard's end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    def beat(self) -> None:
        """Send a heartbeat of the guard.

        Raises:
            ChildProcessError: the watchdog is gone; the guard must not continue without it.
        """
        try:
            os.write(self._descriptor, b".")
        except BlockingIOError:
            return  # the watchdog lags in reading; the pipe's content proves life
        except BrokenPipeError as error:
            raise ChildProcessError("the watchdog is gone") from error


def under_watchdog(keeper: Keeper) -> Lifeline:
    """Become the guard: the caller continues as a child, this process watches it and exits.

    Call it before there are threads or an event loop.

    Raises:
        OSError: the kernel refuses a new process for too long.
    """
    here, there = os.pipe()
    guard = _forked()
    if guard == 0:
        os.close(here)
        return Lifeline(there)
    os.close(there)

    def pass_on(number: int, frame: FrameType | None) -> None:
        os.kill(guard, number)

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, pass_on)
    code = watch(here, keeper, end_guard=lambda: os.kill(guard, signal.SIGKILL))
    os.waitid(os.P_PID, guard, os.WEXITED | os.WNOWAIT)
    for name in (signal.SIGTERM, signal.SIGINT):  # from here on its PID may be reused
        signal.signal(name, signal.SIG_IGN)
    _, status = os.waitpid(guard, 0)
    sys.exit(code or abs(os.waitstatus_to_exitcode(status)))


def _forked() -> int:
    """The result of ``fork``, retried for a while: exiting would cause a restart loop."""
    for _ in range(FORK_TRIES - 1):
        try:
            return os.fork()
        except OSError as error:
            _log.warning("no process can be started, tried again", why=str(error))
            time.sleep(FORK_PAUSE_S)
    return os.fork()


def watch(
    pipe: int,
    keeper: Keeper,
    *,
    end_guard: Callable[[], None],
    silence_seconds: float = AGENT_SILENCE_S,
) -> int:
    """Watch until the guard ends or hangs; 0 once all containers run, else 1."""
    heard_at = time.monotonic()
    while True:
        ready, _, _ = select.select([pipe], [], [], WATCHDOG_LOOK_S)
        if ready:
            if not os.read(pipe, 4096):
                return _release(keeper, "the guard ended")
            heard_at = time.monotonic()
        elif time.monotonic() - heard_at > silence_seconds:
            code = _release(keeper, f"the guard hangs for {silence_seconds:.0f} s")
            end_guard()
            return code
        keeper.thaw_overdue(WATCHDOG_GRACE_S)


def _release(keeper: Keeper, why: str) -> int:
    for _ in range(TRIES):
        if not keeper.thaw_all(why):
            return 0
        time.sleep(WATCHDOG_LOOK_S)
    _log.error("containers could not be thawed", why=why)
    return 1
