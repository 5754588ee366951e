# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A model server over gRPC (Open Inference Protocol) that doubles its input, and its misdeeds.

It answers in the form in which it is asked: raw or typed.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from ullage_router.proto import open_inference_pb2 as messages

SERVICE = "inference.GRPCInferenceService"
FORMS = {"FP32": "f", "FP64": "d", "INT64": "q", "FP16": "e"}
FIELDS = {"FP32": "fp32_contents", "FP64": "fp64_contents", "INT64": "int64_contents"}
Misdeed = Callable[[messages.ModelInferRequest, grpc.aio.ServicerContext], Awaitable[Any]]


@dataclass(slots=True, kw_only=True)
class GrpcBatchServer:
    """What it was asked, and how it behaves."""

    seconds: Callable[[int], float] = lambda rows: 0.0
    ready: bool = True
    refuses: set[float] = field(default_factory=set)
    """Elements with which a whole batch is refused (INVALID_ARGUMENT)."""
    misdeeds: list[Misdeed] = field(default_factory=list)
    asked: list[messages.ModelInferRequest] = field(default_factory=list)
    metadata: list[dict[str, Any]] = field(default_factory=list)
    left: int = 0
    """Requests that were cancelled."""
    port: int = 0
    server: grpc.aio.Server | None = None

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    @property
    def sizes(self) -> list[int]:
        """Rows of each batch that came."""
        return [request.inputs[0].shape[0] for request in self.asked]

    async def start(self, port: int = 0) -> None:
        self.server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        handlers = {
            "ServerLive": _method(self._live, messages.ServerLiveRequest),
            "ServerReady": _method(self._ready, messages.ServerReadyRequest),
            "ModelReady": _method(self._model_ready, messages.ModelReadyRequest),
            "ServerMetadata": _method(self._server, messages.ServerMetadataRequest),
            "ModelMetadata": _method(self._model, messages.ModelMetadataRequest),
            "ModelInfer": _method(self._infer, messages.ModelInferRequest),
        }
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, handlers),)
        )
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        await self.server.start()

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop(0)
            self.server = None

    async def _live(self, _: Any, __: Any) -> messages.ServerLiveResponse:
        return messages.ServerLiveResponse(live=True)

    async def _ready(self, _: Any, __: Any) -> messages.ServerReadyResponse:
        return messages.ServerReadyResponse(ready=self.ready)

    async def _model_ready(
        self, asked: messages.ModelReadyRequest, _: Any
    ) -> messages.ModelReadyResponse:
        return messages.ModelReadyResponse(ready=asked.name == "double")

    async def _server(self, _: Any, __: Any) -> messages.ServerMetadataResponse:
        return messages.ServerMetadataResponse(name="fake", version="1", extensions=["none"])

    async def _model(
        self, asked: messages.ModelMetadataRequest, context: grpc.aio.ServicerContext
    ) -> messages.ModelMetadataResponse:
        if asked.name != "double":
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no model {asked.name}")
        found = messages.ModelMetadataResponse(name="double", versions=["1"], platform="fake")
        found.inputs.add(name="x", datatype="FP64", shape=[-1, 1])
        return found

    async def _infer(
        self, asked: messages.ModelInferRequest, context: grpc.aio.ServicerContext
    ) -> messages.ModelInferResponse:
        self.asked.append(asked)
        self.metadata.append(dict(context.invocation_metadata() or ()))
        if self.misdeeds:
            return await self.misdeeds.pop(0)(asked, context)
        try:
            await asyncio.sleep(self.seconds(asked.inputs[0].shape[0]))
        except asyncio.CancelledError:
            self.left += 1
            raise
        if any(self.refuses & set(values) for values in _values(asked)):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "an element is refused")
        return doubled(asked)


def _values(asked: messages.ModelInferRequest) -> list[list[float]]:
    found = []
    for at, item in enumerate(asked.inputs):
        if asked.raw_input_contents:
            raw, form = asked.raw_input_contents[at], FORMS[item.datatype]
            found.append(list(struct.unpack(f"<{len(raw) // struct.calcsize(form)}{form}", raw)))
        else:
            found.append(list(getattr(item.contents, FIELDS[item.datatype])))
    return found


def doubled(asked: messages.ModelInferRequest) -> messages.ModelInferResponse:
    """The right answer."""
    answer = messages.ModelInferResponse(
        model_name=asked.model_name, model_version="1", id=asked.id
    )
    for item, values in zip(asked.inputs, _values(asked), strict=True):
        twice = [2 * value for value in values]
        put = answer.outputs.add(name="out_" + item.name, datatype=item.datatype, shape=item.shape)
        if asked.raw_input_contents:
            form = FORMS[item.datatype]
            answer.raw_output_contents.append(struct.pack(f"<{len(twice)}{form}", *twice))
        else:
            getattr(put.contents, FIELDS[item.datatype]).extend(twice)
    return answer


def _method(answer: Callable[..., Any], asked: Any) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=asked.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


@asynccontextmanager
async def grpc_batch_server(**given: Any) -> AsyncIterator[GrpcBatchServer]:
    """A server that runs."""
    server = GrpcBatchServer(**given)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
