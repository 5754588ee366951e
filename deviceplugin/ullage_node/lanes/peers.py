# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Identifies the process at the other end of a socket, and detects its end.

The data comes from the kernel (SO_PEERCRED, SO_PEERPIDFD), never from the process. A process of
another PID namespace has no PID here, but its pidfd signals its end all the same.
"""

from __future__ import annotations

import os
import select
import socket
from dataclasses import dataclass
from typing import Final

from ullage_node.line_socket import credentials_of

SO_PEERPIDFD: Final = 77
"""Socket option of Linux 6.5; Python 3.11 has no name for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerProcess:
    """The process that connected; ``pid`` 0 = it has no PID here.

    ``pidfd`` is readable once it has ended, -1 = not provided by the kernel. The owner closes it.
    """

    pid: int
    uid: int
    pidfd: int

    @property
    def ended(self) -> bool:
        """True if the process is known to have ended."""
        if self.pidfd < 0:
            return False
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close the descriptor."""
        if self.pidfd >= 0:
            os.close(self.pidfd)


def peer_of(connection: socket.socket) -> PeerProcess:
    """The process at the other end of a connected Unix socket.

    Raises:
        OSError: the kernel does not report it.
    """
    pid, uid = credentials_of(connection)
    return PeerProcess(pid=pid, uid=uid, pidfd=_pidfd(connection, pid))


def _pidfd(connection: socket.socket, pid: int) -> int:
    try:
        return connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError:
        pass  # an older kernel, or the process has ended already
    try:
        return os.pidfd_open(pid) if pid > 0 else -1
    except OSError:
        return -1
