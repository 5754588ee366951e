# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors of the Open Inference Protocol v2, checked completely on arrival.

The shapes are those of the published protocol (Open Inference Protocol, REST, "Inference"). With
its binary tensor data extension the elements of a tensor are raw bytes after the JSON, with the
length in its parameter ``binary_data_size``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

BYTES: Final = "BYTES"
BINARY_SIZE: Final = "binary_data_size"
LENGTH: Final = struct.Struct("<I")
"""Length prefix of each raw element of BYTES."""
ELEMENT_BYTES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("BOOL", "INT8", "UINT8"), 1),
    **dict.fromkeys(("INT16", "UINT16", "FP16", "BF16"), 2),
    **dict.fromkeys(("INT32", "UINT32", "FP32"), 4),
    **dict.fromkeys(("INT64", "UINT64", "FP64"), 8),
}
"""Bytes of a raw element; those of BYTES have a length prefix."""

INTEGERS: Final[Mapping[str, tuple[int, int]]] = {
    **{f"UINT{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
}
"""The smallest and the largest number of each data type."""
KINDS: Final[dict[str, frozenset[type] | None]] = {
    "BOOL": frozenset({bool}),
    "BYTES": frozenset({str}),
    **{name: frozenset({int}) for name in INTEGERS},
    **{name: frozenset({int, float}) for name in ("FP16", "FP32", "FP64")},
}
"""JSON types of an element of each data type."""
DIMENSIONS: Final = 16
TENSORS: Final = 64
DEPTH: Final = 32
"""Most levels of parameters: input is written again, and a writer has a limit too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One input or output; the data are flat, in row-major order.

    ``raw`` has them instead if they came as bytes; their size is removed from ``parameters``.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: list[object]
    parameters: dict[str, object] | None
    raw: memoryview | None = None

    @property
    def elements(self) -> int:
        """Elements of all rows."""
        return math.prod(self.shape)

    @property
    def row_elements(self) -> int:
        """Elements of one row."""
        return math.prod(self.shape[1:])


class Behind:
    """The raw bytes after a JSON, which its tensors consume in order."""

    def __init__(self, raw: memoryview) -> None:
        self._raw = raw
        self._at = 0

    @property
    def left(self) -> int:
        """Number of unconsumed bytes."""
        return len(self._raw) - self._at

    def take(self, size: object, where: str) -> memoryview:
        """The next bytes.

        Raises:
            ValueError: not a valid size, or too few bytes.
        """
        if type(size) is not int or not 0 <= size <= self.left:
            raise ValueError(f"{where} is a number of bytes, of which {self.left} are left")
        self._at += size
        return self._raw[self._at - size : self._at]


def tensors_of(
    value: object,
    where: str,
    kinds: Mapping[str, frozenset[type] | None] = KINDS,
    behind: Behind | None = None,
) -> list[Tensor]:
    """The tensors of a request or an answer.

    Args:
        value: any JSON value.
        where: its name, for errors.
        kinds: data types, with the JSON types of their elements; empty = any.
        behind: the raw bytes after the JSON; absent = none.

    Raises:
        ValueError: it is not a list of tensors; the text says where.
    """
    if not isinstance(value, list) or not 1 <= len(value) <= TENSORS:
        raise ValueError(f"{where} is a list of 1 to {TENSORS} tensors")
    tensors = [_tensor(item, f"{where}[{at}]", kinds, behind) for at, item in enumerate(value)]
    if behind is not None and behind.left:
        raise ValueError(f"{where} leave {behind.left} raw bytes that belong to no tensor")
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise ValueError(f"{where} names a tensor twice")
    return tensors


def _tensor(
    value: object,
    where: str,
    kinds: Mapping[str, frozenset[type] | None],
    behind: Behind | None,
) -> Tensor:
    tensor = object_of(value, where)
    name, datatype, shape = tensor.get("name"), tensor.get("datatype"), tensor.get("shape")
    if not isinstance(name, str) or not name:
        raise ValueError(f"{where}.name is a text")
    parameters = tensor.get("parameters")
    if parameters is not None:
        parameters = object_of(parameters, f"{where}.parameters")
        check_depth(parameters, f"{where}.parameters")
    is_raw = behind is not None and parameters is not None and BINARY_SIZE in parameters
    known = datatype in kinds or (is_raw and datatype in ELEMENT_BYTES)
    if not isinstance(datatype, str) or (kinds and not known):
        raise ValueError(f"{where}.datatype is one of {', '.join(sorted(KINDS))}, or raw BF16")
    if not isinstance(shape, list) or len(shape) > DIMENSIONS:
        raise ValueError(f"{where}.shape is a list of at most {DIMENSIONS} integers")
    if not all(type(size) is int and size > 0 for size in shape):
        raise ValueError(f"{where}.shape holds positive integers only")
    if behind is None or parameters is None or not is_raw:
        data = _flat(tensor.get("data"), tuple(shape), kinds.get(datatype), f"{where}.data")
        if kinds:
            _check_range(data, datatype, f"{where}.data")
        return Tensor(
            name=name, datatype=datatype, shape=tuple(shape), data=data, parameters=parameters
        )
    if "data" in tensor:
        raise ValueError(f"{where}.data stands beside raw bytes")
    raw = behind.take(parameters[BINARY_SIZE], f"{where}.parameters.{BINARY_SIZE}")
    if kinds:
        bounds_of(raw, datatype, math.prod(shape), where)
    return Tensor(
        name=name,
        datatype=datatype,
        shape=tuple(shape),
        data=[],
        parameters={key: value for key, value in parameters.items() if key != BINARY_SIZE} or None,
        raw=raw,
    )


def bounds_of(raw: bytes | memoryview, datatype: str, elements: int, where: str) -> Sequence[int]:
    """Offset of each raw element, and the end of the last one.

    Raises:
        ValueError: the bytes do not match the number of elements; the text begins with ``where``.
    """
    if datatype == BYTES:
        try:
            bounds = [0, *(end for _, end in byte_strings(raw))]
        except ValueError as error:
            raise ValueError(f"{where}{error}") from None
        if len(bounds) != elements + 1:
            raise ValueError(f"{where} has {len(bounds) - 1} raw elements, its shape {elements}")
        return bounds
    width, left = divmod(len(raw), elements)
    if left or not width or width != ELEMENT_BYTES.get(datatype, width):
        wanted = elements * ELEMENT_BYTES.get(datatype, 1)
        raise ValueError(f"{where} has {len(raw)} raw bytes, its shape and datatype {wanted}")
    return range(0, len(raw) + 1, width)


def byte_strings(raw: bytes | memoryview) -> Iterable[tuple[int, int]]:
    """Begin of each element of raw BYTES after its length, and its end.

    Raises:
        ValueError: an element exceeds the data.
    """
    at, end = 0, len(raw)
    while at < end:
        start = at + LENGTH.size
        if start > end:
            raise ValueError(" has raw elements that are cut off")
        at = start + LENGTH.unpack_from(raw, at)[0]
        if at > end:
            raise ValueError(" has raw elements that are cut off")
        yield start, at


def check_depth(value: object, where: str) -> None:
    """Refuse a value nested too deep to be written again.

    Raises:
        ValueError: it is too deep.
    """
    level = [value]
    for _ in range(DEPTH):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return
    raise ValueError(f"{where} is nested more than {DEPTH} deep")


def _check_range(data: list[object], datatype: str, where: str) -> None:
    """Refuse numbers out of range of their data type, which would fail a whole batch."""
    if datatype in INTEGERS:
        least, most = INTEGERS[datatype]
        numbers = [number for number in (min(data), max(data)) if isinstance(number, int)]  # type: ignore[type-var]
        if not all(least <= number <= most for number in numbers):
            raise ValueError(f"{where} has numbers beyond {datatype}")


def _flat(
    data: object, shape: tuple[int, ...], kinds: frozenset[type] | None, where: str
) -> list[object]:
    """Nested or flat data as a flat list of elements of these kinds."""
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
        ValueError: it is not an object.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{where} is an object")
    return value
