# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The listening socket of one container, which accepts at the container's allowed rate.

Excess connections wait in the kernel's short queue: then ``connect`` of that container blocks or
fails, at no cost to the agent.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from ullage_node.lanes.allowance import TokenBucket
from ullage_node.times import ACCEPT_AGAIN_S

BACKLOG: Final = 16

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class LaneListener:
    """Listens from the start until :meth:`close`.

    Args:
        path: Path of the socket; an existing file is replaced.
        dials: Rate limit of connections.
        clock: Seconds.
        connect: Makes the protocol of a connection.

    Raises:
        OSError: the socket cannot be created.
    """

    def __init__(
        self,
        path: Path,
        dials: TokenBucket,
        clock: Callable[[], float],
        connect: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._path = path
        self._dials = dials
        self._clock = clock
        self._connect = connect
        self._paused: asyncio.TimerHandle | None = None
        self._coming: set[asyncio.Task[object]] = set()
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            self._socket.bind(str(path))
            os.chmod(path, 0o666)  # containers run with any uid
            self._socket.listen(BACKLOG)
        except OSError:
            self._socket.close()
            raise
        self._go_on()

    def close(self) -> None:
        """Stop accepting."""
        if self._paused is not None:
            self._paused.cancel()
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        for task in self._coming:
            task.cancel()

    def _go_on(self) -> None:
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        """Accept one connection, so that others are served between two."""
        loop = asyncio.get_running_loop()
        try:
            accepted, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            _log.warning("a connection was not accepted", socket=str(self._path), why=str(error))
            self._pause(ACCEPT_AGAIN_S)
            return
        accepted.setblocking(False)
        task: asyncio.Task[object] = loop.create_task(self._attend(accepted))
        self._coming.add(task)
        task.add_done_callback(self._coming.discard)
        if wait_s := self._dials.wait_s(self._clock()):
            self._pause(wait_s)

    async def _attend(self, accepted: socket.socket) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._connect, accepted)
        except BaseException:
            accepted.close()
            raise

    def _pause(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket.fileno())
        self._paused = loop.call_later(seconds, self._go_on)
