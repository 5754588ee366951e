# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A client of the Open Inference Protocol over gRPC."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from fakes.grpc_batch_server import SERVICE
from ullage_router.proto import open_inference_pb2 as messages
from ullage_router.proto.retry_info_pb2 import RetryInfo, Status


def typed(rows: Sequence[float] = (1.0,), **given: Any) -> messages.ModelInferRequest:
    """One element a row, in typed contents."""
    request = messages.ModelInferRequest(**{"model_name": "double", **given})
    tensor = request.inputs.add(name="x", datatype="FP64", shape=[len(rows), 1])
    tensor.contents.fp64_contents.extend(rows)
    return request


def raw(rows: Sequence[float] = (1.0,), **given: Any) -> messages.ModelInferRequest:
    """One element a row, in raw contents."""
    request = messages.ModelInferRequest(**{"model_name": "double", **given})
    request.inputs.add(name="x", datatype="FP64", shape=[len(rows), 1])
    request.raw_input_contents.append(struct.pack(f"<{len(rows)}d", *rows))
    return request


def values(answer: messages.ModelInferResponse) -> list[float]:
    """The elements of its first output."""
    if answer.raw_output_contents:
        data = answer.raw_output_contents[0]
        return list(struct.unpack(f"<{len(data) // 8}d", data))
    return list(answer.outputs[0].contents.fp64_contents)


class Client:
    """Asks one server."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def infer(
        self, request: messages.ModelInferRequest | bytes, **given: Any
    ) -> messages.ModelInferResponse:
        body = request if isinstance(request, bytes) else request.SerializeToString()
        method = self._channel.unary_unary(
            f"/{SERVICE}/ModelInfer",
            response_deserializer=messages.ModelInferResponse.FromString,
        )
        return await method(body, **given)

    async def ask(self, method_name: str, **fields: Any) -> Any:
        asked = getattr(messages, method_name + "Request")(**fields)
        method = self._channel.unary_unary(
            f"/{SERVICE}/{method_name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=getattr(messages, method_name + "Response").FromString,
        )
        return await method(asked)

    async def refused(
        self, request: messages.ModelInferRequest | bytes, **given: Any
    ) -> grpc.aio.AioRpcError:
        """The error of a request that must have one."""
        try:
            answer = await self.infer(request, **given)
        except grpc.aio.AioRpcError as error:
            return error
        raise AssertionError(f"it was answered: {answer}")


def retry_after_s(error: grpc.aio.AioRpcError) -> float | None:
    """What an error says of when to come again."""
    trailers = dict(error.trailing_metadata() or ())
    if "grpc-status-details-bin" not in trailers:
        return None
    status = Status.FromString(trailers["grpc-status-details-bin"])
    assert status.code == error.code().value[0]
    assert status.details[0].type_url == "type.googleapis.com/google.rpc.RetryInfo"
    return RetryInfo.FromString(status.details[0].value).retry_delay.ToTimedelta().total_seconds()


@asynccontextmanager
async def grpc_client(port: int) -> AsyncIterator[Client]:
    """A client with a connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        yield Client(channel)
