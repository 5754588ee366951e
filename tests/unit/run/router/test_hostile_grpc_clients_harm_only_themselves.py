# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Wild messages, slow clients and clients who leave over gRPC: each has its own error at most."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from fakes.batch_server import batch_server, talk_nonsense
from fakes.grpc_batch_server import SERVICE, Misdeed, doubled, grpc_batch_server
from fakes.grpc_client import grpc_client, raw, retry_after_s, typed, values
from fakes.routed import routed, until
from ullage_router.proto import open_inference_pb2 as messages
from ullage_router.settings import Limits
from ullage_run.tensors import TENSORS

SERVERS = pytest.mark.parametrize("server_of", [batch_server, grpc_batch_server])
Request = messages.ModelInferRequest


def changed(change: Callable[[Request], object], form: Callable[[], Request] = typed) -> Request:
    request = form()
    change(request)
    return request


def of_tensor(**given: Any) -> Request:
    request = Request(model_name="double")
    tensor = request.inputs.add(**{"name": "x", "datatype": "FP64", "shape": [1, 1], **given})
    tensor.contents.fp64_contents.append(1.0)
    return request


def many(parameters: Any) -> None:
    for number in range(TENSORS + 1):
        parameters[str(number)].int64_param = number


WILD: dict[str, Request | bytes] = {
    "bytes that are no message": b"\xff" * 64,
    "a nested message that is cut off": typed().SerializeToString()[:-3],
    "groups without an end": b"\x0b" * 5000,
    "nothing": b"",
    "no model": typed(model_name=""),
    "no inputs": Request(model_name="double"),
    "too many inputs": changed(lambda r: r.inputs.extend([r.inputs[0]] * 70)),
    "an input twice": changed(lambda r: r.inputs.append(r.inputs[0])),
    "no name": of_tensor(name=""),
    "an unknown data type": of_tensor(datatype="FP65"),
    "a shape of another size": of_tensor(shape=[2, 1]),
    "a negative shape": of_tensor(shape=[-1, -1]),
    "a shape of zero": of_tensor(shape=[0]),
    "a shape beyond all bounds": of_tensor(shape=[2**62] * 8),
    "too many dimensions": of_tensor(shape=[1] * 100),
    "typed contents of 16 bits": of_tensor(datatype="FP16"),
    "contents of another type": of_tensor(datatype="FP32"),
    "contents of two types": changed(lambda r: r.inputs[0].contents.int_contents.append(1)),
    "raw and typed contents": changed(lambda r: r.raw_input_contents.append(b"\0" * 8)),
    "too few raw contents": changed(lambda r: r.inputs.add(name="y"), raw),
    "too many outputs": changed(lambda r: [r.outputs.add() for _ in range(TENSORS + 1)]),
    "too many parameters": changed(lambda r: many(r.parameters)),
    "too many parameters of an input": changed(lambda r: many(r.inputs[0].parameters)),
    "too many parameters of an output": changed(lambda r: many(r.outputs.add().parameters)),
    "raw bytes of another size": changed(lambda r: r.raw_input_contents.__setitem__(0, b"1"), raw),
}


