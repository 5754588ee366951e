# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A model server over a real socket that reads and writes raw tensors; it gives inputs back.

Its outputs have the names of its inputs. What is raw follows the binary tensor data extension.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from aiohttp import web

LENGTH = "Inference-Header-Content-Length"
DTYPES = {
    "BF16": "<u2",
    "BOOL": "?",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
    "INT8": "<i1",
    "INT32": "<i4",
    "INT64": "<i8",
    "UINT8": "<u1",
}
NO_JSON = frozenset({"BF16"})


def raw_of(datatype: str, values: Sequence[Any]) -> bytes:
    if datatype == "BYTES":
        texts = [one if isinstance(one, bytes) else one.encode() for one in values]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return np.array(values, DTYPES[datatype]).tobytes()


def values_of(datatype: str, raw: bytes) -> list[Any]:
    if datatype != "BYTES":
        return np.frombuffer(raw, DTYPES[datatype]).tolist()
    found, at = [], 0
    while at < len(raw):
        (size,) = struct.unpack_from("<I", raw, at)
        found.append(raw[at + 4 : at + 4 + size])
        at += 4 + size
    return found


@dataclass(slots=True, kw_only=True)
class TritonServer:
    """What it was asked, and how it behaves."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    """Batches run while it is set."""
    reads_raw: bool = True
    model_ready: bool = True
    always_ready: frozenset[str] = frozenset()
    """Models that are ready even then."""
    busy: bool = False
    """It answers work with 503 though its models are ready."""
    says_it_is_not: str = "Model with name same is not ready."
    answer: bytes | None = None
    """What it answers to all, with 200; absent = the right answer."""
    change: Callable[[dict[str, Any]], None] = lambda _: None
    """Changes the right answer."""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    refused: int = 0
    """Requests that came while its model was not ready."""
    looks: int = 0
    """How often it was asked whether its model is."""
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def sizes(self) -> list[int]:
        """Rows of each batch that ran."""
        return [body["inputs"][0]["shape"][0] for body in self.asked]

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/v2/health/ready":
            return web.Response()
        model = request.path.split("/")[3].partition(":")[0]
        is_ready = self.model_ready or model in self.always_ready
        if request.method == "GET":
            self.looks += 1
            return web.json_response({"ready": True}) if is_ready else self._not_ready()
        if not is_ready:
            self.refused += 1
            return self._not_ready()
        if self.busy:
            return web.json_response({"error": "busy"}, status=503)
        body = await request.read()
        self.headers.append(dict(request.headers))
        length = int(request.headers.get(LENGTH, len(body)))
        asked = orjson.loads(body[:length])
        self.asked.append(asked)
        await self.go.wait()
        if length < len(body) and not self.reads_raw:
            return web.json_response({"error": "raw tensors are not read"}, status=400)
        if self.answer is not None:
            return web.Response(body=self.answer, content_type="application/json")
        return self._answered(asked, body[length:])

    def _not_ready(self) -> web.Response:
        return web.json_response({"error": self.says_it_is_not}, status=503)

    def _answered(self, asked: dict[str, Any], behind: bytes) -> web.Response:
        wanted = {one["name"]: one.get("parameters", {}) for one in asked.get("outputs", [])}
        all_raw = asked.get("parameters", {}).get("binary_data_output", False)
        outputs, raws = [], []
        for tensor in asked["inputs"]:
            size = tensor.get("parameters", {}).get("binary_data_size")
            datatype = tensor["datatype"]
            if size is None:
                assert datatype not in NO_JSON
                raw = raw_of(datatype, np.ravel(np.array(tensor["data"], object)).tolist())
            else:
                raw, behind = behind[:size], behind[size:]
            output = {"name": tensor["name"], "datatype": datatype, "shape": tensor["shape"]}
            if wanted.get(tensor["name"], {}).get("binary_data", all_raw) and self.reads_raw:
                output["parameters"] = {"binary_data_size": len(raw)}
                raws.append(raw)
            else:
                values = values_of(datatype, raw)
                output["data"] = [one.decode() if datatype == "BYTES" else one for one in values]
            outputs.append(output)
        assert not behind, "each raw byte belongs to an input"
        answer = {"model_name": "same", "id": asked.get("id"), "outputs": outputs}
        self.change(answer)
        head = json.dumps(answer).encode()
        headers = {"Content-Type": "application/json"}
        if raws:
            headers = {LENGTH: str(len(head))}
        return web.Response(body=b"".join((head, *raws)), headers=headers)


@asynccontextmanager
async def triton_server(**given: Any) -> AsyncIterator[TritonServer]:
    """A server that runs."""
    server = TritonServer(**given)
    server.go.set()
    low = web.Server(server.handle, access_log=None)
    runner = web.ServerRunner(low, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()
