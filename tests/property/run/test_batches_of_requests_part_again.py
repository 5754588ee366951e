# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever requests are joined: each gets the rows that it would have got alone."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage_run.router.open_inference import (
    MalformedAnswer,
    MalformedRequest,
    join,
    part,
    read,
)
from ullage_run.tensors import KINDS

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOL": st.booleans(),
    "BYTES": st.text(max_size=4),
    "FP32": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
    "INT64": st.integers(-(2**63), 2**63 - 1),
}


@st.composite
def bodies(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Requests of one kind with different rows, ids and forms of data."""
    datatype = draw(st.sampled_from(sorted(VALUES)))
    tail = draw(st.lists(st.integers(1, 3), max_size=2))
    names = draw(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=2, unique=True))
    found = []
    for _ in range(draw(st.integers(1, 5))):
        rows = draw(st.integers(1, 3))
        inputs = []
        for name in names:
            shape = [rows, *tail]
            data = draw(_array(VALUES[datatype], shape))
            if draw(st.booleans()):
                for _ in tail:
                    data = [one for inner in data for one in inner]
            inputs.append({"name": name, "datatype": datatype, "shape": shape, "data": data})
        body: dict[str, Any] = {"inputs": inputs}
        if draw(st.booleans()):
            body["id"] = draw(st.text(max_size=5))
        found.append(body)
    return found


def _array(values: st.SearchStrategy[Any], shape: list[int]) -> st.SearchStrategy[Any]:
    for size in reversed(shape):
        values = st.lists(values, min_size=size, max_size=size)
    return values


def answered(body: dict[str, Any]) -> dict[str, Any]:
    """A server that gives its inputs back."""
    answer = {"model_name": "same", "outputs": body["inputs"]}
    if "id" in body:
        answer["id"] = body["id"]
    return answer


def flat(data: Any) -> list[Any]:
    while data and isinstance(data[0], list):
        data = [one for inner in data for one in inner]
    return list(data)


@pytest.mark.slow
@given(bodies())
def test_each_gets_its_own_rows(asked: list[dict[str, Any]]) -> None:
    raw = [orjson.dumps(body) for body in asked]
    requests = [read(one) for one in raw]
    assert all(one.key == other.key for one, other in pairwise(requests))
    joined = orjson.loads(join(raw, "batch"))
    parts = part(orjson.dumps(answered(joined)), requests, "batch")
    for body, own in zip(asked, map(orjson.loads, parts), strict=True):
        assert own.get("id") == body.get("id")
        assert len(own["outputs"]) == len(body["inputs"])
        for mine, sent in zip(own["outputs"], body["inputs"], strict=True):
            assert mine["shape"] == sent["shape"]
            assert mine["data"] == flat(sent["data"])


@given(bodies(), st.data())
def test_an_answer_with_other_rows_is_refused(asked: list[dict[str, Any]], data: Any) -> None:
    raw = [orjson.dumps(body) for body in asked]
    requests = [read(one) for one in raw]
    joined = orjson.loads(join(raw, "batch"))
    answer = answered(joined)
    tensor = data.draw(st.sampled_from(answer["outputs"]))
    tensor["shape"][0] += data.draw(st.sampled_from([-1, 1]))
    with pytest.raises(MalformedAnswer):
        part(orjson.dumps(answer), requests, "batch")


WILD = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["inputs", "name", "datatype", "shape", "data", "id", "outputs"]), inner
        )
    ),
    max_leaves=20,
)
NEARLY = st.fixed_dictionaries(
    {
        "inputs": st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.text(max_size=2) | WILD,
                    "datatype": st.sampled_from(sorted(KINDS)) | WILD,
                    "shape": st.lists(st.integers(-1, 3) | WILD, max_size=3) | WILD,
                    "data": WILD,
                }
            ),
            max_size=2,
        )
    },
    optional={"id": WILD, "outputs": WILD, "parameters": WILD},
)


@pytest.mark.slow
@given(st.binary() | WILD.map(repr).map(str.encode) | NEARLY.map(str).map(str.encode))
def test_wild_bytes_are_refused_or_read(body: bytes) -> None:
    with suppress(MalformedRequest):
        assert read(body).elements >= 0


@given(WILD | NEARLY)
def test_wild_objects_are_refused_or_can_be_joined(value: Any) -> None:
    try:
        body = orjson.dumps(value)
        request = read(body)
    except (MalformedRequest, orjson.JSONEncodeError):
        return
    if request.rows:
        again = read(join([body, body], "batch"))
        assert again.rows == 2 * request.rows
        assert again.key == request.key


@given(st.binary() | WILD.map(repr).map(str.encode), bodies())
def test_wild_answers_are_refused(answer: bytes, asked: list[dict[str, Any]]) -> None:
    requests = [read(orjson.dumps(body)) for body in asked]
    with pytest.raises(MalformedAnswer):
        part(answer, requests, "batch")
