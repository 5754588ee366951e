# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The agent's end of the socket to the freezer.

Losing the connection is safe: the freezer thaws all containers when its agent goes away. No call
waits longer than the freezer's deadline, and none raises: a problem is a text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from ullage_node.guard.protocol import (
    LINE_BYTES,
    FreezeTarget,
    GuardAnswer,
    GuardRequest,
    GuardVerb,
    IoLimit,
    decode,
    encode,
)
from ullage_node.times import FREEZER_S


class FreezerClient:
    """Stops containers over the guard's socket; an empty answer = success."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._number = 0
        self._turn = asyncio.Lock()

    @property
    def connected(self) -> bool:
        """True if the guard answered recently."""
        return self._streams is not None

    async def freeze(self, targets: Iterable[FreezeTarget], limit_seconds: float, why: str) -> str:
        """Stop these containers, all or none, for at most ``limit_seconds``."""
        return await self._ask(GuardVerb.FREEZE, tuple(targets), limit_seconds, why)

    async def thaw(self, targets: Iterable[FreezeTarget]) -> str:
        """Thaw these containers."""
        return await self._ask(GuardVerb.THAW, tuple(targets))

    async def stand_still(self, target: FreezeTarget, seconds: float, why: str) -> str:
        """Stop a container for ``seconds``, then let it run."""
        problem = await self.freeze((target,), seconds + FREEZER_S, why)
        if not problem:
            await asyncio.sleep(seconds)
        return await self.thaw((target,)) or problem

    async def limit(self, limits: Iterable[IoLimit]) -> str:
        """Make these the node's limits of I/O; all others are undone."""
        return await self._ask(GuardVerb.LIMIT, limits=tuple(limits))

    async def beat(self) -> str:
        """Send a heartbeat of the agent."""
        return await self._ask(GuardVerb.BEAT)

    def close(self) -> None:
        """Close the connection; frozen containers run again."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _ask(
        self,
        verb: GuardVerb,
        targets: tuple[FreezeTarget, ...] = (),
        limit: float = 0.0,
        why: str = "",
        limits: tuple[IoLimit, ...] = (),
    ) -> str:
        self._number += 1
        request = GuardRequest(
            verb=verb,
            number=self._number,
            targets=targets,
            limit_seconds=limit,
            why=why,
            limits=limits,
        )
        try:
            async with asyncio.timeout(FREEZER_S), self._turn:
                return await self._exchange(request)
        except TimeoutError:
            self.close()
            return f"the guard does not answer for {FREEZER_S} s"
        except (OSError, ValueError) as error:
            self.close()
            return f"the guard at {self._path} cannot be reached: {error}"

    async def _exchange(self, request: GuardRequest) -> str:
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(self._path, limit=LINE_BYTES)
        reader, writer = self._streams
        writer.write(encode(request))
        await writer.drain()
        while line := await reader.readline():
            answer = decode(GuardAnswer, line)
            if answer.number == request.number:
                return answer.problem
            if answer.number == 0 and answer.problem:
                return answer.problem  # it could not parse the request's number
        raise ConnectionResetError("it closed the connection")
