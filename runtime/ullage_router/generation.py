# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Generation requests in OpenAI's format: the parts of them and their answers that are read.

The formats are those of OpenAI's completions and chat completions (API reference, "stream",
"usage", "finish_reason"), which vLLM, SGLang and llama.cpp serve. A malformed field is ignored: the
server reports the error.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import orjson

from ullage.engines.batching.output_tokens import MOST_TOKENS
from ullage_router.open_inference import MalformedRequest
from ullage_run.tensors import object_of

GENERATES: Final = re.compile(r"(?:/v1)?/(?:chat/)?completions")
"""Paths of generation requests."""
ERRORS: Final[Mapping[int, tuple[str, str]]] = {
    400: ("invalid_request_error", "invalid_request"),
    408: ("invalid_request_error", "request_timeout"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    501: ("invalid_request_error", "not_implemented"),
    502: ("server_error", "bad_gateway"),
    503: ("server_error", "service_unavailable"),
    504: ("server_error", "gateway_timeout"),
}
"""Type and code of an error by its status."""
SERVER_ERROR: Final = ("server_error", "internal_error")
CHOICES: Final = 128
"""Most choices counted of one request."""
_BOUNDS: Final = ("max_completion_tokens", "max_tokens")
_USAGE: Final = re.compile(rb'"completion_tokens"\s*:\s*([0-9]{1,9})')
_CUT: Final = re.compile(rb'"finish_reason"\s*:\s*"length"')
_EVENT: Final = b"\ndata:"
_LAST: Final = b"\ndata: [DONE]"
_TAIL: Final = 64
"""Bytes of a part that are searched again with the next: a match may span both."""
_SEARCHED: Final = 1 << 20
"""Bytes at the end of a whole answer that are searched for its usage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generate:
    """The fields of a request that the router reads; ``most_tokens`` is 0 without a bound."""

    model: str
    most_tokens: int
    streamed: bool
    prompt_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationKey:
    """Key of requests that are expected to hold their places equally long.

    ``model`` is a digest, as its name may be any text. Bounds are rounded up to powers of two,
    prompts are grouped by powers of two of their bytes. ``whole``: the deadline applies to the end
    of the answer, not to its first token.
    """

    app: str
    model: str
    most_tokens: int
    prompt_bits: int
    whole: bool

    @classmethod
    def of(cls, app: str, generate: Generate, *, whole: bool) -> Self:
        """The key of a request."""
        most = generate.most_tokens
        return cls(
            app=app,
            model=digest_of(generate.model),
            most_tokens=1 << (most - 1).bit_length() if most else 0,
            prompt_bits=generate.prompt_bytes.bit_length(),
            whole=whole,
        )

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Parse a key from its text; ``None`` = invalid."""
        app, _, rest = text.rpartition("/")
        words = rest.split(".")
        if len(words) != 4:
            return None
        model, most, prompt, about = words
        return cls(
            app=app,
            model=model,
            most_tokens=int(most),
            prompt_bits=int(prompt),
            whole=about == "whole",
        )

    @property
    def text(self) -> str:
        """The queue name: an application, and the rest after the slash."""
        about = "whole" if self.whole else "first"
        return f"{self.app}/{self.model}.{self.most_tokens}.{self.prompt_bits}.{about}"


def digest_of(model: str) -> str:
    """A short name of a model's name."""
    return hashlib.blake2s(model.encode("utf-8", "replace"), digest_size=6).hexdigest()


def read(body: bytes) -> Generate:
    """Read a request's body.

    Raises:
        MalformedRequest: it is not a JSON object.
    """
    try:
        request = object_of(orjson.loads(body), "the body")
    except orjson.JSONDecodeError as error:
        raise MalformedRequest(f"the body is no JSON: {error}") from None
    except ValueError as error:
        raise MalformedRequest(str(error)) from None
    model = request.get("model")
    bounds = [bound for name in _BOUNDS if (bound := _whole(request.get(name)))]
    choices = min(_whole(request.get("n")) or 1, CHOICES)
    return Generate(
        model=model if isinstance(model, str) else "",
        most_tokens=min(bounds[0] * choices, MOST_TOKENS) if bounds else 0,
        streamed=request.get("stream") is True,
        prompt_bytes=len(body),
    )


def error_body(status: int, text: str) -> bytes:
    """The error object of OpenAI's API: its clients show only ``message``."""
    kind, code = ERRORS.get(status, SERVER_ERROR)
    message = text.encode("utf-8", "replace").decode()
    return orjson.dumps({"error": {"message": message, "type": kind, "code": code, "param": None}})


def _whole(value: object) -> int:
    """A number of tokens; 0 if invalid."""
    return min(value, MOST_TOKENS) if type(value) is int and value > 0 else 0


@dataclass(slots=True)
class TokenMeter:
    """Counts the tokens of one answer in transit.

    A server-sent event has one token, or a few with some servers under load: the answer's own usage
    takes precedence over the count.
    """

    first_s: float = 0.0
    last_s: float = 0.0
    cut: bool = False
    """True if the bound of the request ended it."""
    _events: int = 0
    _used: int = 0
    _before: bytes = b"\n"
    _counted_of_before: int = 0

    @property
    def tokens(self) -> int:
        """Tokens so far."""
        return min(self._used or self._events, MOST_TOKENS)

    @property
    def between_s(self) -> float:
        """Mean time from one token to the next, seconds; 0 while there are not two."""
        steps = self.tokens - 1
        return (self.last_s - self.first_s) / steps if steps > 0 else 0.0

    def take(self, part: bytes, now_s: float) -> None:
        """Process a part of a stream, received at ``now_s``."""
        seen = self._before + part
        events = seen.count(_EVENT) - seen.count(_LAST)
        self._events += events - self._counted_of_before
        self._search(seen)
        self._before = seen[-_TAIL:]
        self._counted_of_before = self._before.count(_EVENT) - self._before.count(_LAST)
        self.first_s = self.first_s or now_s
        self.last_s = now_s

    def take_whole(self, body: bytes, now_s: float) -> None:
        """Process an answer received as a whole."""
        self._search(body[-_SEARCHED:])
        self.first_s = self.last_s = now_s

    def _search(self, text: bytes) -> None:
        if b"completion_tokens" in text:
            counts = _USAGE.findall(text)
            if counts:
                self._used = min(int(counts[-1]), MOST_TOKENS)
        if b"finish_reason" in text and _CUT.search(text):
            self.cut = True
