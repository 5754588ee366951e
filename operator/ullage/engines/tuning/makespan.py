# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""End of a group of trials, and its lower bound, from measured durations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from ullage.engines.tuning.bounds import lower_bound_s
from ullage.engines.tuning.records import PlannedTrial
from ullage.engines.tuning.speed_curves import SpeedCurve, Widths, speed_curve

_ONE_WIDTH: Final = Widths(per_device=1, devices=1)
_CURVE: Final = speed_curve(_ONE_WIDTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRuns:
    """State of a group; times in seconds.

    Attributes:
        ended_s: Duration of each ended trial.
        running_s: Run time so far of each running trial.
        waiting: Number of trials not started.
        elapsed_s: From the start of the first trial to now, or to the end of the last one.
        places: Trials that may run at the same time; where trials have widths, devices, and each
            time is that of the same work on one whole device.
        widths: Allowed widths.
        curve: Their speeds.

    Raises:
        ValueError: there is no place, or a time is negative or not finite.
    """

    ended_s: tuple[float, ...]
    running_s: tuple[float, ...] = ()
    waiting: int = 0
    elapsed_s: float
    places: int
    widths: Widths = _ONE_WIDTH
    curve: SpeedCurve = _CURVE

    def __post_init__(self) -> None:
        times = (*self.ended_s, *self.running_s, self.elapsed_s)
        if not all(0 <= time_s < math.inf for time_s in times):
            raise ValueError("times are finite and not negative")
        if self.places < 1 or self.waiting < 0:
            raise ValueError("there is a place at least, and no fewer than no trial waits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Makespan:
    """From the start of a group's first trial to the end of its last one, in seconds.

    Attributes:
        eta_s: Expected; measured once all have ended.
        lower_bound_s: No schedule on these places is shorter.
        utilisation: Fraction of the time of the places in which a trial ran, 0 to 1.
    """

    eta_s: float
    lower_bound_s: float
    utilisation: float


def makespan(group: GroupRuns) -> Makespan | None:
    """Figures of a group; ``None`` before any trial was measured.

    An unfinished trial is expected to take the mean of the finished ones, and no less than it has
    run. The rest is done by as many trials at a time as ran on average so far, and no sooner than
    its longest. Source: derived.

    Args:
        group: State of the group.
    """
    measured = [ended_s for ended_s in group.ended_s if ended_s > 0]
    if not measured or group.elapsed_s <= 0:
        return None
    mean = sum(measured) / len(measured)
    whole = [max(mean, ran_s) for ran_s in group.running_s] + [mean] * group.waiting
    left = [max(0.0, mean - ran_s) for ran_s in group.running_s] + [mean] * group.waiting
    busy = sum(measured) + sum(group.running_s)
    at_a_time = busy / group.elapsed_s
    rest = max(sum(left) / at_a_time, *left) if left else 0.0
    trials = [
        PlannedTrial(number=at, work_s=work, curve=group.curve)
        for at, work in enumerate((*measured, *whole))
    ]
    return Makespan(
        eta_s=group.elapsed_s + rest,
        lower_bound_s=lower_bound_s(trials, group.places, group.widths),
        utilisation=min(1.0, at_a_time / group.places),
    )
