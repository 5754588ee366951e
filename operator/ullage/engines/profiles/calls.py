# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads, writes and FLOPs of an operation, from the arguments in a trace.

Arguments are in the order of the operation's schema (source: PyTorch's native functions). Unknown
values stay ``None``: nothing is guessed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.words import Kernel
from ullage.engines.profiles.convolutions import Convolution, Sizes

MOST_ELEMENTS: Final = 10**15
"""Upper bound of a tensor: a larger one would hold petabytes."""
ELEMENT_BYTES: Final[Mapping[str, int]] = {
    "float": 4,
    "double": 8,
    "half": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "long": 8,
    "long int": 8,
    "int": 4,
    "short": 2,
    "char": 1,
    "signed char": 1,
    "unsigned char": 1,
    "byte": 1,
    "bool": 1,
}
"""Bytes of a number by the framework's name of its type, in lower case without namespace."""
FORMATS: Final[Mapping[str, str]] = {
    "float": "FP32",
    "double": "FP64",
    "half": "FP16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "FP8",
    "float8_e5m2": "FP8",
}
GRADIENT: Final = "torch::autograd::AccumulateGrad"
"""Takes the gradient of a parameter, which has the parameter's size."""


def element(name: str) -> str:
    """The plain name of an element type: ``Tensor(c10::Half)`` and ``c10::Half`` are ``half``."""
    inner = name[name.index("(") + 1 : -1] if name.endswith(")") and "(" in name else name
    return inner.rpartition("::")[2].strip().lower()


def shape(value: object) -> Sizes | None:
    """The sizes of one tensor; ``None`` for a scalar, a list of tensors, or nothing."""
    if not isinstance(value, list) or not value:
        return None
    if not all(
        isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in value
    ):
        return None
    return tuple(value) if math.prod(value) <= MOST_ELEMENTS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpCall:
    """One execution of an operation in a trace; lists are by position of the argument.

    Attributes:
        name: Name such as ``aten::mm``.
        shapes: Sizes of tensors; ``None`` = no tensor.
        types: Element types of tensors.
        values: Numbers, flags and lists of them; ``None`` = a tensor, or missing.
    """

    name: str
    shapes: Sequence[Sizes | None]
    types: Sequence[str]
    values: Sequence[object] = ()

    @classmethod
    def of(
        cls, name: str, shapes: Sequence[object], types: Sequence[object], values: Sequence[object]
    ) -> OpCall:
        """A call from the lists of a trace; a value may be its text."""
        return cls(
            name=name,
            shapes=[shape(listed) for listed in shapes],
            types=[str(kind) for kind in types],
            values=[_value(value) for value in values],
        )

    def sizes(self, at: int) -> Sizes | None:
        """Sizes of a tensor among the arguments."""
        return self.shapes[at] if 0 <= at < len(self.shapes) else None

    def numbers(self, at: int) -> Sizes:
        """A list of whole numbers of at least 0, or one; empty for anything else."""
        held = self.values[at] if 0 <= at < len(self.values) else None
        listed = held if isinstance(held, list) else [held]
        whole = [
            number for number in listed if isinstance(number, int) and 0 <= number <= MOST_ELEMENTS
        ]
        return tuple(whole) if len(whole) == len(listed) else ()

    def bytes_of(self, places: Collection[int]) -> float | None:
        """Bytes of the tensors at these positions; ``None`` if none is known."""
        known = [
            math.prod(sizes) * width
            for at in places
            if (sizes := self.sizes(at)) is not None and (width := self._width(at)) is not None
        ]
        return float(sum(known)) if known else None

    def written(self, sizes: Sizes | None) -> float | None:
        """Bytes of a result of this size, in the number format of the arguments."""
        width = next(
            (
                self._width(at)
                for at, kind in enumerate(self.types)
                if element(kind) in FORMATS and self.sizes(at) is not None
            ),
            None,
        )
        if sizes is None or width is None or math.prod(sizes) > MOST_ELEMENTS:
            return None
        return float(math.prod(sizes) * width)

    @property
    def format(self) -> str:
        """Format of the first floating-point argument; empty without one."""
        return next(
            (FORMATS[name] for kind in self.types if (name := element(kind)) in FORMATS), ""
        )

    def _width(self, at: int) -> int | None:
        return ELEMENT_BYTES.get(element(self.types[at])) if at < len(self.types) else None


