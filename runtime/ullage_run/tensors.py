# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors of the Open Inference Protocol v2 in JSON, checked whole where they come in.

The shapes are those of the published protocol (Open Inference Protocol, REST, "Inference").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

INTEGERS: Final = frozenset(
    {"UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"}
)
KINDS: Final[dict[str, frozenset[type] | None]] = {
    "BOOL": frozenset({bool}),
    "BYTES": frozenset({str}),
    **{name: frozenset({int}) for name in INTEGERS},
    **{name: frozenset({int, float}) for name in ("FP16", "FP32", "FP64")},
}
"""What an element of each data type is in JSON."""
DIMENSIONS: Final = 16
TENSORS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One input or output; the data are flat, in row-major order."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: list[object]
    parameters: dict[str, object] | None

    @property
    def row_elements(self) -> int:
        """Elements of one row."""
        return math.prod(self.shape[1:])

    def part(self, first: int, rows: int) -> dict[str, object]:
        """As many rows of it, as JSON has them."""
        size = self.row_elements
        body: dict[str, object] = {
            "name": self.name,
            "datatype": self.datatype,
            "shape": [rows, *self.shape[1:]],
        }
        if self.parameters is not None:
            body["parameters"] = self.parameters
        body["data"] = self.data[first * size : (first + rows) * size]
        return body


def tensors_of(
    value: object, where: str, kinds: Mapping[str, frozenset[type] | None] = KINDS
) -> list[Tensor]:
    """The tensors of a request or an answer.

    Args:
        value: what stands there, whatever it is.
        where: its name, for errors.
        kinds: data types, and what their elements are in JSON; empty = any.

    Raises:
        ValueError: it is no list of tensors; the text says where.
    """
    if not isinstance(value, list) or not 1 <= len(value) <= TENSORS:
        raise ValueError(f"{where} is a list of 1 to {TENSORS} tensors")
    found = [_tensor(item, f"{where}[{at}]", kinds) for at, item in enumerate(value)]
    if len({tensor.name for tensor in found}) != len(found):
        raise ValueError(f"{where} names a tensor twice")
    return found


def _tensor(value: object, where: str, kinds: Mapping[str, frozenset[type] | None]) -> Tensor:
    tensor = object_of(value, where)
    name, datatype, shape = tensor.get("name"), tensor.get("datatype"), tensor.get("shape")
    if not isinstance(name, str) or not name:
        raise ValueError(f"{where}.name is a text")
    if not isinstance(datatype, str) or (kinds and datatype not in kinds):
        raise ValueError(f"{where}.datatype is one of {', '.join(sorted(KINDS))}")
    if not isinstance(shape, list) or len(shape) > DIMENSIONS:
        raise ValueError(f"{where}.shape is a list of at most {DIMENSIONS} integers")
    if not all(type(size) is int and size > 0 for size in shape):
        raise ValueError(f"{where}.shape holds positive integers only")
    parameters = tensor.get("parameters")
    return Tensor(
        name=name,
        datatype=datatype,
        shape=tuple(shape),
        data=_flat(tensor.get("data"), tuple(shape), kinds.get(datatype), f"{where}.data"),
        parameters=None if parameters is None else object_of(parameters, f"{where}.parameters"),
    )


def _flat(
    data: object, shape: tuple[int, ...], kinds: frozenset[type] | None, where: str
) -> list[object]:
    """Nested or flat data as a flat list, all of one of these kinds."""
    if not isinstance(data, list):
        raise ValueError(f"{where} is a list")
    flat: list[object] = data
    if len(shape) > 1 and data and isinstance(data[0], list):
        if len(data) != shape[0]:
            raise ValueError(f"{where} does not have the shape that is given")
        for size in shape[1:]:
            if set(map(type, flat)) != {list}:
                raise ValueError(f"{where} does not have the shape that is given")
            if {len(item) for item in flat if isinstance(item, list)} != {size}:
                raise ValueError(f"{where} does not have the shape that is given")
            flat = list(chain.from_iterable(item for item in flat if isinstance(item, list)))
    if len(flat) != math.prod(shape):
        raise ValueError(f"{where} has {len(flat)} elements, its shape {math.prod(shape)}")
    if kinds is not None and not set(map(type, flat)) <= kinds:
        raise ValueError(f"{where} has elements of another data type")
    return flat


def object_of(value: object, where: str) -> dict[str, object]:
    """A JSON object.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{where} is an object")
    return value
