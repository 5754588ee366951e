# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""gRPC messages: each gets the rows that it would have got alone, and JSON says the same."""

from __future__ import annotations

import struct
from contextlib import suppress
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.examples import examples
from ullage_router import open_inference
from ullage_router.infer_messages import CONTENTS, about, join, message_of, part, read
from ullage_router.open_inference import MalformedAnswer, MalformedRequest
from ullage_router.proto.open_inference_pb2 import ModelInferRequest, ModelInferResponse
from ullage_router.translation import (
    answer_of_json,
    body_of_answer,
    json_of_request,
    request_of_json,
)

CI = examples(40, many=200)

FORMS = {"BOOL": "?", "INT8": "b", "UINT16": "H", "INT64": "q", "UINT64": "Q", "FP32": "f"}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOL": st.booleans(),
    "INT8": st.integers(-128, 127),
    "UINT16": st.integers(0, 2**16 - 1),
    "INT64": st.integers(-(2**63), 2**63 - 1),
    "UINT64": st.integers(0, 2**64 - 1),
    "FP32": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "BYTES": st.text(max_size=4).map(str.encode),
}
PARAMETERS = st.dictionaries(
    st.text(max_size=3),
    st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=3) | st.floats(-9, 9),
    max_size=2,
)


@st.composite
def messages(draw: st.DrawFn) -> list[ModelInferRequest]:
    """Requests of one kind and one form, with different rows and ids."""
    datatype = draw(st.sampled_from(sorted(VALUES)))
    tail = draw(st.lists(st.integers(1, 3), max_size=2))
    names = draw(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=2, unique=True))
    raw, found = draw(st.booleans()), []
    for _ in range(draw(st.integers(1, 5))):
        rows = draw(st.integers(1, 3))
        request = ModelInferRequest(model_name="same", id=draw(st.text(max_size=3)))
        for name in names:
            tensor = request.inputs.add(name=name, datatype=datatype, shape=[rows, *tail])
            size = rows
            for one in tail:
                size *= one
            data = draw(st.lists(VALUES[datatype], min_size=size, max_size=size))
            if raw:
                request.raw_input_contents.append(packed(datatype, data))
            else:
                getattr(tensor.contents, CONTENTS[datatype]).extend(data)
        found.append(request)
    return found


def packed(datatype: str, data: list[Any]) -> bytes:
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(one)) + one for one in data)
    return struct.pack(f"<{len(data)}{FORMS[datatype]}", *data)


def answered(asked: ModelInferRequest) -> ModelInferResponse:
    """A server that gives its inputs back."""
    answer = ModelInferResponse(model_name=asked.model_name, id=asked.id)
    for tensor in asked.inputs:
        answer.outputs.add(
            name=tensor.name,
            datatype=tensor.datatype,
            shape=tensor.shape,
            contents=tensor.contents if tensor.HasField("contents") else None,
        )
    answer.raw_output_contents.extend(asked.raw_input_contents)
    return answer


def waiting(bodies: list[bytes]) -> list[open_inference.QueuedRequest]:
    return [open_inference.QueuedRequest(body, read(body)) for body in bodies]


@CI
@given(messages())
def test_each_gets_its_own_rows(asked: list[ModelInferRequest]) -> None:
    bodies = [one.SerializeToString() for one in asked]
    requests = [read(one) for one in bodies]
    assert all(one.key == other.key for one, other in pairwise(requests))
    joined = message_of(join(waiting(bodies), "batch").data)
    assert about(joined).rows == sum(one.rows for one in requests)
    parts = part(answered(joined).SerializeToString(), 0, requests, "batch")
    assert [ModelInferResponse.FromString(one.data) for one in parts if one] == [
        answered(one) for one in asked
    ]


@CI
@given(messages(), st.sampled_from([-1, 1]), st.data())
def test_an_answer_with_other_rows_is_refused(
    asked: list[ModelInferRequest], more: int, data: st.DataObject
) -> None:
    bodies = [one.SerializeToString() for one in asked]
    answer = answered(message_of(join(waiting(bodies), "batch").data))
    data.draw(st.sampled_from(list(answer.outputs))).shape[0] += more
    with pytest.raises(MalformedAnswer):
        part(answer.SerializeToString(), 0, [read(one) for one in bodies], "batch")


@CI
@given(messages(), st.integers(0, 9), st.data())
def test_an_answer_with_other_elements_is_refused(
    asked: list[ModelInferRequest], more: int, data: st.DataObject
) -> None:
    bodies = [one.SerializeToString() for one in asked]
    answer = answered(message_of(join(waiting(bodies), "batch").data))
    at = data.draw(st.integers(0, len(answer.outputs) - 1))
    if answer.raw_output_contents:
        answer.raw_output_contents[at] += bytes(4 * more + 1)
    else:
        contents = getattr(answer.outputs[at].contents, CONTENTS[answer.outputs[at].datatype])
        contents.append(contents[0])
    with pytest.raises(MalformedAnswer):
        part(answer.SerializeToString(), 0, [read(one) for one in bodies], "batch")


@CI
@given(messages(), PARAMETERS)
def test_json_says_the_same_there_and_back(
    asked: list[ModelInferRequest], parameters: dict[str, Any]
) -> None:
    request = asked[0]
    body = orjson.loads(json_of_request(request))
    body["parameters"] = parameters
    text = orjson.dumps(body)
    assert open_inference.read(text).rows == request.inputs[0].shape[0]
    back = message_of(request_of_json(text, request.model_name, ""))
    assert orjson.loads(json_of_request(back)).get("parameters", {}) == parameters
    assert [_elements(one) for one in (body, orjson.loads(json_of_request(back)))] == [
        _elements(body)
    ] * 2
    answer = answered(request)
    said = body_of_answer(answer.SerializeToString()).data
    raw = bool(request.raw_input_contents)
    assert ModelInferResponse.FromString(answer_of_json(said, raw=raw)) == answer


def _elements(body: dict[str, Any]) -> list[Any]:
    return [[one["name"], one["datatype"], one["shape"], one["data"]] for one in body["inputs"]]


@CI
@given(st.binary())
def test_wild_bytes_are_refused_or_read(body: bytes) -> None:
    with suppress(MalformedRequest):
        assert read(body).elements >= 0


@CI
@given(messages(), st.data())
def test_a_changed_message_is_refused_or_can_be_joined(
    asked: list[ModelInferRequest], data: st.DataObject
) -> None:
    body = bytearray(asked[0].SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        request = read(bytes(body))
    except MalformedRequest:
        return
    if request.rows:
        again = read(join(waiting([bytes(body)] * 2), "batch").data)
        assert again.rows == 2 * request.rows
        assert again.key == request.key
    with suppress(MalformedRequest):
        open_inference.read(json_of_request(message_of(bytes(body))))


@CI
@given(st.binary(), messages())
def test_wild_answers_are_refused_or_parted(answer: bytes, asked: list[ModelInferRequest]) -> None:
    with suppress(MalformedAnswer):
        part(answer, 0, [about(one) for one in asked], "batch")
    with suppress(MalformedAnswer):
        body_of_answer(answer)
    with suppress(MalformedAnswer):
        answer_of_json(answer, raw=False)
