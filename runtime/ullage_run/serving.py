# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Serves a batch function over HTTP, as a replica behind the router, with one call.

::

    from ullage_run.serving import serve

    def digits(inputs):                      # {"image": array of shape (rows, 64)}
        return {"digit": network(inputs["image"])}     # arrays of as many rows

    serve(digits, name="digits")

It speaks the Open Inference Protocol v2, with tensors in JSON or raw after it, runs one batch at a
time in its own thread, and counts every request for the node agent's latencies
(``ullage_run.requests``). Needs the extra ``ullage[serve]``.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import orjson
from aiohttp import web

from ullage_run import requests
from ullage_run.binary_tensors import (
    HEADER,
    Body,
    Wanted,
    json_bytes_of,
    parted,
    raw_of,
    tensor_object,
    values_of,
    wanted_of,
    written,
)
from ullage_run.tensors import BYTES, Tensor, object_of, tensors_of
from ullage_run.times import BODY_S, DRAIN_S, UNREADY_S

log = logging.getLogger("ullage.serving")

Arrays = Mapping[str, np.ndarray[Any, np.dtype[Any]]]
"""Arrays by the name of their tensor; the first dimension counts rows."""
BatchFunction = Callable[[Arrays], Arrays]

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
BODY_BYTES: Final = 64 * 2**20
MOST_WAITING: Final = 256
DTYPES: Final = {
    "BOOL": "bool",
    "BYTES": "object",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    **{f"INT{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}
"""NumPy's name of each data type of the protocol."""
DATATYPES: Final = {dtype: datatype for datatype, dtype in DTYPES.items()}


class InferenceRefused(Exception):
    """An error response for a client."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class _InferenceRequest:
    """A parsed request: its id, its arrays, and the requested outputs; none = all.

    ``raw`` names those requested raw.
    """

    id: str | None
    inputs: Arrays
    rows: int
    wanted: frozenset[str]
    raw: Wanted


class ModelServer:
    """One model over HTTP; ``start``, ``drain`` and ``stop`` once each, on one event loop."""

    def __init__(self, function: BatchFunction, name: str = "model") -> None:
        """``function`` takes and returns arrays by name; ``name`` is that of the model.

        Raises:
            ValueError: the name has characters that a path may not have.
        """
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r}: a model's name is up to 63 letters, digits, ., _ and -")
        self._function = function
        self._name = name
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._waiting = 0
        self._ready = True
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Raises:
            OSError: the address is not available.
        """
        app = web.Application(client_max_size=BODY_BYTES)
        model = f"/v2/models/{self._name}"
        app.add_routes(
            [
                web.get("/v2/health/live", self._live),
                web.get("/v2/health/ready", self._is_ready),
                web.get(model, self._metadata),
                web.get(f"{model}/ready", self._is_ready),
                web.post(f"{model}/infer", self._infer),
                web.get("/metrics", self._metrics),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, backlog=1024).start()
        self.port = int(self._runner.addresses[0][1])

    async def drain(self, linger_s: float = UNREADY_S, drain_s: float = DRAIN_S) -> None:
        """Report not ready, then stop accepting connections and finish pending requests."""
        self._ready = False
        await asyncio.sleep(linger_s)
        assert self._runner is not None
        for site in list(self._runner.sites):
            await site.stop()
        end = time.monotonic() + drain_s
        while self._waiting and time.monotonic() < end:
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Close all connections."""
        if self._runner is not None:
            await self._runner.cleanup()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _live(self, _: web.Request) -> web.Response:
        return _json(200, {"live": True})

    async def _is_ready(self, _: web.Request) -> web.Response:
        return _json(200 if self._ready else 503, {"ready": self._ready})

    async def _metadata(self, _: web.Request) -> web.Response:
        return _json(200, {"name": self._name, "platform": "python", "inputs": [], "outputs": []})

    async def _metrics(self, _: web.Request) -> web.Response:
        body = requests.metrics_text().encode()
        return web.Response(body=body, headers={"Content-Type": requests.CONTENT_TYPE})

    async def _infer(self, request: web.Request) -> web.Response:
        began = time.monotonic()
        try:
            answer = await self._answered(request)
        except InferenceRefused as refused:
            return _json(refused.status, {"error": str(refused)})
        requests.observe(time.monotonic() - began)
        return web.Response(body=answer.data, headers=answer.headers)

    async def _answered(self, request: web.Request) -> Body:
        try:
            async with asyncio.timeout(BODY_S):
                body = await request.read()
        except TimeoutError:
            raise InferenceRefused(408, f"the body did not come in {BODY_S:g} s") from None
        if self._waiting >= MOST_WAITING:
            raise InferenceRefused(503, f"{self._waiting} requests wait already; come again later")
        self._waiting += 1
        try:
            asked = _read(body, request.headers.get(HEADER))
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._ran, asked)
        finally:
            self._waiting -= 1

    def _ran(self, asked: _InferenceRequest) -> Body:
        """Run the function on one request, which may be a batch joined by the router."""
        try:
            outputs = self._function(asked.inputs)
            tensors = [_written(name, array, asked.rows) for name, array in outputs.items()]
        except Exception as error:  # the user's own code
            log.exception("the model failed")
            raise InferenceRefused(
                500, f"the model failed: {type(error).__name__}: {error}"
            ) from error
        unknown = asked.wanted - {tensor.name for tensor in tensors}
        if unknown:
            raise InferenceRefused(400, f"the model has no output {min(unknown)[:64]!r}")
        kept = [tensor for tensor in tensors if not asked.wanted or tensor.name in asked.wanted]
        raws = [raw_of(tensor) if asked.raw.raw(tensor.name) else None for tensor in kept]
        described = [
            tensor_object(
                tensor,
                tensor.shape,
                data=tensor.data if tensor.raw is None else values_of(tensor, tensor.raw),
            )
            if raw is None
            else tensor_object(tensor, tensor.shape, raw_bytes=len(raw))
            for tensor, raw in zip(kept, raws, strict=True)
        ]
        body: dict[str, object] = {"model_name": self._name, "outputs": described}
        if asked.id is not None:
            body["id"] = asked.id
        return written(body, raws)


def serve(
    function: BatchFunction, *, name: str = "model", host: str = "0.0.0.0", port: int = 8000
) -> None:
    """Serve a batch function until SIGTERM or SIGINT; pending requests are answered.

    Args:
        function: takes arrays by name, all with the same number of rows, and returns arrays with as
            many.
        name: of the model, as in ``/v2/models/NAME/infer``.
        host: address to listen on.
        port: of all requests, ``/metrics`` included.

    Raises:
        ValueError: the name has characters that a path may not have.
        OSError: the address is not available.
    """
    asyncio.run(_served(ModelServer(function, name), host, port))


async def _served(server: ModelServer, host: str, port: int) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    await server.start(host, port)
    print("listening", server.port, flush=True)
    try:
        await ended.wait()
        await server.drain()
    finally:
        await server.stop()


def _read(body: bytes, header: str | None) -> _InferenceRequest:
    """Check a request completely, so that the function gets only arrays of equally many rows."""
    try:
        parsed, behind = parted(body, json_bytes_of(header, len(body)))
        asked = object_of(parsed, "the body")
        tensors = tensors_of(asked.get("inputs"), "inputs", behind=behind)
        wanted = asked.get("outputs") or []
        if not isinstance(wanted, list):
            raise ValueError("outputs is a list of objects")
        names = [object_of(output, "an output").get("name") for output in wanted]
        number = asked.get("id")
        if number is not None and not isinstance(number, str):
            raise ValueError("id is a text")
        rows = {tensor.shape[0] if tensor.shape else 0 for tensor in tensors}
        if len(rows) != 1 or 0 in rows:
            raise ValueError("all inputs have one first dimension, that of the batch")
        return _InferenceRequest(
            id=number,
            inputs={tensor.name: _array(tensor) for tensor in tensors},
            rows=rows.pop(),
            wanted=frozenset(name for name in names if isinstance(name, str)),
            raw=wanted_of(object_of(asked.get("parameters") or {}, "parameters"), wanted),
        )
    except ValueError as error:  # invalid JSON raises it too
        raise InferenceRefused(400, str(error)) from None


def _array(tensor: Tensor) -> np.ndarray[Any, np.dtype[Any]]:
    if tensor.raw is not None and tensor.datatype != BYTES:
        if tensor.datatype not in DTYPES:
            raise ValueError(f"{tensor.name[:64]!r}: NumPy has no {tensor.datatype}")
        return np.array(values_of(tensor, tensor.raw), DTYPES[tensor.datatype]).reshape(
            tensor.shape
        )
    if tensor.raw is not None:
        tensor = replace(tensor, data=list(values_of(tensor, tensor.raw)), raw=None)
    try:
        array = np.asarray(tensor.data, dtype=DTYPES[tensor.datatype])
    except OverflowError:
        raise ValueError(f"{tensor.name[:64]!r} has numbers beyond {tensor.datatype}") from None
    return array.reshape(tensor.shape)


def _written(name: str, array: object, rows: int) -> Tensor:
    values = np.asarray(array)
    datatype = DATATYPES.get(str(values.dtype), "BYTES" if values.dtype.kind == "U" else "")
    if not isinstance(name, str) or not datatype:
        raise TypeError(f"output {name!r} has the type {values.dtype}, which the protocol lacks")
    if not values.shape or values.shape[0] != rows:
        raise ValueError(f"output {name!r} has the shape {values.shape} for {rows} rows")
    if datatype == "BYTES" and not all(isinstance(value, str) for value in values.flat):
        raise TypeError(f"output {name!r} has elements that are no text")
    texts = datatype == BYTES
    return Tensor(
        name=name,
        datatype=datatype,
        shape=values.shape,
        data=values.reshape(-1).tolist() if texts else [],
        parameters=None,
        raw=None if texts else memoryview(values.tobytes()),
    )


def _json(status: int, body: Mapping[str, object]) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), content_type="application/json")
