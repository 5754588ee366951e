# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever requests are joined: each gets the rows that it would have got alone."""

from __future__ import annotations

import math
import struct
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.examples import examples
from ullage_router.open_inference import (
    MalformedAnswer,
    MalformedRequest,
    QueuedRequest,
    join,
    part,
    read,
)
from ullage_run.binary_tensors import DTYPES, Body, values_of
from ullage_run.tensors import KINDS, Tensor

CI = examples(40, many=200)

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


def waiting(bodies: list[dict[str, Any]]) -> list[QueuedRequest]:
    """Requests in JSON as they wait."""
    raw = [orjson.dumps(body) for body in bodies]
    return [QueuedRequest(one, read(one)) for one in raw]


@pytest.mark.slow
@CI
@given(bodies())
def test_each_gets_its_own_rows(asked: list[dict[str, Any]]) -> None:
    waits = waiting(asked)
    requests = [one.infer for one in waits]
    assert all(one.key == other.key for one, other in pairwise(requests))
    joined = join(waits, "batch")
    assert not joined.json_bytes
    parts = part(orjson.dumps(answered(orjson.loads(joined.data))), 0, requests, "batch")
    for body, one in zip(asked, parts, strict=True):
        assert one is not None
        own = orjson.loads(one.data)
        assert own.get("id") == body.get("id")
        assert len(own["outputs"]) == len(body["inputs"])
        for mine, sent in zip(own["outputs"], body["inputs"], strict=True):
            assert mine["shape"] == sent["shape"]
            assert mine["data"] == flat(sent["data"])


RAW_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOL": st.booleans(),
    "BYTES": st.text(max_size=4),
    "FP16": st.floats(width=16, allow_nan=False),
    "FP32": st.floats(width=32, allow_nan=False),
    "FP64": st.floats(allow_nan=False),
    "INT64": st.integers(-(2**63), 2**63 - 1),
    "UINT8": st.integers(0, 255),
}


@dataclass
class Client:
    """What one client sends, and wants."""

    rows: int
    values: list[Any]
    sends_raw: bool
    wants: bool | None
    """Raw or not; ``None`` = it does not say."""
    names: bool
    """It says so of the output that it names."""

    def asked(self, datatype: str, names: bool) -> QueuedRequest:
        tensor: dict[str, Any] = {"name": "x", "datatype": datatype, "shape": [self.rows, 2]}
        raw = b""
        if self.sends_raw:
            raw = raw_bytes(datatype, self.values)
            tensor["parameters"] = {"binary_data_size": len(raw)}
        else:
            tensor["data"] = self.values
        body: dict[str, Any] = {"inputs": [tensor]}
        output: dict[str, Any] = {"name": "y"}
        if self.wants is not None:
            if names and self.names:
                output["parameters"] = {"binary_data": self.wants}
            else:
                body["parameters"] = {"binary_data_output": self.wants}
        if names:
            body["outputs"] = [output]
        head = orjson.dumps(body)
        json_bytes = len(head) if raw else 0
        return QueuedRequest(head + raw, read(head + raw, json_bytes))


def raw_bytes(datatype: str, values: list[Any]) -> bytes:
    if datatype == "BYTES":
        texts = [text.encode() for text in values]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return np.array(values, DTYPES[datatype]).tobytes()


@st.composite
def clients(draw: st.DrawFn) -> tuple[str, bool, list[Client]]:
    datatype = draw(st.sampled_from(sorted(RAW_VALUES)))
    found = []
    for _ in range(draw(st.integers(1, 5))):
        rows = draw(st.integers(1, 3))
        values = draw(st.lists(RAW_VALUES[datatype], min_size=2 * rows, max_size=2 * rows))
        finite = all(not isinstance(one, float) or math.isfinite(one) for one in values)
        raw = draw(st.booleans()) or not finite
        wants = draw(st.sampled_from([True, False, None]))
        found.append(Client(rows, values, raw, wants, draw(st.booleans())))
    return datatype, draw(st.booleans()), found


