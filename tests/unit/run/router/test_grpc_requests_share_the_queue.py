# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests over gRPC are batched, parted and translated like those over HTTP, with them."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from aiohttp import web

from fakes.batch_server import batch_server, hang
from fakes.batch_server import doubled as json_doubled
from fakes.grpc_batch_server import doubled as message_doubled
from fakes.grpc_batch_server import grpc_batch_server
from fakes.grpc_client import grpc_client, raw, retry_after_s, typed, values
from fakes.routed import routed, tensor, until
from ullage_router.proto import open_inference_pb2 as messages
from ullage_router.settings import Backend, Limits

SERVERS = pytest.mark.parametrize("server_of", [batch_server, grpc_batch_server])
FORMS = pytest.mark.parametrize("form", [raw, typed])
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def slow(_: int) -> float:
    return 0.02


@SERVERS
@FORMS
async def test_each_of_many_clients_gets_its_own_rows_in_its_own_form(
    server_of: Callable[..., Any], form: Callable[..., messages.ModelInferRequest]
) -> None:
    async with (
        server_of(seconds=slow) as server,
        routed(server, over_grpc=True) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        await router.taught(0.02)
        asked = [[float(10 * n + row) for row in range(1 + n % 3)] for n in range(24)]
        answers = await asyncio.gather(
            *(client.infer(form(rows, id=f"own-{at}")) for at, rows in enumerate(asked))
        )
        for at, answer in enumerate(answers):
            assert answer.id == f"own-{at}"
            assert answer.model_name == "double"
            assert list(answer.outputs[0].shape) == [len(asked[at]), 1]
            assert values(answer) == [2 * one for one in asked[at]]
            assert bool(answer.raw_output_contents) is (form is raw)
        assert len(server.asked) < 16
        assert max(server.sizes) > 3


@SERVERS
async def test_clients_of_both_protocols_share_a_batch(server_of: Callable[..., Any]) -> None:
    gate = asyncio.Event()

    async def answers_behind_the_gate(first: Any, second: Any) -> Any:
        await gate.wait()
        if server_of is grpc_batch_server:
            return message_doubled(first)
        return web.Response(body=json_doubled(second), content_type="application/json")

    async with (
        server_of(misdeeds=[answers_behind_the_gate]) as server,
        routed(server, over_grpc=True) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        await router.taught(20.0)
        first = asyncio.create_task(router.infer([-1.0]))
        await until(lambda: len(server.asked) == 1)
        over_http = [asyncio.create_task(router.infer([float(n)])) for n in range(2)]
        over_grpc = [asyncio.create_task(client.infer(typed([float(n)]))) for n in range(2, 4)]
        await until(lambda: len(router.dispatcher.queue) == 4)
        gate.set()
        assert (await first)[1]["outputs"][0]["data"] == [-2.0]
        bodies = [body for _, body in await asyncio.gather(*over_http)]
        assert [body["outputs"][0]["data"] for body in bodies] == [[0.0], [2.0]]
        assert [values(one) for one in await asyncio.gather(*over_grpc)] == [[4.0], [6.0]]
        assert any(min(rows) < 2 <= max(rows) for rows in map(_rows, server.asked))


def _rows(asked: Any) -> list[float]:
    if isinstance(asked, dict):
        return list(asked["inputs"][0]["data"])
    return list(asked.inputs[0].contents.fp64_contents)


async def test_raw_and_typed_requests_share_no_batch_of_a_grpc_replica() -> None:
    async with (
        grpc_batch_server(seconds=slow) as server,
        routed(server, over_grpc=True) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        await router.taught(0.02)
        found = await asyncio.gather(
            *(client.infer((raw if n % 2 else typed)([float(n)])) for n in range(16))
        )
        assert [values(one) for one in found] == [[2.0 * n] for n in range(16)]


@SERVERS
async def test_what_is_no_batch_work_is_asked_of_a_replica(server_of: Callable[..., Any]) -> None:
    async with (
        server_of() as server,
        routed(server, over_grpc=True) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        assert (await client.ask("ServerLive")).live
        assert (await client.ask("ServerReady")).ready
        if server_of is grpc_batch_server:
            assert (await client.ask("ModelReady", name="double")).ready
            assert not (await client.ask("ModelReady", name="other")).ready
            assert (await client.ask("ServerMetadata")).name == "fake"
            found = await client.ask("ModelMetadata", name="double", version="1")
            assert list(found.inputs[0].shape) == [-1, 1]
            with pytest.raises(grpc.aio.AioRpcError, match="NOT_FOUND"):
                await client.ask("ModelMetadata", name="other")
            async with router.client.get(f"{router.url}/v2/models/double") as answer:
                assert (await answer.json())["platform"] == "fake"
            async with router.client.get(f"{router.url}/v2/models/other") as answer:
                assert answer.status == 404
        else:
            with pytest.raises(grpc.aio.AioRpcError, match="malformed"):
                await client.ask("ServerMetadata")
        with pytest.raises(grpc.aio.AioRpcError, match="INVALID_ARGUMENT"):
            await client.ask("ModelMetadata")
        server.ready = False
        await until(lambda: not router.dispatcher.ready)
        assert not (await client.ask("ServerReady")).ready
        assert (await client.ask("ServerLive")).live


@SERVERS
async def test_a_trace_context_and_credentials_are_passed_on(
    server_of: Callable[..., Any],
) -> None:
    async with (
        server_of() as server,
        routed(server, over_grpc=True) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        given = (("traceparent", PARENT), ("authorization", "Bearer a"), ("other", "x"))
        await client.infer(typed(), metadata=given)
        found = server.metadata[-1] if server_of is grpc_batch_server else server.headers[-1]
        lower = {name.lower(): value for name, value in found.items()}
        assert lower["traceparent"] == PARENT
        assert lower["authorization"] == "Bearer a"
        assert "other" not in lower
        await client.infer(typed(), metadata=(("traceparent", "none"),))
        found = server.metadata[-1] if server_of is grpc_batch_server else server.headers[-1]
        assert "traceparent" not in {name.lower() for name in found}


async def test_the_deadline_of_a_call_is_that_of_its_request() -> None:
    async with (
        batch_server(seconds=lambda _: 0.05) as server,
        routed(server, over_grpc=True) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        await router.taught(0.05)
        hopeless = await client.refused(typed(), metadata=(("x-deadline-ms", "5"),), timeout=20.0)
        assert hopeless.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (retry_after_s(hopeless) or 0) >= 1
        assert await router.metric("ullage_requests_total", outcome="dropped") == 1
        assert (await client.refused(typed(), timeout=0.01)).code() in (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.DEADLINE_EXCEEDED,
        )
        await until(lambda: len(router.dispatcher.queue) == 0)
        assert server.asked == []
        await client.infer(typed(), timeout=20.0)
        assert await router.metric("ullage_requests_total", outcome="met") == 1


@pytest.mark.slow
async def test_a_call_that_ends_at_its_deadline_while_it_runs_counts_as_late() -> None:
    async with (
        grpc_batch_server(seconds=lambda _: 2.0) as server,
        routed(server, over_grpc=True) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        error = await client.refused(typed(), timeout=1.0)
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: router.dispatcher.idle)
        assert await router.metric("ullage_requests_total", outcome="late") == 1
        assert router.dispatcher.queue.held_bytes == 0


async def test_a_full_queue_says_when_to_come_again() -> None:
    async with (
        batch_server(misdeeds=[hang]) as server,
        routed(server, over_grpc=True, limits=Limits(queue_calls=2)) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        calls = [asyncio.create_task(client.infer(typed()))]
        await until(lambda: len(server.asked) == 1)
        calls += [asyncio.create_task(client.infer(typed())) for _ in range(2)]
        await until(lambda: len(router.dispatcher.queue) == 2)
        error = await client.refused(typed())
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert retry_after_s(error) == 1
        for call in calls:
            call.cancel()
        await until(lambda: len(router.dispatcher.queue) == 0)


async def test_without_replicas_a_request_that_cannot_wait_is_told_when_to_come_again() -> None:
    nowhere = Backend(url="grpc://127.0.0.1:1")
    async with (
        routed(nowhere, up=0, over_grpc=True, objective_s=0.05) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        error = await client.refused(typed())
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert retry_after_s(error) == 1


async def test_a_batch_that_a_grpc_replica_refuses_runs_again_one_by_one() -> None:
    async with (
        grpc_batch_server(seconds=slow, refuses={7.0}) as server,
        routed(server, over_grpc=True) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        await router.taught(0.02)
        found = await asyncio.gather(
            *(client.infer(typed([float(n)])) for n in range(12)), return_exceptions=True
        )
        for n, answer in enumerate(found):
            if n == 7:
                assert isinstance(answer, grpc.aio.AioRpcError)
                assert answer.code() is grpc.StatusCode.INVALID_ARGUMENT
                assert answer.details() == "an element is refused"
            else:
                assert isinstance(answer, messages.ModelInferResponse)
                assert values(answer) == [2.0 * n]


async def test_http_clients_reach_grpc_replicas_and_only_with_the_protocol() -> None:
    async with grpc_batch_server() as server, routed(server) as router:
        status, body = await router.infer([1.0, 2.0], id="own", parameters={"beam": 2, "f": 0.5})
        assert (status, body["id"], body["outputs"][0]["data"]) == (200, "own", [2.0, 4.0])
        assert server.asked[-1].parameters["beam"].int64_param == 2
        half = tensor([1.5], datatype="FP16")
        status, body = await router.infer(inputs=[half])
        assert (status, body["outputs"][0]["data"]) == (200, [3.0])
        assert server.asked[-1].raw_input_contents[0] == struct.pack("<e", 1.5)
        status, body = await router.infer(inputs=[tensor([2**40], datatype="INT32")])
        assert status == 400
        async with router.client.post(f"{router.url}/v1/chat/completions", data=b"{}") as answer:
            assert answer.status == 501
        unreadable = {"Authorization": "Bearer \u00fc"}
        status, _ = await router.infer(headers=unreadable)
        assert status == 400
