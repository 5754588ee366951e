# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Open Inference Protocol v2 between JSON and gRPC messages.

It is used where a client and the replicas speak different ones.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Final

import orjson
from google.protobuf.message import DecodeError

from ullage_router.infer_messages import CONTENTS
from ullage_router.open_inference import ANY, MalformedAnswer, MalformedRequest
from ullage_router.proto.open_inference_pb2 import (
    InferParameter,
    InferTensorContents,
    ModelInferRequest,
    ModelInferResponse,
    ModelMetadataResponse,
    ServerMetadataResponse,
)
from ullage_run.binary_tensors import (
    ALL_RAW,
    AS_JSON,
    ONE_RAW,
    Body,
    Wanted,
    parted,
    raw_of,
    tensor_object,
    written,
)
from ullage_run.tensors import BYTES, LENGTH, Tensor, bounds_of, byte_strings, object_of, tensors_of

RAW: Final[Mapping[str, str]] = {
    **dict(zip(("BOOL", "INT8", "INT16", "INT32", "INT64"), "?bhiq", strict=True)),
    **dict(zip(("UINT8", "UINT16", "UINT32", "UINT64"), "BHIQ", strict=True)),
    **dict(zip(("FP16", "FP32", "FP64"), "efd", strict=True)),
}
"""``struct`` format of the elements; BF16 has none."""
FLOATS: Final = frozenset({"FP16", "FP32", "FP64"})
MOST_INT64: Final = 2**63 - 1
Parameters = Mapping[str, InferParameter]


def request_of_json(body: bytes, model: str, version: str, json_bytes: int = 0) -> bytes:
    """The message of an already checked HTTP request.

    Args:
        body: The request's body.
        model: Its name.
        version: Its version, or nothing.
        json_bytes: The length of its JSON, where raw tensors may follow; 0 = all of it.

    Raises:
        MalformedRequest: a value cannot be represented in a message.
    """
    parsed, behind = parted(body, json_bytes)
    request = object_of(parsed, "the body")
    try:
        message = ModelInferRequest(
            model_name=model, model_version=version, id=str(request.get("id") or "")
        )
        parameters = object_of(request.get("parameters") or {}, "parameters")
        _fill(message.parameters, parameters, ALL_RAW)
        requested = request.get("outputs") or []
        for output in requested if isinstance(requested, list) else []:
            added = message.outputs.add(name=_text(output.get("name"), "outputs[].name"))
            own = object_of(output.get("parameters") or {}, "parameters")
            _fill(added.parameters, own, ONE_RAW)
        tensors = tensors_of(request.get("inputs"), "inputs", behind=behind)
        raw = any(tensor.raw is not None or tensor.datatype not in CONTENTS for tensor in tensors)
        for tensor in tensors:
            put = message.inputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
            _fill(put.parameters, tensor.parameters or {})
            if raw:
                message.raw_input_contents.append(bytes(raw_of(tensor)))
            else:
                _type(put.contents, tensor)
    except (ValueError, TypeError, OverflowError) as error:
        raise MalformedRequest(f"the replicas speak gRPC: {error}") from None
    return message.SerializeToString()


def json_of_request(message: ModelInferRequest) -> bytes:
    """The JSON of an already checked request.

    Raises:
        MalformedRequest: a value cannot be represented in JSON.
    """
    raw = message.raw_input_contents
    body: dict[str, object] = {}
    try:
        if message.id:
            body["id"] = message.id
        if message.parameters:
            body["parameters"] = _parameters(message.parameters)
        if message.outputs:
            body["outputs"] = [_described(output) for output in message.outputs]
        body["inputs"] = [
            {
                **_described(tensor),
                "datatype": tensor.datatype,
                "shape": list(tensor.shape),
                "data": _data(tensor, raw[at] if raw else None, finite=True),
            }
            for at, tensor in enumerate(message.inputs)
        ]
    except ValueError as error:
        raise MalformedRequest(f"the replicas speak JSON: {error}") from None
    return orjson.dumps(body)


def body_of_answer(answer: bytes, wanted: Wanted = AS_JSON) -> Body:
    """A replica's answer for a client over HTTP; in JSON, NaN is null.

    Raises:
        MalformedAnswer: it violates the protocol, or cannot be represented in the requested JSON.
    """
    try:
        message = ModelInferResponse.FromString(answer)
        raw = message.raw_output_contents
        if raw and len(raw) != len(message.outputs):
            raise ValueError("raw outputs are not as many as outputs")
        body: dict[str, object] = {"model_name": message.model_name}
        if message.model_version:
            body["model_version"] = message.model_version
        if message.id:
            body["id"] = message.id
        if message.parameters:
            body["parameters"] = _parameters(message.parameters)
        parts = [
            _written_output(tensor, raw[at] if raw else None, wanted.raw(tensor.name))
            for at, tensor in enumerate(message.outputs)
        ]
        body["outputs"] = [described for described, _ in parts]
        return written(body, [behind for _, behind in parts])
    except (ValueError, DecodeError) as error:
        raise MalformedAnswer(f"the replica's answer is malformed: {error}") from None


