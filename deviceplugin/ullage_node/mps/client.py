# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The agent's client of the supervisor, which runs in another container with other rights.

Every call has a deadline; whatever goes wrong is :class:`MpsUnreachable`, so that "not known" can
never be read as "no one is attached".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ullage.api.contract import JsonObject, WireError, section, text
from ullage_node.line_socket import Unanswered, ask
from ullage_node.mps.records import Limits, Order, Report

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

    async def look(
        self, orders: Sequence[Order] | None, fresh: Sequence[str] = (), driver: str = ""
    ) -> Report:
        """The state of all servers, ``fresh`` ones as of now; serves ``orders``, if any.

        ``driver`` is the driver's version, as NVML says it.
        """
        request: dict[str, object] = {"op": "look", "fresh": list(fresh), "driver": driver}
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
            return await ask(self._socket, request, timeout_seconds, "the MPS supervisor")
        except Unanswered as error:
            raise MpsUnreachable(str(error)) from error
