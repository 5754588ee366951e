# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a client's request within its limits, and converts it for the queue."""

from __future__ import annotations

import asyncio
import math
import re
import zlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage
from multidict import CIMultiDict, CIMultiDictProxy

from ullage_router import generation, infer_messages, open_inference, translation
from ullage_router.calls import Translate
from ullage_router.generation import GENERATES, Generate
from ullage_router.metrics import IntakeRefusal
from ullage_router.open_inference import InferRequest, MalformedRequest
from ullage_router.paths import INFER, ModelPath
from ullage_router.replicas import end_to_end
from ullage_router.request_queue import CALL_BYTES, RequestQueue
from ullage_router.settings import ClientLimits, RouterSettings
from ullage_run.binary_tensors import HEADER, Body, json_bytes_of

APP: Final = re.compile(r"[A-Za-z0-9._-]{1,63}")
TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
TRACESTATE_BYTES: Final = 512
ENCODINGS: Final[Mapping[str, int]] = {
    "gzip": zlib.MAX_WBITS | 16,
    "x-gzip": zlib.MAX_WBITS | 16,
    "deflate": zlib.MAX_WBITS,
}
"""Supported content encodings of requests, with their zlib parameter."""
UNPACKED_AT_ONCE: Final = 1 << 18
"""Bytes decompressed before other tasks run."""
ALL_RAW_BYTES: Final = "0"
"""The length of the JSON of a body that is one raw tensor only (an extension of Triton): its shape
is unknown, so it runs alone."""
IDEMPOTENCY: Final = "Idempotency-Key"
REPEATABLE: Final = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"})
"""Idempotent by RFC 9110, section 9.2.2."""
APPS: Final = 32
"""Most applications with their own name; later ones share one."""
DEFAULT_APP: Final = "default"
OTHER_APP: Final = "other"
PRINTABLE: Final = re.compile(r"[ -~]*")
Given = CIMultiDict[str] | CIMultiDictProxy[str]
TEXT: Final = "text"
"""The group of all generation requests: each takes its own place, in one order over all."""
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class RequestRefused(Exception):
    """A refused request; the text says what to change."""

    def __init__(self, status: int, text: str, reason: IntakeRefusal) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A request that was read.

    ``group`` is the common key of a batch, ``None`` for a request that runs alone; ``elements`` is
    its size, in tensor elements or else in bytes.
    """

    path: str
    headers: Mapping[str, str]
    body: bytes
    app: str
    deadline_s: float
    idempotent: bool
    infer: InferRequest | None
    group: Hashable | None
    elements: int
    translate: Translate | None = None
    generate: Generate | None = None
    whole: bool = False
    """The deadline applies to the whole answer, even of a generated text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A request in the replicas' protocol."""

    body: bytes
    infer: InferRequest
    translate: Translate | None = None


