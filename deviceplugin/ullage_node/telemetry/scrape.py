# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the metrics page of serving pods, a few times a minute, regardless of their behaviour.

The page is untrusted: it may be huge, slow, endless or wrong. So every read has a limit of time and
size, follows no redirect, keeps only relevant lines, and a lasting failure is reported to the user
once with a stable text. No pod can delay the reading of another by more than the limit.

The first response head must be the final one: a client that skips informational ones would read an
endless stream of them.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import urlsplit

import structlog

from ullage_node.model.devices import ContainerKey
from ullage_node.telemetry.histograms import (
    DEFAULT_METRIC,
    HistogramUnusable,
    keep_line,
    read_histogram,
    wanted_names,
)
from ullage_node.telemetry.windows import HistogramPage
from ullage_node.times import PAGE_READ_S, SCRAPE_IDLE_S, SCRAPE_TICK_S

HEAD_BYTES_MAX: Final = 16 << 10
PART_BYTES: Final = 64 << 10
CHUNKS_MAX: Final = 8192
"""Most chunks of an answer of unknown length; servers write some kilobytes each."""
HTTP_PORT: Final = 80
OK: Final = 200
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?")
_LENGTH: Final = re.compile(rb"[0-9]{1,12}")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_TARGET: Final = re.compile(r"/[!-~]*")


class MalformedPage(ValueError):
    """The server does not speak HTTP/1.1; the text is stable."""


class NotServed(Exception):
    """The server answers, but without a page."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status code {status}")
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """The head of an answer; ``length`` is ``None`` where not given."""

    status: int
    length: int | None
    chunked: bool

    @classmethod
    def read(cls, text: bytes) -> Self:
        """Parse a head; raises MalformedAnswer."""
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
    """Stream the page in parts of at most 64 KiB; then close the connection.

    Args:
        url: Address of the page, over HTTP/1.1 without TLS.
        accept: Requested media type.

    Raises:
        NotServed: its status is not 200.
        ValueError: the address or the answer is invalid.
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
    """``length`` bytes, or all until the end if unknown."""
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
    """Chunks (RFC 9112, section 7.1), with small ones merged."""
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


PAGE_BYTES_MAX: Final = 4 << 20
LINE_BYTES_MAX: Final = 16 << 10
LINES_MAX: Final = 65_536
LINES_KEPT_MAX: Final = 2048
KEPT_BYTES_MAX: Final = 512 << 10
READS_AT_ONCE: Final = 8
ACCEPT: Final = "text/plain;version=0.0.4"
LASTING_READS: Final = 3
"""Consecutive failures before one is reported: a starting server does not answer at first."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class ScrapeFailed(Exception):
    """A page could not be read; the text is stable, so that it is reported once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapeTarget:
    """A page to read; an empty ``url`` = the pod names no page."""

    key: ContainerKey
    url: str
    metric: str = DEFAULT_METRIC
    period_s: float = 5.0


@dataclass(slots=True)
class _ScrapeState:
    """State of one target."""

    due_at: float = 0.0
    failures: int = 0
    problem: str = ""


