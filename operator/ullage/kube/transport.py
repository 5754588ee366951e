# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests to the API server over the ``kubernetes`` package's asyncio client.

It provides credentials, TLS and pooling; bodies stay raw JSON. Every request has a time limit,
every failure is an ``ApiError``. Must never repeat a write: retries are decided by the writer,
which checks the Lease again. (aiohttp itself resends a PUT or DELETE, within the same time limit,
when an idle connection turns out to be closed; both have a version or a uid.)
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any, Final
from urllib.request import getproxies

import aiohttp
import structlog
from kubernetes.aio.client import ApiClient
from kubernetes.aio.config import ConfigException

from ullage.kube.answers import TokenRenewed, TooLarge, error_from_answer, error_of
from ullage.kube.credentials import Credentials
from ullage.kube.decoding import decoded
from ullage.ports import ApiError, JsonObject, Unavailable

log = structlog.get_logger("ullage.api")

JSON: Final = "application/json"

Query = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportLimits:
    """Time limits of requests, seconds, and retries of reads."""

    read_s: float = 30.0
    write_s: float = 3.0
    """Below the Lease's duration minus its renew deadline: no write of an old leader may arrive
    during a new leadership."""
    connect_s: float = 4.0
    """Two lost packets of a handshake; bounds the detection of a recovered server."""
    watch_grace_s: float = 10.0
    """Time by which a watch may exceed its requested duration."""
    answer_bytes: int = 32 * 2**20
    """Maximum size of one answer; decoded it takes several times as much memory."""
    read_tries: int = 3
    retry_first_s: float = 0.2
    """First pause before a read is retried, full jitter; doubles each time."""


class Transport:
    """One connection pool to one API server with one identity."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        limits: TransportLimits,
        user_agent: str,
        seed: int | None,
    ) -> None:
        self.credentials = credentials
        self.limits = limits
        configuration = credentials.configuration
        if not getproxies():
            # else every request looks up proxies and .netrc again, each in a thread
            configuration.client_session_kwargs = {"trust_env": False}
        self._api: Any = ApiClient(configuration)
        self._api.user_agent = user_agent
        self._random = random.Random(seed)
        self._renewing = asyncio.Lock()
        self._fresh: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to renew the token, where its source does not do so itself."""
        if self.credentials.keep_fresh is not None and self._fresh is None:
            self._fresh = asyncio.create_task(self._keep_fresh())

    async def close(self) -> None:
        """End the token task and close all connections."""
        if self._fresh is not None:
            self._fresh.cancel()
            await asyncio.gather(self._fresh, return_exceptions=True)
            self._fresh = None
        await self._api.close()

    async def _keep_fresh(self) -> None:
        """Outermost loop of the token task; a 401 renews the token too, so its end is harmless."""
        assert self.credentials.keep_fresh is not None
        try:
            await self.credentials.keep_fresh()
        except Exception as error:
            log.warning("token renewal ended", source=self.credentials.source, error=str(error))

    async def read(self, path: str, query: Query) -> JsonObject:
        """GET, retried with jitter while the server is unavailable."""
        limit = self._limit(self.limits.read_s)
        pause = self.limits.retry_first_s
        for last in (*[False] * (self.limits.read_tries - 1), True):
            try:
                return await self._ask("GET", path, query, limit=limit)
            except Unavailable:
                if last:
                    raise
            await asyncio.sleep(self._random.uniform(0.0, pause))
            pause *= 2
        raise AssertionError("read_tries is at least 1")

    async def write(
        self,
        method: str,
        path: str,
        body: Any,
        *,
        query: Query | None = None,
        content_type: str = JSON,
    ) -> JsonObject:
        """Send one write once; the server abandons it when we do.

        Raises:
            TokenRenewed: the token was rejected and has been renewed; the write had no effect.
        """
        return await self._ask(
            method,
            path,
            [*(query or []), ("timeout", f"{self.limits.write_s:g}s")],
            limit=self._limit(self.limits.write_s),
            body=body,
            content_type=content_type,
        )

    def _limit(self, total_s: float) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(
            total=total_s, sock_connect=min(total_s, self.limits.connect_s)
        )

    async def _ask(
        self,
        method: str,
        path: str,
        query: Query,
        *,
        limit: aiohttp.ClientTimeout,
        body: Any = None,
        content_type: str = JSON,
    ) -> JsonObject:
        """One request with a JSON object as answer."""
        response = await self.open(
            method, path, query, limit=limit, body=body, content_type=content_type
        )
        try:
            return decoded(await _bytes(response, self.limits.answer_bytes))
        except ValueError as error:
            raise error_of(0, f"{method} {path}: the answer is no JSON object: {error}") from error

    async def open(
        self,
        method: str,
        path: str,
        query: Query,
        *,
        limit: aiohttp.ClientTimeout,
        body: Any = None,
        content_type: str = JSON,
    ) -> aiohttp.ClientResponse:
        """Send; on 401 renew the token, and resend only reads."""
        token = self.credentials.token
        response = await self._send(method, path, query, limit, body, content_type)
        if response.status == 401 and await self._renewed(token):
            response.release()
            if method != "GET":
                raise TokenRenewed(401, f"{method} {path}: the token had expired; renewed")
            response = await self._send(method, path, query, limit, body, content_type)
        if response.status >= 300:
            text = await _bytes(response, self.limits.answer_bytes)
            raise error_from_answer(response.status, response.headers.get("Retry-After", ""), text)
        return response

    async def _send(
        self,
        method: str,
        path: str,
        query: Query,
        limit: aiohttp.ClientTimeout,
        body: Any,
        content_type: str,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": JSON, "Content-Type": content_type}
        try:
            # The body stays out of param_serialize, which would copy it node by node.
            verb, url, sent, _, form = await self._api.param_serialize(
                method,
                path,
                query_params=list(query),
                header_params=headers,
                auth_settings=["BearerToken"],
            )
            answer = await self._api.call_api(verb, url, sent, body, form, _request_timeout=limit)
        except (aiohttp.ClientError, TimeoutError, OSError, ConfigException) as error:
            raise no_answer(f"{method} {path}", error) from error
        response: aiohttp.ClientResponse = answer.response
        return response

    async def _renewed(self, token: str) -> bool:
        """Read the credentials again; true if the token differs from the rejected one."""
        async with self._renewing:
            if self.credentials.token == token:
                await self.credentials.renew()
            return self.credentials.token != token


def no_answer(what: str, error: BaseException) -> ApiError:
    """The error of a request without an answer."""
    return error_of(0, f"{what}: {type(error).__name__}: {error}".rstrip(": "))


async def _bytes(response: aiohttp.ClientResponse, most: int) -> bytes:
    read = bytearray()
    try:
        async for part in response.content.iter_any():
            read += part
            if len(read) > most:
                response.close()
                raise TooLarge(0, f"the answer of {response.url.path} is larger than {most} bytes")
        return bytes(read)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise no_answer(f"reading the answer of {response.url.path}", error) from error
