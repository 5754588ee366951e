# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Predicts contention before any co-location was observed, from demands that exceed the device.

Uses measurements of classes alone. Where a number is missing, the utilisation sum answers, and the
rung reports it; gaps are never filled with a guess.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ullage.engines.admission.records import ClassProfile, Fingerprint, Rung, ShareCurve

KNEE: Final = 0.9
"""Part of the peak bandwidth at which memory is saturated (to be measured on a GPU)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One tenant as input of the prior: share (0..1], utilisation alone, measurements."""

    share: float
    utilisation: float = 1.0
    fingerprint: Fingerprint | None = None
    curve: ShareCurve | None = None

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"a share must be above 0 and at most 1, not {self.share:g}")
        if not 0 <= self.utilisation < math.inf:
            raise ValueError(f"a utilisation must be a fraction >= 0, not {self.utilisation:g}")


def side_of(
    profile: ClassProfile | None, percent: int, utilisation: float = 1.0, *, checked: bool = False
) -> Side:
    """A tenant of a class at a share; a measured duty cycle or SM demand is its utilisation.

    Args:
        profile: Profile of its class.
        percent: Its share.
        utilisation: Used where none was measured.
        checked: The fingerprint was already checked when it was learned.

    Raises:
        ValueError: the share is not within 1..100, or a demand is negative or not finite.
    """
    if not 0 < percent <= 100:
        raise ValueError(f"a share must be 1..100 percent, not {percent}")
    if profile is None:
        return Side(share=percent / 100, utilisation=utilisation)
    if not checked:
        check_fingerprint(profile.workload_class, profile.fingerprint)
    measured = profile.fingerprint.duty_cycle
    measured = profile.fingerprint.sm if measured is None else measured
    return Side(
        share=percent / 100,
        utilisation=utilisation if measured is None else measured,
        fingerprint=profile.fingerprint,
        curve=profile.curve,
    )


def check_fingerprint(workload_class: str, fingerprint: Fingerprint) -> None:
    """Reject impossible measurements.

    Args:
        workload_class: Named in the message.
        fingerprint: Measurements of the class alone.

    Raises:
        ValueError: a measured value is negative or not finite; names the class and the field.
    """
    for name in Fingerprint.__slots__:
        value = getattr(fingerprint, name)
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise ValueError(
                f"profile of class {workload_class}: {name} is {value:g}; it must be a number >= 0,"
                " delete it from the profile if it was not measured"
            )


def memory_bound(fingerprint: Fingerprint) -> float | None:
    """Part of the kernel time that is bound by memory, 0..1; ``None`` = unknown.

    From the response to the DRAM stressor if measured (stressor at the knee, derived), else
    d / (d + k) with k the busiest compute pipe.
    """
    dram = fingerprint.dram
    if dram is None:
        return None
    idle = fingerprint.kernel_idle or 0.0
    if fingerprint.stressor_dram is not None and dram > 0 and idle < 1:
        reach = (1 - idle) * min(KNEE, dram) / KNEE
        return min(1.0, max(0.0, (fingerprint.stressor_dram - 1) / reach))
    pipes = (fingerprint.tensor, fingerprint.fp32, fingerprint.fp16, fingerprint.fp64)
    busiest = max((pipe for pipe in pipes if pipe is not None), default=None)
    if busiest is None:
        return None
    return dram / (dram + busiest) if dram + busiest > 0 else 0.0


def contention(sides: Sequence[Side], clock_ratio: float = 1.0) -> tuple[float, ...] | None:
    """Contention factor c_i >= 1 of every tenant, each against itself alone at its share.

    ``c_i = h + (1-h) * [(1-m)*max(1, sum min(p,u)) + m*max(1, sum d(p)/knee)] / f`` (derived).

    Args:
        sides: All tenants of the device.
        clock_ratio: Joint clock over lone clock (f), 0 < f <= 1.

    Returns:
        ``None`` where the SM demand, DRAM demand or memory-bound part of a tenant is unknown.

    Raises:
        ValueError: the clock ratio is out of range.
    """
    if not 0 < clock_ratio <= 1:
        raise ValueError(f"a clock ratio must be above 0 and at most 1, not {clock_ratio:g}")
    compute = memory = 0.0
    parts: list[tuple[float, float]] = []
    for side in sides:
        print_ = side.fingerprint
        bound = memory_bound(print_) if print_ is not None else None
        if print_ is None or print_.sm is None or print_.dram is None or bound is None:
            return None
        compute += min(side.share, print_.sm)
        # T(1)/T(p): slower alone needs less bandwidth; 1 where the curve is unknown
        curve = side.curve
        pace = curve.seconds(1.0) / curve.seconds(side.share) if curve is not None else 1.0
        memory += min(KNEE, print_.dram) * pace / KNEE
        parts.append((min(1.0, print_.kernel_idle or 0.0), bound))
    if len(sides) == 1:
        return (1.0,)
    crowd, traffic = max(1.0, compute), max(1.0, memory)
    return tuple(
        idle + (1 - idle) * ((1 - bound) * crowd + bound * traffic) / clock_ratio
        for idle, bound in parts
    )


def own_share(side: Side) -> float:
    """Slowdown of a tenant by its own share alone: T(p)/T(1), else demand over share."""
    if side.curve is not None:
        return side.curve.seconds(side.share) / side.curve.seconds(1.0)
    return max(1.0, side.utilisation / side.share)


def base(sides: Sequence[Side]) -> tuple[tuple[float, ...], Rung]:
    """Log slowdown of every tenant against the whole device, and the rung of the prediction."""
    factors = contention(sides)
    rung = Rung.PRIOR
    if factors is None:
        crowd = max(1.0, math.fsum(min(side.share, side.utilisation) for side in sides))
        factors, rung = (crowd,) * len(sides), Rung.UTILISATION_SUM
    logs = (own_share(side) * factor for side, factor in zip(sides, factors, strict=True))
    return tuple(math.log(value) for value in logs), rung
