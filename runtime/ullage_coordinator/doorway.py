# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Servers of a job: who comes proves first that it holds the job's token.

Any pod that reaches the port can connect and be silent, or send a byte a minute. So strangers have
no thread: one loop accepts them and examines them, closes those that take too long, and beyond a
limit the oldest. Accepting never ends over a fault of one connection, nor while the process is
short of files.
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
"""Connections that may wait to be accepted. The kernel drops what comes beyond, and who was dropped
knocks again after a second at the earliest: a flood of strangers would make members wait."""


class Doorway:
    """The strangers of one server.

    Args:
        most: Of them at a time.
        limit_s: For each of them.
    """

    def __init__(self, most: int = MOST_STRANGERS, limit_s: float = HANDSHAKE_S) -> None:
        self._most = most
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._strangers: dict[socket.socket, float] = {}  # oldest first; when their time is up
        self.turned_away = 0
        """Strangers that had to go for newer ones."""

    def enter(self, link: socket.socket) -> None:
        """A connection was accepted; the oldest stranger may have to go for it."""
        with self._lock:
            self._strangers[link] = time.monotonic() + self._limit_s
            oldest = next(iter(self._strangers)) if len(self._strangers) > self._most else None
            if oldest is not None:
                del self._strangers[oldest]
                self.turned_away += 1
        if oldest is not None:
            end(oldest)

    def known(self, link: socket.socket) -> None:
        """It has proved itself, or has ended."""
        with self._lock:
            self._strangers.pop(link, None)

    def expire(self) -> None:
        """Those whose time is up have to go."""
        now = time.monotonic()
        with self._lock:
            late = [link for link, until in self._strangers.items() if until <= now]
            for link in late:
                del self._strangers[link]
        for link in late:
            end(link)


def end(link: socket.socket) -> None:
    """Break a connection off; its reader finds its end."""
    try:
        link.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it was faster


class DoorwayServer(ABC, Generic[Peer]):
    """Examines strangers in one loop; attends each peer in a thread of its own until it ends.

    Args:
        listen: Host and port; port 0 = any free one.
        role: Which server of the job this is.
        token: What every peer must prove to hold; empty = anyone can.
        most: Peers at a time.
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
        """Begin with a peer that holds the token.

        Raises:
            FrameError: it is not taken.
        """

    @abstractmethod
    def talk(self, link: socket.socket, peer: Peer) -> NoReturn:
        """Hear a peer until it leaves (OSError) or breaks the rules (FrameError)."""

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
        """Accept no one more and end all connections."""
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
            return  # who knocked is gone
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
        """Take what a stranger sends; who passes is attended, who fails is told so."""
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
        """It is no stranger any more."""
        self._doorway.known(link)
        if link in waiting.get_map():
            waiting.unregister(link)

    def _admit(self, link: socket.socket) -> None:
        """Attend a peer, if there is room.

        Raises:
            FrameError: there is none.
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
        except Exception as error:  # the seam of one peer
            traceback.print_exception(error)
            frames.refuse(link, f"{type(error).__name__} over what was sent")
        finally:
            link.close()
            with self._lock:
                self._links.discard(link)
            self.gone(link)

    def gone(self, link: socket.socket) -> None:
        """The connection of a peer has ended, also of one that was never greeted."""
