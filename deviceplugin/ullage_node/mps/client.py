# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The agent's client of the supervisor, which runs in another container with other rights.

Every call has a deadline; every failure is :class:`MpsUnreachable`, so that "unknown" can never be
read as "no client attached".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ullage.api.readers import JsonObject, WireError, section, text
from ullage_node.line_socket import Unanswered, ask
from ullage_node.mps.records import MpsLimits, MpsReport, ServerOrder
from ullage_node.times import (
    MPS_CHANGE_S,
    MPS_FRESH_LOOK_S,
    MPS_LOOK_S,
    MPS_RETIRE_S,
    MPS_TERMINATE_S,
)


class MpsUnreachable(Exception):
    """The supervisor gave no usable answer; the text says why."""


class MpsClient:
    """Client of the supervisor's socket; every request may raise :class:`MpsUnreachable`."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def look(
        self, orders: Sequence[ServerOrder] | None, fresh: Sequence[str] = (), driver: str = ""
    ) -> MpsReport:
        """The state of all servers, current for ``fresh`` ones; serves ``orders``, if any.

        ``driver`` is the driver's version, as NVML reports it.
        """
        request: dict[str, object] = {"op": "look", "fresh": list(fresh), "driver": driver}
        if orders is not None:
            request["orders"] = [order.to_wire() for order in orders]
        answer = await self._ask(request, MPS_FRESH_LOOK_S if fresh else MPS_LOOK_S)
        try:
            return MpsReport.from_wire(section(answer, "report"))
        except WireError as error:
            raise MpsUnreachable(f"the MPS supervisor's report is unreadable: {error}") from error

    async def terminate(self, uuid: str, pid: int) -> str:
        """Terminate a client; "" = its process may be killed, else the obstacle."""
        request = {"op": "terminate", "uuid": uuid, "pid": pid}
        return await self._change(request, MPS_TERMINATE_S)

    async def limit(self, uuid: str, limits: MpsLimits) -> str:
        """Give a namespace its limits; "" = done."""
        request = {"op": "limit", "uuid": uuid, "limits": limits.to_wire()}
        return await self._change(request, MPS_CHANGE_S)

    async def unlimit(self, uuid: str, name: str) -> str:
        """Remove a namespace; "" = done."""
        return await self._change({"op": "unlimit", "uuid": uuid, "name": name}, MPS_CHANGE_S)

    async def retire(self) -> None:
        """End every daemon and remove its files."""
        await self._change({"op": "retire"}, MPS_RETIRE_S)

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
