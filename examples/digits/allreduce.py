# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Sums vectors over processes through TCP: rank 0 adds everyone's and sends the sum back.

Rank 0 adds in the order of ranks and everyone gets its bytes, so all ranks go on with the same
bits. A star is right for a handful of ranks; beyond that one would use a ring.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping

import numpy as np

from digits.data import Floats


class PeerLost(ConnectionError):
    """Another rank went away or fell silent; the text says which."""


class TcpGroup:
    """A star of sockets.

    Args:
        rank: This process.
        world: Number of processes.
        peers: By rank: on rank 0 one for each follower, on a follower the one to rank 0. Their
            timeout decides when a silent rank counts as lost.
    """

    def __init__(self, rank: int, world: int, peers: Mapping[int, socket.socket]) -> None:
        self.rank = rank
        self.world = world
        self._peers = dict(sorted(peers.items()))

    def sum(self, vector: Floats) -> Floats:
        """Sum over all ranks, the same bits on each.

        Raises:
            PeerLost: a rank did not answer.
        """
        if self.rank != 0:
            self._send(0, vector)
            return self._receive(0, vector)
        total = vector.copy()
        for rank in self._peers:
            total += self._receive(rank, vector)
        for rank in self._peers:
            self._send(rank, total)
        return total

    def broadcast(self, vector: Floats) -> Floats:
        """The vector of rank 0, on every rank; also a barrier.

        Raises:
            PeerLost: a rank did not answer.
        """
        return self.sum(vector if self.rank == 0 else np.zeros_like(vector))

    def close(self) -> None:
        """Leave the group."""
        for peer in self._peers.values():
            peer.close()

    def _send(self, rank: int, vector: Floats) -> None:
        with _naming(rank):
            self._peers[rank].sendall(vector.data.cast("B"))

    def _receive(self, rank: int, like: Floats) -> Floats:
        result = np.empty_like(like)
        with _naming(rank):
            fill(self._peers[rank], result.data.cast("B"))
        return result


def fill(peer: socket.socket, buffer: memoryview) -> None:
    """Read exactly as many bytes as the buffer holds.

    Raises:
        OSError: the other side closed or fell silent.
    """
    while buffer:
        count = peer.recv_into(buffer)
        if count == 0:
            raise ConnectionResetError("it closed the connection")
        buffer = buffer[count:]


@contextlib.contextmanager
def _naming(rank: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PeerLost(f"lost rank {rank}: {error}") from error
