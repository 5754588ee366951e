# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Servers of a job: who comes shows the job's token first; those who have not are few.

Any pod that reaches the port can connect and be silent, or send a byte a minute. So unauthenticated
connections are limited, and beyond the limit the oldest is closed: a member shows its token in
milliseconds. Accepting never ends over a fault of one connection, nor while the process is short of
files.
"""

from __future__ import annotations

import hmac
import socket
import threading
import time
import traceback
from abc import ABC, abstractmethod
from typing import Final, Generic, NoReturn, TypeVar

from ullage_run import frames
from ullage_run.frames import FrameError, Kind

Peer = TypeVar("Peer")

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


class Server(ABC, Generic[Peer]):
    """Attends each connection in a thread of its own, from its HELLO until it ends.

    Args:
        listen: Host and port; port 0 = any free one.
        token: What every peer must show; empty = nothing is asked for.
        most: Peers at a time.
    """

    def __init__(self, listen: tuple[str, int], *, token: bytes, most: int) -> None:
        self._token = token
        self._most = most
        self._lock = threading.Lock()
        self._links: set[socket.socket] = set()
        self._closed = False
        self._doorway = Doorway()
        family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
        self._server = socket.create_server(listen, family=family, backlog=max(most, BACKLOG))
        host, port = self._server.getsockname()[:2]
        self.address: tuple[str, int] = (str(host), int(port))

    @abstractmethod
    def prepare(self, link: socket.socket) -> None:
        """Set the limits of a connection."""

    @abstractmethod
    def greet(self, link: socket.socket) -> Peer:
        """Begin with a peer that has shown the token.

        Raises:
            FrameError: it is not taken.
        """

    @abstractmethod
    def talk(self, link: socket.socket, peer: Peer) -> NoReturn:
        """Hear a peer until it leaves (OSError) or breaks the rules (FrameError)."""

    def serve(self) -> None:
        """Accept peers until :meth:`close`."""
        while not self._closed:
            try:
                link, _ = self._server.accept()
            except OSError:
                if not self._closed:
                    time.sleep(PAUSE_S)
                continue
            try:
                threading.Thread(target=self._attend, args=(link,), daemon=True).start()
            except RuntimeError:  # no room for one more thread
                link.close()

    def close(self) -> None:
        """Accept no one more and end all connections."""
        self._closed = True
        end(self._server)
        self._server.close()
        with self._lock:
            links = list(self._links)
        for link in links:
            end(link)

    def _attend(self, link: socket.socket) -> None:
        self._doorway.enter(link)
        try:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.prepare(link)
            self._admit(link)
            peer = self.greet(link)
            self._doorway.known(link)
            self.talk(link, peer)
        except FrameError as error:
            frames.refuse(link, str(error))
        except OSError:
            pass  # gone or silent
        except Exception as error:  # the seam of one peer
            traceback.print_exception(error)
            frames.refuse(link, f"{type(error).__name__} over what was sent")
        finally:
            self._doorway.known(link)
            link.close()
            with self._lock:
                self._links.discard(link)
            self.gone(link)

    def gone(self, link: socket.socket) -> None:
        """The connection has ended, also one that was never greeted."""

    def _admit(self, link: socket.socket) -> None:
        hello = frames.receive(link)
        if hello.kind is not Kind.HELLO:
            raise FrameError("a connection begins with HELLO")
        shown = frames.payload(link, hello, frames.MAX_TEXT_BYTES)
        if not hmac.compare_digest(bytes(shown), self._token):
            raise FrameError("the token is not this job's")
        with self._lock:
            if len(self._links) >= self._most:
                raise FrameError(f"{self._most} peers are connected, no more are taken")
            self._links.add(link)
