# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Events of a trace in Chrome's JSON format, a batch at a time: memory does not grow with the file.

The file is cut between events, and a typed decoder reads each piece and, at the end, everything
around the events. So each byte is checked: what is malformed anywhere is an error. A cut is guessed
first; where the decoder does not take what stands before it, brackets outside strings are counted.
Of a key that is there twice the last one counts, as in any reader of JSON; ``traceEvents`` must be
there once.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from ullage.engines.tracing.limits import MIB, TraceError, TraceLimits, invalid, too_large

GZIP: Final = b"\x1f\x8b"
CHUNK: Final = MIB
"""Bytes unpacked at a time."""
_EVENTS: Final = re.compile(rb'"traceEvents"[ \t\r\n]*:[ \t\r\n]*\[')
_SPACE: Final = b" \t\r\n"
_SPACES: Final = re.compile(rb"[ \t\r\n]*")
_QUOTE, _OPEN, _CLOSE, _END, _COMMA = b'"{}],'
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in b'"{}[]')
_LOWER: Final = 32
"""The bit between ``[`` and ``{``, ``]`` and ``}``."""

Event = TypeVar("Event", bound=msgspec.Struct)
Head = TypeVar("Head", bound=msgspec.Struct)
_Depths = npt.NDArray[np.int32]


def unpacked(chunks: Iterable[bytes], limits: TraceLimits) -> Iterator[bytes]:
    """The content of a plain or gzip file in pieces.

    Raises:
        TraceError: it is larger than the limits, packed too tightly, or no whole gzip file.
    """
    source = iter(chunks)
    start = b""
    while len(start) < len(GZIP) and (chunk := next(source, None)) is not None:
        start += chunk
    pieces = chain((start,), source)
    if not start.startswith(GZIP):
        return _bounded(pieces, limits)
    return _gathered(_gunzipped(pieces, limits))


def _bounded(chunks: Iterable[bytes], limits: TraceLimits) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        _check_size(size, size, limits)
        yield chunk


