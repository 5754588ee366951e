# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Convolutions: the size of their result, their arithmetic, their kind of kernel.

Sizes are of the whole batch; a weight is (output channels, input channels / groups, taps...), of a
transposed one (input channels, output channels / groups, taps...).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ullage.api.words import Kernel

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """One convolution of any number of dimensions; lists have one number per dimension.

    Attributes:
        input: Sizes of the input: batch, channels, extents.
        weight: Sizes of the weight.
        stride: Empty = unknown.
        padding: Empty = unknown.
        dilation: Empty = unknown.
        transposed: It is the gradient of a convolution.
        output_padding: Of a transposed one; empty = none.
    """

    input: Sizes
    weight: Sizes
    stride: Sizes = ()
    padding: Sizes = ()
    dilation: Sizes = ()
    transposed: bool = False
    output_padding: Sizes = ()

    def __post_init__(self) -> None:
        if len(self.input) < 3 or len(self.input) != len(self.weight):
            raise ValueError(f"an input of {self.input} fits no weight of {self.weight}")

    @property
    def groups(self) -> int:
        """Number of channel groups, at least 1."""
        within = self.weight[0] if self.transposed else self.weight[1]
        if self.transposed or not within:
            return 1  # unknown for a transposed weight
        return max(1, self.input[1] // within)

    def output(self) -> Sizes | None:
        """Sizes of the result; ``None`` where an argument is unknown or leaves no extent."""
        taps, extents = self.weight[2:], self.input[2:]
        stride, padding, dilation = (
            _each(numbers, len(taps)) for numbers in (self.stride, self.padding, self.dilation)
        )
        if stride is None or padding is None or dilation is None or not min(stride, default=0):
            return None
        reach = [step * (tap - 1) + 1 for step, tap in zip(dilation, taps, strict=True)]
        if self.transposed:
            more = _each(self.output_padding, len(taps)) or (0,) * len(taps)
            spread = zip(extents, stride, padding, reach, more, strict=True)
            sizes = tuple(
                (size - 1) * by - 2 * pad + far + add for size, by, pad, far, add in spread
            )
        else:
            folded = zip(extents, stride, padding, reach, strict=True)
            sizes = tuple((size + 2 * pad - far) // by + 1 for size, by, pad, far in folded)
        if min(sizes) < 1:
            return None
        return self.input[0], self.weight[1 if self.transposed else 0], *sizes

    def flops(self, result: Sizes | None) -> float | None:
        """Forward FLOPs, 2 for a multiply-add; ``None`` where a required size is unknown.

        Every output element uses each tap of each input channel of its group (derived); for a
        transposed convolution the same holds for every input element.

        Args:
            result: Sizes of the result, where they are known.
        """
        whole = self.input if self.transposed else result
        return None if whole is None else 2.0 * math.prod(whole) * math.prod(self.weight[1:])

    def kernel(self) -> Kernel | None:
        """The class of its kernels; ``None`` = no special class, or unknown."""
        if self.transposed or not self.stride:
            return None
        return kernel_class(
            in_channels=self.input[1],
            groups=self.groups,
            area=math.prod(self.weight[2:]),
            stride=max(self.stride),
        )


def kernel_class(*, in_channels: int, groups: int, area: int, stride: int) -> Kernel | None:
    """The class of kernels for a convolution; ``None`` = no special class.

    Depthwise and grouped ones run other code, 1x1 is a matrix product, and 3x3 with stride 1 has
    algorithms that save multiplications (Winograd).

    Args:
        in_channels: Channels of the input.
        groups: Groups of channels.
        area: Taps of the kernel, height times width.
        stride: In elements.
    """
    if groups > 1:
        return Kernel.DEPTHWISE if groups == in_channels else Kernel.GROUPED
    if area == 1:
        return Kernel.POINTWISE
    return Kernel.THREE_BY_THREE if area == 9 and stride == 1 else None


def _each(numbers: Sequence[int], dimensions: int) -> Sizes | None:
    """One number per dimension; a single number is repeated."""
    if len(numbers) == 1:
        return tuple(numbers) * dimensions
    return tuple(numbers) if len(numbers) == dimensions else None
