# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Open Inference Protocol v2 as JSON: reads a request, joins several to one, parts the answer.

Requests may share a batch when everything but the number of rows is equal: model, version, names,
data types, the shape behind the first dimension, parameters, requested outputs. Data are checked
whole where a request comes in, so that a wrong one harms no other.

The shapes are those of the published protocol (Open Inference Protocol, REST, "Inference").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import orjson

from ullage_run.tensors import Tensor, object_of, tensors_of

ANY: Final[dict[str, frozenset[type] | None]] = {}
"""Answers are parted by shape alone: a server may have its own data types, and null for NaN."""
STATEFUL: Final = "sequence_id"
"""A parameter of requests that depend on each other; they are neither joined nor repeated."""


class MalformedRequest(ValueError):
    """A client's body breaks the protocol; the text says where."""


class MalformedAnswer(ValueError):
    """A replica's answer breaks the protocol, or is not about what it was asked."""


class UnreadableAnswer(MalformedAnswer):
    """It is no JSON, as where a number is NaN: it can be passed on, and not be parted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """What the router needs to know of a request.

    ``rows`` is the first dimension of all inputs, 0 where they have none in common: then it runs
    alone. Requests of one ``key`` may share a batch. ``elements`` counts those of all inputs.
    """

    id: str | None
    rows: int
    key: bytes
    elements: int
    stateful: bool


def read(body: bytes) -> InferRequest:
    """Check a request's body whole.

    Raises:
        MalformedRequest: it is no request of the protocol.
    """
    try:
        return _read(body)
    except orjson.JSONDecodeError as error:
        raise MalformedRequest(f"the body is no JSON: {error}") from None
    except ValueError as error:
        raise MalformedRequest(str(error)) from None


def _read(body: bytes) -> InferRequest:
    request = object_of(orjson.loads(body), "the body")
    inputs = tensors_of(request.get("inputs"), "inputs")
    parameters = object_of(request.get("parameters") or {}, "parameters")
    first = {tensor.shape[0] if tensor.shape else 0 for tensor in inputs}
    rows = first.pop() if len(first) == 1 else 0
    stateful = STATEFUL in parameters
    about = [
        parameters,
        _requested(request.get("outputs")),
        [[t.name, t.datatype, t.shape[1:], t.parameters] for t in inputs],
    ]
    return InferRequest(
        id=_id(request),
        rows=0 if stateful else rows,
        key=orjson.dumps(about, option=orjson.OPT_SORT_KEYS),
        elements=sum(len(tensor.data) for tensor in inputs),
        stateful=stateful,
    )


def join(bodies: Sequence[bytes], batch_id: str) -> bytes:
    """One request of all rows, in order; the bodies were read before and have one key."""
    parsed = [object_of(orjson.loads(body), "the body") for body in bodies]
    inputs = [tensors_of(request["inputs"], "inputs") for request in parsed]
    joined: dict[str, object] = {
        name: parsed[0][name] for name in ("parameters", "outputs") if name in parsed[0]
    }
    joined["id"] = batch_id
    joined["inputs"] = [_stacked(tensors) for tensors in zip(*inputs, strict=True)]
    return orjson.dumps(joined)


def _stacked(tensors: Sequence[Tensor]) -> dict[str, object]:
    rows = sum(tensor.shape[0] for tensor in tensors)
    first = tensors[0]
    data = list(chain.from_iterable(tensor.data for tensor in tensors))
    whole = Tensor(
        name=first.name,
        datatype=first.datatype,
        shape=(rows, *first.shape[1:]),
        data=data,
        parameters=first.parameters,
    )
    return whole.part(0, rows)


def part(answer: bytes, requests: Sequence[InferRequest], batch_id: str) -> list[bytes]:
    """The answer of each request, in the order in which they were joined.

    Raises:
        UnreadableAnswer: it is no JSON.
        MalformedAnswer: it has other rows than were asked for, is the answer to another request,
            or is none of the protocol.
    """
    try:
        body = object_of(orjson.loads(answer), "the answer")
        outputs = tensors_of(body.get("outputs"), "outputs", ANY)
        answered = _id(body)
    except orjson.JSONDecodeError as error:
        raise UnreadableAnswer(f"the replica's answer is no JSON: {error}") from None
    except ValueError as error:
        raise MalformedAnswer(f"the replica's answer is malformed: {error}") from None
    if answered is not None and answered != batch_id:
        raise MalformedAnswer("the replica answered another request than it was asked")
    asked = sum(request.rows for request in requests)
    for tensor in outputs:
        rows = tensor.shape[0] if tensor.shape else 0
        if rows != asked:
            raise MalformedAnswer(
                f"the replica gave {rows} rows of output {tensor.name[:64]!r} for {asked}"
            )
    kept: dict[str, object] = {
        name: body[name] for name in ("model_name", "model_version", "parameters") if name in body
    }
    answers, first = [], 0
    for request in requests:
        own = dict(kept)
        if request.id is not None:
            own["id"] = request.id
        own["outputs"] = [tensor.part(first, request.rows) for tensor in outputs]
        answers.append(orjson.dumps(own))
        first += request.rows
    return answers


def error_body(text: str) -> bytes:
    """The protocol's error object."""
    return orjson.dumps({"error": text})


def _requested(value: object) -> object:
    """The outputs that are asked for, as they are; they only must be equal in a batch."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError("outputs is a list of objects")
    return value


def _id(body: dict[str, object]) -> str | None:
    value = body.get("id")
    if value is not None and not isinstance(value, str):
        raise ValueError("id is a text")
    return value
