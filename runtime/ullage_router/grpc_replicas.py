# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replicas of a model over gRPC, addressed by the same paths as those over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import grpc
import grpc.aio
import orjson
from google.protobuf.message import DecodeError

from ullage_router.grpc_status import status_of
from ullage_router.open_inference import error_body
from ullage_router.paths import READY, SERVER, ModelPath
from ullage_router.proto import open_inference_pb2 as messages
from ullage_router.replicas import (
    OK,
    Again,
    Begun,
    Broken,
    NotDelivered,
    Reply,
    RouterReplica,
    TooLate,
)
from ullage_router.settings import GRPC_SCHEME, ClientLimits
from ullage_router.times import REPLICA_CONNECT_S
from ullage_router.translation import json_of_metadata

SERVICE: Final = "inference.GRPCInferenceService"
METHODS: Final = ("ServerReady", "ServerMetadata", "ModelReady", "ModelMetadata", "ModelInfer")
TOO_LONG: Final = "larger than max"
"""gRPC's text for a too long answer, with the code of a busy server."""
NOT_READY: Final = 503
NOT_READY_TEXT: Final = "not ready"
"""A server's text for a model that is not ready, with the code of a closed connection."""
NOT_FOUND: Final = 404
MILLISECONDS: Final = 1000


class Channel:
    """A channel and its methods, which take and return bytes."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.methods = {name: channel.unary_unary(f"/{SERVICE}/{name}") for name in METHODS}


class GrpcConnections:
    """One channel to each replica; ``open`` and ``close`` once each."""

    def __init__(self, limits: ClientLimits) -> None:
        """``limits`` bound the size and the time of an answer."""
        self._limits = limits
        self._options = [
            ("grpc.max_receive_message_length", limits.answer_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", int(REPLICA_CONNECT_S * MILLISECONDS)),
            ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0),
        ]
        self._channels: dict[int, Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Do nothing: connections are opened on demand."""

    async def close(self) -> None:
        """Close all."""
        await asyncio.gather(
            *(connection.channel.close() for connection in self._channels.values())
        )
        for task in self._closing:
            task.cancel()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def forget(self, replica: RouterReplica) -> None:
        """Close its channel when its pending requests are answered."""
        known = self._channels.pop(replica.number, None)
        if known is not None:
            closing = asyncio.create_task(known.channel.close(self._limits.answer_s))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def ask(
        self,
        replica: RouterReplica,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        within_s: float,
        begun: Begun | None = None,
        again: Again | None = None,
        new: bool = False,
    ) -> Reply:
        """One exchange, selected by the path; an infer request and its answer are messages.

        A channel opens its connections itself, so ``again`` and ``new`` have no effect.

        Raises:
            NotDelivered: no connection.
            TooLate: no answer in time.
            Broken: the connection ended, or the answer violates the protocol or is too long.
        """
        model = ModelPath.of(path)
        try:
            async with asyncio.timeout(within_s):
                if model is not None and model.what == "infer":
                    metadata = [
                        (name.lower(), value)
                        for name, value in headers.items()
                        if name.lower() != "content-type"
                    ]
                    answer = await self._call(replica, "ModelInfer", body, metadata)
                    return Reply(status=OK, headers={}, body=answer)
                return await self._about(replica, path, model)
        except TimeoutError:
            raise TooLate(f"no answer in {within_s:.3g} s") from None
        except DecodeError:
            raise Broken("the answer is none of the protocol") from None
        except grpc.aio.AioRpcError as error:
            return _refusal(error)

    async def _about(self, replica: RouterReplica, path: str, model: ModelPath | None) -> Reply:
        """Health and metadata, answered in JSON."""
        if path == READY:
            answer = await self._call(replica, "ServerReady", b"")
            return _ready(messages.ServerReadyResponse.FromString(answer).ready)
        if path.rstrip("/") == SERVER:
            answer = await self._call(replica, "ServerMetadata", b"")
            return _metadata(messages.ServerMetadataResponse.FromString(answer))
        if model is None:
            text = f"{path[:64]}: replicas that speak gRPC have no such path"
            return Reply(status=NOT_FOUND, headers={}, body=error_body(text))
        if model.what == "ready":
            asked = messages.ModelReadyRequest(name=model.name, version=model.version)
            answer = await self._call(replica, "ModelReady", asked.SerializeToString())
            return _ready(messages.ModelReadyResponse.FromString(answer).ready)
        about = messages.ModelMetadataRequest(name=model.name, version=model.version)
        answer = await self._call(replica, "ModelMetadata", about.SerializeToString())
        return _metadata(messages.ModelMetadataResponse.FromString(answer))

    async def _call(
        self,
        replica: RouterReplica,
        name: str,
        body: bytes,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> bytes:
        known = self._channels.get(replica.number)
        if known is None:
            target = replica.backend.url.removeprefix(GRPC_SCHEME)
            channel = grpc.aio.insecure_channel(target, options=self._options)
            known = self._channels[replica.number] = Channel(channel)
        if known.channel.get_state(try_to_connect=True) is not grpc.ChannelConnectivity.READY:
            try:
                async with asyncio.timeout(REPLICA_CONNECT_S):
                    await known.channel.channel_ready()
            except TimeoutError:
                raise NotDelivered(f"no connection in {REPLICA_CONNECT_S:g} s") from None
        answer: bytes = await known.methods[name](body, metadata=metadata)
        return answer


def _ready(ready: bool) -> Reply:
    return Reply(status=OK if ready else NOT_READY, headers={}, body=orjson.dumps({"ready": ready}))


def _metadata(
    message: messages.ServerMetadataResponse | messages.ModelMetadataResponse,
) -> Reply:
    headers = {"Content-Type": "application/json"}
    return Reply(status=OK, headers=headers, body=json_of_metadata(message))


def _refusal(error: grpc.aio.AioRpcError) -> Reply:
    """A replica's own error answer.

    Raises:
        Broken: the code means that there is no answer.
    """
    code, text = error.code(), error.details() or ""
    headers = {"Content-Type": "application/json"}
    if code is grpc.StatusCode.UNAVAILABLE and NOT_READY_TEXT in text.lower():
        return Reply(status=NOT_READY, headers=headers, body=error_body(text))
    if code in (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    ):
        raise Broken(f"the connection ended: {text or code.name}") from None
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and TOO_LONG in text:
        raise Broken(f"the answer is too long: {text}") from None
    return Reply(status=status_of(code), headers=headers, body=error_body(text))