def _written_output(
    output: ModelInferResponse.InferOutputTensor, raw: bytes | None, is_raw: bool
) -> tuple[dict[str, object], bytes | memoryview | None]:
    tensor = Tensor(
        name=output.name,
        datatype=output.datatype,
        shape=tuple(output.shape),
        data=[],
        parameters=_parameters(output.parameters) or None,
    )
    if not is_raw:
        data = _data(output, raw, finite=False)
        return tensor_object(tensor, tensor.shape, data=data), None
    if raw is not None:
        bounds_of(raw, tensor.datatype, tensor.elements, f"output {tensor.name[:64]!r}")
    elif tensor.datatype == BYTES:
        raw = b"".join(
            LENGTH.pack(len(element)) + element for element in output.contents.bytes_contents
        )
    else:
        raw = _raw(replace(tensor, data=list(_data(output, None, finite=False))))
    return tensor_object(tensor, tensor.shape, raw_bytes=len(raw)), raw


def answer_of_json(answer: bytes, *, raw: bool) -> bytes:
    """The message of a replica's JSON answer.

    Args:
        answer: The replica's JSON.
        raw: Its client requests raw contents; 16-bit floats make all raw.

    Raises:
        MalformedAnswer: it violates the protocol, or cannot be represented in a message.
    """
    try:
        body = object_of(orjson.loads(answer), "the answer")
        message = ModelInferResponse(
            model_name=_text(body.get("model_name") or "", "model_name"),
            model_version=_text(body.get("model_version") or "", "model_version"),
            id=_text(body.get("id") or "", "id"),
        )
        _fill(message.parameters, object_of(body.get("parameters") or {}, "parameters"))
        tensors = tensors_of(body.get("outputs"), "outputs", ANY)
        raw = raw or any(tensor.datatype not in CONTENTS for tensor in tensors)
        for tensor in tensors:
            put = message.outputs.add(
                name=tensor.name, datatype=tensor.datatype, shape=tensor.shape
            )
            _fill(put.parameters, tensor.parameters or {})
            if raw:
                message.raw_output_contents.append(_raw(tensor))
            else:
                _type(put.contents, tensor)
    except (ValueError, TypeError, OverflowError, struct.error) as error:
        raise MalformedAnswer(f"the replica's answer is malformed: {error}") from None
    return message.SerializeToString()


def server_metadata(body: bytes) -> ServerMetadataResponse:
    """The message of a server's JSON metadata.

    Raises:
        MalformedAnswer: it violates the protocol.
    """
    try:
        metadata = object_of(orjson.loads(body), "the metadata")
        return ServerMetadataResponse(
            name=_text(metadata.get("name") or "", "name"),
            version=_text(metadata.get("version") or "", "version"),
            extensions=_texts(metadata.get("extensions"), "extensions"),
        )
    except (ValueError, TypeError) as error:
        raise MalformedAnswer(f"the replica's metadata are malformed: {error}") from None


def model_metadata(body: bytes) -> ModelMetadataResponse:
    """The message of a model's JSON metadata.

    Raises:
        MalformedAnswer: it violates the protocol.
    """
    try:
        metadata = object_of(orjson.loads(body), "the metadata")
        message = ModelMetadataResponse(
            name=_text(metadata.get("name") or "", "name"),
            versions=_texts(metadata.get("versions"), "versions"),
            platform=_text(metadata.get("platform") or "", "platform"),
        )
        for own, name in ((message.inputs, "inputs"), (message.outputs, "outputs")):
            listed = metadata.get(name) or []
            for item in listed if isinstance(listed, list) else [listed]:
                tensor = object_of(item, name)
                own.add(
                    name=_text(tensor.get("name"), f"{name}[].name"),
                    datatype=_text(tensor.get("datatype"), f"{name}[].datatype"),
                    shape=tensor.get("shape") or (),
                )
    except (ValueError, TypeError) as error:
        raise MalformedAnswer(f"the replica's metadata are malformed: {error}") from None
    return message


