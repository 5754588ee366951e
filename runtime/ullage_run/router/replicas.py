# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replicas of a model over HTTP: what each runs, until when, and whether it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from ullage_run.router.run_times import RunTimes
from ullage_run.router.settings import Backend

IDLE_S: Final = 4.0
"""An idle connection is kept for less than the five seconds after which common servers close it."""
CONNECT_S: Final = 1.0
HOP_BY_HOP: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te"),
        *("trailer", "transfer-encoding", "upgrade", "content-length", "host", "expect", "date"),
        "server",
    }
)
"""Headers of one connection (RFC 9110, section 7.6.1), and those that each server sets itself."""


class NotDelivered(Exception):
    """No connection: the replica has not seen the request."""


class Broken(Exception):
    """The replica may have begun, and gave no answer that can be used."""


class TooLate(Broken):
    """The replica did not answer in the time that it had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A replica's answer as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True, kw_only=True, eq=False)
class Replica:
    """One replica; ``times`` is shared by those on equal devices at equal shares."""

    number: int
    backend: Backend
    times: RunTimes
    most_in_flight: int
    up: bool = False
    ends_s: dict[int, float] = field(default_factory=dict)
    """When each batch that runs is predicted to end, on the router's clock."""
    ran: int = 0

    @property
    def free(self) -> bool:
        """Whether it takes another batch."""
        return self.up and len(self.ends_s) < self.most_in_flight

    def left_s(self, now_s: float) -> float:
        """Predicted time until it has run what it has and one request more, seconds."""
        return sum(max(end - now_s, 0.0) for end in self.ends_s.values()) + self.times.single_s

    def down(self) -> None:
        """Give it nothing until a probe succeeds."""
        self.up = False


def least_loaded(replicas: Sequence[Replica], now_s: float) -> Replica | None:
    """The free replica with the least predicted time left; among equal ones the least used."""
    free = [replica for replica in replicas if replica.free]
    if len(free) == 1:
        return free[0]
    return min(free, key=lambda one: (one.left_s(now_s), one.ran), default=None)


class Connections:
    """Connections to all replicas, kept open and used again; ``open`` and ``close`` once each."""

    def __init__(self, answer_bytes: int) -> None:
        """No answer may be longer than ``answer_bytes``."""
        self._answer_bytes = answer_bytes
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Connections are made when they are needed."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    async def close(self) -> None:
        """Close all."""
        if self._session is not None:
            await self._session.close()

    async def ask(
        self,
        replica: Replica,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        within_s: float,
    ) -> Reply:
        """One exchange; ``path`` is sent as it is.

        Raises:
            NotDelivered: no connection was made.
            TooLate: no whole answer came in time.
            Broken: the connection ended, or the answer is no HTTP or too long.
        """
        if self._session is None:
            raise RuntimeError("connections are used before they are opened")
        url = URL(replica.backend.url + path, encoded=True)
        try:
            async with (
                asyncio.timeout(within_s),
                self._session.request(
                    method, url, headers=headers, data=body or None, allow_redirects=False
                ) as answer,
            ):
                return Reply(
                    status=answer.status,
                    headers=end_to_end(answer.headers),
                    body=await self._body(answer),
                )
        except aiohttp.ClientConnectorError as error:
            raise NotDelivered(f"no connection: {error}") from None
        except aiohttp.ConnectionTimeoutError:
            raise NotDelivered(f"no connection in {CONNECT_S:g} s") from None
        except TimeoutError:
            raise TooLate(f"no answer in {within_s:.3g} s") from None
        except (aiohttp.ClientError, ValueError, OSError) as error:
            raise Broken(f"the connection ended: {error or type(error).__name__}") from None

    async def _body(self, answer: aiohttp.ClientResponse) -> bytes:
        if (answer.content_length or 0) > self._answer_bytes:
            raise Broken(f"the answer has more than {self._answer_bytes} bytes")
        body = bytearray()
        async for chunk in answer.content.iter_any():
            body += chunk
            if len(body) > self._answer_bytes:
                raise Broken(f"the answer has more than {self._answer_bytes} bytes")
        return bytes(body)


def end_to_end(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """Headers without those of one connection, nor those that ``Connection`` names."""
    values = headers.getall("Connection", ())
    named = {word.strip().lower() for value in values for word in value.split(",")}
    left_out = HOP_BY_HOP | named
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in left_out
    )
