# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever comes over HTTP: an answer of its own in time, 4xx with a text, and never 500."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.generative_server import COMPLETIONS, generative_server
from fakes.routed import Routed, routed
from fakes.triton_server import LENGTH
from ullage_router.settings import Backend, Generative, Limits

PATHS = (
    *("/v2/models/same/infer", "/v2/models/same/versions/1/infer", "/v2/models/%ff/infer?x=1"),
    *("/v2", "/v2/models/same", "/v2/models/same/ready", "/v2/health/ready", "/v2/health/live"),
    *("/v1/models/same:predict", "/v1/models", COMPLETIONS, "/v1/chat/completions"),
)
TENSOR = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1.0, 2.0, 3.0, 4.0]}
RAW = {**TENSOR, "parameters": {"binary_data_size": 16}}
del RAW["data"]
LIMITS = Limits(body_bytes=1 << 16, body_s=5.0, answer_s=5.0)


def nested(depth: int, kind: str) -> str:
    """JSON so deep that a parser or a writer may give up."""
    opens, closes = {"list": ("[", "]"), "object": ('{"a":', "}")}[kind]
    return opens * depth + "1" + closes * depth


DEEP = st.builds(nested, st.integers(0, 2000), st.sampled_from(["list", "object"]))
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["\ud800", "x" * 3000])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = (
    "inputs",
    "outputs",
    "parameters",
    "id",
    "model",
    "stream",
    "max_tokens",
    "n",
    "messages",
    "binary_data_output",
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """A good body with wild fields, or anything else."""
    kind = draw(st.sampled_from(["changed", "changed", "deep", "bytes", "json"]))
    if kind == "bytes":
        return draw(st.binary(max_size=300))
    if kind == "json":
        return json.dumps(draw(VALUES)).encode()
    body: dict[str, Any] = {"inputs": [dict(draw(st.sampled_from([TENSOR, RAW])))], "max_tokens": 1}
    where = draw(st.sampled_from([body, body["inputs"][0]]))
    names = st.sampled_from([*FIELDS, *TENSOR, "parameters"])
    if kind == "deep":
        where[draw(names)] = "DEEP"
        return json.dumps(body).replace('"DEEP"', draw(DEEP)).encode()
    for name in draw(st.lists(names, max_size=3)):
        where[name] = draw(VALUES)
    return json.dumps(body).encode()


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, bytes, dict[str, str]]:
    """Method, path, body and headers."""
    body, headers = draw(bodies()), {}
    if draw(st.booleans()):
        behind = draw(st.binary(max_size=20) | st.just(bytes(16)))
        length = st.just(str(len(body))) | st.sampled_from(["0", "-1", "x", "1e9", "٣", "9" * 5000])
        headers[LENGTH] = draw(length)
        body += behind
    encoding = draw(st.sampled_from(["", "", "gzip", "deflate", "GZIP ", "br", "gzip, gzip", "x"]))
    if encoding:
        headers["Content-Encoding"] = encoding
        packed = draw(st.sampled_from(["gzip", "zlib", "bomb", "not"]))
        if packed == "gzip":
            body = gzip.compress(body)
        elif packed == "zlib":
            body = zlib.compress(body)
        elif packed == "bomb":
            body = gzip.compress(bytes(1 << 20))
    wild = st.sampled_from(["", "nan", "-1", "1e308", "ä", "a b", "x" * 100, "%00", "٣"])
    for name in draw(
        st.lists(st.sampled_from(["x-deadline-ms", "x-app", "authorization"]), max_size=2)
    ):
        headers[name] = draw(wild)
    method = draw(st.sampled_from(["POST", "POST", "POST", "GET", "PUT", "HEAD", "DELETE"]))
    return method, draw(st.sampled_from(PATHS)), body, headers


@asynccontextmanager
async def contented() -> AsyncIterator[Backend]:
    """A server that takes all that there is, so that each fault is the router's."""

    async def answered(request: web.BaseRequest) -> web.Response:
        await request.read()
        return web.json_response({"outputs": []})

    low = web.Server(answered, access_log=None, auto_decompress=False)
    runner = web.ServerRunner(low, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield Backend(url=f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()


@given(st.lists(requests(), min_size=20, max_size=20))
@settings(max_examples=10, deadline=None)
def test_no_request_is_a_fault_of_the_router(asking: Any) -> None:
    async def told() -> None:
        async with contented() as backend, routed(backend, limits=LIMITS) as router:
            await _each(router, asking)

    asyncio.run(told())


@given(st.lists(requests(), min_size=20, max_size=20))
@settings(max_examples=5, deadline=None)
def test_nor_before_generative_servers(asking: Any) -> None:
    async def told() -> None:
        async with (
            generative_server() as server,
            routed(server.backend, limits=LIMITS, generative=Generative()) as router,
        ):
            server.let(100_000)
            # what this server does not read is for it to say: only the router's own paths count
            own = [one for one in asking if one[1].startswith("/v2/") and one[0] == "POST"]
            await _each(router, own)

    asyncio.run(told())


async def _each(router: Routed, asking: Any) -> None:
    for method, path, body, headers in asking:
        async with asyncio.timeout(30):
            status, kind, text = await _answered(router, method, path, body, headers)
        assert status != 500, (method, path, body[:200], headers, text)
        assert status in {200, 400, 408, 413, 429, 501} or status == 502, (status, text)
        if 400 <= status < 500 and method != "HEAD":
            assert kind == "application/json", (method, path, body[:200], headers, text)
            error = json.loads(text)["error"]
            assert error["message"] if isinstance(error, dict) else error
    assert router.dispatcher.fault is None
    assert router.dispatcher.queue.held_bytes == 0


async def _answered(
    router: Routed, method: str, path: str, body: bytes, headers: dict[str, str]
) -> tuple[int, str, bytes]:
    url = router.url + path
    # aiohttp's client would pack the body itself where a header says that it is packed
    words: dict[str, Any] = {"data": aiohttp.BytesPayload(body), "headers": headers}
    async with router.client.request(method, url, **words) as answer:
        return answer.status, answer.content_type, await answer.content.read()
