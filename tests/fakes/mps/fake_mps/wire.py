# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The control socket of the fake: JSON lines, one object a message.

NVIDIA does not publish the real protocol, so only the fake's own ends speak this one. Next to
nothing is imported here: a test may type a hundred commands, each in a process of its own.
"""

from __future__ import annotations

import json
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from fake_mps.model import Message

Socket = socket.socket

SOCKET_NAME = "control"
SUN_PATH_BYTES = 108
UID_VARIABLE = "FAKE_CUDA_UID"
_CREDENTIALS = struct.Struct("3i")


class NoDaemon(Exception):
    """No one listens there; ``stale`` tells a socket without a daemon from none at all."""

    def __init__(self, path: str, *, stale: bool) -> None:
        super().__init__(path)
        self.stale = stale


class Peer:
    """Who is at the other end, as the kernel says, in the PID namespace of the caller."""

    __slots__ = ("pid", "uid")

    def __init__(self, *, pid: int, uid: int) -> None:
        self.pid = pid
        self.uid = uid


def too_long(path: str | Path) -> bool:
    """Whether a socket at this path fails: sun_path holds 108 bytes with the final zero."""
    return len(str(path).encode()) >= SUN_PATH_BYTES


def dial(pipe_directory: str | Path) -> socket.socket:
    """Connect to the daemon of a pipe directory.

    Raises:
        NoDaemon: no directory, no socket, a path that is too long, or no one behind the socket.
    """
    path = f"{pipe_directory}/{SOCKET_NAME}"
    if too_long(path):
        raise NoDaemon(path, stale=False)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError as error:
        connection.close()
        raise NoDaemon(path, stale=isinstance(error, ConnectionRefusedError)) from error
    return connection


def send(connection: socket.socket, message: Message) -> None:
    """Send one message; a peer that is gone is seen at the next read."""
    connection.sendall(json.dumps(message).encode() + b"\n")


class Reader:
    """Cuts what arrives into messages."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""

    def read(self) -> list[Message] | None:
        """Messages that are whole now; None once the other end has closed."""
        try:
            chunk = self._connection.recv(65536)
        except ConnectionResetError:
            return None
        if not chunk:
            return None
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        return [json.loads(line) for line in whole if line]


def peer_of(connection: socket.socket) -> Peer:
    """The process at the other end."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return Peer(pid=pid, uid=uid)
