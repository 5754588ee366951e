# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The binary tensor data extension of the Open Inference Protocol v2 over HTTP.

A body is JSON followed by the raw bytes of tensors; a header gives the length of the JSON. A client
selects for each output if it is raw. The rules are those of the published extension ("Binary Tensor
Data Extension").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import orjson

from ullage_run.tensors import (
    BINARY_SIZE,
    BYTES,
    LENGTH,
    Behind,
    Tensor,
    bounds_of,
    byte_strings,
    object_of,
)

HEADER: Final = "Inference-Header-Content-Length"
"""Header with the length of the JSON before raw tensors."""
ALL_RAW: Final = "binary_data_output"
"""A parameter of a request: outputs are raw by default."""
ONE_RAW: Final = "binary_data"
"""A parameter of a requested output: true = raw."""
MOST_DIGITS: Final = 18
DTYPES: Final[Mapping[str, str]] = {
    "BOOL": "?",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
    **{f"INT{8 * size}": f"<i{size}" for size in (1, 2, 4, 8)},
    **{f"UINT{8 * size}": f"<u{size}" for size in (1, 2, 4, 8)},
}
"""NumPy's name of each raw element type; it has none for BF16."""
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Body:
    """A body over HTTP; ``json_bytes`` is the length of its JSON, 0 = all of it."""

    data: bytes
    json_bytes: int = 0

    @property
    def headers(self) -> dict[str, str]:
        """Headers that describe its format."""
        if not self.json_bytes:
            return {"Content-Type": "application/json"}
        return {"Content-Type": "application/octet-stream", HEADER: str(self.json_bytes)}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Outputs that a client requests raw."""

    others: bool = False
    """True if outputs not named are raw."""
    named: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))

    def raw(self, output: str) -> bool:
        """True if this one is requested raw."""
        return self.named.get(output, self.others)

    @property
    def any_raw(self) -> bool:
        """True if any is requested raw."""
        return self.others or any(self.named.values())


AS_JSON: Final = Wanted()


def json_bytes_of(header: str | None, body_bytes: int) -> int:
    """The length of the JSON of a body, from its header; 0 = no header.

    Raises:
        ValueError: the header is not a valid length within the body.
    """
    if header is None:
        return 0
    is_number = header.isascii() and header.isdigit() and len(header) <= MOST_DIGITS
    if not is_number or not 0 < int(header) <= body_bytes:
        raise ValueError(f"{HEADER} is a number of bytes from 1 to {body_bytes}, as the body has")
    return int(header)


def parted(body: bytes, json_bytes: int) -> tuple[object, Behind | None]:
    """The JSON of a body, and the raw bytes after it, if any.

    Raises:
        orjson.JSONDecodeError: the JSON is invalid.
    """
    if not json_bytes:
        return orjson.loads(body), None
    view = memoryview(body)
    return orjson.loads(view[:json_bytes]), Behind(view[json_bytes:])


def wanted_of(parameters: Mapping[str, object], outputs: Sequence[object]) -> Wanted:
    """The requested raw outputs.

    Raises:
        ValueError: a parameter is not a boolean.
    """
    if ALL_RAW not in parameters and not outputs:
        return AS_JSON
    others = parameters.get(ALL_RAW, False)
    if not isinstance(others, bool):
        raise ValueError(f"parameters.{ALL_RAW} is true or false")
    named = {}
    for output in outputs:
        fields = object_of(output, "an output")
        own = object_of(fields.get("parameters") or {}, "outputs[].parameters")
        if ONE_RAW in own:
            is_raw, name = own[ONE_RAW], fields.get("name")
            if not isinstance(is_raw, bool) or not isinstance(name, str):
                raise ValueError(
                    f"outputs[].parameters.{ONE_RAW} is true or false, its name a text"
                )
            named[name] = is_raw
    return Wanted(others, named)


def values_of(tensor: Tensor, raw: memoryview) -> Sequence[object] | Array:
    """Raw elements as JSON values; orjson writes NumPy arrays.

    Raises:
        ValueError: they cannot be represented in JSON.
    """
    if tensor.datatype == BYTES:
        try:
            return [str(raw[start:end], "utf-8") for start, end in byte_strings(raw)]
        except UnicodeDecodeError:
            raise ValueError(f"{tensor.name[:64]!r} has bytes that are no UTF-8") from None
    if tensor.datatype == "BF16":
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    if tensor.datatype not in DTYPES:
        raise ValueError(f"{tensor.datatype[:64]} of {tensor.name[:64]!r} has no place in JSON")
    values = np.frombuffer(raw, DTYPES[tensor.datatype])
    return values.astype("<f4") if tensor.datatype == "FP16" else values


def raw_of(tensor: Tensor) -> bytes | memoryview:
    """The elements as raw bytes; a number beyond those of its float is infinite.

    Raises:
        ValueError: they have no raw form.
    """
    if tensor.raw is not None:
        return tensor.raw
    if tensor.datatype == BYTES:
        texts = [str(text).encode() for text in tensor.data]
        return b"".join(LENGTH.pack(len(text)) + text for text in texts)
    if tensor.datatype not in DTYPES:
        raise ValueError(f"{tensor.datatype[:64]} of {tensor.name[:64]!r} has no raw form")
    with np.errstate(over="ignore"):
        return np.array(tensor.data, DTYPES[tensor.datatype]).tobytes()


class TensorRows:
    """A tensor that is split by rows."""

    def __init__(self, tensor: Tensor) -> None:
        """Checks the raw bytes, if any.

        Raises:
            ValueError: they do not match its shape.
        """
        self.tensor = tensor
        self.row_elements = tensor.elements // tensor.shape[0]
        self._bounds: Sequence[int] = ()
        if tensor.raw is not None:
            where = f"output {tensor.name[:64]!r}"
            self._bounds = bounds_of(tensor.raw, tensor.datatype, tensor.elements, where)

    def part(
        self, first: int, rows: int, *, raw: bool
    ) -> tuple[dict[str, object], memoryview | None]:
        """A range of rows, as a JSON object, and the raw bytes that follow it.

        JSON data stay JSON.

        Raises:
            ValueError: raw elements cannot be represented in JSON.
        """
        tensor = self.tensor
        start, end = first * self.row_elements, (first + rows) * self.row_elements
        if tensor.raw is None:
            shape = (rows, *tensor.shape[1:])
            return tensor_object(tensor, shape, data=tensor.data[start:end]), None
        own = tensor.raw[self._bounds[start] : self._bounds[end]]
        shape = (rows, *tensor.shape[1:])
        if raw:
            return tensor_object(tensor, shape, raw_bytes=len(own)), own
        return tensor_object(tensor, shape, data=values_of(tensor, own)), None


def tensor_object(
    tensor: Tensor,
    shape: Sequence[int],
    *,
    data: Sequence[object] | Array | None = None,
    raw_bytes: int = 0,
) -> dict[str, object]:
    """A tensor of this shape in JSON; without data its raw bytes follow."""
    written: dict[str, object] = {
        "name": tensor.name,
        "datatype": tensor.datatype,
        "shape": list(shape),
    }
    parameters = tensor.parameters
    if data is None:
        parameters = {**(parameters or {}), BINARY_SIZE: raw_bytes}
    if parameters is not None:
        written["parameters"] = parameters
    if data is not None:
        written["data"] = data
    return written


def written(fields: Mapping[str, object], raws: Sequence[bytes | memoryview | None]) -> Body:
    """A body of JSON followed by the raw tensors.

    Raises:
        orjson.JSONEncodeError: a field cannot be represented in JSON.
    """
    head = orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY)
    behind = [raw for raw in raws if raw is not None]
    if not behind:
        return Body(head)
    return Body(b"".join((head, *behind)), len(head))
