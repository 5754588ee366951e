# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Features of a layer's time: the bytes that it reads and writes, and its arithmetic.

An op table is a tuple of ``LayerOp``, with sizes of the whole batch that ONE device works on. It
must never use a measured time: features are known before anything ran.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

import numpy as np
from numpy.typing import NDArray

from ullage.api.words import Kernel

Floats = NDArray[np.float64]

BACKWARD_WORK: Final = 2.0
"""Backward passes compute gradients of inputs and of parameters: twice the arithmetic (derived)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOp:
    """One kind of operation in a step, with the inputs of a prediction.

    Attributes:
        kind: Type, as named by the framework, for example ``Conv2d``.
        kernel: Library kernel, where it changes the speed and is known.
        input_bytes: Activations read, for the batch of one device.
        output_bytes: Activations written.
        parameter_bytes: Weights.
        flops: Floating-point operations forward, 2 for a multiply-add.
        count: Number of executions in a step.
        on_cpu: It runs on the host.
    """

    kind: str
    kernel: Kernel | None = None
    input_bytes: float
    output_bytes: float
    parameter_bytes: float = 0.0
    flops: float = 0.0
    count: int = 1
    on_cpu: bool = False

    def __post_init__(self) -> None:
        sizes = (self.input_bytes, self.output_bytes, self.parameter_bytes, self.flops)
        if not all(np.isfinite(size) and size >= 0 for size in sizes):
            raise ValueError(f"op {self.kind}: bytes and FLOPs must be finite and not negative")
        if self.count < 1:
            raise ValueError(f"op {self.kind}: count must be at least 1, not {self.count}")

    @property
    def moved_bytes(self) -> float:
        """Bytes read and written forward."""
        return self.input_bytes + self.output_bytes + self.parameter_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOp:
    """An op and its time, in seconds per execution, for the batch of its table."""

    op: LayerOp
    forward_s: float
    backward_s: float


class SizeMeasure(StrEnum):
    """Bytes that represent the size of a layer."""

    INPUT = "input"
    OUTPUT = "output"
    SUM = "input + output"
    LARGER = "larger of input and output"


class FitSplit(StrEnum):
    """Groups of ops with a separate fit."""

    TYPE = "op type"
    KERNEL = "kernel class"


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Features of a fit: size, and optionally FLOPs and parameter bytes, with an intercept.

    Attributes:
        size: The bytes used.
        split: Groups that are fitted separately.
        arithmetic: FLOPs and parameter bytes are columns too.
    """

    size: SizeMeasure
    split: FitSplit
    arithmetic: bool = True

    def key(self, op: LayerOp) -> str:
        """The group of an op: its type, and the kernel class if the design uses it."""
        return op.kind if self.split is FitSplit.TYPE else f"{op.kind}/{op.kernel or ''}"

    def row(self, op: LayerOp) -> tuple[float, ...]:
        """Columns of one op: 1, bytes, and FLOPs and parameter bytes with ``arithmetic``."""
        match self.size:
            case SizeMeasure.INPUT:
                size = op.input_bytes
            case SizeMeasure.OUTPUT:
                size = op.output_bytes
            case SizeMeasure.SUM:
                size = op.input_bytes + op.output_bytes
            case SizeMeasure.LARGER:
                size = max(op.input_bytes, op.output_bytes)
            case _:
                assert_never(self.size)
        return (1.0, size, op.flops, op.parameter_bytes) if self.arithmetic else (1.0, size)

    def name(self) -> str:
        """The design in words."""
        extra = " + FLOPs + parameter bytes" if self.arithmetic else ""
        return f"{self.size}{extra}, per {self.split}"


DESIGNS: Final = tuple(Design(size=size, split=split) for split in FitSplit for size in SizeMeasure)
"""Designs for a fit to choose from, within its training rows."""
