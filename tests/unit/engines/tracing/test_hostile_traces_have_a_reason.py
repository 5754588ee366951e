# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A trace is a tenant's file: what is wrong with it is an error with a place, never a figure."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator

import pytest

from fakes.kineto_traces import document, event, kernel, operation, pieces, step
from ullage.api.reasons import Reason
from ullage.engines.tracing.limits import TraceError, TraceLimits
from ullage.engines.tracing.summary import summarised

SMALL = TraceLimits(
    file_bytes=1 << 20,
    ratio=50,
    event_bytes=4096,
    head_bytes=4096,
    events=1000,
    depth=16,
    names=100,
    tracks=20,
)
GOOD = [step(1, 0, 100), operation(10, 20)]


def refused(data: bytes, limits: TraceLimits = SMALL) -> TraceError:
    with pytest.raises(TraceError) as caught:
        summarised(pieces(data, 1000), limits)
    return caught.value


def with_event(text: str) -> bytes:
    return document(GOOD).replace(b'"traceEvents": [', b'"traceEvents": [' + text.encode() + b",")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"ph":"X","ts":NaN}', "invalid character"),
        ('{"ph":"X","ts":1e999}', "out of range"),
        ('{"ph":"X","ts":Infinity}', "invalid character"),
        ('{"ph":"X","cat":"kernel","ts":1,"dur":-1.-500}', "invalid number"),
        ('{"ph":"X","cat":"kernel","ts":1,"dur":-5}', "traceEvents[0]: it starts at 1"),
        ('{"ph":"X","cat":"kernel","ts":1e300,"dur":5}', "traceEvents[0]"),
        ('{"ph":"X","cat":"kernel","ts":1,"dur":1e12}', "traceEvents[0]"),
        ('{"ph":"X","cat":"kernel","dur":1}', "traceEvents[0].ts: missing"),
        ('{"ph":"X","cat":"kernel","ts":"1","dur":1}', "Expected `float"),
        ('{"ph":"X","cat":"kernel","ts":1,"dur":1,"tid":{}}', "Expected `int | str`"),
        ('{"ph":"X","cat":"kernel","ts":1,"args":[]}', "Expected `object"),
        ('{"ph":1}', "Expected `str`"),
        ("7", "Expected `object`, got `int`"),
        ("{}{}", "malformed"),
        ('{"name":"\\ud800"}', "malformed"),
        ('{"ph":"X"]', "malformed"),
        ("{}]", "around traceEvents"),
    ],
)
def test_a_broken_event_is_named(text: str, says: str) -> None:
    error = refused(with_event(text))
    assert error.reason is Reason.TRACE_INVALID
    assert says in str(error)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "no list traceEvents"),
        (b"\0" * 5000, "no JSON object or list"),
        (b"GIF89a", "no JSON object or list"),
        (b'{"a": 1}', "no list traceEvents"),
        (b'{"traceEvents": {}}', "no list traceEvents"),
        (b'{"traceEvents": []}', "no operation"),
        (b'{"traceEvents": []} x', "around traceEvents"),
        (b'{"traceEvents": [], "traceEvents": [{}]}', "twice"),
        (b'{"traceEvents": [], "trace\\u0045vents": [{}]}', "twice"),
        (b'{"traceEvents": [], "baseTimeNanoseconds": -1}', "baseTimeNanoseconds"),
        (b'{"traceEvents": [{},]}', "missing after a comma"),
        (b'{"traceEvents": [{} {}]}', "malformed"),
        (b'{"traceEvents": [{}}}', "a bracket"),
        (b'{"traceEvents": [{"a": 1}', "in part"),
        (b"\x1f\x8b" + b"no gzip", "no whole gzip"),
        (gzip.compress(document(GOOD))[:-9], "its end is missing"),
    ],
)
def test_a_broken_file_is_refused(data: bytes, says: str) -> None:
    error = refused(data)
    assert error.reason is Reason.TRACE_INVALID
    assert says in str(error)


def endless(first: bytes, again: bytes) -> Iterator[bytes]:
    """A file without an end: a reader without bounds never comes back."""
    yield first
    while True:
        yield again


