# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Maps HTTP statuses to gRPC and back; the router's own answers use those of HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import grpc
import orjson
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.duration_pb2 import Duration

from ullage_router.proto.retry_info_pb2 import RetryInfo, Status

TEXT_CHARACTERS: Final = 1024
DETAILS: Final = "grpc-status-details-bin"
RETRY_TYPE: Final = "type.googleapis.com/google.rpc.RetryInfo"

_CODE: Final[Mapping[int, grpc.StatusCode]] = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.ABORTED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    501: grpc.StatusCode.UNIMPLEMENTED,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
_STATUS: Final[Mapping[grpc.StatusCode, int]] = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNIMPLEMENTED: 501,
}


def code_of(status: int) -> grpc.StatusCode:
    """The code of an error status."""
    return _CODE.get(status, grpc.StatusCode.UNKNOWN)


def status_of(code: grpc.StatusCode) -> int:
    """The status of an error code."""
    return _STATUS.get(code, 500)


def text_of(body: bytes) -> str:
    """The text in the body of an error, bounded."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    error = parsed.get("error") if isinstance(parsed, dict) else None
    text = error if isinstance(error, str) else body.decode("utf-8", "replace")
    return text[:TEXT_CHARACTERS]


def retry_details(code: grpc.StatusCode, text: str, after_s: float) -> tuple[tuple[str, bytes]]:
    """The trailer with the retry delay (google.rpc.RetryInfo)."""
    delay = Duration(seconds=int(after_s), nanos=round(after_s % 1 * 1e9))
    info = RetryInfo(retry_delay=delay).SerializeToString()
    status = Status(
        code=code.value[0], message=text, details=[Packed(type_url=RETRY_TYPE, value=info)]
    )
    return ((DETAILS, status.SerializeToString()),)
