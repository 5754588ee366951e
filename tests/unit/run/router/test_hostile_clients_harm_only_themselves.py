# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Malformed, large, slow and many requests get a clear answer early, and others are served."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest

from fakes.batch_server import batch_server, hang
from fakes.routed import Routed, routed, tensor, until
from ullage_router.request_queue import CALL_BYTES
from ullage_router.settings import ClientLimits

INFER = "/v2/models/double/infer"


async def post(router: Routed, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    async with router.client.post(router.url + INFER, data=body, headers=headers) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[1]", "the body is an object"),
        (b"{}", "inputs is a list"),
        (json.dumps({"inputs": [{}]}).encode(), "inputs[0].name"),
        (json.dumps({"inputs": [tensor([1.0])] * 2}).encode(), "names a tensor twice"),
        (json.dumps({"inputs": [tensor([1.0], datatype="FP8")]}).encode(), "datatype is one of"),
        (json.dumps({"inputs": [tensor([1.0], shape=[2, 1])]}).encode(), "1 elements"),
        (json.dumps({"inputs": [tensor([1.0], shape=[-1, 1])]}).encode(), "positive integers"),
        (json.dumps({"inputs": [tensor([1.0], shape=[0])]}).encode(), "positive integers"),
        (json.dumps({"inputs": [tensor([1.0], shape=[2**62])]}).encode(), "1 elements"),
        (json.dumps({"inputs": [tensor([1.0], shape=[True, 1])]}).encode(), "positive integers"),
        (json.dumps({"inputs": [tensor([1.0], data="x")]}).encode(), "data is a list"),
        (json.dumps({"inputs": [tensor([1.0], data=["x"])]}).encode(), "another data type"),
        (json.dumps({"inputs": [tensor([1.0], data=[True])]}).encode(), "another data type"),
        (json.dumps({"inputs": [tensor([1.0], data=[None])]}).encode(), "another data type"),
        (json.dumps({"inputs": [tensor([1.0], data=[[1.0, 2.0]])]}).encode(), "the shape that"),
        (json.dumps({"inputs": [tensor([1.0], data=[[[1.0]]])]}).encode(), "another data type"),
        (json.dumps({"inputs": [tensor([1.0])], "id": 7}).encode(), "id is a text"),
        (json.dumps({"inputs": [tensor([1.0])], "parameters": [1]}).encode(), "parameters is"),
        (json.dumps({"inputs": [tensor([1.0])], "outputs": 3}).encode(), "outputs is a list"),
        (b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1],"data":[NaN]}]}', "no JSON"),
    ],
)
async def test_a_malformed_request_is_told_where(body: bytes, text: str) -> None:
    async with batch_server() as server, routed(server) as router:
        status, answer = await post(router, body)
        assert status == 400
        assert text in answer["error"]
        assert not server.asked
        assert (await router.infer())[0] == 200
        assert await router.metric("ullage_requests_refused_total", reason="malformed") == 1


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET http://elsewhere.example/plain HTTP/1.1", 400),
        (b"GET http://elsewhere.example:1/v2/models/double HTTP/1.1", 400),
        (b"GET http://a@elsewhere.example/plain?x=http://b/ HTTP/1.1", 400),
        (b"GET //elsewhere.example/plain HTTP/1.1", 200),
        (b"GET /@elsewhere.example/plain HTTP/1.1", 200),
        (b"GET @elsewhere.example/ HTTP/1.1", 400),
        (b"GET :80/ HTTP/1.1", 400),
        (b"OPTIONS * HTTP/1.1", 400),
        (b"CONNECT elsewhere.example:80 HTTP/1.1", 400),
    ],
)
async def test_no_target_leads_past_the_replicas_or_takes_one_down(
    line: bytes, status: int
) -> None:
    async with batch_server() as server, routed(server) as router:
        reader, writer = await asyncio.open_connection("127.0.0.1", router.server.port)
        try:
            writer.write(line + b"\r\nHost: here\r\n\r\n")
            async with asyncio.timeout(30):
                answered = await reader.readline()
        finally:
            writer.close()
        assert answered.split()[1] == str(status).encode(), answered
        assert all(one.up for one in router.dispatcher.pool.replicas)
        assert (await router.infer())[0] == 200


@pytest.mark.parametrize("deadline", ["", "soon", "nan", "inf", "-1", "0", "1e300", "60001"])
async def test_a_wild_deadline_is_refused(deadline: str) -> None:
    async with batch_server() as server, routed(server) as router:
        status, body = await router.infer(headers={"x-deadline-ms": deadline})
        assert status == 400
        assert "x-deadline-ms is a number of milliseconds" in body["error"]


@pytest.mark.parametrize("name", ["a" * 64, "a b", "a/b", 'a"b', "ä"])
async def test_a_wild_application_is_refused(name: str) -> None:
    async with batch_server() as server, routed(server) as router:
        status, body = await router.infer(headers={"x-app": name})
        assert status == 400
        assert "x-app" in body["error"]


