# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever texts and pieces a file has, the reader finds the events that a JSON reader finds."""

from __future__ import annotations

import gzip
import json
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.kineto_traces import document, kernel, pieces, read, step
from ullage.engines.tracing.event_reader import EventReader, unpacked
from ullage.engines.tracing.kineto_events import Use
from ullage.engines.tracing.limits import TraceError, TraceLimits

TRICKY = st.text(st.sampled_from('ab"\\{}[],:\n é'), max_size=12)
VALUES = st.recursive(
    st.none() | st.integers(-5, 5) | TRICKY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TRICKY, inner, max_size=3),
    max_leaves=6,
)
EVENTS = st.lists(st.fixed_dictionaries({"name": TRICKY, "args": VALUES}), max_size=6)
LIMITS = TraceLimits()


class Named(msgspec.Struct):
    name: str = ""
    args: object = None


class Rest(msgspec.Struct):
    note: object = None
    tail: object = None


def events_of(data: bytes, sizes: int) -> tuple[list[dict[str, object]], Rest | None]:
    reader = EventReader(Named, LIMITS)
    batches = [event for batch in reader.batches(pieces(data, sizes)) for event in batch]
    assert reader.events == len(batches)
    return [{"name": event.name, "args": event.args} for event in batches], reader.head(Rest)


@given(EVENTS, VALUES, VALUES, st.integers(1, 90), st.sampled_from([None, 2]))
def test_pieces_of_any_size_give_the_same_events(
    events: list[dict[str, object]], note: object, tail: object, size: int, indent: int | None
) -> None:
    body = {"note": note, "traceEvents": events, "tail": tail}
    data = json.dumps(body, indent=indent, ensure_ascii=False).encode()
    read_events, rest = events_of(data, size)
    assert read_events == events
    assert rest == Rest(note=note, tail=tail)


@given(EVENTS, st.integers(1, 90))
def test_a_bare_list_is_a_trace_without_a_head(events: list[dict[str, object]], size: int) -> None:
    assert events_of(b" \n" + json.dumps(events).encode() + b"\n", size) == (events, None)


@given(EVENTS, st.integers(1, 90), st.integers(1, 3))
def test_gzip_files_of_several_members_are_unpacked(
    events: list[dict[str, object]], size: int, members: int
) -> None:
    data = json.dumps({"traceEvents": events}).encode()
    cut = max(1, len(data) // members)
    packed = b"".join(gzip.compress(part) for part in pieces(data, cut))
    assert b"".join(unpacked(pieces(packed, size), LIMITS)) == data
    assert b"".join(unpacked(pieces(packed + b"\0" * 20, size), LIMITS)) == data


@given(EVENTS.filter(len), st.data())
def test_a_file_that_lacks_its_end_is_refused(
    events: list[dict[str, object]], data: st.DataObject
) -> None:
    whole = json.dumps({"traceEvents": events}).encode()
    kept = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(TraceError):
        events_of(whole[:kept], 64)


@given(EVENTS.filter(len), st.data())
def test_what_no_json_reader_takes_is_refused(
    events: list[dict[str, object]], data: st.DataObject
) -> None:
    """A byte more, less or else: either both readers take it, with the same events, or neither."""
    whole = bytearray(json.dumps({"traceEvents": events}, ensure_ascii=False).encode())
    place = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.sampled_from(b'"\\{}[],:x 0'))
    whole[place : place + data.draw(st.integers(0, 1))] = bytes([byte])
    try:
        expected = json.loads(bytes(whole))
    except ValueError:
        with pytest.raises(TraceError):
            events_of(bytes(whole), 32)
        return
    try:
        found, _ = events_of(bytes(whole), 32)
    except TraceError:
        return  # JSON, but no trace of these events
    plain = [
        {"name": event.get("name", ""), "args": event.get("args")}
        for event in expected["traceEvents"]
    ]
    assert found == plain


def test_the_word_traceevents_may_stand_elsewhere() -> None:
    body = {
        "note": '"traceEvents": [',
        "inner": {"traceEvents": [1, {"a": 2}]},
        "traceEvents": [{"name": "x"}],
    }
    found, _ = events_of(json.dumps(body).encode(), 7)
    assert [event["name"] for event in found] == ["x"]


def test_figures_do_not_depend_on_the_pieces() -> None:
    drawn = random.Random(3)
    events = [step(4, 0, 1000)] + [
        kernel(drawn.uniform(0, 900), drawn.uniform(0, 30), number, f'k"{number % 7}\\')
        for number in range(300)
    ]
    data = document(events)
    whole = read(events)
    reader = EventReader(Named, LIMITS)
    assert sum(map(len, reader.batches(pieces(data, 77)))) == whole.events == 301
    assert whole.of(Use.KERNEL).sum() == 300
