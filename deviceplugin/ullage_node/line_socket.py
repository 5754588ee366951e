# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A node-local socket for one JSON line and one JSON answer; restricted to its owner.

One connection is one request, so no message is interleaved. Both sides treat input as untrusted:
bounded in size and time, and an unreadable answer is an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from ullage.api.readers import JsonObject, WireError
from ullage_node.times import REQUEST_PAUSE_S

LINE_MAX: Final = 1 << 23
"""Bytes of one message: 256 devices with 60 processes each take less, variables included."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

Answer = Callable[[JsonObject], Awaitable[Mapping[str, object]]]


_CREDENTIALS: Final = struct.Struct("3i")


class Unanswered(Exception):
    """There is no usable answer; the text says why."""


async def ask(
    path: Path, request: Mapping[str, object], timeout_seconds: float, whom: str
) -> JsonObject:
    """Send one request; ``whom`` names the other side in errors.

    Raises:
        Unanswered: no listener, a timeout, an unreadable answer, or a refusal.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            line = await exchange(path, json.dumps(request).encode() + b"\n")
        answer = json.loads(line)
    except TimeoutError:
        raise Unanswered(f"{whom} gave no answer in {timeout_seconds:g} s") from None
    except (OSError, ValueError, RecursionError) as error:
        raise Unanswered(f"{whom} is not reached: {error}") from error
    if not isinstance(answer, dict):
        raise Unanswered(f"{whom}'s answer is no object")
    if "error" in answer:
        raise Unanswered(f"{whom} refuses: {answer['error']}")
    return answer


async def exchange(path: Path, line: bytes) -> bytes:
    """Send a line, and return the answer.

    Raises:
        OSError: no listener.
        ValueError: the answer is too long.
    """
    reader, writer = await asyncio.open_unix_connection(str(path), limit=LINE_MAX)
    try:
        writer.write(line)
        await writer.drain()
        return await reader.readline()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def credentials_of(connection: socket.socket) -> tuple[int, int]:
    """PID and uid of the process at the other end of a Unix socket (SO_PEERCRED).

    Raises:
        OSError: the kernel does not report them.
    """
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid


class LineServer:
    """Answers requests of its own user's processes; an async context manager that listens.

    A ``WireError``, ``ValueError`` or :class:`Unanswered` of the handler becomes the answer's
    ``error``.
    """

    def __init__(self, path: Path, answer: Answer) -> None:
        self._path = path
        self._answer_to = answer
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> LineServer:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(
            self._serve, path=str(self._path), limit=LINE_MAX
        )
        os.chmod(self._path, 0o600)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # the file's mode enforces this too, but only once it is set
            _, uid = credentials_of(writer.get_extra_info("socket"))
            if uid != os.geteuid():
                raise PermissionError(f"user {uid} asks, who is not the socket's owner")
            async with asyncio.timeout(REQUEST_PAUSE_S):
                line = await reader.readline()
            answer = await self._answer(line)
            writer.write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")
            await writer.drain()
        except (TimeoutError, OSError, ValueError) as error:
            _log.warning("request dropped", error=str(error))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, line: bytes) -> Mapping[str, object]:
        try:
            raw = json.loads(line)
            if not isinstance(raw, dict):
                raise WireError("expected a JSON object")
            return await self._answer_to(raw)
        except (Unanswered, WireError, ValueError, RecursionError) as error:
            return {"error": str(error)}