def json_of_metadata(message: ServerMetadataResponse | ModelMetadataResponse) -> bytes:
    """The JSON of metadata."""
    if isinstance(message, ServerMetadataResponse):
        return orjson.dumps(
            {
                "name": message.name,
                "version": message.version,
                "extensions": list(message.extensions),
            }
        )
    body: dict[str, object] = {
        "name": message.name,
        "versions": list(message.versions),
        "platform": message.platform,
    }
    for name, tensors in (("inputs", message.inputs), ("outputs", message.outputs)):
        body[name] = [
            {"name": t.name, "datatype": t.datatype, "shape": list(t.shape)} for t in tensors
        ]
    return orjson.dumps(body)


def _described(
    item: ModelInferRequest.InferInputTensor
    | ModelInferRequest.InferRequestedOutputTensor
    | ModelInferResponse.InferOutputTensor,
) -> dict[str, object]:
    described: dict[str, object] = {"name": item.name}
    if item.parameters:
        described["parameters"] = _parameters(item.parameters)
    return described


def _data(
    tensor: ModelInferRequest.InferInputTensor | ModelInferResponse.InferOutputTensor,
    raw: bytes | None,
    *,
    finite: bool,
) -> Sequence[object]:
    datatype, elements = tensor.datatype, math.prod(tensor.shape)
    values: Sequence[object]
    if datatype == BYTES:
        contents = (
            tensor.contents.bytes_contents
            if raw is None
            else [raw[start:end] for start, end in byte_strings(raw)]
        )
        values = [item.decode() for item in contents]
    elif datatype not in RAW:
        raise ValueError(f"{datatype[:64]} of {tensor.name[:64]!r} has no place in JSON")
    elif raw is not None:
        form = struct.Struct(f"<{len(raw) // struct.calcsize('<' + RAW[datatype])}{RAW[datatype]}")
        if form.size != len(raw):
            raise ValueError(f"{tensor.name[:64]!r} has not the bytes of its data type")
        values = form.unpack(raw)
    elif datatype not in CONTENTS:
        raise ValueError(f"{datatype} of {tensor.name[:64]!r} has raw contents only")
    else:
        values = list(getattr(tensor.contents, CONTENTS[datatype]))
    if len(values) != elements:
        raise ValueError(f"{tensor.name[:64]!r} has {len(values)} elements, its shape {elements}")
    if finite and datatype in FLOATS and not all(map(math.isfinite, values)):
        raise ValueError(f"{tensor.name[:64]!r} has a number that is not finite")
    return values


def _numbers(tensor: Tensor) -> list[object]:
    """Its elements, with NaN for the null of JSON."""
    if tensor.datatype in FLOATS and None in tensor.data:
        return [math.nan if value is None else value for value in tensor.data]
    return tensor.data


def _raw(tensor: Tensor) -> bytes:
    if tensor.datatype == BYTES:
        texts = [_text(value, tensor.name).encode() for value in tensor.data]
        return b"".join(LENGTH.pack(len(text)) + text for text in texts)
    if tensor.datatype not in RAW:
        raise ValueError(f"{tensor.datatype[:64]} of {tensor.name[:64]!r} has no place in JSON")
    return struct.pack(f"<{len(tensor.data)}{RAW[tensor.datatype]}", *_numbers(tensor))


def _type(contents: InferTensorContents, tensor: Tensor) -> None:
    values: list[object] = _numbers(tensor)
    if tensor.datatype == BYTES:
        values = [_text(value, tensor.name).encode() for value in tensor.data]
    getattr(contents, CONTENTS[tensor.datatype]).extend(values)


def _fill(
    parameters: MutableMapping[str, InferParameter], values: Mapping[str, object], less: str = ""
) -> None:
    """Write parameters, except the one for HTTP only."""
    for name, value in values.items():
        if name == less:
            continue
        match value:
            case bool():
                parameters[name].bool_param = value
            case int() if value > MOST_INT64:
                parameters[name].uint64_param = value
            case int():
                parameters[name].int64_param = value
            case float():
                parameters[name].double_param = value
            case str():
                parameters[name].string_param = value
            case _:
                raise ValueError(f"parameter {name[:64]!r} is a truth value, a number or a text")


def _parameters(parameters: Parameters) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        if kind is None:
            raise ValueError(f"parameter {name[:64]!r} has no value")
        value = getattr(parameter, kind)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"parameter {name[:64]!r} is not finite")
        values[name] = value
    return values


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where[:64]} is a text")
    return value


def _texts(value: object, where: str) -> list[str]:
    items = value if isinstance(value, list) else []
    return [_text(item, where) for item in items]
