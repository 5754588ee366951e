# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A client that asks before its first request whether a sleeping service is ready can wake it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import grpc.aio
import pytest

from fakes.batch_server import batch_server
from fakes.routed import LOOPBACK, Routed, routed, until
from ullage_router import replica_pool
from ullage_router.following import Unknown
from ullage_router.grpc_replicas import SERVICE
from ullage_router.proto import open_inference_pb2 as messages
from ullage_router.settings import ReplicaAddress

NAME = ReplicaAddress(url="http://serve-replicas:8080")
PROBES = ("/v2/health/ready", "/v2/models/double/ready", "/v2/models/double/versions/1/ready")


@contextmanager
def named(known: set[str]) -> Iterator[set[str]]:
    async def answered(_: str) -> frozenset[str]:
        if "fails" in known:
            raise Unknown("DNS does not answer")
        return frozenset(known)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_pool, "addresses_of_name", answered)
        yield known


async def get(router: Routed, path: str) -> int:
    async with router.client.get(router.url + path) as answer:
        return answer.status


async def test_probes_of_a_service_without_replicas_say_ready_and_wake_nothing() -> None:
    with named(set()):
        async with routed(up=0, followed=NAME, follow_s=0.01, hold_s=60.0) as router:
            await until(lambda: router.dispatcher.asleep)
            assert [await get(router, path) for path in PROBES] == [200] * 3
            assert router.dispatcher.arrivals.total == 0, "who watches keeps no service awake"


async def test_the_first_request_after_the_probe_is_held_and_served() -> None:
    async with batch_server() as server:
        with named(set()) as known:
            async with routed(up=0, followed=NAME, follow_s=0.01, hold_s=60.0) as router:
                await until(lambda: router.dispatcher.asleep)
                assert await get(router, PROBES[0]) == 200
                asking = asyncio.create_task(router.infer([1.0]))
                await until(lambda: router.dispatcher.arrivals.total == 1)
                known.add(server.url)
                assert (await asking)[0] == 200


@pytest.mark.parametrize("path", ["/v2", "/v2/models/double", "/v1/models"])
async def test_a_question_that_only_a_replica_answers_wakes_the_service(path: str) -> None:
    async with batch_server() as server:
        with named(set()) as known:
            async with routed(up=0, followed=NAME, follow_s=0.01, hold_s=60.0) as router:
                await until(lambda: router.dispatcher.asleep)
                asking = asyncio.create_task(get(router, path))
                await until(lambda: router.dispatcher.arrivals.total == 1)
                known.add(server.url)
                assert await asking == 200
                assert [where for _, where, _ in server.plain] == [path]


async def test_replicas_that_are_there_and_not_ready_are_no_sleep() -> None:
    async with batch_server(ready=False) as server:
        with named({server.url}):
            async with routed(up=0, followed=NAME, follow_s=0.01) as router:
                await until(lambda: len(router.dispatcher.pool.replicas) == 1)
                assert [await get(router, path) for path in PROBES] == [503] * 3


async def test_a_name_that_cannot_be_looked_up_is_no_sleep() -> None:
    with named({"fails"}):
        async with routed(up=0, followed=NAME, follow_s=0.01, objective_s=0.05) as router:
            assert [await get(router, path) for path in PROBES] == [503] * 3
            assert await get(router, "/v2/models/double") == 503


async def test_over_grpc_as_well() -> None:
    with named(set()):
        async with (
            routed(up=0, followed=NAME, follow_s=0.01, over_grpc=True, objective_s=0.05) as router,
            grpc.aio.insecure_channel(f"{LOOPBACK}:{router.server.grpc_port}") as channel,
        ):
            await until(lambda: router.dispatcher.asleep)
            ready = channel.unary_unary(
                f"/{SERVICE}/ServerReady",
                messages.ServerReadyRequest.SerializeToString,
                messages.ServerReadyResponse.FromString,
            )
            assert (await ready(messages.ServerReadyRequest())).ready
            model_ready = channel.unary_unary(
                f"/{SERVICE}/ModelReady",
                messages.ModelReadyRequest.SerializeToString,
                messages.ModelReadyResponse.FromString,
            )
            assert (await model_ready(messages.ModelReadyRequest(name="double"))).ready
            assert router.dispatcher.arrivals.total == 0
            metadata = channel.unary_unary(
                f"/{SERVICE}/ModelMetadata",
                messages.ModelMetadataRequest.SerializeToString,
                messages.ModelMetadataResponse.FromString,
            )
            with pytest.raises(grpc.aio.AioRpcError, match="no replica is ready"):
                await metadata(messages.ModelMetadataRequest(name="double"))
            assert router.dispatcher.arrivals.total == 1
