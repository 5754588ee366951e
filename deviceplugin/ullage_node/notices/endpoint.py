# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Client of one metadata endpoint: plain HTTP, short answers, untrusted.

It belongs to the provider, but anything may answer at a link-local address: redirects and proxies
are ignored, answers have a size limit, and each call has a time limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from math import floor
from typing import Final, Protocol

import aiohttp

from ullage.api.interruptions import Interruption
from ullage.api.times import moment_of

ANSWER_BYTES_MAX: Final = 64 << 10


class EndpointAway(Exception):
    """No answer, or a temporary refusal; the text is stable, so that it is reported once."""


class AnswerUnreadable(Exception):
    """An answer that is not in this provider's format; the text is stable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataAnswer:
    """An answer of the endpoint."""

    status: int
    text: str
    headers: Mapping[str, str]


class Endpoint:
    """Client of one base URL.

    Args:
        session: follows no proxy of the environment.
        base: ``http://host[:port]``, without a path.
        timeout_s: timeout of one answer, in addition to a requested wait.
    """

    def __init__(self, session: aiohttp.ClientSession, base: str, timeout_s: float) -> None:
        self._session = session
        self._base = base.rstrip("/")
        self._timeout_s = timeout_s

    async def get(
        self, path: str, headers: Mapping[str, str] | None = None, *, wait_s: float = 0.0
    ) -> MetadataAnswer:
        """Read a path; ``wait_s`` is how long the server may delay the answer.

        Raises:
            EndpointAway: no answer, or a too large one.
        """
        return await self._ask("GET", path, headers, wait_s)

    async def put(self, path: str, headers: Mapping[str, str]) -> MetadataAnswer:
        """PUT an empty body with headers.

        Raises:
            EndpointAway: no answer, or a too large one.
        """
        return await self._ask("PUT", path, headers, 0.0)

    async def _ask(
        self, method: str, path: str, headers: Mapping[str, str] | None, wait_s: float
    ) -> MetadataAnswer:
        where = self._base + path.partition("?")[0]
        try:
            async with self._session.request(
                method,
                self._base + path,
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=self._timeout_s + wait_s),
            ) as answer:
                body = await answer.content.read(ANSWER_BYTES_MAX + 1)
                while body and len(body) <= ANSWER_BYTES_MAX:
                    more = await answer.content.read(ANSWER_BYTES_MAX + 1)
                    if not more:
                        break
                    body += more
                if len(body) > ANSWER_BYTES_MAX:
                    raise EndpointAway(f"{where} answers more than {ANSWER_BYTES_MAX >> 10} KiB")
                text = body.decode("utf-8", "replace").strip()
                return MetadataAnswer(status=answer.status, text=text, headers=answer.headers)
        except TimeoutError as error:
            raise EndpointAway(f"{where} did not answer within {self._timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise EndpointAway(f"{where} cannot be read ({type(error).__name__})") from error


class NoticeSource(Protocol):
    """One provider's notices."""

    name: str
    """Name of the provider, as in the notice."""
    base: str
    """Base URL of its endpoint on all its machines."""

    async def ask(self, endpoint: Endpoint, known: Interruption | None) -> Interruption | None:
        """The notice in force; ``None`` = none.

        Args:
            endpoint: to query.
            known: the notice in force so far; its deadline is kept if the answer has none.

        Raises:
            EndpointAway: no answer at present.
            AnswerUnreadable: a malformed answer.
        """
        ...


def ok_or_away(answer: MetadataAnswer, path: str) -> str:
    """The text of an answer that must exist.

    Raises:
        EndpointAway: it does not exist.
    """
    if answer.status != 200:
        raise EndpointAway(f"{path} answers {answer.status}, not 200")
    return answer.text


def rfc3339_moment(value: str) -> float:
    """``2026-01-02T03:04:05Z`` as whole seconds since the epoch: a deadline identifies a notice.

    Raises:
        ValueError: not in this format, or without a zone.
    """
    return float(floor(moment_of(value, "time")))


def http_moment(value: str) -> float:
    """``Mon, 19 Sep 2016 18:29:47 GMT`` as whole seconds since the epoch.

    Raises:
        ValueError: not in this format, or without a zone.
    """
    try:
        moment = parsedate_to_datetime(value)
    except (TypeError, IndexError, OverflowError) as error:
        raise ValueError("no time") from error
    return float(floor(moment_of(moment.isoformat(), "time")))
