# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A suggestion service of Katib behind its gRPC; it is untrusted and may hang."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Protocol, Self

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from ullage.process.faults import shortened
from ullage_katib.proto import suggestion_pb2 as messages

SERVICE: Final = "api.v1.beta1.Suggestion"
ANSWER_BYTES: Final = 4 * 2**20
"""Maximum size of an answer; 256 points of 32 parameters take less than one of these MiB."""
OPTIONS: Final = [
    ("grpc.max_receive_message_length", ANSWER_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
]
ANSWERED: Final = (
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.OUT_OF_RANGE,
)
"""Codes of a failure in the service's program, as opposed to the connection."""
SETTINGS_REFUSED: Final = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNKNOWN)
"""Codes that Katib uses for invalid settings."""


class ServiceError(Exception):
    """A call failed.

    Attributes:
        refused: True when the service's program rejects the request.
    """

    def __init__(self, text: str, *, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused


class SettingsRefused(Exception):
    """The service does not know the algorithm or a setting; the text is the service's."""


class SuggestionCalls(Protocol):
    """The calls of a suggestion service."""

    async def validate(self, experiment: messages.Experiment) -> None:
        """Check that algorithm, settings and search space fit together.

        Raises:
            SettingsRefused: they do not.
            ServiceError: there is no answer.
        """
        ...

    async def suggest(
        self, request: messages.GetSuggestionsRequest
    ) -> messages.GetSuggestionsReply:
        """Request points.

        Raises:
            ServiceError: there is no answer, or none of the protocol.
        """
        ...


class KatibService:
    """One service; close it when done.

    Args:
        address: ``HOST:PORT``.
        deadline_s: Seconds that each answer may take.
    """

    def __init__(self, address: str, deadline_s: float) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        self._deadline_s = deadline_s

    async def __aenter__(self) -> Self:
        """Set up the client; it connects at first use."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        await self._channel.close()

    async def validate(self, experiment: messages.Experiment) -> None:
        """See :class:`SuggestionCalls`; a service without this method accepts everything."""
        request = messages.ValidateAlgorithmSettingsRequest(experiment=experiment)
        try:
            await self._call("ValidateAlgorithmSettings", request.SerializeToString())
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return
            if error.code() in SETTINGS_REFUSED:
                raise SettingsRefused(shortened(error.details() or "no text")) from error
            raise _failed(error) from error

    async def suggest(
        self, request: messages.GetSuggestionsRequest
    ) -> messages.GetSuggestionsReply:
        """See :class:`SuggestionCalls`."""
        try:
            answer = await self._call("GetSuggestions", request.SerializeToString())
        except grpc.aio.AioRpcError as error:
            raise _failed(error) from error
        try:
            return messages.GetSuggestionsReply.FromString(answer)
        except DecodeError as error:
            text = f"an answer of {len(answer)} bytes is no message of the protocol"
            raise ServiceError(text) from error

    async def _call(self, method: str, body: bytes) -> bytes:
        call = self._channel.unary_unary(f"/{SERVICE}/{method}")
        answer: bytes = await call(body, timeout=self._deadline_s)
        return answer


def _failed(error: grpc.aio.AioRpcError) -> ServiceError:
    text = shortened(f"{error.code().name}: {error.details() or 'no text'}")
    return ServiceError(text, refused=error.code() in ANSWERED)
