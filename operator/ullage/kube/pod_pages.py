# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pages of pods: read within bounds of time and size, without a token.

A pod may be anyone's, so its answer is untrusted: no redirect is followed, nothing is unpacked, and
nothing but a JSON object of known size is read.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping
from typing import Final

import aiohttp
import orjson

from ullage.api.contract import WireError
from ullage.process.faults import fault_text, shortened

MOST_BYTES: Final = 16 * 1024


class PageUnreadable(Exception):
    """A pod did not answer, or not with an object; the text says what."""


class PodPages:
    """Reads pages at one port of pods, so many at the same time."""

    def __init__(self, *, port: int, timeout_s: float, at_once: int) -> None:
        self._port = port
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None
        self._at_once = at_once
        self._turn = asyncio.Semaphore(at_once)

    async def get(
        self, address: str, path: str, query: Mapping[str, str] | None = None
    ) -> dict[str, object]:
        """The object that a page is.

        Args:
            address: Of the pod.
            path: Of the page.
            query: Sent with it.

        Raises:
            PageUnreadable: there is none.
        """
        try:
            host = ipaddress.ip_address(address)
        except ValueError as error:
            raise PageUnreadable(f"{shortened(address)!r} is no address of a pod") from error
        if _is_of_a_machine(host):
            raise PageUnreadable(f"{host} is no address of a pod")
        shown = f"[{host}]" if host.version == 6 else str(host)
        async with self._turn:
            try:
                return await self._read(f"http://{shown}:{self._port}{path}", query or {})
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise PageUnreadable(f"{shown}: {fault_text(error)}") from error
            except (orjson.JSONDecodeError, WireError) as error:
                raise PageUnreadable(f"{shown}: {shortened(str(error))}") from error

    async def close(self) -> None:
        """End the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _read(self, url: str, query: Mapping[str, str]) -> dict[str, object]:
        if self._session is None:
            # what comes back is bounded as it comes: a compressed one could grow a thousandfold
            self._session = aiohttp.ClientSession(
                timeout=self._timeout,
                trust_env=False,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(limit=self._at_once, force_close=True),
            )
        async with self._session.get(url, params=query, allow_redirects=False) as answer:
            if answer.status != 200:
                raise WireError(f"status code {answer.status}")
            if answer.content_length is None or answer.content_length > MOST_BYTES:
                raise WireError(f"more than {MOST_BYTES} bytes, or it does not say how many")
            body = await answer.read()
        found: object = orjson.loads(body)
        if not isinstance(found, dict):
            raise WireError("an object is needed")
        return found


def _is_of_a_machine(host: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address is one of a machine's link, or of many machines, never a pod's."""
    mapped = getattr(host, "ipv4_mapped", None) or host
    return mapped.is_link_local or mapped.is_multicast or mapped.is_unspecified
