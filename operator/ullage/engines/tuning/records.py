# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Inputs of the planner and its answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ullage.engines.tuning.speed_curves import SpeedCurve, Widths


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialDevice:
    """One device of the pool and its node."""

    number: int
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialHolding:
    """Devices of a running trial: parts of them, and start time on the caller's clock."""

    size: int
    devices: tuple[int, ...]
    since_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrial:
    """A trial that has not ended.

    ``work_s`` is the remaining work, in seconds at width 1; ``memory_part`` the fraction of a
    device's memory that it needs, below which its share never falls; without ``checkpoints`` it
    keeps its initial width. ``resize_cost_s`` is a checkpoint and a restart.

    Raises:
        ValueError: a figure is out of range.
    """

    number: int
    work_s: float
    curve: SpeedCurve
    checkpoints: bool = True
    resize_cost_s: float = 0.0
    memory_part: float = 0.0
    holding: TrialHolding | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.work_s < math.inf:
            raise ValueError("work left is finite and not negative")
        if not 0 <= self.resize_cost_s < math.inf:
            raise ValueError("the cost of a resize is finite and not negative")
        if not 0 <= self.memory_part <= 1:
            raise ValueError("a trial needs from 0 to 1 of a device's memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialAssignment:
    """A trial continues until the end of this epoch, counted from its first."""

    trial: int
    until_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRules:
    """Available widths, and the rule for resizes.

    A trial is resized when that saves more than ``gain_factor`` times its cost, and not within
    ``rest_s`` of its last resize.

    Raises:
        ValueError: a figure is negative or not finite.
    """

    widths: Widths = field(default_factory=Widths)
    gain_factor: float = 3.0
    rest_s: float = 60.0

    def __post_init__(self) -> None:
        if not (0 <= self.gain_factor < math.inf and 0 <= self.rest_s < math.inf):
            raise ValueError("factor and rest are finite and not negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStart:
    """Start a trial with this many parts of these devices."""

    trial: int
    size: int
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """Resume a running trial from its checkpoint at another width; ``gain_s`` is the saving."""

    trial: int
    from_size: int
    size: int
    devices: tuple[int, ...]
    gain_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPlan:
    """Actions to take now; ``target_s`` is the possible end of all, from now."""

    starts: tuple[TrialStart, ...] = ()
    resizes: tuple[Resize, ...] = ()
    target_s: float = 0.0


Planner = Callable[[Sequence[PlannedTrial], Sequence[TrialDevice], PlanRules, float], TrialPlan]
"""Unfinished trials, existing devices, rules, the current time in seconds."""
