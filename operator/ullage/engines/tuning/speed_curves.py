# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Speed of a trial at each width: from measurements and a prior to a concave curve."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

MOST_PER_DEVICE: Final = 16
MOST_DEVICES: Final = 64
WARM_UP_STEPS: Final = 3
"""First steps after a start, which are not representative of the speed."""
PRIOR_EXPONENT: Final = 0.85
"""Exponent of the speed's growth with the width above the widest measurement."""
WEIGHT: Final = 0.3
"""Weight of a new measurement in the moving mean."""


@dataclass(frozen=True, kw_only=True)
class Widths:
    """The allowed widths: 1/c, ..., 1/2, 1, 2, ..., d devices.

    Internally, a width is a whole number of parts of a device, so that sums are exact.

    Raises:
        ValueError: a number is out of range.
    """

    per_device: int = 4
    devices: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.per_device <= MOST_PER_DEVICE:
            raise ValueError(f"from 1 to {MOST_PER_DEVICE} trials share a device")
        if not 1 <= self.devices <= MOST_DEVICES:
            raise ValueError(f"a trial takes from 1 to {MOST_DEVICES} devices")

    @cached_property
    def parts(self) -> int:
        """Parts of one device; every share is a whole number of them."""
        return math.lcm(*range(1, self.per_device + 1))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The widths in parts, the narrowest first."""
        shares = [self.parts // count for count in range(self.per_device, 1, -1)]
        return (*shares, *(self.parts * count for count in range(1, self.devices + 1)))

    @cached_property
    def widths(self) -> tuple[float, ...]:
        """The widths in devices, the narrowest first."""
        return tuple(size / self.parts for size in self.sizes)

    @property
    def whole(self) -> int:
        """The index of width 1 in the widths."""
        return self.per_device - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedCurve:
    """Work done per second at each of the widths, in work per second at width 1; never falls.

    Raises:
        ValueError: a speed is not positive and finite, or falls.
    """

    speeds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.speeds or not all(0 < speed < math.inf for speed in self.speeds):
            raise ValueError("speeds are positive and finite")
        if any(a > b for a, b in pairwise(self.speeds)):
            raise ValueError("a wider trial is never slower")


def speed_curve(widths: Widths, measured: Mapping[float, float] | None = None) -> SpeedCurve:
    """A concave curve through the measurements.

    It is the concave hull of the measurements and the origin, where a wider trial measured as
    slower counts as no faster. Above the widest it continues by the prior, no steeper than before.
    Without measurements s(w) = w up to 1. Source: derived.

    Args:
        widths: The widths of the curve.
        measured: Speed, relative to that at width 1, by width in devices.

    Raises:
        ValueError: a measurement is not positive and finite.
    """
    known = sorted((measured or {1.0: 1.0}).items())
    if not all(0 < number < math.inf for point in known for number in point):
        raise ValueError("widths and speeds are positive and finite")
    xs = (0.0, *(width for width, _ in known))
    ys = (0.0, *np.maximum.accumulate([speed for _, speed in known]).tolist())
    hull = _hull(xs, ys)
    slope = (hull[-1] - hull[-2]) / (xs[-1] - xs[-2])

    def beyond(width: float) -> float:
        prior: float = hull[-1] * (width / xs[-1]) ** PRIOR_EXPONENT
        return min(prior, hull[-1] + slope * (width - xs[-1]))

    speeds = [
        float(np.interp(width, xs, hull)) if width <= xs[-1] else beyond(width)
        for width in widths.widths
    ]
    return SpeedCurve(speeds=tuple(np.maximum.accumulate(speeds).tolist()))


def concave(widths: Widths, curve: SpeedCurve) -> SpeedCurve:
    """The concave hull of a curve: the planner's view of it.

    Args:
        widths: The widths of the curve.
        curve: Any curve.
    """
    hull = _hull((0.0, *widths.widths), (0.0, *curve.speeds))[1:]
    return SpeedCurve(speeds=tuple(np.maximum.accumulate(hull).tolist()))


def _hull(xs: tuple[float, ...], ys: tuple[float, ...]) -> tuple[float, ...]:
    """The upper hull of points, at the same widths."""
    hull = [(xs[0], ys[0])]
    for point in zip(xs[1:], ys[1:], strict=True):
        while len(hull) > 1 and _turns_up(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    envelope = np.interp(xs, [x for x, _ in hull], [y for _, y in hull])
    return tuple(np.maximum(envelope, ys).tolist())


def _turns_up(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - b[0]) <= (c[1] - b[1]) * (b[0] - a[0])


@dataclass(slots=True, kw_only=True)
class MeasuredSpeeds:
    """Steps per second of trials of one class, by width; gives the curve of the class."""

    widths: Widths
    steps_per_s: dict[float, float] = field(default_factory=dict)

    def observe(self, width: float, steps_per_s: float, steps: int) -> bool:
        """Record a measurement; ``False`` where it is not representative.

        Args:
            width: Devices, one of the widths.
            steps_per_s: Reported since the last start or resize.
            steps: Steps since then.
        """
        if width not in self.widths.widths or steps <= WARM_UP_STEPS:
            return False
        if not 0 < steps_per_s < math.inf:
            return False
        before = self.steps_per_s.get(width, steps_per_s)
        self.steps_per_s[width] = before + WEIGHT * (steps_per_s - before)
        return True

    def curve(self) -> SpeedCurve:
        """The current curve; where width 1 was never measured, its speed follows from the prior."""
        if not self.steps_per_s:
            return speed_curve(self.widths)
        unit = self.steps_per_s.get(1.0)
        if unit is None:
            width = min(self.steps_per_s, key=lambda w: abs(math.log(w)))
            prior = width if width < 1 else width**PRIOR_EXPONENT
            unit = self.steps_per_s[width] / prior
        return speed_curve(self.widths, {w: s / unit for w, s in self.steps_per_s.items()})
