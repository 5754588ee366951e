# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A step on an unmeasured type of device, from its peak rates alone.

t = max(FLOPs / (peak * efficiency), bytes / bandwidth) per op (derived). It must never be acted
upon: confidence is low until one type is measured, and halves with every step of extrapolation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.engines.devicechoice.features import BACKWARD_WORK, LayerOp

PEAK_EFFICIENCY: Final = 0.5
"""Fraction of the peak that dense kernels reach without measurements (a default to sweep)."""
FIRST_CONFIDENCE: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineDevice:
    """Data-sheet figures of a type of device.

    Attributes:
        accelerator: Its key.
        peak_flops: FLOP/s per dtype.
        bytes_per_s: Bandwidth of its memory.
        memory_bytes: Its memory.
        family: Generation; efficiencies carry over best within one.
    """

    accelerator: str
    peak_flops: Mapping[str, float]
    bytes_per_s: float
    memory_bytes: float
    family: str = ""

    def peak(self, dtype: str) -> float:
        """FLOP/s for a dtype.

        Raises:
            ValueError: the type has no rate for it.
        """
        rate = self.peak_flops.get(dtype, 0.0)
        if rate <= 0 or self.bytes_per_s <= 0:
            raise ValueError(
                f"DeviceProfile {self.accelerator} needs a bandwidth and a peak for {dtype}"
            )
        return rate


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineStep:
    """An estimated step.

    Attributes:
        step_s: Seconds.
        confidence: 0 to 1.
    """

    step_s: float
    confidence: float


def roofline_step(
    device: RooflineDevice,
    ops: Sequence[LayerOp],
    dtype: str,
    *,
    efficiency: float = PEAK_EFFICIENCY,
    correction: float = 1.0,
    extrapolations: int = 1,
) -> RooflineStep:
    """Estimate a training step, forward and backward, of one device's batch; formula of the module.

    Args:
        device: The type.
        ops: Op table.
        dtype: Of the arithmetic.
        efficiency: Fraction of the peak that is reached.
        correction: measured / roofline on a measured type (``correction_of``).
        extrapolations: Steps away from the measured type: 1 inside the family, 2 outside it.

    Raises:
        ValueError: the efficiency is outside (0, 1], or the correction is not above 0.
    """
    peak = device.peak(dtype)
    if not 0 < efficiency <= 1 or correction <= 0:
        raise ValueError("efficiency must be in (0, 1], correction above 0")
    total = 0.0
    for op in ops:
        if op.on_cpu:
            continue
        arithmetic = op.flops / (peak * efficiency)
        moved = op.moved_bytes / device.bytes_per_s
        total += op.count * max(arithmetic, moved) * (1 + BACKWARD_WORK)
    return RooflineStep(
        step_s=total * correction,
        confidence=FIRST_CONFIDENCE ** max(1, extrapolations),
    )


def correction_of(
    device: RooflineDevice, ops: Sequence[LayerOp], dtype: str, measured_s: float
) -> float:
    """Measured / roofline on a measured type: the correction factor of other types.

    Args:
        device: The measured type.
        ops: Op table.
        dtype: Of the arithmetic.
        measured_s: Seconds of one measured step.

    Raises:
        ValueError: the measured step or the estimate is not above 0.
    """
    predicted_s = roofline_step(device, ops, dtype).step_s
    if predicted_s <= 0 or measured_s <= 0 or not math.isfinite(measured_s):
        raise ValueError("a correction needs a measured step and an op table with work in it")
    return measured_s / predicted_s
