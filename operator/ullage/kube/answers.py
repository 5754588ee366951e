# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Maps answers of the API server to errors that callers can act on; the only such mapping.

Pure functions. No other module may evaluate an HTTP status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

from ullage.ports import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    JsonObject,
    NotFound,
    Throttled,
    Unavailable,
)

MESSAGE_MAX: Final = 4_000
"""Maximum characters of an error text."""

_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


UNTYPED_APPLY: Final = "failed to create typed patch object"
"""Text of the API server's 500 to an apply whose body does not fit the schema; a retry is
useless."""


class WatchStalled(Unavailable):
    """An open watch outlived its time limit: the server neither sent data nor ended it."""


class TooLarge(ApiError):
    """An answer exceeds the size limit: request fewer objects at once."""


class TokenRenewed(Unavailable):
    """A write was rejected for an expired token, without effect; retry it with a new one."""


class BadLine(Unavailable):
    """A watch sent a line that is no event; its content is lost, so list again."""


def error_of(
    status: int, message: str, reason: str = "", *, retry_after_s: float = 0.0
) -> ApiError:
    """The exception for one status; 0 = no answer at all."""
    text = message[:MESSAGE_MAX]
    if status == 429:
        return Throttled(status, text, reason, retry_after_s)
    known = _BY_STATUS.get(status)
    if known is not None:
        return known(status, text, reason)
    if status == 0 or status >= 500:
        return Unavailable(status, text, reason)
    return BadRequest(status, text, reason)


def error_from_answer(status: int, retry_after: str, body: bytes) -> ApiError:
    """The exception for an HTTP answer; a body that is no Status is quoted verbatim."""
    message, reason = body.decode(errors="replace").strip(), ""
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        decoded = None
    if isinstance(decoded, dict) and decoded.get("kind") == "Status":
        message = str(decoded.get("message", ""))
        reason = str(decoded.get("reason", ""))
    if status == 500 and message.startswith(UNTYPED_APPLY):
        return BadRequest(status, message[:MESSAGE_MAX], reason)
    return error_of(
        status, message or "no text", reason, retry_after_s=seconds_to_wait(retry_after)
    )


def error_from_status(body: JsonObject) -> ApiError:
    """The exception for a Status object inside a watch."""
    code = body.get("code")
    return error_of(
        code if isinstance(code, int) else 500,
        str(body.get("message", "the watch ended with an error")),
        str(body.get("reason", "")),
    )


def seconds_to_wait(retry_after: str) -> float:
    """A ``Retry-After`` header in seconds; 0 when absent or a date (the API server sends none)."""
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        return 0.0
