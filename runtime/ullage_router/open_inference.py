# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Open Inference Protocol v2 over HTTP: reads and joins requests, splits the answer.

Requests may share a batch when everything but the number of rows is equal: model, version, names,
data types, the shape after the first dimension, parameters, requested outputs. Each client chooses
the form of its tensors, JSON or raw bytes after it: a batch with one raw input has all of them raw,
and every answer has the form that its client requests. Data are checked completely on arrival, so
that an invalid request affects no other.

The shapes are those of the published protocol (Open Inference Protocol, REST, "Inference").
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import orjson

from ullage_run.binary_tensors import (
    ALL_RAW,
    AS_JSON,
    ONE_RAW,
    Body,
    TensorRows,
    Wanted,
    parted,
    raw_of,
    tensor_object,
    wanted_of,
    written,
)
from ullage_run.tensors import Tensor, check_depth, object_of, tensors_of

ANY: Final[dict[str, frozenset[type] | None]] = {}
"""Answers are split by shape alone: a server may have its own data types, and null for NaN."""
STATEFUL: Final = "sequence_id"
"""A parameter of requests that depend on each other; they are neither joined nor repeated."""


class MalformedRequest(ValueError):
    """A client's body violates the protocol; the text says where."""


class MalformedAnswer(ValueError):
    """A replica's answer violates the protocol, or does not match the request."""