@SERVERS
async def test_a_wild_message_is_refused_and_its_neighbours_are_answered(
    server_of: Callable[..., Any],
) -> None:
    async with (
        server_of(seconds=lambda _: 0.01) as server,
        routed(server, over_grpc=True) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        await router.taught(0.01)
        server.asked.clear()
        errors = [client.refused(wild) for wild in WILD.values()]
        good = [client.infer(typed([float(n)])) for n in range(len(WILD))]
        found = await asyncio.gather(*errors, *good)
        for what, error in zip(WILD, found, strict=False):
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, (what, error)
        assert [values(one) for one in found[len(WILD) :]] == [[2.0 * n] for n in range(len(WILD))]
        assert sum(server.sizes) == len(WILD)
        malformed = await router.metric("ullage_requests_refused_total", reason="malformed")
        assert malformed == len(WILD)
        assert router.dispatcher.queue.held_bytes == 0


async def test_what_json_cannot_say_is_refused_and_its_neighbours_are_answered() -> None:
    strings = Request(model_name="double")
    strings.inputs.add(name="x", datatype="BYTES", shape=[1])
    cases = {
        "NaN": typed([float("nan")]),
        "infinity": raw([float("inf")]),
        "text that is no UTF-8": changed(
            lambda r: r.raw_input_contents.append(struct.pack("<I", 1) + b"\xff"),
            lambda: Request.FromString(strings.SerializeToString()),
        ),
        "raw texts that are cut off": changed(
            lambda r: r.raw_input_contents.append(struct.pack("<I", 9) + b"a"),
            lambda: Request.FromString(strings.SerializeToString()),
        ),
        "16 bits of another kind": changed(
            lambda r: r.raw_input_contents.append(b"\0\0"),
            lambda: Request(
                model_name="double",
                inputs=[Request.InferInputTensor(name="x", datatype="BF16", shape=[1])],
            ),
        ),
        "a parameter without a value": changed(
            lambda r: r.parameters.__getitem__("none").SetInParent()
        ),
    }
    async with (
        batch_server() as server,
        routed(server, over_grpc=True) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        for what, request in cases.items():
            error = await client.refused(request)
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, (what, error)
        assert server.asked == []
        assert values(await client.infer(typed([3.0]))) == [6.0]


async def test_wild_metadata_are_refused_with_their_name() -> None:
    async with (
        batch_server() as server,
        routed(server, over_grpc=True) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        for name, value in (
            ("x-deadline-ms", "soon"),
            ("x-deadline-ms", "-1"),
            ("x-deadline-ms", "nan"),
            ("x-app", "a b"),
            ("x-app", "a" * 64),
        ):
            error = await client.refused(typed(), metadata=((name, value),))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert name in (error.details() or "")
        huge = await client.refused(typed(), metadata=(("other", "x" * 100_000),))
        assert huge.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert values(await client.infer(typed(), metadata=(("x-bin", b"\xff"),))) == [2.0]


async def test_a_message_above_the_limit_is_refused() -> None:
    limits = Limits(body_bytes=10_000)
    async with (
        batch_server() as server,
        routed(server, over_grpc=True, limits=limits) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        error = await client.refused(raw([1.0] * 2000))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert server.asked == []
        assert values(await client.infer(raw([1.0] * 1000))) == [2.0] * 1000


async def test_memory_for_requests_that_wait_is_bounded() -> None:
    limits = Limits(body_bytes=100_000, queue_bytes=200_000)
    async with (
        batch_server(seconds=lambda _: 0.3) as server,
        routed(server, over_grpc=True, limits=limits) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        large = raw([1.0] * 10_000)
        found = await asyncio.gather(
            *(client.infer(large) for _ in range(6)), return_exceptions=True
        )
        errors = [one for one in found if isinstance(one, grpc.aio.AioRpcError)]
        assert 1 <= len(errors) < 6
        assert {error.code() for error in errors} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert {retry_after_s(error) for error in errors} == {1}
        assert await router.metric("ullage_requests_refused_total", reason="full") == len(errors)
        assert router.dispatcher.queue.held_bytes == 0
        assert len(server.asked) == 6 - len(errors)


async def _never() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def _twice(body: bytes) -> AsyncIterator[bytes]:
    yield body
    yield body


async def _nothing() -> AsyncIterator[bytes]:
    for body in ():
        yield body


async def test_a_message_that_does_not_come_ends_its_call_alone() -> None:
    limits = Limits(body_s=0.3)
    async with (
        batch_server() as server,
        routed(server, over_grpc=True, limits=limits) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        method = client._channel.stream_unary(f"/{SERVICE}/ModelInfer")
        slow = method(_never())
        assert values(await client.infer(typed([4.0]))) == [8.0]
        with pytest.raises(grpc.aio.AioRpcError, match="did not come in"):
            await slow
        with pytest.raises(grpc.aio.AioRpcError, match="one message"):
            await method(_nothing())
        answer = await method(_twice(typed([2.0]).SerializeToString()))
        assert values(messages.ModelInferResponse.FromString(answer)) == [4.0]
        await until(lambda: router.dispatcher.queue.held_bytes == 0)
        assert await router.metric("ullage_requests_refused_total", reason="slow") == 1


async def test_a_client_who_leaves_takes_its_request_out_of_the_queue() -> None:
    async with (
        grpc_batch_server(seconds=lambda _: 0.2) as server,
        routed(server, over_grpc=True) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        running = asyncio.create_task(client.infer(typed([1.0])))
        await until(lambda: len(server.asked) == 1)
        waiting = asyncio.create_task(client.infer(typed([2.0])))
        await until(lambda: len(router.dispatcher.queue) == 1)
        waiting.cancel()
        await until(lambda: len(router.dispatcher.queue) == 0)
        assert values(await running) == [2.0]
        await until(lambda: router.dispatcher.queue.held_bytes == 0)
        assert len(server.asked) == 1


async def test_bytes_that_are_no_http2_end_their_connection_alone() -> None:
    async with (
        batch_server() as server,
        routed(server, over_grpc=True) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        for wild in (os.urandom(4096), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b""):
            _, writer = await asyncio.open_connection("127.0.0.1", router.server.grpc_port)
            writer.write(wild)
            await writer.drain()
            writer.close()
        assert values(await client.infer(typed([4.0]))) == [8.0]


async def test_an_unknown_method_is_unimplemented() -> None:
    async with (
        batch_server() as server,
        routed(server, over_grpc=True) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        method = client._channel.unary_unary(f"/{SERVICE}/RepositoryIndex")
        with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
            await method(b"")


def answers_behind(gate: asyncio.Event) -> Misdeed:
    async def answers(asked: Request, _: Any) -> messages.ModelInferResponse:
        await gate.wait()
        return doubled(asked)

    return answers


async def fails(*_: Any) -> Any:
    raise RuntimeError("out of memory")


async def loses_a_row(asked: Request, _: Any) -> messages.ModelInferResponse:
    answer = doubled(asked)
    answer.outputs[0].shape[0] += 1
    return answer


async def answers_another(asked: Request, _: Any) -> messages.ModelInferResponse:
    answer = doubled(asked)
    answer.id = "another"
    return answer


async def answers_too_much(asked: Request, _: Any) -> messages.ModelInferResponse:
    answer = doubled(asked)
    answer.raw_output_contents.append(b"x" * 200_000)
    return answer


@pytest.mark.parametrize("misdeed", [fails, loses_a_row, answers_another, answers_too_much])
async def test_a_grpc_replica_that_fails_a_batch_loses_no_request(misdeed: Any) -> None:
    gates = asyncio.Event(), asyncio.Event()
    async with (
        grpc_batch_server(misdeeds=[answers_behind(gates[0]), misdeed]) as bad,
        grpc_batch_server(misdeeds=[answers_behind(gates[1])]) as good,
        routed(bad, good, over_grpc=True, limits=Limits(answer_bytes=100_000)) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        await router.taught(20.0)
        busy = [asyncio.create_task(client.infer(typed([0.0])))]
        await until(lambda: len(bad.asked) == 1)
        busy.append(asyncio.create_task(client.infer(typed([0.0]))))
        await until(lambda: len(good.asked) == 1)
        more = [asyncio.create_task(client.infer(typed([float(n)]))) for n in range(1, 5)]
        await until(lambda: len(router.dispatcher.queue) == 4)
        gates[0].set()
        await until(lambda: not bad.misdeeds)
        assert bad.sizes[-1] > 1
        gates[1].set()
        found = await asyncio.gather(*busy, *more)
        assert [values(one) for one in found] == [[0.0], [0.0], *([2.0 * n] for n in range(1, 5))]


async def test_a_malformed_answer_is_an_error_of_its_call() -> None:
    async with (
        batch_server(misdeeds=[talk_nonsense]) as server,
        routed(server, over_grpc=True) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        error = await client.refused(typed([1.0, 2.0]))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert await router.metric("ullage_requests_total", outcome="failed") == 1
        await until(lambda: router.dispatcher.ready)
        assert values(await client.infer(typed([4.0]))) == [8.0]


@pytest.mark.slow
async def test_a_grpc_replica_that_is_gone_finds_its_requests_when_it_comes_back() -> None:
    async with (
        grpc_batch_server() as server,
        routed(server, over_grpc=True) as router,
        grpc_client(router.server.grpc_port) as client,
    ):
        assert values(await client.infer(typed([1.0]))) == [2.0]
        await server.stop()
        await until(lambda: not router.dispatcher.ready)
        waiting = asyncio.create_task(client.infer(typed([2.0])))
        await until(lambda: len(router.dispatcher.queue) == 1)
        await server.start(server.port)
        assert values(await waiting) == [4.0]
