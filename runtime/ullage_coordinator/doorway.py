# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Servers of a job: each peer first proves that it holds the job's token.

Any pod that reaches the port can connect and stay silent, or send a byte a minute. So
unauthenticated connections have no thread: one loop accepts and examines them, closes slow ones,
and beyond a limit the oldest. Faults of one connection and a shortage of descriptors never stop
accepting.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
import traceback
from abc import ABC, abstractmethod
from typing import Final, Generic, NoReturn, TypeVar

from ullage_coordinator.times import ACCEPT_PAUSE_S, DOORWAY_TICK_S, HANDSHAKE_S
from ullage_run import frames
from ullage_run.frames import ConnectionEnded, FrameError
from ullage_run.handshake import Examination, Role

Peer = TypeVar("Peer")

MOST_STRANGERS: Final = 128
BACKLOG: Final = 4 * MOST_STRANGERS
"""Length of the accept queue. The kernel drops excess connections, and a dropped client retries
after a second at the earliest: a flood of foreign connections would delay members."""


class Doorway:
    """The unauthenticated connections of one server.

    Args:
        most: Limit of their number.
        limit_s: Deadline of each.
    """

    def __init__(self, most: int = MOST_STRANGERS, limit_s: float = HANDSHAKE_S) -> None:
        self._most = most
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._strangers: dict[socket.socket, float] = {}  # oldest first; their deadlines
        self.turned_away = 0
        """Connections closed in favour of newer ones."""

    def enter(self, link: socket.socket) -> None:
        """Add an accepted connection; may close the oldest one."""
        with self._lock:
            self._strangers[link] = time.monotonic() + self._limit_s
            oldest = next(iter(self._strangers)) if len(self._strangers) > self._most else None
            if oldest is not None:
                del self._strangers[oldest]
                self.turned_away += 1
        if oldest is not None:
            end(oldest)

    def known(self, link: socket.socket) -> None:
        """Remove a connection that is authenticated or has ended."""
        with self._lock:
            self._strangers.pop(link, None)

    def expire(self) -> None:
        """Close expired connections."""
        now = time.monotonic()
        with self._lock:
            late = [link for link, until in self._strangers.items() if until <= now]
            for link in late:
                del self._strangers[link]
        for link in late:
            end(link)


def end(link: socket.socket) -> None:
    """Shut a connection down; its reader gets the end of file."""
    try:
        link.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # already closed


class DoorwayServer(ABC, Generic[Peer]):
    """Authenticates connections in one loop; serves each peer in its own thread until it ends.

    Args:
        listen: Host and port; port 0 = any free one.
        role: Role of this server in the job.
        token: Secret that every peer must prove to hold; empty = none.
        most: Most concurrent peers.
    """

    def __init__(self, listen: tuple[str, int], *, role: Role, token: bytes, most: int) -> None:
        self._role = role
        self._token = token
        self._most = most
        self._lock = threading.Lock()
        self._links: set[socket.socket] = set()
        self._closed = False
        self._doorway = Doorway()
        family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
        self._server = socket.create_server(listen, family=family, backlog=max(most, BACKLOG))
        self._server.setblocking(False)
        host, port = self._server.getsockname()[:2]
        self.address: tuple[str, int] = (str(host), int(port))

    @abstractmethod
    def prepare(self, link: socket.socket) -> None:
        """Set the limits of a connection."""

    @abstractmethod
    def greet(self, link: socket.socket) -> Peer:
        """Greet an authenticated peer.

        Raises:
            FrameError: it is refused.
        """

    @abstractmethod
    def talk(self, link: socket.socket, peer: Peer) -> NoReturn:
        """Serve a peer until it leaves (OSError) or violates the protocol (FrameError)."""

    def serve(self) -> None:
        """Accept peers until :meth:`close`."""
        with selectors.DefaultSelector() as waiting:
            self._begin(waiting)
            while not self._closed:
                for key, _ in waiting.select(DOORWAY_TICK_S):
                    if key.data is None:
                        self._accept(waiting)
                    else:
                        assert isinstance(key.fileobj, socket.socket)
                        self._examine(waiting, key.fileobj, key.data)
                self._doorway.expire()
            for key in waiting.get_map().values():
                if key.data is not None and isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()

    def close(self) -> None:
        """Stop accepting and end all connections."""
        with self._lock:
            self._closed = True
            end(self._server)
            self._server.close()
            links = list(self._links)
        for link in links:
            end(link)

    def _begin(self, waiting: selectors.BaseSelector) -> None:
        with self._lock:
            if not self._closed:  # else there is no socket to wait for
                waiting.register(self._server, selectors.EVENT_READ)

    def _accept(self, waiting: selectors.BaseSelector) -> None:
        try:
            link, _ = self._server.accept()
        except BlockingIOError:
            return  # the client is gone
        except OSError:
            if not self._closed:
                time.sleep(ACCEPT_PAUSE_S)
            return
        link.setblocking(False)
        self._doorway.enter(link)
        examination = Examination(self._token, self._role)
        waiting.register(link, selectors.EVENT_READ, examination)

    def _examine(
        self, waiting: selectors.BaseSelector, link: socket.socket, examination: Examination
    ) -> None:
        """Process unauthenticated input; a valid peer is admitted, an invalid one gets an error."""
        try:
            data = link.recv(examination.wants)
            if not data:
                raise ConnectionEnded("the peer closed the connection")
            answer = examination.feed(data)
            if answer and link.send(answer) < len(answer):
                raise ConnectionEnded("the peer takes nothing")
            if not examination.passed:
                return
            self._dismiss(waiting, link)
            self._admit(link)
        except BlockingIOError:
            return
        except FrameError as error:
            frames.refuse(link, str(error))
            self._dismiss(waiting, link)
            link.close()
        except OSError:  # gone
            self._dismiss(waiting, link)
            link.close()

    def _dismiss(self, waiting: selectors.BaseSelector, link: socket.socket) -> None:
        """Stop examining a connection."""
        self._doorway.known(link)
        if link in waiting.get_map():
            waiting.unregister(link)

    def _admit(self, link: socket.socket) -> None:
        """Serve a peer, if there is room.

        Raises:
            FrameError: no room.
            ConnectionEnded: the server was closed.
        """
        with self._lock:
            if self._closed:
                raise ConnectionEnded("the server is closed")
            if len(self._links) >= self._most:
                raise FrameError(f"{self._most} peers are connected, no more are taken")
            self._links.add(link)
        try:
            threading.Thread(target=self._attend, args=(link,), daemon=True).start()
        except RuntimeError:
            with self._lock:
                self._links.discard(link)
            raise FrameError("there is no room for one more thread") from None

    def _attend(self, link: socket.socket) -> None:
        try:
            link.setblocking(True)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.prepare(link)
            self.talk(link, self.greet(link))
        except FrameError as error:
            frames.refuse(link, str(error))
        except OSError:
            pass  # gone or silent
        except Exception as error:  # one faulty peer must not end the server
            traceback.print_exception(error)
            frames.refuse(link, f"{type(error).__name__} over what was sent")
        finally:
            link.close()
            with self._lock:
                self._links.discard(link)
            self.gone(link)

    def gone(self, link: socket.socket) -> None:
        """Handle the end of a connection, greeted or not."""
