# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Connections that have not shown the job's token yet: few, and never in the way of others.

Any pod that reaches the port can connect and be silent, or send a byte a minute. So unauthenticated
connections are limited, and beyond the limit the oldest is closed: a member shows its token in
milliseconds. Accepting never ends over a fault of one connection, nor while the process is short of
files.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Final

MOST_STRANGERS: Final = 128
BACKLOG: Final = 4 * MOST_STRANGERS
"""Connections that may wait to be accepted. The kernel drops what comes beyond, and who was dropped
knocks again after a second at the earliest: a flood of strangers would make members wait."""
PAUSE_S: Final = 0.05
"""After a failed accept: the process may be out of file descriptors for a while."""


class Doorway:
    """The strangers of one server.

    Args:
        most: Of them at a time.
    """

    def __init__(self, most: int = MOST_STRANGERS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._strangers: dict[socket.socket, None] = {}
        self.turned_away = 0
        """Strangers that had to go for newer ones."""

    def enter(self, link: socket.socket) -> None:
        """A connection was accepted; the oldest stranger may have to go for it."""
        with self._lock:
            self._strangers[link] = None
            oldest = next(iter(self._strangers)) if len(self._strangers) > self._most else None
            if oldest is not None:
                del self._strangers[oldest]
                self.turned_away += 1
        if oldest is not None:
            end(oldest)

    def known(self, link: socket.socket) -> None:
        """It has shown the token, or has ended."""
        with self._lock:
            self._strangers.pop(link, None)


def end(link: socket.socket) -> None:
    """Break a connection off; its reader finds its end."""
    try:
        link.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it was faster


def accept(
    server: socket.socket, attend: Callable[[socket.socket], None], closed: Callable[[], bool]
) -> None:
    """Accept connections until the server is closed, each attended by a thread of its own.

    Args:
        server: Listens.
        attend: Owns the connection from then on.
        closed: Whether the server was closed on purpose.
    """
    while not closed():
        try:
            link, _ = server.accept()
        except OSError:
            if not closed():
                time.sleep(PAUSE_S)
            continue
        try:
            threading.Thread(target=attend, args=(link,), daemon=True).start()
        except RuntimeError:  # no room for one more thread
            link.close()
