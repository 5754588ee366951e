# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The router's gRPC server: the Open Inference Protocol v2, with the same queue as HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, NoReturn, Protocol, TypeVar

import grpc
import grpc.aio
from multidict import CIMultiDict

from ullage_router.calls import ClientAnswer
from ullage_router.dispatcher import Dispatcher
from ullage_router.grpc_replicas import SERVICE
from ullage_router.grpc_status import TEXT_CHARACTERS, code_of, retry_details, text_of
from ullage_router.intake import HeldBytes, Intake, RequestRefused
from ullage_router.metrics import IntakeRefusal
from ullage_router.open_inference import MalformedAnswer
from ullage_router.paths import SERVER, ModelPath
from ullage_router.proto import open_inference_pb2 as messages
from ullage_router.replicas import OK
from ullage_router.settings import Address, RouterSettings
from ullage_router.submission import CallSubmission
from ullage_router.times import PING_S
from ullage_router.translation import model_metadata, server_metadata

METADATA_BYTES: Final = 16 * 1024
STREAMS: Final = 1024
"""Most concurrent requests of one connection."""
MILLISECONDS: Final = 1000
Asked = TypeVar("Asked")
Said = TypeVar("Said")


class CallContext(Protocol):
    """The used part of ``grpc.aio.ServicerContext``, with types."""

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]] | None:
        """Metadata that the client sent beside its message."""

    def time_remaining(self) -> float | None:
        """Seconds to the call's deadline."""

    async def read(self) -> object:
        """The next message, or the end marker."""

    async def write(self, message: bytes) -> None:
        """Send a message."""

    async def abort(
        self, code: grpc.StatusCode, details: str, trailers: Sequence[tuple[str, bytes]] = ()
    ) -> NoReturn:
        """End the call without an answer."""
        ...


