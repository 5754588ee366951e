# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads one page of a server, which may be anyone's, with as little work as the page is long.

The first head that comes has to be the answer's: a client that passes over informational ones reads
as many as a server sends, as fast as it sends them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

HEAD_BYTES_MAX: Final = 16 << 10
PART_BYTES: Final = 64 << 10
CHUNKS_MAX: Final = 8192
"""Of an answer of unknown length; servers write some kilobytes each."""
HTTP_PORT: Final = 80
OK: Final = 200
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?")
_LENGTH: Final = re.compile(rb"[0-9]{1,12}")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_TARGET: Final = re.compile(r"/[!-~]*")


class MalformedPage(ValueError):
    """The server does not speak HTTP/1.1; the text is stable."""


class NotServed(Exception):
    """The server answers, and not with a page."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status code {status}")
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """The head of an answer; ``length`` is ``None`` where it does not say."""

    status: int
    length: int | None
    chunked: bool

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Raises MalformedAnswer."""
        first, *lines = text.removesuffix(b"\r\n\r\n").split(b"\r\n")
        status = _STATUS.fullmatch(first)
        fields = [line.partition(b":") for line in lines]
        if status is None or not all(colon for _, colon, _ in fields):
            raise MalformedPage("no head of HTTP/1.1")
        headers = {name.lower(): value.strip(b" \t").lower() for name, _, value in fields}
        length, coding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
        if coding not in (None, b"chunked") or (length and not _LENGTH.fullmatch(length)):
            raise MalformedPage("no length that can be read")
        return cls(
            status=int(status[1]),
            length=int(length) if length else None,
            chunked=coding is not None,
        )


async def page_parts(url: str, accept: str) -> AsyncGenerator[bytes, None]:
    """The page in parts of at most 64 KiB, as it comes; the connection ends with it.

    Args:
        url: Of a server that speaks HTTP/1.1 without TLS.
        accept: Media type that is asked for.

    Raises:
        NotServed: its status is not 200.
        ValueError: the address or the answer is none.
        asyncio.LimitOverrunError, EOFError, OSError: its head is too long, it ends too early, or
            there is no connection.
    """
    split = urlsplit(url)
    target = f"{split.path or '/'}{'?' if split.query else ''}{split.query}"
    if not split.hostname or not _TARGET.fullmatch(target):
        raise ValueError("no address of a page")
    asked = (
        f"GET {target} HTTP/1.1\r\nHost: {split.netloc}\r\nAccept: {accept}\r\n"
        "Accept-Encoding: identity\r\nConnection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(
        split.hostname, split.port or HTTP_PORT, limit=HEAD_BYTES_MAX
    )
    try:
        writer.write(asked.encode("ascii"))
        head = _Head.read(await reader.readuntil(b"\r\n\r\n"))
        if head.status != OK:
            raise NotServed(head.status)
        parts = _chunks(reader) if head.chunked else _bytes(reader, head.length)
        async for part in parts:
            yield part
    finally:
        writer.transport.abort()


async def _bytes(reader: asyncio.StreamReader, length: int | None) -> AsyncGenerator[bytes, None]:
    """So many bytes; all that come where it is not known."""
    left = length
    while left is None or left:
        part = await reader.read(PART_BYTES if left is None else min(left, PART_BYTES))
        if not part and left is not None:
            raise EOFError("the answer ends too early")
        if not part:
            return
        if left is not None:
            left -= len(part)
        yield part


async def _chunks(reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    """Chunks (RFC 9112, section 7.1), small ones together."""
    gathered = bytearray()
    for _ in range(CHUNKS_MAX):
        size = _CHUNK.fullmatch(await reader.readuntil(b"\r\n"))
        if size is None:
            raise MalformedPage("no chunk")
        left = int(size[1], 16)
        if not left:
            yield bytes(gathered)
            return
        while left:
            part = await reader.readexactly(min(left, PART_BYTES))
            left -= len(part)
            gathered += part
            if len(gathered) >= PART_BYTES:
                yield bytes(gathered)
                gathered.clear()
        if await reader.readexactly(2) != b"\r\n":
            raise MalformedPage("no end of a chunk")
    raise MalformedPage(f"more than {CHUNKS_MAX} chunks")
