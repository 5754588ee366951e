# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Asks the coordinator of a job in tiers where the job stands.

Read-only, within bounds of time and size, without a token; the answer is untrusted until every
figure of it was checked.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Final

import aiohttp
import orjson

from ullage.api.contract import WireError
from ullage.cluster.records.tier import CoordinatorReport, report_from_wire
from ullage.kube.manifests.tiers import STATUS_PATH, STATUS_PORT
from ullage.process.faults import fault_text, shortened

TIMEOUT_S: Final = 2.0
MOST_BYTES: Final = 16 * 1024
AT_ONCE: Final = 16
"""Coordinators that are asked at the same time."""


class CoordinatorSilent(Exception):
    """A coordinator did not answer, or said what no coordinator says; the text says what."""


class CoordinatorReader:
    """Reads ``GET /status`` of coordinators."""

    def __init__(self, *, port: int = STATUS_PORT, timeout_s: float = TIMEOUT_S) -> None:
        self._port = port
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def read(self, address: str) -> CoordinatorReport | None:
        """Where a job stands; ``None`` before its first maps.

        Args:
            address: Of the coordinator's pod.

        Raises:
            CoordinatorSilent: it does not say.
        """
        try:
            host = ipaddress.ip_address(address)
        except ValueError as error:
            raise CoordinatorSilent(f"{shortened(address)!r} is no address of a pod") from error
        if _is_of_a_machine(host):
            raise CoordinatorSilent(f"{host} is no address of a pod")
        shown = f"[{host}]" if host.version == 6 else str(host)
        async with self._turn:
            try:
                return report_from_wire(await self._get(f"http://{shown}:{self._port}"))
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise CoordinatorSilent(f"{shown}: {fault_text(error)}") from error
            except (orjson.JSONDecodeError, WireError) as error:
                text = shortened(str(error))
                raise CoordinatorSilent(
                    f"{shown} does not answer as a coordinator: {text}"
                ) from error

    async def close(self) -> None:
        """End the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _get(self, base: str) -> dict[str, object]:
        if self._session is None:
            # what comes back is bounded as it comes: a compressed one could grow a thousandfold
            self._session = aiohttp.ClientSession(
                timeout=self._timeout,
                trust_env=False,
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(limit=AT_ONCE, force_close=True),
            )
        async with self._session.get(f"{base}{STATUS_PATH}", allow_redirects=False) as answer:
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