def _gunzipped(chunks: Iterable[bytes], limits: TraceLimits) -> Iterator[bytes]:
    taken, given = 0, 0
    unpacker: zlib._Decompress | None = None
    for chunk in chunks:
        taken += len(chunk)
        rest = chunk
        while rest:
            if unpacker is None:  # a first or another member, or zeros behind the last
                rest = rest.lstrip(b"\0")
                if not rest:
                    break
                unpacker = zlib.decompressobj(wbits=31)
            try:
                piece = unpacker.decompress(rest, CHUNK)
            except zlib.error as error:
                raise invalid(f"the file is no whole gzip file: {error}") from error
            rest = unpacker.unconsumed_tail
            if unpacker.eof:
                rest, unpacker = unpacker.unused_data, None
            given += len(piece)
            _check_size(given, taken, limits)
            if piece:
                yield piece
    if unpacker is not None:
        raise invalid("the file is no whole gzip file: its end is missing")


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces of a quarter of a MiB or more: a file may have a member for each byte."""
    held = bytearray()
    for piece in pieces:
        held += piece
        if len(held) >= CHUNK // 4:
            yield bytes(held)
            held.clear()
    yield bytes(held)


def _check_size(given: int, taken: int, limits: TraceLimits) -> None:
    if max(given, taken) > limits.file_bytes:
        raise too_large(f"the trace has more than {limits.file_bytes} bytes")
    if given > limits.ratio * taken + MIB:
        raise too_large(f"a packed byte of the trace is more than {limits.ratio} bytes")


class EventReader(Generic[Event]):
    """Reads one trace: first all its ``batches``, then its ``head``."""

    def __init__(self, event: type[Event], limits: TraceLimits) -> None:
        self._decoder = msgspec.json.Decoder(list[event])  # type: ignore[valid-type]
        self._limits = limits
        self._around = bytearray()
        """The trace without its events."""
        self.events = 0
        """Number of events so far."""

    def batches(self, chunks: Iterable[bytes]) -> Iterator[list[Event]]:
        """Events in order of the file.

        Args:
            chunks: The unpacked file.

        Raises:
            TraceError: it exceeds a limit, or is no trace; the text names the place.
        """
        source = iter(chunks)
        rest = self._opening(source)
        first, closed = True, False
        while not closed:
            events, cut = self._guessed(rest, first=first)
            if events is not None:
                rest, first = rest[cut:], False
                yield self._counted(events)
                continue
            piece, rest, closed = self._cut(rest)
            if piece or closed:
                yield self._counted(self._decoded(piece, len(piece), first=first))
                first = first and not piece
            if closed:
                break
            if len(rest) > self._limits.event_bytes:
                raise too_large(
                    f"traceEvents[{self.events}] has more than {self._limits.event_bytes} bytes"
                )
            chunk = next(source, None)
            if chunk is None:
                raise invalid(
                    f"the trace ends within traceEvents, after {self.events} events: it was"
                    " written or copied in part"
                )
            rest += chunk
        self._around += b"]" + rest
        for chunk in source:
            self._around += chunk
            self._check_around()
        self._check_around()

    def head(self, kind: type[Head]) -> Head | None:
        """Everything around the events; ``None`` for a trace that is a bare list of events.

        Raises:
            TraceError: it is malformed.
        """
        around = bytes(self._around)
        _depths(around, self._limits)
        bare = around.lstrip(_SPACE).startswith(b"[")
        try:
            if bare:
                msgspec.json.decode(around, type=list[msgspec.Raw])
                return None
            keys = msgspec.json.decode(around, type=dict[str, msgspec.Raw])
            if bytes(keys["traceEvents"]).translate(None, _SPACE) != b"[]":
                raise invalid("traceEvents is there twice")
            return msgspec.json.decode(around, type=kind)
        except msgspec.MsgspecError as error:
            raise invalid(f"around traceEvents: {error}") from error

    def _opening(self, source: Iterator[bytes]) -> bytes:
        """Read up to the first event; the bytes that were read beyond it."""
        for chunk in source:
            self._around += chunk
            start = self._events_start(bytes(self._around))
            if start is not None:
                rest = bytes(self._around[start:])
                del self._around[start:]
                self._check_around()
                return rest
            self._check_around()
        raise invalid("this is no trace: it has no list traceEvents")

    def _check_around(self) -> None:
        if len(self._around) > self._limits.head_bytes:
            raise too_large(
                f"there are more than {self._limits.head_bytes} bytes beside its events"
            )

    def _events_start(self, head: bytes) -> int | None:
        """Place after the bracket that opens the events; ``None`` = it is not here yet."""
        text = head.lstrip(_SPACE)
        if text.startswith(b"["):
            return len(head) - len(text) + 1
        if text and not text.startswith(b"{"):
            raise invalid("this is no trace: it is no JSON object or list")
        plain = _without_escapes(head)
        before, inside, depth = 0, False, 0
        for match in _EVENTS.finditer(plain):
            tokens = np.frombuffer(plain[before : match.start()].translate(None, _OTHERS), np.uint8)
            steps, in_text = _steps(tokens, inside=inside)
            depth += int(steps.sum())
            inside = bool(in_text[-1]) if len(in_text) else inside
            before = match.start()
            if depth == 1 and not inside:
                return match.end()
        return None

    def _guessed(self, text: bytes, *, first: bool) -> tuple[list[Event] | None, int]:
        """Events up to the last place that looks like an end of one, and that place.

        A decoder that takes the text before it has counted the brackets itself, so the guess was
        right; ``None`` = it was not, or something is wrong.
        """
        cut = text.rfind(b"},") + 1
        if not cut:
            return None, 0
        try:
            return self._decoded(text, cut, first=first), cut
        except (TraceError, RecursionError):
            return None, 0

    def _cut(self, text: bytes) -> tuple[bytes, bytes, bool]:
        """Whole events, what follows them, and whether the list ends there."""
        plain = _without_escapes(text)
        tokens = np.frombuffer(plain.translate(None, _OTHERS), np.uint8)
        steps, _ = _steps(tokens, inside=False)
        depths = np.cumsum(steps, dtype=np.int32)
        self._check_depth(depths)
        ends = np.flatnonzero(depths < 0)
        if len(ends):
            place = _place(plain, tokens, int(ends[0]))
            if text[place] != _END:
                raise invalid(f"a bracket of traceEvents is wrong, near [{self.events}]")
            return text[:place], text[place + 1 :], True
        whole = np.flatnonzero((depths == 0) & (steps < 0))
        if not len(whole):
            return b"", text, False
        place = _place(plain, tokens, int(whole[-1])) + 1
        return text[:place], text[place:], False

    def _check_depth(self, depths: _Depths) -> None:
        if len(depths) and int(depths.max()) > self._limits.depth:
            raise too_large(f"an event is nested deeper than {self._limits.depth} levels")

    def _counted(self, events: list[Event]) -> list[Event]:
        self.events += len(events)
        if self.events > self._limits.events:
            raise too_large(f"the trace has more than {self._limits.events} events")
        return events

    def _decoded(self, text: bytes, end: int, *, first: bool) -> list[Event]:
        """Events of the text before ``end``; those that are not the first follow a comma."""
        place = f"traceEvents[{self.events}]"
        start = _after_space(text, 0)
        if not first and start < end:
            if text[start] != _COMMA:
                raise invalid(f"{place}: a comma is missing before it")
            start += 1
            if _after_space(text, start) >= end:
                raise invalid(f"{place}: it is missing after a comma")
        try:
            events: list[Event] = self._decoder.decode(
                b"".join((b"[", memoryview(text)[start : max(start, end)], b"]"))
            )
        except msgspec.MsgspecError as error:
            raise invalid(f"{place} or one of the next events: {error}") from error
        return events


def _after_space(text: bytes, start: int) -> int:
    """Place of the first byte from ``start`` on that is no space."""
    match = _SPACES.match(text, start)
    return match.end() if match else start


def _without_escapes(text: bytes) -> bytes:
    """The same length without escaped quotes."""
    if b"\\" not in text:
        return text
    return text.replace(b"\\\\", b"..").replace(b'\\"', b"..")


def _steps(
    tokens: npt.NDArray[np.uint8], *, inside: bool
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
    """Change of depth at each quote and bracket, and whether a string is open after it."""
    in_text = np.logical_xor.accumulate(tokens == _QUOTE)
    if inside:
        in_text = ~in_text
    folded = tokens | _LOWER
    steps = (folded == _OPEN).astype(np.int8) - (folded == _CLOSE).astype(np.int8)
    steps[in_text] = 0
    return steps, in_text


def _place(text: bytes, tokens: npt.NDArray[np.uint8], index: int) -> int:
    """Place of a token in its text."""
    after = int(np.count_nonzero(tokens[index + 1 :] == tokens[index]))
    places = np.flatnonzero(np.frombuffer(text, np.uint8) == tokens[index])
    return int(places[-1 - after])


def _depths(text: bytes, limits: TraceLimits) -> None:
    tokens = np.frombuffer(_without_escapes(text).translate(None, _OTHERS), np.uint8)
    steps, _ = _steps(tokens, inside=False)
    if len(steps) and int(np.cumsum(steps, dtype=np.int32).max()) > limits.depth:
        raise too_large(f"the trace is nested deeper than {limits.depth} levels")
