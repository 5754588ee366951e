# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A model server over a real socket that speaks the Open Inference Protocol, and its misdeeds.

The model doubles its input, apart from truth values. Each misdeed is done to one request.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

Misdeed = Callable[[web.BaseRequest, dict[str, Any]], Awaitable[web.Response]]


@dataclass(slots=True, kw_only=True)
class BatchServer:
    """What it was asked, and how it behaves."""

    seconds: Callable[[int], float] = lambda rows: 0.0
    """Time of a batch by its rows."""
    ready: bool = True
    refuses: set[object] = field(default_factory=set)
    """Elements with which a whole batch is refused (400)."""
    overflows: set[object] = field(default_factory=set)
    """Elements whose output is NaN, written as no JSON has it."""
    misdeeds: list[Misdeed] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    plain: list[tuple[str, str, bytes]] = field(default_factory=list)
    many: list[str] = field(default_factory=list)
    """Values of ``X-Many``, which may come more than once."""
    port: int = 0
    runner: web.ServerRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def sizes(self) -> list[int]:
        """Rows of each batch that came."""
        return [body["inputs"][0]["shape"][0] for body in self.asked]

    async def start(self, port: int = 0) -> None:
        # bodies come as they were sent, whichever encodings this Python can undo
        low = web.Server(self._handle, access_log=None, auto_decompress=False)
        self.runner = web.ServerRunner(low, shutdown_timeout=0.1)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", port).start()
        self.port = self.runner.addresses[0][1]

    async def stop(self) -> None:
        if self.runner is not None:
            await self.runner.cleanup()
            self.runner = None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/v2/health/ready":
            return web.Response(status=200 if self.ready else 503)
        body = await request.read()
        self.headers.append(dict(request.headers))
        if not request.path.endswith("/infer"):
            self.plain.append((request.method, request.raw_path, body))
            self.many += request.headers.getall("X-Many", [])
            answer = web.Response(body=b"plain " + body, headers={"X-Own": "yes"})
            answer.headers.extend([("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")])
            return answer
        asked = orjson.loads(body)
        self.asked.append(asked)
        if self.misdeeds:
            return await self.misdeeds.pop(0)(request, asked)
        await asyncio.sleep(self.seconds(asked["inputs"][0]["shape"][0]))
        if any(self.refuses & set(map(str, item["data"])) for item in asked["inputs"]):
            return web.json_response({"error": "an element is refused"}, status=400)
        answer = doubled(asked)
        if any(self.overflows & set(map(str, item["data"])) for item in asked["inputs"]):
            answer = answer.replace(b'"data":[', b'"data":[NaN,')
        return web.Response(body=answer, content_type="application/json")


def doubled(asked: dict[str, Any], **changes: object) -> bytes:
    """The right answer, with changes."""
    outputs = []
    for item in asked["inputs"]:
        flat = item["data"]
        while flat and isinstance(flat[0], list):
            flat = [one for part in flat for one in part]
        assert len(flat) == math.prod(item["shape"])
        data = flat if item["datatype"] == "BOOL" else [2 * one for one in flat]
        outputs.append({**item, "name": "out_" + item["name"], "data": data})
    body = {"model_name": "double", "outputs": outputs}
    if "id" in asked:
        body["id"] = asked["id"]
    return orjson.dumps(body | changes)


async def hang(_: web.BaseRequest, __: dict[str, Any]) -> web.Response:
    """Never answers."""
    await asyncio.Event().wait()
    raise AssertionError


async def die(request: web.BaseRequest, _: dict[str, Any]) -> web.Response:
    """Ends the connection in the middle of the work."""
    await asyncio.sleep(0.01)
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def lose_a_row(_: web.BaseRequest, asked: dict[str, Any]) -> web.Response:
    """Answers for a row less than it was asked."""
    body = orjson.loads(doubled(asked))
    for item in body["outputs"]:
        row = math.prod(item["shape"][1:])
        item["shape"][0] -= 1
        item["data"] = item["data"][:-row]
    return web.json_response(body)


async def answer_another(_: web.BaseRequest, asked: dict[str, Any]) -> web.Response:
    """Answers another request than it was asked."""
    return web.Response(body=doubled(asked, id="another"), content_type="application/json")


async def talk_nonsense(_: web.BaseRequest, __: dict[str, Any]) -> web.Response:
    """Answers with what is no JSON."""
    return web.Response(body=b"[[[", content_type="application/json")


async def fail(_: web.BaseRequest, __: dict[str, Any]) -> web.Response:
    """Answers 500."""
    return web.json_response({"error": "out of memory"}, status=500)


@asynccontextmanager
async def batch_server(**given: Any) -> AsyncIterator[BatchServer]:
    """A server that runs."""
    server = BatchServer(**given)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
