# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Trees of torch tensors and plain values as bytes, and back, to the last bit.

A record is the length of a JSON header (8 bytes, big-endian), the header, and the tensors' raw
bytes, each at a multiple of 16. No pickle: a record comes over the network, and reading it must
never run code nor allocate more than its size.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, TypeAlias

from ullage_run.frames import Buffer

Tensor: TypeAlias = Any
"""torch's own type: torch is not a dependency and is imported on use."""

_LENGTH: Final = struct.Struct(">Q")
_ALIGN: Final = 16
"""Size of a complex128, torch's largest element."""
_CONTAINERS: Final[dict[str, Callable[[Any], Any]]] = {
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "counter": lambda pairs: Counter(dict(pairs)),
}


class StateError(ValueError):
    """This state cannot be stored in shards; the text names the tensor or value and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stored:
    """A decoded tensor.

    Attributes:
        tensor: On the CPU, with its original shape and dtype.
        on_cpu: It was on the CPU, like an optimizer's step counter.
    """

    tensor: Tensor
    on_cpu: bool


def torch_module() -> Any:
    """The torch of the image.

    Raises:
        ImportError: it is missing, or cannot be loaded.
    """
    try:
        return import_module("torch")
    except ImportError as error:
        raise ImportError(
            f"ullage_run.torch_state needs torch, which cannot be imported here: {error}; "
            "install it in the image of the job (pip install torch)"
        ) from error


def check(tensor: Tensor, name: str) -> None:
    """Refuse a tensor whose bytes are not its full value, or not local.

    Raises:
        StateError: it is on the meta device, sparse, quantized, distributed, lazy or expanded.
    """
    torch = torch_module()
    if torch.nn.parameter.is_lazy(tensor):
        raise StateError(f"{name} has no shape yet: run one forward pass first")
    if hasattr(tensor, "device_mesh"):
        raise StateError(f"{name} is distributed over a mesh: a member holds whole tensors")
    if tensor.is_meta:
        raise StateError(f"{name} is on the meta device and has no values: materialise it first")
    if tensor.layout != torch.strided:
        raise StateError(f"{name} is sparse ({tensor.layout}): only dense tensors can be kept")
    if tensor.is_quantized:
        raise StateError(f"{name} is quantized ({tensor.dtype}): keep its integer values instead")
    expanded = zip(tensor.shape, tensor.stride(), strict=True)
    if any(size > 1 and stride == 0 for size, stride in expanded):
        raise StateError(f"{name} is expanded: its elements share memory; call .contiguous()")


def encode(tree: object) -> bytearray:
    """A tree as a record.

    Args:
        tree: Lists, tuples, dicts (keys text or int) and Counters of dense tensors of any dtype,
            shape, strides and device, and of ``None``, bool, int, float and str.

    Raises:
        StateError: it holds anything else.
    """
    torch = torch_module()
    tensors: list[tuple[int, Tensor]] = []
    end = 0

    def plain(value: object, name: str) -> object:
        nonlocal end
        if isinstance(value, torch.Tensor):
            tensor: Tensor = value
            check(tensor, name)
            at, end = end, end + -(-tensor.nbytes // _ALIGN) * _ALIGN
            tensors.append((at, tensor))
            dtype = str(tensor.dtype).removeprefix("torch.")
            return {"tensor": [dtype, list(tensor.shape), tensor.device.type == "cpu", at]}
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, list | tuple) and type(value) in (list, tuple):
            items = [plain(item, f"{name}[{at}]") for at, item in enumerate(value)]
            return {type(value).__name__: items}
        if isinstance(value, dict) and type(value) in (dict, Counter):
            pairs = [[_key(key, name), plain(item, f"{name}.{key}")] for key, item in value.items()]
            return {type(value).__name__.lower(): pairs}
        raise StateError(f"{name} is a {type(value).__name__}: only tensors and plain values keep")

    header = json.dumps(plain(tree, "state"), separators=(",", ":")).encode()
    start = _start(len(header))
    record = bytearray(start + end)
    _LENGTH.pack_into(record, 0, len(header))
    record[_LENGTH.size : _LENGTH.size + len(header)] = header
    with torch.no_grad():
        for at, tensor in tensors:
            if tensor.nbytes:
                here = _view(record, start + at, tensor.dtype, tuple(tensor.shape))
                here.copy_(tensor.detach())
    return record


def decode(record: Buffer) -> Any:
    """The tree of a record, with a :class:`Stored` for each tensor.

    Raises:
        StateError: it is not a record.
    """
    data = bytearray(record)
    try:
        (length,) = _LENGTH.unpack_from(data)
        start = _start(length)
        if start > len(data):
            raise StateError("the record is cut off")
        tree = json.loads(bytes(data[_LENGTH.size : _LENGTH.size + length]))
        return _tree(tree, data, start)
    except (struct.error, RecursionError, TypeError, KeyError, OverflowError) as error:
        raise StateError(f"no record of a torch state: {error!r}") from error
    except ValueError as error:
        raise StateError(f"no record of a torch state: {error}") from error


def _tree(tree: Any, data: bytearray, start: int) -> Any:
    if not isinstance(tree, dict):
        if isinstance(tree, list):
            raise StateError("a list without its kind")
        return tree
    if len(tree) != 1:
        raise StateError("a value of two kinds")
    ((kind, value),) = tree.items()
    if kind == "tensor":
        return _tensor(value, data, start)
    if kind in ("dict", "counter"):
        pairs = [(key, _tree(item, data, start)) for key, item in value]
        return _CONTAINERS[kind](pairs)
    return _CONTAINERS[kind](_tree(item, data, start) for item in value)


def _tensor(fields: Any, data: bytearray, start: int) -> Stored:
    torch = torch_module()
    name, shape, on_cpu, at = fields
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise StateError(f"torch here has no dtype {name!r}")
    if not all(type(number) is int and number >= 0 for number in (*shape, at)) or at % _ALIGN:
        raise StateError(f"a tensor of shape {shape} at {at}")
    size = math.prod(shape) * dtype.itemsize
    if start + at + size > len(data):
        raise StateError("a tensor is cut off")
    if not size:
        return Stored(tensor=torch.empty(shape, dtype=dtype), on_cpu=on_cpu is True)
    return Stored(tensor=_view(data, start + at, dtype, tuple(shape)), on_cpu=on_cpu is True)


def _view(data: bytearray, at: int, dtype: Any, shape: tuple[int, ...]) -> Tensor:
    """Bytes as a tensor of this dtype and shape, sharing their memory."""
    torch = torch_module()
    size = math.prod(shape) * dtype.itemsize
    raw: Tensor = torch.frombuffer(data, dtype=torch.uint8, offset=at, count=size)
    return raw.view(dtype).view(shape)


def _start(length: int) -> int:
    """Offset of the tensors after a header of this length."""
    return -(-(_LENGTH.size + length) // _ALIGN) * _ALIGN


def _key(key: object, name: str) -> str | int:
    if type(key) is str or type(key) is int:
        return key
    raise StateError(f"{name} has a key that is a {type(key).__name__}: text and int are possible")
