# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A process of its own that lets everybody run when the guard no longer does.

It hears the guard through a pipe. End of file means that the guard died, silence that it hangs:
either way the journal is emptied at once, and a hanging guard is ended so that it starts anew. It
never stops anything.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Final, NoReturn

import structlog

from ullage_node.guard.keeper import Keeper
from ullage_node.guard.protocol import SILENCE_SECONDS

LOOK_SECONDS: Final = 0.5
GRACE_SECONDS: Final = 1.0
"""How much later than the guard the watchdog releases what is overdue."""
TRIES: Final = 20
"""How often it tries to release what does not run at once, half a second apart."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Watchdog:
    """The guard's side: a child process and the pipe to it."""

    def __init__(self, keeper: Keeper) -> None:
        """Start it; call this before there are threads or an event loop."""
        here, there = os.pipe()
        guard = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(there)
            _live(here, guard, keeper)
        os.close(here)
        os.set_blocking(there, False)
        self._pipe = there

    def beat(self) -> None:
        """Say that the guard lives.

        Raises:
            ChildProcessError: the watchdog is gone; the guard must not go on without it.
        """
        try:
            os.write(self._pipe, b".")
        except BlockingIOError:
            pass  # it is behind with reading, which is as good as hearing
        except BrokenPipeError as error:
            raise ChildProcessError("the watchdog is gone") from error

    def close(self) -> None:
        """Let it end, after a last look at the journal."""
        os.close(self._pipe)
        os.waitpid(self.pid, 0)


def _live(pipe: int, guard: int, keeper: Keeper) -> NoReturn:
    # A signal to the whole group must not end the watchdog before the guard: the pipe ends it.
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    code = 1
    try:
        code = watch(pipe, keeper, end_guard=lambda: os.kill(guard, signal.SIGKILL))
    finally:
        sys.stderr.flush()
        os._exit(code)


def watch(
    pipe: int,
    keeper: Keeper,
    *,
    end_guard: Callable[[], None],
    silence_seconds: float = SILENCE_SECONDS,
) -> int:
    """Watch until the guard ends or hangs; 0 once everybody runs, else 1."""
    heard_at = time.monotonic()
    while True:
        ready, _, _ = select.select([pipe], [], [], LOOK_SECONDS)
        if ready:
            if not os.read(pipe, 4096):
                return _release(keeper, "the guard died")
            heard_at = time.monotonic()
        elif time.monotonic() - heard_at > silence_seconds:
            code = _release(keeper, f"the guard hangs for {silence_seconds:.0f} s")
            end_guard()
            return code
        keeper.thaw_overdue(GRACE_SECONDS)


def _release(keeper: Keeper, why: str) -> int:
    for _ in range(TRIES):
        if not keeper.thaw_all(why):
            return 0
        time.sleep(LOOK_SECONDS)
    _log.error("containers could not be thawed", why=why)
    return 1