class UnreadableAnswer(MalformedAnswer):
    """It is not JSON, for example because of NaN: it can be passed on, but not split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """The fields of a request that the router reads.

    ``rows`` is the first dimension of all inputs, 0 if they differ: then it runs alone. Requests of
    one ``key`` may share a batch. ``elements`` counts those of all inputs. Over HTTP,
    ``json_bytes`` is the length of the JSON before raw tensors, 0 = the whole body; ``raw`` = an
    input is raw, ``wanted`` names outputs requested raw.
    """

    id: str | None
    rows: int
    key: bytes
    elements: int
    stateful: bool
    json_bytes: int = 0
    raw: bool = False
    wanted: Wanted = AS_JSON


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """A queued request: its body, and the parsed fields."""

    body: bytes
    infer: InferRequest


def read(body: bytes, json_bytes: int = 0) -> InferRequest:
    """Check a request's body completely; ``json_bytes`` is the length of its JSON, 0 = all of it.

    Raises:
        MalformedRequest: it is not a request of the protocol.
    """
    try:
        return _read(body, json_bytes)
    except orjson.JSONDecodeError as error:
        raise MalformedRequest(f"the body is no JSON: {error}") from None
    except ValueError as error:
        raise MalformedRequest(str(error)) from None


def _read(body: bytes, json_bytes: int) -> InferRequest:
    parsed, behind = parted(body, json_bytes)
    request = object_of(parsed, "the body")
    inputs = tensors_of(request.get("inputs"), "inputs", behind=behind)
    parameters = object_of(request.get("parameters") or {}, "parameters")
    check_depth(parameters, "parameters")
    outputs = _requested(request.get("outputs"))
    first = {tensor.shape[0] if tensor.shape else 0 for tensor in inputs}
    rows = first.pop() if len(first) == 1 else 0
    stateful = STATEFUL in parameters
    about = [
        _without(parameters, ALL_RAW),
        [_without_form(output) for output in outputs],
        [[t.name, t.datatype, t.shape[1:], t.parameters or None] for t in inputs],
    ]
    return InferRequest(
        id=_id(request),
        rows=0 if stateful else rows,
        key=orjson.dumps(about, option=orjson.OPT_SORT_KEYS),
        elements=sum(tensor.elements for tensor in inputs),
        stateful=stateful,
        json_bytes=json_bytes,
        raw=any(tensor.raw is not None for tensor in inputs),
        wanted=wanted_of(parameters, outputs),
    )


def join(requests: Sequence[QueuedRequest], batch_id: str) -> Body:
    """One request of all rows, in order; the requests were checked and have one key."""
    first: dict[str, object] = {}
    inputs = []
    for asked in requests:
        parsed, behind = parted(asked.body, asked.infer.json_bytes)
        request = object_of(parsed, "the body")
        inputs.append(tensors_of(request["inputs"], "inputs", behind=behind))
        first = first or request
    wanted = [asked.infer.wanted for asked in requests]
    joined = (
        _about_all(first, wanted) if any(outputs.any_raw for outputs in wanted) else _about(first)
    )
    joined["id"] = batch_id
    stacked = list(zip(*inputs, strict=True))
    if not any(asked.infer.raw for asked in requests):
        joined["inputs"] = [
            tensor_object(
                tensors[0], _shape(tensors), data=list(chain.from_iterable(t.data for t in tensors))
            )
            for tensors in stacked
        ]
        return Body(orjson.dumps(joined))
    raws = [b"".join(raw_of(tensor) for tensor in tensors) for tensors in stacked]
    joined["inputs"] = [
        tensor_object(tensors[0], _shape(tensors), raw_bytes=len(raw))
        for tensors, raw in zip(stacked, raws, strict=True)
    ]
    return written(joined, raws)


def _shape(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return (sum(tensor.shape[0] for tensor in tensors), *tensors[0].shape[1:])


def _about(request: Mapping[str, object]) -> dict[str, object]:
    """The common part of a batch, all outputs as JSON."""
    about: dict[str, object] = {}
    parameters = _without(object_of(request.get("parameters") or {}, "parameters"), ALL_RAW)
    if parameters:
        about["parameters"] = parameters
    if request.get("outputs") is not None:
        about["outputs"] = [_without_form(output) for output in _requested(request["outputs"])]
    return about


def _about_all(request: Mapping[str, object], wanted: Sequence[Wanted]) -> dict[str, object]:
    """The same; an output is raw if one of them requests it raw."""
    about = _about(request)
    if any(outputs.others for outputs in wanted):
        about["parameters"] = {**object_of(about.get("parameters", {}), ""), ALL_RAW: True}
    for output in _requested(about.get("outputs")):
        raw = any(outputs.raw(str(output.get("name"))) for outputs in wanted)
        own = object_of(output.get("parameters", {}), "")
        output["parameters"] = {**own, ONE_RAW: raw}
    return about


def part(
    answer: bytes, json_bytes: int, requests: Sequence[InferRequest], batch_id: str
) -> list[Body | None]:
    """The answer of each request, in the order in which they were joined.

    Args:
        answer: The replica's answer.
        json_bytes: The length of its JSON, 0 = all of it.
        requests: The joined ones.
        batch_id: Id of the batch.

    Returns:
        ``None`` where an output cannot be represented in the requested JSON.

    Raises:
        UnreadableAnswer: it is not JSON.
        MalformedAnswer: it has other rows than requested, answers another request, or violates the
            protocol.
    """
    try:
        parsed, behind = parted(answer, json_bytes)
        body = object_of(parsed, "the answer")
        outputs = tensors_of(body.get("outputs"), "outputs", ANY, behind)
        answered = _id(body)
        asked = sum(request.rows for request in requests)
        for tensor in outputs:
            rows = tensor.shape[0] if tensor.shape else 0
            if rows != asked:
                raise ValueError(f"{rows} rows of output {tensor.name[:64]!r} for {asked}")
        tensors = [TensorRows(tensor) for tensor in outputs]
    except orjson.JSONDecodeError as error:
        raise UnreadableAnswer(f"the replica's answer is no JSON: {error}") from None
    except ValueError as error:
        raise MalformedAnswer(f"the replica's answer is malformed: {error}") from None
    if answered is not None and answered != batch_id:
        raise MalformedAnswer("the replica answered another request than it was asked")
    kept: dict[str, object] = {
        name: body[name] for name in ("model_name", "model_version", "parameters") if name in body
    }
    answers: list[Body | None] = []
    first = 0
    for request in requests:
        own = dict(kept)
        if request.id is not None:
            own["id"] = request.id
        answers.append(_own(own, tensors, first, request))
        first += request.rows
    return answers


def _own(
    fields: dict[str, object], tensors: Sequence[TensorRows], first: int, request: InferRequest
) -> Body | None:
    try:
        parts = [
            rows.part(first, request.rows, raw=request.wanted.raw(rows.tensor.name))
            for rows in tensors
        ]
    except ValueError:
        return None
    fields["outputs"] = [described for described, _ in parts]
    try:
        return written(fields, [raw for _, raw in parts])
    except orjson.JSONEncodeError as error:
        raise MalformedAnswer(f"the replica's answer is malformed: {error}") from None


def check(answer: bytes, json_bytes: int) -> None:
    """Check the answer to a request that ran alone, which is passed on unchanged.

    NaN, which the strict parser refuses, is left to replica and client.

    Raises:
        MalformedAnswer: it is not an answer of the protocol.
    """
    try:
        try:
            parsed, _ = parted(answer, json_bytes)
        except orjson.JSONDecodeError:
            parsed = json.loads(answer[:json_bytes] if json_bytes else answer)
        if not isinstance(object_of(parsed, "it").get("outputs"), list):
            raise ValueError("outputs is a list of tensors")
    except (ValueError, RecursionError) as error:
        raise MalformedAnswer(f"the replica's answer is malformed: {error}") from None


def error_body(text: str) -> bytes:
    """The protocol's error object; invalid Unicode is dropped."""
    return orjson.dumps({"error": text.encode("utf-8", "replace").decode()})


def _requested(value: object) -> list[dict[str, object]]:
    """The requested outputs, unchanged; they only must be equal in a batch."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError("outputs is a list of objects")
    check_depth(value, "outputs")
    return value


def _without(values: Mapping[str, object], name: str) -> Mapping[str, object]:
    return {key: value for key, value in values.items() if key != name} if values else values


def _without_form(output: Mapping[str, object]) -> dict[str, object]:
    """A requested output without its form."""
    parameters = output.get("parameters")
    if not isinstance(parameters, dict):
        return dict(output)
    own = _without(parameters, ONE_RAW)
    rest = {key: value for key, value in output.items() if key != "parameters"}
    return {**rest, "parameters": own} if own else rest


def _id(body: dict[str, object]) -> str | None:
    value = body.get("id")
    if value is not None and not isinstance(value, str):
        raise ValueError("id is a text")
    return value
