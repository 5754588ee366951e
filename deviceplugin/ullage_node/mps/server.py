# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The supervisor's socket: one JSON object a line in, one out; only root may connect.

A request that cannot be read gets an error and changes nothing. The other side is our own agent,
yet nothing it says becomes a path or a command before it was checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from ullage.api.contract import JsonObject, WireError, objects, section, text
from ullage.api.wire_fields import strings
from ullage_node.mps.records import (
    LINE_MAX,
    Limits,
    Order,
    read_namespace,
    read_pid,
    read_uuid,
)
from ullage_node.mps.supervisor import StillLooking, Supervisor

SOCKET: Final = "supervisor.sock"
REQUEST_SECONDS: Final = 10.0
"""Longest pause inside one request line."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class SupervisorSocket:
    """Answers the agent; an async context manager that listens."""

    def __init__(self, supervisor: Supervisor, root: Path) -> None:
        self._supervisor = supervisor
        self._path = root / SOCKET
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> SupervisorSocket:
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
        """One connection, one request: nothing can be half said."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
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
            return await self._act(raw)
        except (StillLooking, WireError, ValueError, RecursionError) as error:
            return {"error": str(error)}

    async def _act(self, raw: JsonObject) -> Mapping[str, object]:
        supervisor, verb = self._supervisor, text(raw, "op")
        match verb:
            case "look":
                listed = [Order.from_wire(one) for one in objects(raw, "orders")]
                orders = listed if "orders" in raw else None
                report = await supervisor.look(orders, strings(raw, "fresh"))
                return {"report": report.to_wire()}
            case "terminate":
                return {"failed": await supervisor.terminate(read_uuid(raw), read_pid(raw))}
            case "limit":
                limits = Limits.from_wire(section(raw, "limits"))
                return {"failed": await supervisor.limit(read_uuid(raw), limits)}
            case "unlimit":
                return {"failed": await supervisor.unlimit(read_uuid(raw), read_namespace(raw))}
            case "retire":
                await supervisor.retire()
                return {"failed": ""}
        raise WireError(f"op: {verb!r} is unknown")
