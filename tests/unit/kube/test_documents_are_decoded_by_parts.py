# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One object that no decoder takes never spoils its page, its line or its answer."""

from __future__ import annotations

import orjson
import pytest

from ullage.cluster.values.readable import UNREADABLE
from ullage.kube.decoding import decoded, packed
from ullage.kube.reflector import Packed

DEEP = "spec.template: nested more than 64 levels deep"


def nest(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def item(name: str, template: bytes = b"{}", fields: bytes = b"{}") -> bytes:
    return (
        b'{"kind":"TrainingJob","metadata":{"name":"%s","uid":"u-%s","labels":{"a":"b"},'
        b'"managedFields":[%s]},"spec":{"replicas":2,"template":%s},"status":{"phase":"Pending"}}'
        % (name.encode(), name.encode(), fields, template)
    )


def whole(name: str) -> dict[str, object]:
    made: dict[str, object] = orjson.loads(item(name))
    return made


@pytest.mark.parametrize("levels", [2000, 10_000])
def test_a_page_with_one_deep_object_keeps_the_others(levels: int) -> None:
    bad = item("bad", nest(levels), nest(levels))
    page = b'{"metadata":{"resourceVersion":"7"},"items":[%s , %s,%s]}' % (
        item("a"),
        bad,
        item("b"),
    )
    found = decoded(page)
    assert found["metadata"] == {"resourceVersion": "7"}
    assert found["items"] == [
        whole("a"),
        {
            "kind": "TrainingJob",
            "metadata": {"name": "bad", "uid": "u-bad", "labels": {"a": "b"}},
            "spec": {"replicas": 2},
            "status": {"phase": "Pending"},
            UNREADABLE: DEEP,
        },
        whole("b"),
    ]


def test_a_line_of_a_watch_with_a_deep_object_is_an_event() -> None:
    found = decoded(b'{"type":"ADDED","object":%s}\n' % item("bad", nest(5000)))
    assert found["type"] == "ADDED"
    body = found["object"]
    assert isinstance(body, dict)
    assert body[UNREADABLE] == DEEP


def test_an_answer_that_is_a_deep_object_is_that_object() -> None:
    found = decoded(item("bad", nest(5000)))
    assert found[UNREADABLE] == DEEP


@pytest.mark.parametrize(
    "fault", [b"1e400", b"1" * 5000, b'"\\ud800"', b'"\xff"', b"NaN"], ids=lambda one: one[:8]
)
def test_what_is_no_json_that_we_read_is_named(fault: bytes) -> None:
    found = decoded(b'{"items":[%s,%s]}' % (item("bad", fault), item("good")))
    bad, good = found["items"]  # type: ignore[misc]
    assert good == whole("good")
    assert bad[UNREADABLE].startswith("spec.template: cannot be decoded: ")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"7",
        b'{"a":',
        b'{"a":1}}{',
        b'{"items":[{]}',
        b"\x00",
        b'{"a":"' + b"\\" * 999,
        b"[" * 9999,
        b'{"items":[' * 3000,
        b'"' * 9999,
    ],
    ids=lambda one: repr(one[:12]),
)
def test_what_is_no_object_is_an_error_of_one_kind(text: bytes) -> None:
    with pytest.raises(ValueError):
        decoded(text)


def test_keys_with_brackets_and_quotes_are_no_brackets() -> None:
    odd = b'{"items":[{"metadata":{"name":"a,}]\\"{["},"x":%s}],"b":[1,{"c":"]"}]}' % nest(3000)
    found = decoded(odd)
    assert found["b"] == [1, {"c": "]"}]
    assert found["items"][0]["metadata"] == {"name": 'a,}]"{['}  # type: ignore[index]


def test_a_list_is_kept_as_bytes_whatever_one_of_its_objects_holds() -> None:
    lists = Packed()
    deep = orjson.loads(item("bad", nest(400), nest(400)))
    lists.add([whole("a"), deep, {**whole("c"), "spec": {"n": 2**80, "s": "\ud800"}}])
    first, second, third = list(lists)
    assert first["spec"] == whole("a")["spec"]
    assert second[UNREADABLE] == DEEP
    assert second["spec"] == {"replicas": 2}
    assert "spec.n: " in str(third[UNREADABLE])
    assert "spec.s: " in str(third[UNREADABLE])
    assert lists.uids == {"u-a", "u-bad", "u-c"}


def test_a_field_whose_name_cannot_be_written_is_left_out() -> None:
    found = orjson.loads(packed({"\ud800": 1, "b": 2}))
    assert found["b"] == 2
    assert UNREADABLE in found