@pytest.mark.parametrize(
    ("chunks", "says"),
    [
        (endless(b'{"traceEvents": [{}', b",{}" * 1000), "1000 events"),
        (endless(b'{"traceEvents": [{}', b" " * 10_000), "4096 bytes"),
        (endless(b'{"traceEvents": [{"name":"', b"a" * 1000), "[0] has more than 4096 bytes"),
        (endless(b'{"a": "', b"a" * 1000), "4096 bytes beside"),
        (endless(b'{"traceEvents": [{}], "a": "', b"a" * 1000), "4096 bytes beside"),
        (endless(b'{"traceEvents": [' + b"[" * 50, b"["), "deeper than 16"),
        (endless(b'{"a":' + b"[" * 9999, b"["), "4096 bytes beside"),
        (endless(gzip.compress(b""), gzip.compress(b"")), "1048576 bytes"),
    ],
)
def test_nothing_is_read_without_end(chunks: Iterator[bytes], says: str) -> None:
    with pytest.raises(TraceError) as caught:
        summarised(chunks, SMALL)
    assert caught.value.reason is Reason.TRACE_TOO_LARGE
    assert says in str(caught.value)


def test_a_bomb_is_refused_by_its_ratio() -> None:
    def bomb() -> Iterator[bytes]:
        packer = zlib.compressobj(wbits=31)
        yield packer.compress(b'{"traceEvents": [{}')
        while True:
            yield packer.compress(b" " * (1 << 16))

    limits = TraceLimits(event_bytes=1 << 30, ratio=50)
    with pytest.raises(TraceError) as caught:
        summarised(bomb(), limits)
    assert caught.value.reason is Reason.TRACE_TOO_LARGE
    assert "more than 50" in str(caught.value)


def test_names_and_threads_are_bounded() -> None:
    names = [operation(0, 1, f"op{number}") for number in range(101)]
    assert "100 names" in str(refused(document(names)))
    threads = [operation(0, 1, thread=number) for number in range(21)]
    assert "20 threads" in str(refused(document(threads)))


def test_a_deep_head_is_refused() -> None:
    body = b'{"a":' + b"[" * 40 + b"]" * 40 + b', "traceEvents": [{}]}'
    assert refused(body).reason is Reason.TRACE_TOO_LARGE


def test_of_a_key_that_is_there_twice_the_last_one_counts() -> None:
    text = '{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":5,"ts":40,"dur":9}'
    plain = document([*GOOD, event("cpu_op", "aten::mm", 40, 9, 1)])
    found = summarised(pieces(with_event(text)), SMALL)
    assert found.step == summarised(pieces(plain), SMALL).step
    assert found.step.compute_micros == 29


def test_what_a_file_says_of_itself_is_bounded() -> None:
    wild = {
        "distributedInfo": {"rank": 10**30, "world_size": -3},
        "deviceProperties": [{"name": "\n" * 500}],
        "ullage": {"id": "x" * 999, "rank": "0", "world": True, "step": 1e9},
    }
    found = summarised(pieces(document([*GOOD, kernel(1, 2)], **wild)), SMALL)
    assert (found.rank, found.world_size, found.first_step) == (None, 0, 0)
    assert found.trace_id == "x" * 61 + "..."
    assert found.device == "?" * 61 + "..."
    forged = document(GOOD, distributedInfo={"rank": 2}, ullage={"rank": 1, "world": 4, "step": 7})
    found = summarised(pieces(forged), SMALL)
    assert (found.rank, found.world_size, found.first_step) == (1, 4, 7)


def test_a_head_of_the_wrong_type_is_refused() -> None:
    assert "around traceEvents" in str(refused(document(GOOD, deviceProperties={})))
    assert "around traceEvents" in str(refused(document(GOOD, baseTimeNanoseconds="1")))


def test_numbers_of_any_type_do_not_end_the_reader() -> None:
    odd = [10**40, -1, 1.5, "7", None, True, [1], {"a": 1}]
    events = [kernel(5, 1) | {"args": {"correlation": value, "stream": value}} for value in odd]
    assert summarised(pieces(document([*GOOD, *events])), SMALL).counters.kernels == len(odd)
    json.dumps(odd)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"traceEvents": [{},]}', "missing after a comma"),
        (b'{"traceEvents": [{} {}]}', "a comma is missing"),
        (b'{"traceEvents": [,{}]}', "malformed"),
    ],
)
def test_what_stands_between_events_is_checked_where_pieces_meet(data: bytes, says: str) -> None:
    with pytest.raises(TraceError) as caught:
        summarised(pieces(data, 1), SMALL)
    assert says in str(caught.value)
