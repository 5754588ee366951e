# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Fetches for price sources: bounded in time and size, and only from permitted addresses.

Files below one folder, ConfigMaps of one namespace, http and https without redirects. An address
from a user never reaches a metadata service, which would hand out the machine's identity. No error
text includes a query, which may have a token.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver, ResolveResult

from ullage import ports
from ullage.ports import ApiError, ClusterPort
from ullage.prices.identity import Identities, NoIdentity, signed
from ullage.prices.source import Paging, PriceFetch
from ullage.prices.times import PRICE_CONNECT_S
from ullage.process.threads import in_thread

CONFIG_MAP: Final = "configmap:"
LARGEST_BYTES: Final = 2 * 2**20
"""Maximum size of an answer: many times that of a table of prices."""
LARGEST_PAGE_BYTES: Final = 16 * 2**20
"""The same of a page of a cloud's billing catalogue, which takes some MiB."""
MOST_PAGES: Final = 40
"""Maximum pages of one answer; the largest known catalogue takes about ten."""
PAGED_TIMES: Final = 6.0
"""Limit of all pages together, as a multiple of that of one answer."""


class Unreachable(Exception):
    """There is no answer; the text has the reason, without secrets."""


class NoMetadataService(AbstractResolver):
    """Resolves names, except to link-local addresses."""

    def __init__(self) -> None:
        self._inner = aiohttp.DefaultResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a name.

        Raises:
            OSError: there are none, or none that is allowed.
        """
        resolved = await self._inner.resolve(host, port, family)
        allowed = [entry for entry in resolved if not is_link_local(entry["host"])]
        if not allowed:
            raise OSError(None, f"{host} is a link-local address, where no prices are asked for")
        return allowed

    async def close(self) -> None:
        """Release the resolver."""
        await self._inner.close()


def is_link_local(host: str) -> bool:
    """True if a host is an address of the machine's own link, such as 169.254.169.254."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_link_local or str(address) == "fd00:ec2::254"


