# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A coordinator's connections: which members run, their messages, which are gone.

One thread reads each member; one queue passes all messages to the coordinator in order of arrival.
It must never wait for a member without a limit, nor count a returning one twice.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from ullage_coordinator import doorway
from ullage_coordinator.doorway import DoorwayServer
from ullage_coordinator.times import SEND_S
from ullage_run import frames
from ullage_run.frames import NO_STEP, Buffer, Frame, FrameError, FrameKind
from ullage_run.handshake import Role
from ullage_run.orders import MAX_ORDER_BYTES, MAX_PARTS_BYTES, Identity, milliseconds
from ullage_run.times import SILENT_S

MOST_UNHEARD: Final = 4096
"""Most queued messages for the coordinator."""
MOST_NAMES: Final = 65_536
"""Most distinct member names during a coordinator's life."""
_TIMEVAL: Final = struct.Struct("ll")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMessage:
    """One message of a member; ``frame`` is ``None`` when it is gone."""

    name: str
    frame: Frame | None
    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPeer:
    """A connected member."""

    identity: Identity
    at_step: int
    link: socket.socket
    sending: threading.Lock


class Roster(DoorwayServer[MemberPeer]):
    """Accepts members.

    Args:
        listen: Host and port; port 0 = any free one.
        token: Secret that every member must prove to hold; empty = none.
        most: Most concurrent members.
        silent_s: Silence after which a member is gone.
    """

    def __init__(
        self,
        listen: tuple[str, int],
        *,
        token: bytes = b"",
        most: int = 1024,
        silent_s: float = SILENT_S,
    ) -> None:
        super().__init__(listen, role=Role.COORDINATOR, token=token, most=most)
        self._silent_s = silent_s
        self._starts: Counter[str] = Counter()
        self._peers: dict[str, MemberPeer] = {}
        # Bounded: members that send faster than the coordinator reads must wait.
        self._said: queue.Queue[MemberMessage] = queue.Queue(MOST_UNHEARD)
        threading.Thread(target=self.serve, name="ullage-roster", daemon=True).start()

    def peers(self) -> dict[str, MemberPeer]:
        """Connected members, by name."""
        with self._lock:
            return dict(self._peers)

    def hear(self, wait_s: float) -> MemberMessage | None:
        """The next message; ``None`` after this time without one."""
        try:
            return (
                self._said.get(timeout=max(0.0, wait_s)) if wait_s > 0 else self._said.get_nowait()
            )
        except queue.Empty:
            return None

    def tell(self, name: str, frame: Frame, data: Buffer = b"") -> bool:
        """Send to a member; ``False`` = it is gone, which is also queued as an event."""
        with self._lock:
            peer = self._peers.get(name)
        if peer is None:
            return False
        try:
            with peer.sending:
                frames.send(peer.link, frame, data)
        except OSError:
            doorway.end(peer.link)
            return False
        return True

    def dismiss(self, name: str) -> None:
        """End a member's connection."""
        with self._lock:
            peer = self._peers.get(name)
        if peer is not None:
            doorway.end(peer.link)

    def prepare(self, link: socket.socket) -> None:
        """Set the timeouts after which a peer that sends or reads nothing is gone."""
        _limit(link, socket.SO_SNDTIMEO, SEND_S)
        _limit(link, socket.SO_RCVTIMEO, self._silent_s)

    def talk(self, link: socket.socket, peer: MemberPeer) -> NoReturn:
        """Pass a member's messages to the coordinator."""
        while True:
            frame = frames.receive(link)
            most = MAX_PARTS_BYTES if frame.kind is FrameKind.PART else MAX_ORDER_BYTES
            data = bytes(frames.payload(link, frame, most))
            if frame.kind is FrameKind.LEAVING:
                milliseconds(data)
            if frame.kind is not FrameKind.BEAT:
                self._said.put(MemberMessage(name=peer.identity.name, frame=frame, data=data))

    def greet(self, link: socket.socket) -> MemberPeer:
        """Read JOIN and return its member."""
        join = frames.receive(link)
        if join.kind is not FrameKind.JOIN:
            raise FrameError("a member says JOIN first")
        if join.step < NO_STEP:
            raise FrameError(f"a member cannot begin after step {join.step}")
        identity = Identity.decode(frames.payload(link, join, MAX_ORDER_BYTES))
        with self._lock:
            if len(self._starts) >= MOST_NAMES and identity.name not in self._starts:
                raise FrameError(f"{MOST_NAMES} members have come, no more are told apart")
            # a restarted member has lost its state: to the maps it is a new one
            self._starts[identity.name] += 1
            start = self._starts[identity.name]
            if start > 1:
                identity = replace(identity, name=f"{identity.name}#{start}")
            peer = MemberPeer(
                identity=identity,
                at_step=0 if join.step == NO_STEP else join.step,
                link=link,
                sending=threading.Lock(),
            )
            self._peers[identity.name] = peer
        self._said.put(MemberMessage(name=identity.name, frame=join))
        return peer

    def gone(self, link: socket.socket) -> None:
        """Notify the coordinator that a member is gone."""
        with self._lock:
            names = [name for name, peer in self._peers.items() if peer.link is link]
            for name in names:
                del self._peers[name]
        for name in names:
            self._said.put(MemberMessage(name=name, frame=None))


def _limit(link: socket.socket, what: int, seconds: float) -> None:
    """Set a timeout per direction: a timeout of the socket would apply to both."""
    whole = int(seconds)
    link.setsockopt(socket.SOL_SOCKET, what, _TIMEVAL.pack(whole, int((seconds - whole) * 1e6)))


def left(until_s: float) -> float:
    """Seconds until a time of the monotonic clock, at least 0."""
    return max(0.0, until_s - time.monotonic())
