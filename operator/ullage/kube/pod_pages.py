# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pages of pods: read within bounds of time and size, without a token.

A pod may belong to any tenant, so its answer is untrusted: no redirect is followed, nothing is
decompressed, and only a JSON object of known size is read. The first head must be that of the
answer: a client that skips informational ones reads as many as a pod sends, as fast as it sends
them.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

import orjson

from ullage.api.readers import WireError
from ullage.process.faults import fault_text, shortened

MOST_BYTES: Final = 16 * 1024
"""Maximum bytes of a page, and of its head."""
OK: Final = b"200"
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?")
_LENGTH: Final = re.compile(rb"content-length[ \t]*:[ \t]*([0-9]{1,9})[ \t]*", re.IGNORECASE)
_ENCODED: Final = re.compile(rb"(?:transfer|content)-encoding[ \t]*:", re.IGNORECASE)


class PageUnreadable(Exception):
    """A pod did not answer with an object; the text has the problem."""


class PodPages:
    """Reads pages at one port of pods, with a limit on concurrent reads."""

    def __init__(self, *, port: int, timeout_s: float, at_once: int) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._turn = asyncio.Semaphore(at_once)

    async def get(
        self, address: str, path: str, query: Mapping[str, str] | None = None
    ) -> dict[str, object]:
        """The JSON object of a page.

        Args:
            address: Address of the pod.
            path: Path of the page.
            query: Query of the request.

        Raises:
            PageUnreadable: there is no valid page.
        """
        try:
            host = ipaddress.ip_address(address)
        except ValueError as error:
            raise PageUnreadable(f"{shortened(address)!r} is no address of a pod") from error
        if _is_of_a_machine(host):
            raise PageUnreadable(f"{host} is no address of a pod")
        shown = f"[{host}]" if host.version == 6 else str(host)
        target = f"{path}?{urlencode(query)}" if query else path
        asked = f"GET {target} HTTP/1.1\r\nHost: {shown}:{self._port}\r\nConnection: close\r\n\r\n"
        async with self._turn:
            try:
                async with asyncio.timeout(self._timeout_s):
                    body = await self._read(str(host), asked.encode())
                return _object(body)
            except asyncio.LimitOverrunError as error:
                raise PageUnreadable(f"{shown}: a head of more than {MOST_BYTES} bytes") from error
            except (TimeoutError, OSError, EOFError) as error:
                raise PageUnreadable(f"{shown}: {fault_text(error)}") from error
            except (orjson.JSONDecodeError, WireError) as error:
                raise PageUnreadable(f"{shown}: {shortened(str(error))}") from error

    async def _read(self, host: str, asked: bytes) -> bytes:
        """The body of an answer; the connection is used only once."""
        reader, writer = await asyncio.open_connection(host, self._port, limit=MOST_BYTES)
        try:
            writer.write(asked)
            return await reader.readexactly(_length(await reader.readuntil(b"\r\n\r\n")))
        finally:
            writer.transport.abort()


def _length(head: bytes) -> int:
    """Bytes of the body that a head announces.

    Raises:
        WireError: the answer has no page, or one of unknown size.
    """
    first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise WireError("it does not speak HTTP/1.1")
    if status[1] != OK:
        raise WireError(f"status code {status[1].decode()}")
    lengths = {match[1] for line in lines if (match := _LENGTH.fullmatch(line))}
    if len(lengths) != 1 or any(map(_ENCODED.match, lines)):
        raise WireError("it does not say how many bytes it has")
    length = int(lengths.pop())
    if length > MOST_BYTES:
        raise WireError(f"more than {MOST_BYTES} bytes")
    return length


def _object(body: bytes) -> dict[str, object]:
    parsed: object = orjson.loads(body)
    if not isinstance(parsed, dict):
        raise WireError("an object is needed")
    return parsed


def _is_of_a_machine(host: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """True if an address is link-local, or of many machines, and never a pod's."""
    if getattr(host, "scope_id", None):
        return True
    mapped = getattr(host, "ipv4_mapped", None) or host
    return mapped.is_link_local or mapped.is_multicast or mapped.is_unspecified