async def test_many_applications_take_a_bounded_number_of_labels() -> None:
    async with batch_server() as server, routed(server) as router:
        for at in range(50):
            assert (await router.infer(headers={"x-app": f"app-{at}"}))[0] == 200
        assert await router.metric("ullage_requests_total", app="other") == 20
        assert await router.metric("ullage_requests_total", app="app-3") == 1


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_large_body_is_refused_before_it_is_read(chunked: bool) -> None:
    limits = ClientLimits(body_bytes=1000)
    async with batch_server() as server, routed(server, limits=limits) as router:

        async def parts() -> Any:
            for _ in range(20):
                yield b"x" * 100

        body: Any = parts() if chunked else b"x" * 2000
        async with router.client.post(router.url + INFER, data=body) as answer:
            assert answer.status == 413
            assert await answer.json() == {"error": "a body has at most 1000 bytes"}
        assert router.dispatcher.queue.held_bytes == 0
        assert (await router.infer())[0] == 200


async def test_a_body_that_is_only_announced_takes_no_worker_and_ends() -> None:
    limits = ClientLimits(body_s=0.1)
    async with batch_server() as server, routed(server, limits=limits) as router:
        reader, writer = await asyncio.open_connection("127.0.0.1", router.server.port)
        writer.write(b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{" % INFER.encode())
        assert (await router.infer())[0] == 200
        assert b"408" in await reader.readline()
        writer.close()
        await until(lambda: router.dispatcher.queue.held_bytes == 0)


async def test_a_connection_without_a_request_is_closed() -> None:
    limits = ClientLimits(idle_s=0.1)
    async with batch_server() as server, routed(server, limits=limits) as router:
        reader, writer = await asyncio.open_connection("127.0.0.1", router.server.port)
        writer.write(b"POST /v2")
        assert await reader.read() == b""
        writer.close()


async def test_connections_are_bounded() -> None:
    limits = ClientLimits(connections=3)
    async with batch_server() as server, routed(server, limits=limits) as router:
        open_ones = [
            await asyncio.open_connection("127.0.0.1", router.server.port) for _ in range(3)
        ]
        reader, writer = await asyncio.open_connection("127.0.0.1", router.server.port)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        for _, other in open_ones:
            other.close()
        writer.close()
        (http, _) = router.server._runners
        await until(lambda: http.server is not None and not http.server.connections)
        assert (await router.infer())[0] == 200


async def test_a_client_that_goes_leaves_the_queue() -> None:
    async with batch_server(misdeeds=[hang]) as server, routed(server) as router:
        first = asyncio.create_task(router.infer())
        await until(lambda: len(server.asked) == 1)
        waiting = [asyncio.create_task(router.infer()) for _ in range(20)]
        await until(lambda: len(router.dispatcher.queue) == 20)
        for task in waiting:
            task.cancel()
        await until(lambda: len(router.dispatcher.queue) == 0)
        first.cancel()
        await until(lambda: router.dispatcher.queue.held_bytes == 0)


async def test_the_queue_is_bounded_by_count() -> None:
    limits = ClientLimits(queue_calls=5)
    async with (
        batch_server(misdeeds=[hang]) as server,
        routed(server, limits=limits, objective_s=0.3) as router,
    ):
        first = asyncio.create_task(router.infer())
        await until(lambda: len(server.asked) == 1)
        waiting = [asyncio.create_task(router.infer()) for _ in range(5)]
        await until(lambda: len(router.dispatcher.queue) == 5)
        async with router.client.post(
            router.url + INFER, json={"inputs": [tensor([1.0])]}
        ) as answer:
            assert answer.status == 429
            assert int(answer.headers["Retry-After"]) >= 1
        answers = await asyncio.gather(*waiting)
        assert {status for status, _ in answers} == {429}
        first.cancel()


async def test_the_queue_is_bounded_by_bytes() -> None:
    limits = ClientLimits(queue_bytes=5 * CALL_BYTES, body_bytes=CALL_BYTES)
    async with (
        batch_server(misdeeds=[hang]) as server,
        routed(server, limits=limits, objective_s=0.3) as router,
    ):
        first = asyncio.create_task(router.infer())
        await until(lambda: len(server.asked) == 1)
        waiting = [asyncio.create_task(router.infer()) for _ in range(8)]
        answers = await asyncio.gather(*waiting)
        assert {status for status, _ in answers} == {429}
        assert any("memory" in body["error"] for _, body in answers)
        first.cancel()
        await until(lambda: router.dispatcher.queue.held_bytes == 0)


async def test_a_broken_trace_context_is_not_passed_on() -> None:
    good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with batch_server() as server, routed(server) as router:
        await router.infer(headers={"traceparent": good, "tracestate": "a=1"})
        await router.infer(headers={"traceparent": "x" * 500, "tracestate": "a=1"})
        assert server.headers[0]["traceparent"] == good
        assert server.headers[0]["tracestate"] == "a=1"
        assert not {"traceparent", "tracestate"} & server.headers[1].keys()