def _value(held: object) -> object:
    """Parse a value: ``[2, 2]``, ``1``, ``[True, False]``."""
    if not isinstance(held, str) or not held or len(held) > 1024:
        return held
    try:
        return json.loads(held.replace("True", "true").replace("False", "false"))
    except (ValueError, RecursionError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpWork:
    """Reads, writes and FLOPs of an execution; ``None`` = unknown."""

    bytes_read: float | None = None
    parameter_bytes: float | None = None
    bytes_written: float | None = None
    flops: float | None = None
    kernel: Kernel | None = None


def work_of(call: OpCall, parameters: Collection[Sizes] = ()) -> OpWork:
    """The work of a call.

    Args:
        call: The call.
        parameters: Sizes of the model's parameters, known from gradients: they identify the
            parameter among the factors of a plain matrix product.
    """
    convolution = _convolution(call)
    if convolution is not None:
        return _convolved(call, CONVOLUTIONS[call.name], convolution)
    return OpWork(
        bytes_read=call.bytes_of(range(len(call.shapes))),
        parameter_bytes=_parameter_bytes(call, parameters),
        bytes_written=call.written(_result(call)),
        flops=_flops(call),
    )


PARAMETERS: Final[Mapping[str, tuple[int, ...]]] = {
    "aten::linear": (1, 2),
    "aten::addmm": (0, 2),
    "aten::_addmm_activation": (0, 2),
    "aten::embedding": (0,),
    "aten::batch_norm": (1, 2),
    "aten::native_batch_norm": (1, 2),
    "aten::cudnn_batch_norm": (1, 2),
    "aten::miopen_batch_norm": (1, 2),
    "aten::native_batch_norm_backward": (2,),
    "aten::cudnn_batch_norm_backward": (2,),
    "aten::layer_norm": (2, 3),
    "aten::native_layer_norm": (2, 3),
    "aten::native_layer_norm_backward": (5, 6),
    "aten::native_group_norm": (1, 2),
}
"""Positions of parameters."""
PRODUCTS: Final = frozenset({"aten::mm", "aten::matmul"})
"""Products in which either factor may be a parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Positions of the arguments of a convolution; ``None`` = it has no such argument."""

    input: int = 0
    weight: int = 1
    bias: int | None = None
    stride: int
    padding: int
    dilation: int | None = None
    transposed: int | bool = False
    output_padding: int | None = None
    gradients: int | None = None
    """Mask of the three gradients that a backward pass computes."""


_STATED: Final = _Places(bias=2, stride=3, padding=4, dilation=5, transposed=6, output_padding=7)
_PLAIN: Final = _Places(bias=2, stride=3, padding=4, dilation=5)
_TURNED: Final = _Places(bias=2, stride=3, padding=4, output_padding=5, dilation=7, transposed=True)
_LIBRARY: Final = _Places(padding=2, stride=3, dilation=4)
_SLOW: Final = _Places(bias=3, stride=4, padding=5)
CONVOLUTIONS: Final[Mapping[str, _Places]] = {
    "aten::convolution": _STATED,
    "aten::_convolution": _STATED,
    "aten::convolution_overrideable": _STATED,
    "aten::conv1d": _PLAIN,
    "aten::conv2d": _PLAIN,
    "aten::conv3d": _PLAIN,
    "aten::conv_transpose1d": _TURNED,
    "aten::conv_transpose2d": _TURNED,
    "aten::conv_transpose3d": _TURNED,
    "aten::cudnn_convolution": _LIBRARY,
    "aten::cudnn_convolution_relu": _PLAIN,
    "aten::cudnn_convolution_add_relu": _Places(bias=4, stride=5, padding=6, dilation=7),
    "aten::cudnn_convolution_transpose": _Places(
        padding=2, output_padding=3, stride=4, dilation=5, transposed=True
    ),
    "aten::miopen_convolution": _Places(bias=2, padding=3, stride=4, dilation=5),
    "aten::miopen_depthwise_convolution": _Places(bias=2, padding=3, stride=4, dilation=5),
    "aten::mkldnn_convolution": _Places(bias=2, padding=3, stride=4, dilation=5),
    "aten::_conv_depthwise2d": _Places(bias=3, stride=4, padding=5, dilation=6),
    "aten::conv_depthwise3d": _Places(bias=3, stride=4, padding=5, dilation=6),
    "aten::thnn_conv2d": _SLOW,
    "aten::_slow_conv2d_forward": _SLOW,
    "aten::convolution_backward": _Places(
        input=1,
        weight=2,
        stride=4,
        padding=5,
        dilation=6,
        transposed=7,
        output_padding=8,
        gradients=10,
    ),
    "aten::_slow_conv2d_backward": _Places(input=1, weight=2, stride=4, padding=5, gradients=6),
}


def _convolution(call: OpCall) -> Convolution | None:
    """The convolution of a call, forward or backward."""
    places = CONVOLUTIONS.get(call.name)
    if places is None:
        return None
    read, weight = call.sizes(places.input), call.sizes(places.weight)
    if read is None or weight is None or len(read) != len(weight) or len(read) < 3:
        return None

    def numbers(at: int | None, absent: Sizes) -> Sizes:
        return absent if at is None else call.numbers(at)

    turned = places.transposed
    if not isinstance(turned, bool):
        turned = call.values[turned] is True if turned < len(call.values) else False
    return Convolution(
        input=read,
        weight=weight,
        stride=numbers(places.stride, ()),
        padding=numbers(places.padding, ()),
        dilation=numbers(places.dilation, (1,)),
        transposed=turned,
        output_padding=numbers(places.output_padding, ()) if turned else (),
    )


def _convolved(call: OpCall, places: _Places, convolution: Convolution) -> OpWork:
    """The work of a convolution, or of its backward pass."""
    result = convolution.output()
    held = [places.weight] if places.bias is None else [places.weight, places.bias]
    work = OpWork(
        bytes_read=call.bytes_of(range(len(call.shapes))),
        parameter_bytes=call.bytes_of(held),
        bytes_written=call.written(result),
        flops=convolution.flops(result),
        kernel=convolution.kernel(),
    )
    if places.gradients is None:
        return work
    # the gradients of input and weight each cost as much arithmetic as the forward pass (derived)
    made = call.values[places.gradients] if places.gradients < len(call.values) else None
    wanted = made[:2] if isinstance(made, list) and len(made) == 3 else (True, True)
    written = [
        at for at, on in zip((places.input, places.weight), wanted, strict=True) if on is True
    ]
    forward = convolution.flops(call.sizes(0))
    return replace(
        work,
        bytes_written=call.bytes_of(written),
        flops=None if forward is None else len(written) * forward,
    )


def _parameter_bytes(call: OpCall, parameters: Collection[Sizes]) -> float | None:
    places = PARAMETERS.get(call.name, ())
    if call.name in PRODUCTS:
        places = tuple(at for at in (0, 1) if _is_parameter(call.sizes(at), parameters))
    return call.bytes_of(places) if places else None


def _is_parameter(sizes: Sizes | None, parameters: Collection[Sizes]) -> bool:
    """A matrix as large as a parameter counts as one, as it stands or transposed."""
    return sizes is not None and (sizes in parameters or sizes[::-1] in parameters)


FACTORS: Final[Mapping[str, tuple[int, int]]] = {
    "aten::mm": (0, 1),
    "aten::bmm": (0, 1),
    "aten::addmm": (1, 2),
    "aten::_addmm_activation": (1, 2),
    "aten::baddbmm": (1, 2),
}
"""Positions of the factors of matrix products."""
POOLS: Final[Mapping[str, tuple[int | None, int]]] = {
    "aten::max_pool2d_with_indices": (4, 5),
    "aten::avg_pool2d": (None, 4),
}
"""Windows over input, kernel, stride and padding; positions of dilation and rounding up."""
FIRST: Final = frozenset(
    {
        "aten::relu",
        "aten::clamp_min",
        "aten::gelu",
        "aten::silu",
        "aten::sigmoid",
        "aten::tanh",
        "aten::native_dropout",
        "aten::native_batch_norm",
        "aten::cudnn_batch_norm",
        "aten::miopen_batch_norm",
        "aten::native_layer_norm",
        "aten::native_group_norm",
        "aten::_softmax",
        "aten::_log_softmax",
        "aten::threshold_backward",
        "aten::gelu_backward",
        "aten::silu_backward",
        "aten::_softmax_backward_data",
        "aten::_log_softmax_backward_data",
        "aten::native_dropout_backward",
        "aten::native_batch_norm_backward",
        "aten::cudnn_batch_norm_backward",
        "aten::native_layer_norm_backward",
        "aten::clone",
    }
)
"""The result is as large as the first argument."""
SECOND: Final = frozenset({"aten::max_pool2d_with_indices_backward", "aten::avg_pool2d_backward"})
"""The result is as large as the second argument: the input of the forward pass."""
BROADCAST: Final = frozenset({"aten::add", "aten::sub", "aten::mul", "aten::div"})


def _result(call: OpCall) -> Sizes | None:
    """Sizes of a call's output, where its arguments define them."""
    if call.name in FACTORS:
        left, right = (call.sizes(at) for at in FACTORS[call.name])
        return (*left[:-1], right[-1]) if left is not None and right is not None else None
    if call.name in POOLS:
        return _pooled(call)
    if call.name in FIRST or (call.name.endswith("_") and not call.name.endswith("__")):
        return call.sizes(0)  # a name that ends in _ works in place
    if call.name in SECOND:
        return call.sizes(1)
    if call.name in BROADCAST:
        return _broadcast([sizes for sizes in call.shapes if sizes is not None])
    return None


def _broadcast(shapes: Sequence[Sizes]) -> Sizes | None:
    """Broadcast shape; a shorter one, or a size of 1, is repeated."""
    if not shapes:
        return None
    most = max(len(sizes) for sizes in shapes)
    whole = [(1,) * (most - len(sizes)) + sizes for sizes in shapes]
    return tuple(max(column) if min(column) else 0 for column in zip(*whole, strict=True))


def _pooled(call: OpCall) -> Sizes | None:
    """Sizes of a pool's output: an extent is that of a convolution with its window."""
    dilation, ceiling = POOLS[call.name]
    read, taps = call.sizes(0), _taps(call)
    if read is None or len(read) != 4 or len(taps) != 2 or True in call.values[ceiling:][:1]:
        return None
    windows = Convolution(
        input=read,
        weight=(read[1], 1, *taps),
        stride=call.numbers(2) or taps,
        padding=call.numbers(3),
        dilation=(1,) if dilation is None else call.numbers(dilation),
    )
    return windows.output()


def _taps(call: OpCall) -> Sizes:
    """Height and width of a pool's window."""
    window = call.numbers(1)
    return window * 2 if len(window) == 1 else window


def _flops(call: OpCall) -> float | None:
    """FLOPs of matrix products, 2 m k n, and of pools, one per tap (derived)."""
    if call.name in POOLS:
        written = _pooled(call)
        return None if written is None else float(math.prod(written) * math.prod(_taps(call)))
    if call.name not in FACTORS:
        return None
    left, right = (call.sizes(at) for at in FACTORS[call.name])
    if left is None or right is None or len(left) != len(right) or len(left) < 2:
        return None
    if left[-1] != right[-2] or left[:-2] != right[:-2]:
        return None
    return 2.0 * math.prod(left) * right[-1]
