# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Convolutions: the size of their result, their arithmetic, the kind of kernel that runs them.

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
    """One convolution of any number of dimensions; lists have a number for each.

    Attributes:
        input: Sizes of the input: batch, channels, extents.
        weight: Sizes of the weight.
        stride: Empty = not known.
        padding: Empty = not known.
        dilation: Empty = not known.
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
        """Groups that channels are cut into, at least 1."""
        within = self.weight[0] if self.transposed else self.weight[1]
        if self.transposed or not within:
            return 1  # a transposed weight does not tell
        return max(1, self.input[1] // within)

    def output(self) -> Sizes | None:
        """Sizes of the result; ``None`` where an argument is not known or leaves no extent."""
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
        """Forward FLOPs, 2 for a multiply-add; ``None`` where they need a size that is not known.

        Every output element takes each tap of each input channel of its group (derived); of a
        transposed one every input element goes into as many.

        Args:
            result: Sizes of the result, where they are known.
        """
        whole = self.input if self.transposed else result
        return None if whole is None else 2.0 * math.prod(whole) * math.prod(self.weight[1:])

    def kernel(self) -> Kernel | None:
        """The class of kernels for it; ``None`` = none of its own, or not known."""
        if self.transposed or not self.stride:
            return None
        return kernel_class(
            in_channels=self.input[1],
            groups=self.groups,
            area=math.prod(self.weight[2:]),
            stride=max(self.stride),
        )


def kernel_class(*, in_channels: int, groups: int, area: int, stride: int) -> Kernel | None:
    """The class of kernels for a convolution; ``None`` = none of its own.

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
    """A number for each dimension; one number stands for all."""
    if len(numbers) == 1:
        return tuple(numbers) * dimensions
    return tuple(numbers) if len(numbers) == dimensions else None
