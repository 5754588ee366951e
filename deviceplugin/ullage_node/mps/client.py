# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The agent's client of the supervisor, which runs in another container with other rights.

Every call has a deadline; whatever goes wrong is :class:`MpsUnreachable`, so that "not known" can
never be read as "no one is attached".
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ullage.api.contract import JsonObject, WireError, section, text
from ullage_node.mps.records import LINE_MAX, Limits, Order, Report

LOOK_SECONDS: Final = 1.5
FRESH_LOOK_SECONDS: Final = 3.0
CHANGE_SECONDS: Final = 1.8
"""For what a start of a container waits for."""
TERMINATE_SECONDS: Final = 16.0
"""A little more than the command itself gets, with a look before and after it."""
RETIRE_SECONDS: Final = 20.0


class MpsUnreachable(Exception):
    """The supervisor gave no answer that can be used; the text says why."""


class MpsClient:
    """Speaks to the supervisor over its socket; every request raises :class:`MpsUnreachable`."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def look(self, orders: Sequence[Order] | None, fresh: Sequence[str] = ()) -> Report:
        """The state of all servers, ``fresh`` ones as of now; serves ``orders``, if any."""
        request: dict[str, object] = {"op": "look", "fresh": list(fresh)}
        if orders is not None:
            request["orders"] = [order.to_wire() for order in orders]
        answer = await self._ask(request, FRESH_LOOK_SECONDS if fresh else LOOK_SECONDS)
        try:
            return Report.from_wire(section(answer, "report"))
        except WireError as error:
            raise MpsUnreachable(f"the MPS supervisor's report is unreadable: {error}") from error

    async def terminate(self, uuid: str, pid: int) -> str:
        """Tear a client down; "" = its process may be killed, else why not."""
        request = {"op": "terminate", "uuid": uuid, "pid": pid}
        return await self._change(request, TERMINATE_SECONDS)

    async def limit(self, uuid: str, limits: Limits) -> str:
        """Give a namespace its limits; "" = done."""
        request = {"op": "limit", "uuid": uuid, "limits": limits.to_wire()}
        return await self._change(request, CHANGE_SECONDS)

    async def unlimit(self, uuid: str, name: str) -> str:
        """Remove a namespace; "" = done."""
        return await self._change({"op": "unlimit", "uuid": uuid, "name": name}, CHANGE_SECONDS)

    async def retire(self) -> None:
        """End every daemon and remove what was made for it."""
        await self._change({"op": "retire"}, RETIRE_SECONDS)

    async def _change(self, request: Mapping[str, object], timeout_seconds: float) -> str:
        answer = await self._ask(request, timeout_seconds)
        try:
            return text(answer, "failed")
        except WireError as error:
            raise MpsUnreachable(f"the MPS supervisor's answer is unreadable: {error}") from error

    async def _ask(self, request: Mapping[str, object], timeout_seconds: float) -> JsonObject:
        try:
            async with asyncio.timeout(timeout_seconds):
                line = await self._exchange(json.dumps(request).encode() + b"\n")
            answer = json.loads(line)
        except TimeoutError:
            raise MpsUnreachable(
                f"the MPS supervisor gave no answer in {timeout_seconds:g} s"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise MpsUnreachable(f"the MPS supervisor is not reached: {error}") from error
        if not isinstance(answer, dict):
            raise MpsUnreachable("the MPS supervisor's answer is no object")
        if "error" in answer:
            raise MpsUnreachable(f"the MPS supervisor refuses: {answer['error']}")
        return answer

    async def _exchange(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(self._socket), limit=LINE_MAX)
        try:
            writer.write(request)
            await writer.drain()
            return await reader.readline()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
