# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Order of turns in a lane (the policies of Salus @7b7f5e0, `executionengine.cpp`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from ullage.engines.lanes.settings import IterationPolicy, LaneSettings
from ullage.engines.lanes.state import LaneResident

Key = Callable[[LaneResident, LaneSettings, float], float]
FIRST_STEPS: Final = 5
"""Steps until their mean is used as the step time; the first one is often much longer."""


def chosen(
    residents: Iterable[LaneResident], settings: LaneSettings, now_s: float
) -> LaneResident | None:
    """The resident with the next step, ties in order of request. ``None`` without a request.

    Args:
        residents: Of one lane.
        settings: Settings with the policy.
        now_s: The current time.
    """
    key = KEYS[settings.policy]
    asking = (
        resident
        for resident in residents
        if resident.asked_s is not None and resident.lease is None
    )
    return min(
        asking, key=lambda resident: (key(resident, settings, now_s), resident.asked), default=None
    )


def remaining_s(resident: LaneResident) -> float:
    """Remaining run time of a job, seconds.

    A job of unknown length, or beyond its declaration, is expected to run as long as it has run,
    which bounds the benefit of a length that is declared too short (derived). The same holds for
    the first steps of a job with declared steps, which show the step time.
    """
    demand = resident.demand
    if demand.total_s is not None:
        left_s = demand.total_s - resident.ran_s
    elif demand.total_steps is not None and resident.steps >= FIRST_STEPS:
        left_s = (demand.total_steps - resident.steps) * (resident.step_s or 0.0)
    else:
        left_s = 0.0
    return left_s if left_s > 0 else resident.ran_s


def _srtf(resident: LaneResident, settings: LaneSettings, now_s: float) -> float:
    """Remaining time minus the wait, which prevents starvation (derived)."""
    return remaining_s(resident) - resident.wait_s(now_s) / settings.aging


KEYS: Final[Mapping[IterationPolicy, Key]] = MappingProxyType(
    {
        IterationPolicy.FAIR: lambda resident, *_: resident.level_s,
        IterationPolicy.RR: lambda resident, *_: resident.level_steps,
        IterationPolicy.PACK: lambda resident, *_: resident.asked,
        IterationPolicy.FIFO: lambda resident, *_: resident.number,
        IterationPolicy.SRTF: _srtf,
    }
)