class Fetcher:
    """Executes requests of price sources; one per process."""

    def __init__(
        self,
        cluster: ClusterPort,
        *,
        environment: Mapping[str, str],
        file_root: str,
        timeout_s: float,
        now: Callable[[], float],
    ) -> None:
        """``now`` gives seconds since the epoch; ``environment`` is the process's."""
        self._cluster = cluster
        self._root = Path(file_root)
        self._timeout_s = timeout_s
        self._now = now
        self._identities = Identities(self._platform, environment)
        self._sessions: dict[bool, aiohttp.ClientSession] = {}

    async def close(self) -> None:
        """Close all connections."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def get(self, fetch: PriceFetch | None) -> bytes:
        """The answer to a request; without one it is empty.

        Raises:
            Unreachable: there is none in time, or it is too large.
        """
        if fetch is None:
            return b""
        limit_s = self._timeout_s * (PAGED_TIMES if fetch.paging is not None else 1.0)
        try:
            async with asyncio.timeout(limit_s):
                if fetch.paging is not None:
                    return await self._pages(fetch, fetch.paging)
                return await self._get(fetch)
        except TimeoutError as error:
            raise Unreachable(f"{shown(fetch.url)} did not answer within {limit_s:g} s") from error
        except NoIdentity as error:
            raise Unreachable(str(error)) from error

    async def _get(self, fetch: PriceFetch) -> bytes:
        if fetch.url.startswith(CONFIG_MAP):
            return await self._config_map(fetch.url.removeprefix(CONFIG_MAP))
        if urlsplit(fetch.url).scheme not in ("http", "https"):
            return await in_thread(self._file, fetch.url)
        headers: dict[str, str] = {}
        if fetch.signed_for is not None:
            now_s = self._now()
            keys = await self._identities.aws(fetch.signed_for[1], now_s)
            headers = signed(fetch.url, keys, fetch.signed_for, now_s)
        elif fetch.bearer:
            headers["Authorization"] = f"Bearer {await self._identities.google(self._now())}"
        most = LARGEST_BYTES if fetch.paging is None else LARGEST_PAGE_BYTES
        return await self._http(fetch.url, headers, guarded=True, most=most)

    async def _pages(self, fetch: PriceFetch, paging: Paging) -> bytes:
        """The wanted rows of all pages, as one page; any other answer is returned unchanged."""
        by_key: dict[str, object] = {}
        url = fetch.url
        for _ in range(MOST_PAGES):
            body = await self._get(replace(fetch, url=url))
            page = await in_thread(_page, body, paging)
            if page is None:
                return body
            rows, token = page
            by_key |= rows
            if not token or paging.keep <= by_key.keys():
                return orjson.dumps({paging.rows: list(by_key.values())})
            more = urlencode({paging.parameter: token})
            url = f"{fetch.url}{'&' if urlsplit(fetch.url).query else '?'}{more}"
        raise Unreachable(f"{shown(fetch.url)} has more than {MOST_PAGES} pages")

    async def _config_map(self, where: str) -> bytes:
        namespace, name, key = where.split("/", 2)
        try:
            config_map = await self._cluster.get(ports.CONFIG_MAP, name, namespace=namespace)
        except ApiError as error:
            raise Unreachable(f"ConfigMap {namespace}/{name}: {error.message}") from error
        data = config_map.get("data")
        value = data.get(key) if isinstance(data, Mapping) else None
        if not isinstance(value, str):
            raise Unreachable(f"ConfigMap {namespace}/{name} has no key {key}: add it")
        return value.encode()

    def _file(self, where: str) -> bytes:
        path = Path(where).resolve()
        if not path.is_relative_to(self._root.resolve()):
            raise Unreachable(f"{where} leads out of the folder {self._root}")
        try:
            with path.open("rb") as file:
                body = file.read(LARGEST_BYTES + 1)
        except OSError as error:
            raise Unreachable(
                f"{where} cannot be read: {error.strerror}; mount it into the operator's pod"
            ) from error
        return _bounded(body, where)

    async def _platform(self, url: str, headers: Mapping[str, str]) -> bytes:
        """A GET to the pod's own platform, which may be link-local."""
        return await self._http(url, headers, guarded=False)

    async def _http(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        guarded: bool,
        most: int = LARGEST_BYTES,
    ) -> bytes:
        host = urlsplit(url).hostname or ""
        if guarded and is_link_local(host):
            raise Unreachable(f"{host} is a link-local address, where no prices are asked for")
        # the whole query has its own limit; its expiry is reported the same way
        limit = aiohttp.ClientTimeout(total=None, sock_connect=PRICE_CONNECT_S)
        try:
            async with self._session(guarded=guarded).get(
                url, headers=headers, timeout=limit, allow_redirects=False
            ) as answer:
                if answer.status != 200:
                    raise Unreachable(f"{shown(url)} answers {answer.status} {answer.reason or ''}")
                return await _read(answer, url, most)
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{shown(url)}: {_cause(error)}") from error

    def _session(self, *, guarded: bool) -> aiohttp.ClientSession:
        session = self._sessions.get(guarded)
        if session is None:
            resolver = NoMetadataService() if guarded else None
            connector = aiohttp.TCPConnector(resolver=resolver, limit=16)
            # an answer is bounded while it arrives: a compressed one could grow a thousandfold
            session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                headers={"Accept-Encoding": "identity"},
            )
            self._sessions[guarded] = session
        return session


def _page(body: bytes, paging: Paging) -> tuple[dict[str, object], str] | None:
    """The wanted rows of a page by name, and the token of the next; ``None`` = it is no page."""
    try:
        raw = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    rows = raw.get(paging.rows) if isinstance(raw, dict) else None
    if not isinstance(rows, list):
        return None
    by_key: dict[str, object] = {
        name: row
        for row in rows
        if isinstance(row, dict)
        and isinstance(name := row.get(paging.key), str)
        and name in paging.keep
    }
    token = raw.get(paging.token)
    return by_key, token if isinstance(token, str) else ""


async def _read(answer: aiohttp.ClientResponse, url: str, most: int) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_chunked(2**16):
        body += chunk
        if len(body) > most:
            break
    return _bounded(bytes(body), shown(url), most)


def _bounded(body: bytes, where: str, most: int = LARGEST_BYTES) -> bytes:
    if len(body) > most:
        raise Unreachable(f"{where} is larger than {most / 2**20:g} MiB")
    return body


def shown(url: str) -> str:
    """An address without its query and fragment."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return url
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def _cause(error: Exception) -> str:
    """Cause of a failure, without the address: a client's own text may include its query."""
    inner = getattr(error, "os_error", error)
    return getattr(inner, "strerror", None) or type(error).__name__
