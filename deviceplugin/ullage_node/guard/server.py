# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The freezer's end of the socket: serves the agent, and thaws every container without one.

An agent that goes away, falls silent or asks for nonsense never leaves a stopped container behind.
It serves one agent at a time; a newer one takes over from the older.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from ullage_node.guard.keeper import Keeper
from ullage_node.guard.protocol import (
    LINE_BYTES,
    SILENCE_SECONDS,
    Answer,
    ProtocolError,
    Request,
    Verb,
    decode_request,
    encode_answer,
)

TICK_SECONDS: Final = 0.25

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class GuardServer:
    """Serves the socket; build it inside a running event loop and await :meth:`run`."""

    def __init__(
        self,
        path: Path,
        keeper: Keeper,
        *,
        beat: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._keeper = keeper
        self._beat = beat
        self._clock = clock
        self._heard_at = clock()
        self._agent: asyncio.StreamWriter | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set; frozen containers then run again.

        Raises:
            OSError: the socket cannot be made.
        """
        self._keeper.thaw_all("the guard starts")
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._serve, self._path, limit=LINE_BYTES)
        os.chmod(self._path, 0o600)
        _log.info("guard serves", socket=str(self._path))
        try:
            while not stop.is_set():
                self._tick()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_SECONDS):
                        await stop.wait()
        finally:
            server.close()
            if self._agent is not None:
                self._agent.close()
            self._keeper.thaw_all("the guard ends")
            self._path.unlink(missing_ok=True)

    def _tick(self) -> None:
        self._beat()
        self._keeper.thaw_overdue()
        if self._clock() - self._heard_at > SILENCE_SECONDS:
            self._heard_at = self._clock()
            if self._keeper.journal.entries():
                self._keeper.thaw_all(f"no word from the agent for {SILENCE_SECONDS:.0f} s")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._agent is not None:
            self._agent.close()
            self._keeper.thaw_all("another agent took over")
        self._agent = writer
        try:
            while line := await reader.readline():
                writer.write(encode_answer(self._answer(line)))
                await writer.drain()
        except (OSError, ValueError) as error:  # ValueError: a line longer than any of ours
            _log.warning("agent not understood", error=str(error))
        finally:
            if self._agent is writer:
                self._agent = None
                self._keeper.thaw_all("the agent went away")
            writer.close()

    def _answer(self, line: bytes) -> Answer:
        try:
            request = decode_request(line)
        except ProtocolError as error:
            _log.error("request refused", error=str(error))
            return Answer(number=0, problem=f"refused: {error}")
        self._heard_at = self._clock()
        return Answer(number=request.number, problem=self._do(request))

    def _do(self, request: Request) -> str:
        # Blocking on purpose: nothing else may happen to a container between question and answer,
        # and every wait in here ends within half a second.
        match request.verb:
            case Verb.FREEZE:
                return self._keeper.freeze(request)
            case Verb.THAW:
                return self._keeper.thaw(request.targets)
            case Verb.BEAT:
                return ""