@dataclass(slots=True, kw_only=True)
class Intake:
    """Reads requests; keeps the named applications."""

    settings: RouterSettings
    queue: RequestQueue
    _apps: set[str] = field(init=False, default_factory=lambda: {DEFAULT_APP, OTHER_APP})

    async def take(self, request: web.BaseRequest, arrived_s: float, held: HeldBytes) -> Taken:
        """Read a complete request.

        Args:
            request: Its headers are read, its body is not.
            arrived_s: Arrival on the router's clock.
            held: Grows with its body.

        Raises:
            Refused: it is malformed, too large, too slow, or the memory budget is spent.
        """
        settings = self.settings
        app = self._app(request.headers.get(settings.app_header))
        deadline_s = arrived_s + self._allowed_s(request.headers.get(settings.deadline_header))
        body = await self._body(request, held)
        if request.method == "POST" and INFER.fullmatch(request.path):
            encoding = request.headers.get("Content-Encoding", "").strip().lower()
            header = request.headers.get(HEADER)
            if (not encoding or encoding in ENCODINGS) and header != ALL_RAW_BYTES:
                if encoding:
                    body = await self._unpacked(encoding, body, held)
                read = self._read_json(request.raw_path, body, header)
                return self._taken(read, request.raw_path, request.headers, app, deadline_s)
        if settings.over_grpc:
            text = "the replicas speak gRPC: only the Open Inference Protocol is passed on"
            raise RequestRefused(501, text, IntakeRefusal.MALFORMED)
        generate = self._generate(request, body)
        named = settings.deadline_header in request.headers
        repeatable = request.method in REPEATABLE or IDEMPOTENCY in request.headers
        return Taken(
            path=request.raw_path,
            headers=traced(end_to_end(request.headers)),
            body=body,
            app=app,
            deadline_s=deadline_s,
            idempotent=repeatable or generate is not None,
            infer=None,
            group=TEXT if generate is not None else None,
            elements=len(body),
            generate=generate,
            whole=generate is not None and named and not generate.streamed,
        )

    def _generate(self, request: web.BaseRequest, body: bytes) -> Generate | None:
        """Read a generation request; ``None`` = it is not one, or the replicas are not generative.

        Raises:
            Refused: it is malformed.
        """
        asks = self.settings.generative is not None and request.method == "POST"
        if not asks or not GENERATES.fullmatch(request.path):
            return None
        if "Content-Encoding" in request.headers:
            return None
        try:
            return generation.read(body)
        except MalformedRequest as error:
            raise RequestRefused(400, str(error), IntakeRefusal.MALFORMED) from None

    def take_message(
        self,
        message: bytes,
        metadata: CIMultiDict[str],
        left_s: float | None,
        arrived_s: float,
    ) -> Taken:
        """Read a gRPC request.

        Args:
            message: A ModelInferRequest.
            metadata: The call's metadata.
            left_s: Seconds to the call's own deadline, if any.
            arrived_s: Arrival on the router's clock.

        Raises:
            Refused: it is malformed.
        """
        settings = self.settings
        app = self._app(metadata.get(settings.app_header))
        named = metadata.get(settings.deadline_header)
        allowed = settings.limits.longest_s
        if named is not None or left_s is None:
            allowed = self._allowed_s(named)
        if left_s is not None:
            allowed = min(allowed, left_s)
        read, path = self._read_message(message)
        return self._taken(read, path, metadata, app, arrived_s + allowed)

    def _taken(
        self,
        read: Read,
        path: str,
        given: Given,
        app: str,
        deadline_s: float,
    ) -> Taken:
        passed = tuple(given.get(name, "") for name in self.settings.pass_headers)
        if self.settings.over_grpc and not all(map(PRINTABLE.fullmatch, passed)):
            text = f"{', '.join(self.settings.pass_headers)}: gRPC takes printable ASCII only"
            raise RequestRefused(400, text, IntakeRefusal.MALFORMED)
        infer = read.infer
        return Taken(
            path=path,
            headers=self._passed_on(given, passed, infer.json_bytes),
            body=read.body,
            app=app,
            deadline_s=deadline_s,
            idempotent=not infer.stateful,
            infer=infer,
            group=(path, infer.key, passed) if infer.rows else None,
            elements=infer.elements,
            translate=read.translate,
        )

    def _read_json(self, path: str, body: bytes, header: str | None) -> Read:
        """An HTTP client's inference request, in the replicas' protocol."""
        try:
            json_bytes = json_bytes_of(header, len(body))
            infer = open_inference.read(body, json_bytes)
            if not self.settings.over_grpc:
                return Read(body=body, infer=infer)
            model = ModelPath.of(path)
            if model is None or model.what != "infer":
                raise MalformedRequest("the path names no model")
            message = translation.request_of_json(body, model.name, model.version, json_bytes)
            return Read(
                body=message,
                infer=infer_messages.read(message),
                translate=partial(translation.body_of_answer, wanted=infer.wanted),
            )
        except ValueError as error:
            raise RequestRefused(400, str(error), IntakeRefusal.MALFORMED) from None

    def _read_message(self, body: bytes) -> tuple[Read, str]:
        """A gRPC client's inference request, in the replicas' protocol, and its path."""
        try:
            message = infer_messages.message_of(body)
            infer = infer_messages.about(message)
            if not message.model_name:
                raise MalformedRequest("model_name is a text")
            model = ModelPath(name=message.model_name, version=message.model_version, what="infer")
            if self.settings.over_grpc:
                return Read(body=body, infer=infer), model.text
            text = translation.json_of_request(message)
            raw = bool(message.raw_input_contents)
            return Read(
                body=text,
                infer=open_inference.read(text),
                translate=lambda answer: Body(translation.answer_of_json(answer, raw=raw)),
            ), model.text
        except MalformedRequest as error:
            raise RequestRefused(400, str(error), IntakeRefusal.MALFORMED) from None

    def _passed_on(
        self, given: Given, passed: tuple[str, ...], json_bytes: int
    ) -> CIMultiDict[str]:
        headers = CIMultiDict(Body(b"", json_bytes).headers)
        named = zip(self.settings.pass_headers, passed, strict=True)
        headers.extend((name, value) for name, value in named if value)
        for name in ("traceparent", "tracestate"):
            headers.extend((name, value) for value in given.getall(name, ()))
        return traced(headers)

    def _app(self, name: str | None) -> str:
        if name is None:
            return DEFAULT_APP
        if not APP.fullmatch(name):
            header = self.settings.app_header
            text = f"{header} is 1 to 63 letters, digits, dots, dashes and underscores"
            raise RequestRefused(400, text, IntakeRefusal.MALFORMED)
        if name not in self._apps and len(self._apps) < APPS:
            self._apps.add(name)
        return name if name in self._apps else OTHER_APP

    def _allowed_s(self, text: str | None) -> float:
        """Seconds from arrival to the deadline."""
        if text is None:
            return self.settings.objective_s
        longest = self.settings.limits.longest_s
        try:
            allowed = float(text) / 1e3
        except ValueError:
            allowed = math.nan
        if not 0 < allowed <= longest:
            header = self.settings.deadline_header
            text = f"{header} is a number of milliseconds above 0 and at most {1e3 * longest:g}"
            raise RequestRefused(400, text, IntakeRefusal.MALFORMED)
        return allowed

    async def _body(self, request: web.BaseRequest, held: HeldBytes) -> bytes:
        limits = self.settings.limits
        declared = request.content_length or 0
        if declared > limits.body_bytes:
            raise _too_large(limits)
        held.take(declared)
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
            request.transport.write(CONTINUE)
        content, body = request.content, bytearray()
        try:
            if content.is_eof() and content.total_bytes <= limits.body_bytes:
                held.take(content.total_bytes)  # received with its head: no time to bound
                return content.read_nowait(-1)
            async with asyncio.timeout(limits.body_s):
                async for chunk in content.iter_any():
                    body += chunk
                    if len(body) > limits.body_bytes:
                        raise _too_large(limits)
                    held.take(len(body))
        except TimeoutError:
            text = f"the body did not come in {limits.body_s:g} s"
            raise RequestRefused(408, text, IntakeRefusal.SLOW) from None
        except (web.RequestPayloadError, BadHttpMessage) as error:
            text = f"the body cannot be read: {error}"
            raise RequestRefused(400, text, IntakeRefusal.MALFORMED) from None
        return bytes(body)

    async def _unpacked(self, encoding: str, body: bytes, held: HeldBytes) -> bytes:
        """A body without its content encoding; ``held`` grows with it."""
        limits, unpacked = self.settings.limits, bytearray()
        unpack = zlib.decompressobj(ENCODINGS[encoding])
        try:
            while not unpack.eof:
                piece = unpack.decompress(body, UNPACKED_AT_ONCE)
                body = unpack.unconsumed_tail
                if not piece and not body:
                    break
                unpacked += piece
                if len(unpacked) > limits.body_bytes:
                    raise _too_large(limits)
                held.take(len(unpacked))
                await asyncio.sleep(0)
        except zlib.error as error:
            text = f"the body is not what Content-Encoding {encoding} says: {error}"
            raise RequestRefused(400, text, IntakeRefusal.MALFORMED) from None
        if not unpack.eof or unpack.unused_data:
            text = f"the body is not one whole stream of Content-Encoding {encoding}"
            raise RequestRefused(400, text, IntakeRefusal.MALFORMED)
        return bytes(unpacked)


