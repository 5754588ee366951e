# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a group find each other, though they may start minutes apart.

Followers try until a deadline, because rank 0, its name or its port may not exist yet; rank 0
waits as long for the last of them. Strangers and misfits are told why and sent away.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from digits.allreduce import TcpGroup, fill

HELLO: Final = struct.Struct("<8sIIQ")
"""magic, rank, world, fingerprint of the plan."""
MAGIC: Final = b"DIGITS/1"
ANSWER: Final = struct.Struct("<200s")
"""Why not; empty is a welcome."""
GO: Final = b"!"
"""Sent to all when the last one has come."""
PATIENCE_SECONDS: Final = 0.5
"""Longest wait before looking again whether to give up."""
PEER_SECONDS: Final = 120.0
"""How long a rank may keep the others waiting before it counts as lost."""


class JoinFailed(RuntimeError):
    """The group did not come together; the text says what was missing."""


class Stopped(Exception):
    """This rank was told to end while it waited for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Which rank this is and where rank 0 listens; ``fingerprint`` must be the same on all."""

    rank: int
    world: int
    address: str
    port: int
    fingerprint: int
    join_seconds: float


class _Patience:
    """Says when waiting ends."""

    def __init__(self, seconds: float, stop: Callable[[], bool]) -> None:
        self._deadline = time.monotonic() + seconds
        self._stop = stop

    def check(self, missing: str) -> None:
        """Go on waiting, or not.

        Raises:
            JoinFailed: it took too long.
            Stopped: we were told to end.
        """
        if self._stop():
            raise Stopped
        if time.monotonic() > self._deadline:
            raise JoinFailed(missing)


def join(membership: Membership, *, stop: Callable[[], bool]) -> TcpGroup:
    """Meet the other ranks; returns when all are there.

    Args:
        membership: Who and where.
        stop: Asked while waiting; true gives up.

    Raises:
        JoinFailed: not all came in time, or rank 0 refused us.
        OSError: rank 0 cannot listen.
        Stopped: ``stop`` said so.
    """
    patience = _Patience(membership.join_seconds, stop)
    meet = _gather if membership.rank == 0 else _enter
    peers = meet(membership, patience)
    for peer in peers.values():
        peer.settimeout(PEER_SECONDS)
    return TcpGroup(membership.rank, membership.world, peers)


def _gather(membership: Membership, patience: _Patience) -> dict[int, socket.socket]:
    """Rank 0: one follower of each rank."""
    peers: dict[int, socket.socket] = {}
    with (
        _closed_on_failure(peers),
        socket.create_server(("", membership.port), backlog=membership.world) as server,
    ):
        server.settimeout(PATIENCE_SECONDS)
        while missing := sorted(set(range(1, membership.world)) - set(peers)):
            patience.check(f"ranks {missing} did not come in time")
            with contextlib.suppress(OSError):  # no one came, or went away at once
                peer, _ = server.accept()
                rank = _judge(membership, peer)
                if rank is not None:
                    # The second of one rank replaces the first, which must have died.
                    if rank in peers:
                        peers[rank].close()
                    peers[rank] = peer
        for rank, peer in peers.items():
            try:
                peer.sendall(GO)
            except OSError as error:
                raise JoinFailed(f"rank {rank} left before the start: {error}") from error
    return peers


def _judge(membership: Membership, peer: socket.socket) -> int | None:
    """Read a hello and answer it; ``None`` for one that is sent away."""
    try:
        _prepare(peer)
        hello = bytearray(HELLO.size)
        fill(peer, memoryview(hello))
        magic, rank, world, fingerprint = HELLO.unpack(hello)
        objection = ""
        if magic != MAGIC:
            objection = "this is no port for you"
        elif world != membership.world or not 0 < rank < world:
            objection = f"rank {rank} of {world} does not belong to a group of {membership.world}"
        elif fingerprint != membership.fingerprint:
            objection = f"rank {rank} has other settings than rank 0"
        peer.sendall(ANSWER.pack(objection.encode()))
    except OSError:
        peer.close()
        return None
    if objection:
        peer.close()
        return None
    return int(rank)


def _enter(membership: Membership, patience: _Patience) -> dict[int, socket.socket]:
    """A follower: rank 0, once it listens and all others are there too."""
    place = (membership.address, membership.port)
    missing = f"rank 0 did not answer at {place[0]}:{place[1]} in time"
    while True:
        patience.check(missing)
        try:
            peer = socket.create_connection(place, timeout=PATIENCE_SECONDS)
        except OSError as error:
            missing = f"rank 0 did not answer at {place[0]}:{place[1]} in time: {error}"
            time.sleep(PATIENCE_SECONDS)
            continue
        peers = {0: peer}
        with _closed_on_failure(peers):
            if _introduce(membership, peer) and _await_go(peer, patience):
                return peers
        peer.close()


def _introduce(membership: Membership, peer: socket.socket) -> bool:
    """Say hello; false when the line broke.

    Raises:
        JoinFailed: rank 0 says that we do not belong to it.
    """
    hello = HELLO.pack(MAGIC, membership.rank, membership.world, membership.fingerprint)
    answer = bytearray(ANSWER.size)
    try:
        _prepare(peer)
        peer.sendall(hello)
        fill(peer, memoryview(answer))
    except OSError:
        return False
    objection = ANSWER.unpack(answer)[0].rstrip(b"\0").decode()
    if objection:
        raise JoinFailed(f"rank 0 refused: {objection}")
    return True


def _await_go(peer: socket.socket, patience: _Patience) -> bool:
    """Wait for the last rank; false when rank 0 went away."""
    while True:
        patience.check("not all ranks came in time")
        try:
            return peer.recv(1) == GO
        except TimeoutError:
            continue
        except OSError:
            return False


def _prepare(peer: socket.socket) -> None:
    peer.settimeout(PATIENCE_SECONDS)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@contextlib.contextmanager
def _closed_on_failure(peers: Mapping[int, socket.socket]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        for peer in peers.values():
            peer.close()
        raise