class GrpcServer:
    """Listens for requests; ``start`` and ``stop`` once each."""

    def __init__(
        self,
        settings: RouterSettings,
        dispatcher: Dispatcher,
        intake: Intake,
        submission: CallSubmission,
    ) -> None:
        self._settings = settings
        self._dispatcher = dispatcher
        self._intake = intake
        self._submission = submission
        limits = settings.limits
        self._reading = asyncio.Semaphore(max(1, limits.queue_bytes // limits.body_bytes))
        self._draining = False
        self._server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limits.body_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.max_metadata_size", METADATA_BYTES),
                ("grpc.absolute_max_metadata_size", METADATA_BYTES),
                ("grpc.max_concurrent_streams", STREAMS),
                ("grpc.max_connection_idle_ms", int(limits.idle_s * MILLISECONDS)),
                ("grpc.keepalive_time_ms", int(PING_S * MILLISECONDS)),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=limits.connections,
        )
        self._server.add_generic_rpc_handlers((self._handlers(),))

    async def start(self, listen: Address) -> int:
        """Listen; returns the port.

        Raises:
            OSError: the address cannot be listened on.
        """
        host, port = listen
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            port = self._server.add_insecure_port(where)
        except RuntimeError as error:
            raise OSError(f"{where}: {error}") from None
        await self._server.start()
        return int(port)

    def leave(self) -> None:
        """Report not ready from now on."""
        self._draining = True

    async def stop(self, within_s: float) -> None:
        """Stop accepting; calls not answered in this time are cancelled."""
        await self._server.stop(within_s)

    def _handlers(self) -> grpc.GenericRpcHandler:
        handlers = {
            # A stream on this side only: bounds its size and its time before it is received.
            "ModelInfer": grpc.stream_stream_rpc_method_handler(self._infer),
            "ServerLive": _unary(self._live, messages.ServerLiveRequest),
            "ServerReady": _unary(self._ready, messages.ServerReadyRequest),
            "ModelReady": _unary(self._model_ready, messages.ModelReadyRequest),
            "ServerMetadata": _unary(self._server_metadata, messages.ServerMetadataRequest),
            "ModelMetadata": _unary(self._model_metadata, messages.ModelMetadataRequest),
        }
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    async def _infer(self, _: AsyncIterator[bytes], context: CallContext) -> None:
        arrived_s = self._dispatcher.now_s()
        held = HeldBytes(queue=self._dispatcher.queue)
        try:
            held.take(0)
            message = await self._message(context)
            held.take(len(message))
            taken = self._intake.take_message(
                message, _headers(context), context.time_remaining(), arrived_s
            )
            answer = await self._submission.answer("POST", taken, arrived_s)
            if answer.status == OK:
                await self._send(context, answer.body)
                return
        except RequestRefused as refused:
            answer = self._refusal(refused)
        finally:
            held.give_back()
        await _abort(context, answer)

    async def _message(self, context: CallContext) -> bytes:
        limits = self._settings.limits
        try:
            async with asyncio.timeout(limits.body_s), self._reading:
                message = await context.read()
        except TimeoutError:
            text = f"the message did not come in {limits.body_s:g} s"
            raise RequestRefused(408, text, IntakeRefusal.SLOW) from None
        if not isinstance(message, bytes):
            raise RequestRefused(400, "a request has one message", IntakeRefusal.MALFORMED)
        return message

    async def _send(self, context: CallContext, body: bytes) -> None:
        """Send an answer; a client that does not read it is dropped."""
        try:
            async with asyncio.timeout(self._settings.limits.body_s):
                await context.write(body)
        except TimeoutError:
            self._dispatcher.metrics.refused(IntakeRefusal.SLOW)
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the answer was not taken in")

    def _refusal(self, refused: RequestRefused) -> ClientAnswer:
        self._dispatcher.metrics.refused(refused.reason)
        again = {"Retry-After": "1"} if refused.reason is IntakeRefusal.FULL else {}
        return ClientAnswer(status=refused.status, body=b"", headers=again, error=str(refused))

    async def _live(
        self, _: messages.ServerLiveRequest, __: CallContext
    ) -> messages.ServerLiveResponse:
        return messages.ServerLiveResponse(live=True)

    async def _ready(
        self, _: messages.ServerReadyRequest, __: CallContext
    ) -> messages.ServerReadyResponse:
        ready = self._submission.takes_requests and not self._draining
        return messages.ServerReadyResponse(ready=ready)

    async def _model_ready(
        self, asked: messages.ModelReadyRequest, context: CallContext
    ) -> messages.ModelReadyResponse:
        path = await _path(asked, context, "ready")
        answer = await self._submission.about("GET", path, self._dispatcher.now_s())
        return messages.ModelReadyResponse(ready=answer.status == OK)

    async def _server_metadata(
        self, _: messages.ServerMetadataRequest, context: CallContext
    ) -> messages.ServerMetadataResponse:
        return server_metadata(await self._metadata(SERVER, context))

    async def _model_metadata(
        self, asked: messages.ModelMetadataRequest, context: CallContext
    ) -> messages.ModelMetadataResponse:
        return model_metadata(await self._metadata(await _path(asked, context, ""), context))

    async def _metadata(self, path: str, context: CallContext) -> bytes:
        answer = await self._submission.about("GET", path, self._dispatcher.now_s())
        if answer.status != OK:
            await _abort(context, answer)
        return answer.body


def _unary(
    answer: Callable[[Asked, CallContext], Awaitable[Said]], asked: type[Asked]
) -> grpc.RpcMethodHandler:
    """A method of one message each way; a replica's malformed answer is an error."""

    async def answered(message: Asked, context: CallContext) -> Said:
        try:
            return await answer(message, context)
        except MalformedAnswer as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    return grpc.unary_unary_rpc_method_handler(
        answered,
        request_deserializer=asked.FromString,  # type: ignore[attr-defined]
        response_serializer=lambda message: message.SerializeToString(),
    )


async def _path(
    asked: messages.ModelReadyRequest | messages.ModelMetadataRequest,
    context: CallContext,
    what: str,
) -> str:
    if not asked.name:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "name is the name of a model")
    return ModelPath(name=asked.name, version=asked.version, what=what).text


def _headers(context: CallContext) -> CIMultiDict[str]:
    """The text metadata; gRPC has checked that they are printable."""
    given = context.invocation_metadata() or ()
    return CIMultiDict((name, value) for name, value in given if isinstance(value, str))


async def _abort(context: CallContext, answer: ClientAnswer) -> NoReturn:
    """End a call with an error of the router or a replica.

    Raises:
        grpc.aio.AbortError: always.
    """
    code = code_of(answer.status)
    text = answer.error[:TEXT_CHARACTERS] or text_of(answer.body)
    again = answer.headers.get("Retry-After", "")
    trailers = retry_details(code, text, int(again)) if again.isdecimal() else ()
    await context.abort(code, text, trailers)
