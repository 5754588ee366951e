# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Bounds of the longer step when another number of devices shares the work.

With the same work per device, log(step of m / step of n) = loss * D + error, with the ring's D = (m
- 1) / m - (n - 1) / n. The error is as wide as sqrt(still^2 + (wide * D)^2): two steps never repeat
exactly, and models differ in their traffic (derived). It is not a law of one job: the bounds held
for four of five jobs of other families.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class StepScaling:
    """Coefficients, in e-folds of a step.

    Attributes:
        loss: From one device to very many, the centre.
        still: Width of the error between equal numbers.
        wide: Width that grows with the ring.
        low: Lower bound, in widths from the centre.
        high: Upper bound, in widths from the centre.
    """

    loss: float
    still: float
    wide: float
    low: float
    high: float

    def bounds(self, own: int, other: int) -> tuple[float, float]:
        """Minimum and maximum of a step on ``other`` devices, as factors of one on ``own``.

        Raises:
            ValueError: a number is below 1.
        """
        if min(own, other) < 1:
            raise ValueError(f"numbers of devices must be at least 1, not {own} and {other}")
        if other < own:
            least, most = self.bounds(other, own)
            return 1 / most, 1 / least
        if other == own:
            return 1.0, 1.0
        apart = ring(other) - ring(own)
        width = math.hypot(self.still, self.wide * apart)
        centre = self.loss * apart
        return math.exp(centre + self.low * width), math.exp(centre + self.high * width)


def ring(devices: int) -> float:
    """Fraction of twice the gradients' size that a device of a ring sends."""
    return (devices - 1) / devices


FITTED: Final = StepScaling(loss=0.35, still=0.05, wide=0.4, low=-0.935, high=2.06)
"""Fitted over Gavel's data-parallel jobs and Sia's jobs on one node, every family with the same
weight; `make bench-devicechoice` refits it and reports the coverage of left-out families."""
