# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Detects a hanging queue of clients from the control daemon's log.

A client whose uid the server does not serve is pushed to a list and everyone after it waits as
well: no error anywhere, the server says Active. Being pushed is normal while a server starts, so
it counts only if no one is served afterwards. Reads the log, changes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

PUSHED: Final = b"push client to pending list"
SERVED: Final = (b": Ready", b"Server already exists")
"""The daemon's words when the list was served, and when a client went straight to its server."""
READ_MAX: Final = 1 << 20
"""Bytes of the log that one look reads; what is older is skipped."""


class PendingClients:
    """Whether someone waits in vain; times are those that the caller gives, seconds."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._offset = 0
        self._since: float | None = None

    def forget(self) -> None:
        """A new daemon, a new log."""
        self._offset = 0
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
        for line in self._new_lines():
            if PUSHED in line:
                self._since = now if self._since is None else self._since
            elif any(word in line for word in SERVED):
                self._since = None

    def _new_lines(self) -> list[bytes]:
        try:
            size = self._log.stat().st_size
            if size < self._offset:
                self._offset = 0  # emptied, because it grew too large
            start = max(self._offset, size - READ_MAX)
            with self._log.open("rb") as log:
                log.seek(start)
                new = log.read(size - start)
        except OSError:
            return []
        whole, _, rest = new.rpartition(b"\n")
        self._offset = start + len(new) - len(rest)
        return whole.splitlines()
