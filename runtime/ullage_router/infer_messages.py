# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Open Inference Protocol v2 as gRPC messages: reads and joins requests, splits the answer.

The rules are those of ``open_inference``. Tensors are raw bytes or typed contents; both are joined
and split unchanged, so requests of different form have different keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import orjson
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from ullage_router.open_inference import (
    STATEFUL,
    InferRequest,
    MalformedAnswer,
    MalformedRequest,
    QueuedRequest,
)
from ullage_router.proto.open_inference_pb2 import (
    InferParameter,
    ModelInferRequest,
    ModelInferResponse,
)
from ullage_run.binary_tensors import Body
from ullage_run.tensors import BYTES, DIMENSIONS, ELEMENT_BYTES, TENSORS, byte_strings

CONTENTS: Final[Mapping[str, str]] = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    BYTES: "bytes_contents",
}
"""The field of a data type; those of 16-bit floats are always raw."""

Slice = Callable[[ModelInferResponse, int, int], None]
"""Copies the elements of these rows into an answer."""


def message_of(body: bytes) -> ModelInferRequest:
    """Parse a request.

    Raises:
        MalformedRequest: the bytes are not a request.
    """
    try:
        return ModelInferRequest.FromString(body)
    except DecodeError:
        raise MalformedRequest("the message is no ModelInferRequest") from None


def read(body: bytes) -> InferRequest:
    """Check a request's bytes completely.

    Raises:
        MalformedRequest: they are not a request of the protocol.
    """
    return about(message_of(body))


def about(message: ModelInferRequest) -> InferRequest:
    """Check a request completely; one with unknown fields runs alone.

    Raises:
        MalformedRequest: it violates the protocol.
    """
    inputs, raw = message.inputs, message.raw_input_contents
    if not 1 <= len(inputs) <= TENSORS:
        raise MalformedRequest(f"inputs is a list of 1 to {TENSORS} tensors")
    if max(_counts(message)) > TENSORS:
        raise MalformedRequest(f"outputs and parameters have at most {TENSORS} items each")
    if raw and len(raw) != len(inputs):
        raise MalformedRequest(f"raw_input_contents has {len(raw)} items for {len(inputs)} inputs")
    if len({tensor.name for tensor in inputs}) != len(inputs):
        raise MalformedRequest("inputs names a tensor twice")
    elements = 0
    for at, tensor in enumerate(inputs):
        try:
            elements += _checked(tensor, raw[at] if raw else None)
        except ValueError as error:
            raise MalformedRequest(f"inputs[{at}]{error}") from None
    first = {tensor.shape[0] if tensor.shape else 0 for tensor in inputs}
    stateful = STATEFUL in message.parameters
    alone = stateful or len(first) > 1 or _has_unknown(message)
    key = [
        parameters_of(message.parameters),
        [[output.name, parameters_of(output.parameters)] for output in message.outputs],
        [[t.name, t.datatype, list(t.shape[1:]), parameters_of(t.parameters)] for t in inputs],
        bool(raw),
    ]
    return InferRequest(
        id=message.id or None,
        rows=0 if alone else first.pop(),
        key=orjson.dumps(key, option=orjson.OPT_SORT_KEYS),
        elements=elements,
        stateful=stateful,
    )


def _checked(tensor: ModelInferRequest.InferInputTensor, raw: bytes | None) -> int:
    """The number of elements of a tensor."""
    datatype, shape = tensor.datatype, tensor.shape
    if not tensor.name:
        raise ValueError(".name is a text")
    if datatype not in ELEMENT_BYTES and datatype != BYTES:
        raise ValueError(f".datatype is one of {', '.join(sorted([*ELEMENT_BYTES, BYTES]))}")
    if len(shape) > DIMENSIONS or not all(size > 0 for size in shape):
        raise ValueError(f".shape is a list of at most {DIMENSIONS} positive integers")
    elements = math.prod(shape)
    if raw is None:
        _check_typed(tensor, elements)
    elif tensor.HasField("contents"):
        raise ValueError(".contents stands beside raw_input_contents")
    elif datatype == BYTES:
        count = sum(1 for _ in byte_strings(raw))
        if count != elements:
            raise ValueError(f" has {count} raw elements, its shape {elements}")
    elif len(raw) != elements * ELEMENT_BYTES[datatype]:
        wanted = elements * ELEMENT_BYTES[datatype]
        raise ValueError(f" has {len(raw)} raw bytes, its shape and datatype {wanted}")
    return elements


def _check_typed(tensor: ModelInferRequest.InferInputTensor, elements: int) -> None:
    name = CONTENTS.get(tensor.datatype)
    if name is None:
        raise ValueError(f": {tensor.datatype} has raw contents only")
    count = len(getattr(tensor.contents, name))
    if count != elements:
        raise ValueError(f".contents.{name} has {count} elements, its shape {elements}")
    if len(tensor.contents.ListFields()) > 1:
        raise ValueError(f".contents has more than {name}")


def parameters_of(parameters: Mapping[str, InferParameter]) -> dict[str, list[str | None]]:
    """The identity of parameters: kind and value of each."""
    known: dict[str, list[str | None]] = {}
    for name, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        known[name] = [kind, None if kind is None else repr(getattr(parameter, kind))]
    return known


