# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Detects a hanging queue of clients from the control daemon's log.

A client whose uid the server does not serve is pushed to a list and everyone after it waits as
well: no error anywhere, the server says Active. Being pushed is normal while a server starts, so
it counts only if no one is served afterwards. Reads the log, changes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PUSHED: Final = b"push client to pending list"
SERVED: Final = (b": Ready", b"Server already exists")
"""The daemon's words when the list was served, and when a client went straight to its server."""
READ_MAX: Final = 1 << 20
"""Bytes of a log that one look reads; what is older is skipped."""
TOLD_MAX: Final = 4096
TOLD_CHARACTERS: Final = 200
"""Of the last line of a daemon that ended."""


class PendingClients:
    """Tells if clients wait in vain; times are those that the caller gives, seconds."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._logs = tuple(logs)
        self._offsets: dict[Path, int] = {}
        self._since: float | None = None

    @property
    def source(self) -> str:
        """Name of the first log that holds anything; "" = none does."""
        for log in self._logs:
            with contextlib.suppress(OSError):
                if log.stat().st_size:
                    return log.name
        return ""

    def forget(self) -> None:
        """A new daemon, a new log."""
        self._offsets.clear()
        self._since = None

    def served(self) -> None:
        """A client that was not there before is attached: the queue moves."""
        self._since = None

    def starting(self, now: float) -> None:
        """The server is not ready: requests wait for it."""
        self._read(now)
        if self._since is not None:
            self._since = now

    def waiting_seconds(self, now: float) -> float:
        """Seconds that a client has waited while none was served."""
        self._read(now)
        return 0.0 if self._since is None else now - self._since

    def _read(self, now: float) -> None:
        for line in (line for log in self._logs for line in self._new_lines(log)):
            if PUSHED in line:
                self._since = now if self._since is None else self._since
            elif any(word in line for word in SERVED):
                self._since = None

    def _new_lines(self, log: Path) -> list[bytes]:
        try:
            size = log.stat().st_size
            seen = self._offsets.get(log, 0)
            seen = 0 if size < seen else seen  # emptied, because it grew too large
            start = max(seen, size - READ_MAX)
            with log.open("rb") as file:
                file.seek(start)
                new = file.read(size - start)
        except OSError:
            return []
        whole, _, rest = new.rpartition(b"\n")
        self._offsets[log] = start + len(new) - len(rest)
        return whole.splitlines()


def last_words(logs: Sequence[Path]) -> str:
    """The newest line of the last log that holds one, as it may be told; "" = none does."""
    for log in reversed(logs):
        with contextlib.suppress(OSError), log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TOLD_MAX))
            lines = file.read(TOLD_MAX).decode("utf-8", "replace").split("\n")
            line = next((text.strip() for text in reversed(lines) if text.strip()), "")
            if line:
                return "".join(c for c in line if c.isprintable())[-TOLD_CHARACTERS:]
    return ""