@CI
@given(clients())
def test_each_gets_its_own_rows_in_its_own_form(story: tuple[str, bool, list[Client]]) -> None:
    datatype, names, asking = story
    waits = [client.asked(datatype, names) for client in asking]
    requests = [one.infer for one in waits]
    assert len({one.key for one in requests}) == 1, "the form keeps none apart"
    joined = join(waits, "batch")
    assert bool(joined.json_bytes) == any(client.sends_raw for client in asking)
    answer, json_bytes = served(joined)
    assert bool(json_bytes) == any(client.wants for client in asking)
    for client, body in zip(asking, part(answer, json_bytes, requests, "batch"), strict=True):
        assert body is not None
        assert bool(body.json_bytes) is bool(client.wants)
        [output] = orjson.loads(body.data[: body.json_bytes or None])["outputs"]
        assert (output["name"], output["shape"]) == ("y", [client.rows, 2])
        if client.wants:
            raw = body.data[body.json_bytes :]
            assert output["parameters"] == {"binary_data_size": len(raw)}
            assert raw == raw_bytes(datatype, client.values)
        else:
            assert "parameters" not in output
            finite = [
                None if isinstance(one, float) and not math.isfinite(one) else one
                for one in client.values
            ]
            assert [one is None for one in output["data"]] == [one is None for one in finite]
            said, sent = (
                [one for one in data if one is not None] for data in (output["data"], finite)
            )
            assert raw_bytes(datatype, said) == raw_bytes(datatype, sent)


def served(joined: Body) -> tuple[bytes, int]:
    """A server that reads and writes raw tensors, and gives its input back as ``y``."""
    asked = orjson.loads(joined.data[: joined.json_bytes or None])
    [tensor] = asked["inputs"]
    datatype = tensor["datatype"]
    raw = joined.data[joined.json_bytes :] if joined.json_bytes else b""
    raw = raw or raw_bytes(datatype, tensor["data"])
    output: dict[str, Any] = {"name": "y", "datatype": datatype, "shape": tensor["shape"]}
    wants = asked.get("parameters", {}).get("binary_data_output", False)
    for named in asked.get("outputs", []):
        wants = named.get("parameters", {}).get("binary_data", wants)
    if wants:
        output["parameters"] = {"binary_data_size": len(raw)}
        head = orjson.dumps({"outputs": [output], "id": "batch"})
        return head + raw, len(head)
    output["data"] = tensor.get("data")
    if output["data"] is None:
        kind = Tensor(name="y", datatype=datatype, shape=(1,), data=[], parameters=None)
        output["data"] = values_of(kind, memoryview(raw))
    body = {"outputs": [output], "id": "batch"}
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY), 0


@CI
@given(bodies(), st.data())
def test_an_answer_with_other_rows_is_refused(asked: list[dict[str, Any]], data: Any) -> None:
    waits = waiting(asked)
    answer = answered(orjson.loads(join(waits, "batch").data))
    tensor = data.draw(st.sampled_from(answer["outputs"]))
    tensor["shape"][0] += data.draw(st.sampled_from([-1, 1]))
    with pytest.raises(MalformedAnswer):
        part(orjson.dumps(answer), 0, [one.infer for one in waits], "batch")


@CI
@given(clients(), st.integers(-3, 3).filter(bool))
def test_raw_bytes_that_are_not_those_of_the_shape_are_refused(
    story: tuple[str, bool, list[Client]], more: int
) -> None:
    datatype, names, asking = story
    asked = replace(asking[0], sends_raw=True).asked(datatype, names)
    end = len(asked.body) + more
    with pytest.raises(MalformedRequest):
        read((asked.body + b"xxx")[:end], asked.infer.json_bytes)
    joined = join([asked], "batch")
    changed = (joined.data + b"xxx")[: len(joined.data) + more]
    with pytest.raises(MalformedAnswer):
        part(changed.replace(b"inputs", b"outputs"), joined.json_bytes + 1, [asked.infer], "")


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
@CI
@given(st.binary() | WILD.map(repr).map(str.encode) | NEARLY.map(str).map(str.encode))
def test_wild_bytes_are_refused_or_read(body: bytes) -> None:
    with suppress(MalformedRequest):
        assert read(body).elements >= 0


@CI
@given(WILD | NEARLY)
def test_wild_objects_are_refused_or_can_be_joined(value: Any) -> None:
    try:
        body = orjson.dumps(value)
        request = read(body)
    except (MalformedRequest, orjson.JSONEncodeError):
        return
    if request.rows:
        again = read(join([QueuedRequest(body, request)] * 2, "batch").data)
        assert again.rows == 2 * request.rows
        assert again.key == request.key


@CI
@given(st.binary() | WILD.map(repr).map(str.encode), bodies())
def test_wild_answers_are_refused(answer: bytes, asked: list[dict[str, Any]]) -> None:
    requests = [read(orjson.dumps(body)) for body in asked]
    with pytest.raises(MalformedAnswer):
        part(answer, 0, requests, "batch")