def _counts(message: ModelInferRequest) -> Iterator[int]:
    """Numbers of outputs and parameters; those of outputs beyond the limit are not read."""
    yield len(message.outputs)
    yield len(message.parameters)
    yield from (len(tensor.parameters) for tensor in message.inputs)
    yield from (len(tensor.parameters) for tensor in message.outputs[:TENSORS])


def _has_unknown(message: ModelInferRequest) -> bool:
    parts = (message, *message.inputs, *message.outputs)
    return any(len(UnknownFieldSet(part)) for part in parts)


def join(requests: Sequence[QueuedRequest], batch_id: str) -> Body:
    """One request of all rows, in order; the requests were checked and have one key."""
    messages = [ModelInferRequest.FromString(asked.body) for asked in requests]
    joined = messages[0]
    raw = [b"".join(parts) for parts in zip(*(m.raw_input_contents for m in messages), strict=True)]
    joined.id = batch_id
    for at, tensor in enumerate(joined.inputs):
        tensor.shape[0] = sum(message.inputs[at].shape[0] for message in messages)
        if not raw:
            for message in messages[1:]:
                tensor.contents.MergeFrom(message.inputs[at].contents)
    joined.raw_input_contents[:] = raw
    return Body(joined.SerializeToString())


def check(answer: bytes, _: int) -> None:
    """Check the answer to a request that ran alone, which is passed on unchanged.

    Raises:
        MalformedAnswer: it is not an answer of the protocol.
    """
    _answered(answer)


def _answered(answer: bytes) -> ModelInferResponse:
    try:
        return ModelInferResponse.FromString(answer)
    except DecodeError:
        raise MalformedAnswer("the replica's answer is no ModelInferResponse") from None


def part(
    answer: bytes, _: int, requests: Sequence[InferRequest], batch_id: str
) -> list[Body | None]:
    """The answer of each request, in the order in which they were joined.

    Raises:
        MalformedAnswer: it has other rows than requested, answers another request, or violates the
            protocol.
    """
    message = _answered(answer)
    if message.id and message.id != batch_id:
        raise MalformedAnswer("the replica answered another request than it was asked")
    asked = sum(request.rows for request in requests)
    raw = message.raw_output_contents
    if raw and len(raw) != len(message.outputs):
        raise MalformedAnswer("the replica's raw outputs are not as many as its outputs")
    slices: list[Slice] = []
    for at, tensor in enumerate(message.outputs):
        rows = tensor.shape[0] if tensor.shape else 0
        if rows != asked:
            name = tensor.name[:64]
            raise MalformedAnswer(f"the replica gave {rows} rows of output {name!r} for {asked}")
        slices.append(_raw_slice(tensor, raw[at]) if raw else _typed_slice(tensor, at))
    answers: list[Body | None] = []
    first = 0
    for request in requests:
        own = ModelInferResponse(
            model_name=message.model_name, model_version=message.model_version, id=request.id or ""
        )
        own.MergeFrom(ModelInferResponse(parameters=message.parameters))
        for tensor, put in zip(message.outputs, slices, strict=True):
            own.outputs.add(
                name=tensor.name,
                datatype=tensor.datatype,
                shape=(request.rows, *tensor.shape[1:]),
                parameters=tensor.parameters,
            )
            put(own, first, first + request.rows)
        answers.append(Body(own.SerializeToString()))
        first += request.rows
    return answers


def _raw_slice(tensor: ModelInferResponse.InferOutputTensor, raw: bytes) -> Slice:
    rows, row = tensor.shape[0], math.prod(tensor.shape[1:])
    if tensor.datatype == BYTES:
        try:
            ends = [0, *(end for _, end in byte_strings(raw))]
        except ValueError as error:
            raise MalformedAnswer(f"output {tensor.name[:64]!r}{error}") from None
        if len(ends) != rows * row + 1:
            raise MalformedAnswer(f"output {tensor.name[:64]!r} has not the elements of its shape")

        def put_strings(own: ModelInferResponse, first: int, last: int) -> None:
            own.raw_output_contents.append(raw[ends[first * row] : ends[last * row]])

        return put_strings
    width, left = divmod(len(raw), rows)
    if left or width != row * ELEMENT_BYTES.get(tensor.datatype, width):
        raise MalformedAnswer(f"output {tensor.name[:64]!r} has not the bytes of its shape")

    def put(own: ModelInferResponse, first: int, last: int) -> None:
        own.raw_output_contents.append(raw[first * width : last * width])

    return put


def _typed_slice(tensor: ModelInferResponse.InferOutputTensor, at: int) -> Slice:
    row, rows = math.prod(tensor.shape[1:]), tensor.shape[0]
    filled = tensor.contents.ListFields()
    name = filled[0][0].name if filled else ""
    values = filled[0][1] if filled else ()
    if len(filled) > 1 or len(values) != rows * row:
        raise MalformedAnswer(f"output {tensor.name[:64]!r} has not the elements of its shape")

    def put(own: ModelInferResponse, first: int, last: int) -> None:
        if name:
            getattr(own.outputs[at].contents, name).extend(values[first * row : last * row])

    return put