class Scraper:
    """Reads pages and passes them on.

    Args:
        targets: pages to read now.
        take: called with every page.
        tell: called once with a lasting failure, and with "" when it is over.
    """

    def __init__(
        self,
        targets: Callable[[], Iterable[ScrapeTarget]],
        take: Callable[[ContainerKey, HistogramPage], None],
        tell: Callable[[ContainerKey, str], None],
    ) -> None:
        self._targets = targets
        self._take = take
        self._tell = tell
        self._states: dict[ContainerKey, _ScrapeState] = {}
        self.reads = 0
        self.failures = 0

    @property
    def problems(self) -> Mapping[ContainerKey, str]:
        """Lasting failures."""
        return {key: state.problem for key, state in self._states.items() if state.problem}

    def hurry(self, key: ContainerKey) -> None:
        """Read this page as soon as possible."""
        if key in self._states:
            self._states[key].due_at = 0.0

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self.run_once(time.monotonic())
            await asyncio.sleep(SCRAPE_TICK_S if self._states else SCRAPE_IDLE_S)

    async def run_once(self, now: float) -> None:
        """Read every page that is due."""
        targets = {target.key: target for target in self._targets()}
        self._states = {key: self._states.get(key, _ScrapeState()) for key in targets}
        due = [key for key in sorted(targets) if now >= self._states[key].due_at]
        for start in range(0, len(due), READS_AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for key in due[start : start + READS_AT_ONCE]:
                    self._states[key].due_at = now + targets[key].period_s
                    group.create_task(self._read(targets[key]))

    async def _read(self, target: ScrapeTarget) -> None:
        try:
            lines = await fetch_lines(target)
            page = HistogramPage(
                at_s=time.monotonic(), histogram=read_histogram(lines, target.metric)
            )
        except (ScrapeFailed, HistogramUnusable) as error:
            self.failures += 1
            self._fail(target.key, str(error))
            return
        except Exception as error:  # one bad page must not stop the others
            self.failures += 1
            _log.exception("page not read", container=target.key.directory)
            self._fail(target.key, f"{target.url} cannot be read ({type(error).__name__})")
            return
        self.reads += 1
        self._succeed(target.key)
        self._take(target.key, page)

    def _fail(self, key: ContainerKey, why: str) -> None:
        state = self._states.get(key)
        if state is None:
            return
        state.failures += 1
        if state.failures >= LASTING_READS and state.problem != why:
            state.problem = why
            _log.warning("latency not measured", container=key.directory, why=why)
            self._tell(key, why)

    def _succeed(self, key: ContainerKey) -> None:
        state = self._states.get(key)
        if state is None:
            return
        state.failures = 0
        if state.problem:
            state.problem = ""
            self._tell(key, "")


async def fetch_lines(target: ScrapeTarget) -> list[str]:
    """The lines of a page that are relevant for one histogram.

    Raises:
        PageUnreadable: no address, a timeout, an error, or a too large page.
    """
    if not target.url:
        raise ScrapeFailed(
            "the pod does not say where its metrics are: name a container port metrics or http, "
            "or annotate it with prometheus.io/port"
        )
    try:
        async with (
            asyncio.timeout(PAGE_READ_S),
            aclosing(page_parts(target.url, ACCEPT)) as parts,
        ):
            return await _lines(parts, target)
    except NotServed as error:
        raise ScrapeFailed(f"{target.url} answers {error.status}, not 200") from error
    except TimeoutError as error:
        raise ScrapeFailed(f"{target.url} did not answer within {PAGE_READ_S:g} s") from error
    except (asyncio.LimitOverrunError, EOFError, OSError, ValueError) as error:
        # Omit the error's text: it may name another port or address at every try.
        raise ScrapeFailed(f"{target.url} cannot be read ({type(error).__name__})") from error


async def _lines(parts: AsyncIterator[bytes], target: ScrapeTarget) -> list[str]:
    names, kept, rest, read, ends = wanted_names(target.metric), list[str](), b"", 0, 0
    async for chunk in parts:
        read += len(chunk)
        ends += chunk.count(b"\n")
        if read > PAGE_BYTES_MAX or ends > LINES_MAX:
            raise ScrapeFailed(
                f"{target.url}: more than {PAGE_BYTES_MAX >> 20} MiB or {LINES_MAX} lines"
            )
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise ScrapeFailed(f"{target.url}: a line of more than {LINE_BYTES_MAX >> 10} KiB")
        kept += _kept(whole, names)
        if len(kept) > LINES_KEPT_MAX or sum(map(len, kept)) > KEPT_BYTES_MAX:
            raise ScrapeFailed(
                f"{target.url}: more than {LINES_KEPT_MAX} lines or {KEPT_BYTES_MAX >> 10} KiB "
                "that matter"
            )
    return kept + _kept([rest], names)


def _kept(lines: Iterable[bytes], names: tuple[str, ...]) -> list[str]:
    # Filter bytes first: a large server's page has thousands of lines, few of them relevant.
    near = (b"# TYPE ", *(name.encode() for name in names))
    samples = (line for line in lines if line.startswith(near))
    texts = (line.decode("utf-8", "replace").rstrip("\r") for line in samples)
    return [line for line in texts if keep_line(line, names)]