@dataclass(slots=True, kw_only=True)
class HeldBytes:
    """Bytes of the queue's budget that one request holds, until ``give_back``."""

    queue: RequestQueue
    held_bytes: int = 0

    def take(self, body_bytes: int) -> None:
        """Reserve the memory of a body of this size, plus the fixed cost of a request.

        Raises:
            Refused: the budget is spent.
        """
        more = CALL_BYTES + body_bytes - self.held_bytes
        if more <= 0:
            return
        if not self.queue.reserve(more):
            text = "requests that wait take all memory that there is for them; come again later"
            raise RequestRefused(429, text, IntakeRefusal.FULL)
        self.held_bytes += more

    def give_back(self) -> None:
        """Release all bytes."""
        self.queue.free(self.held_bytes)
        self.held_bytes = 0


def traced(headers: CIMultiDict[str]) -> CIMultiDict[str]:
    """Headers without an invalid trace context (W3C Trace Context, sections 3.2 and 3.3)."""
    if "traceparent" not in headers and "tracestate" not in headers:
        return headers
    parents, states = headers.getall("traceparent", []), headers.getall("tracestate", [])
    good = len(parents) == 1 and TRACEPARENT.fullmatch(parents[0])
    if not good:
        headers.popall("traceparent", None)
    kept = sum(map(len, states)) <= TRACESTATE_BYTES and all(map(PRINTABLE.fullmatch, states))
    if not good or not kept:
        headers.popall("tracestate", None)
    return headers


def _too_large(limits: ClientLimits) -> RequestRefused:
    text = f"a body has at most {limits.body_bytes} bytes"
    return RequestRefused(413, text, IntakeRefusal.TOO_LARGE)
