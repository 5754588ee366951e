# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests of the agent to the supervisor.

A request that cannot be read gets an error and changes nothing. The other side is our own agent,
yet its input is validated before it becomes a path or a command.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ullage.api.readers import JsonObject, WireError, objects, section, text
from ullage.api.wire_fields import strings
from ullage_node.line_socket import LineServer, Unanswered
from ullage_node.mps.records import MpsLimits, ServerOrder, read_namespace, read_pid, read_uuid
from ullage_node.mps.supervisor import MpsSupervisor, StillLooking

SOCKET: Final = "supervisor.sock"
VERSION_MAX: Final = 64
"""Characters of a driver's version."""


def supervisor_socket(supervisor: MpsSupervisor, root: Path) -> LineServer:
    """The supervisor behind its socket."""

    async def answer(raw: JsonObject) -> Mapping[str, object]:
        try:
            return await _act(supervisor, raw)
        except StillLooking as error:
            raise Unanswered(str(error)) from error

    return LineServer(root / SOCKET, answer)


async def _act(supervisor: MpsSupervisor, raw: JsonObject) -> Mapping[str, object]:
    verb = text(raw, "op")
    match verb:
        case "look":
            listed = [ServerOrder.from_wire(order) for order in objects(raw, "orders")]
            orders = listed if "orders" in raw else None
            driver = text(raw, "driver", "")[:VERSION_MAX]
            report = await supervisor.look(orders, strings(raw, "fresh"), driver)
            return {"report": report.to_wire()}
        case "terminate":
            return {"failed": await supervisor.terminate(read_uuid(raw), read_pid(raw))}
        case "limit":
            limits = MpsLimits.from_wire(section(raw, "limits"))
            return {"failed": await supervisor.limit(read_uuid(raw), limits)}
        case "unlimit":
            return {"failed": await supervisor.unlimit(read_uuid(raw), read_namespace(raw))}
        case "retire":
            await supervisor.retire()
            return {"failed": ""}
    raise WireError(f"op: {verb!r} is unknown")
