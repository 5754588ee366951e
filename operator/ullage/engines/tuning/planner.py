# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The planner: starts, widths, devices and resizes of trials.

Called when a trial ends or is stopped, a group arrives, or a device is added or lost. Its run time
is that of a sort and of a bisection.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.tuning.bounds import Floats, Places, least_place, matrix, target_s, widths_for
from ullage.engines.tuning.occupancy import TrialOccupancy
from ullage.engines.tuning.records import (
    PlannedTrial,
    PlanRules,
    Resize,
    TrialDevice,
    TrialPlan,
    TrialStart,
)

WAITS: Final = -1
"""Width index of a trial without a width yet."""
NEGLIGIBLE: Final = 0.02
"""Minimum saving of device time, as a fraction, for a narrower width."""
MOST_TAIL: Final = 0.5
"""Fraction of a schedule's time lost while its last trials run."""


def plan(
    trials: Sequence[PlannedTrial], devices: Sequence[TrialDevice], rules: PlanRules, now_s: float
) -> TrialPlan:
    """Plan the next actions so that all trials end soon. Source: derived.

    Args:
        trials: Trials that have not ended, running or waiting.
        devices: Existing devices; a trial on a missing one waits again.
        rules: Widths, and the minimum gain of a resize.
        now_s: The current time, on the clock of the holdings, in seconds.

    Raises:
        ValueError: holdings exceed a device, or one has a size that is not a width.
    """
    if not trials or not devices:
        return TrialPlan()
    draft = _Draft(trials, devices, rules, now_s)
    draft.make_room()
    draft.start()
    draft.widen()
    return draft.plan()


@dataclass(slots=True)
class _Draft:
    """A draft plan: width indices and devices by trial."""

    trials: Sequence[PlannedTrial]
    devices: Sequence[TrialDevice]
    rules: PlanRules
    now_s: float
    occupancy: TrialOccupancy = field(init=False)
    work: Floats = field(init=False)
    speeds: Floats = field(init=False)
    before: list[int] = field(init=False)
    place: list[int] = field(init=False)
    held: list[tuple[int, ...]] = field(init=False)
    frozen: set[int] = field(init=False, default_factory=set)
    least: Places = field(init=False)
    most: Places = field(init=False)
    target: float = field(init=False)

    def __post_init__(self) -> None:
        widths = self.rules.widths
        self.occupancy = TrialOccupancy(self.devices, widths.parts)
        self.work, self.speeds = matrix(self.trials)
        self.held = [self._holding(trial) for trial in self.trials]
        self.before = [
            self._place_of(trial.holding.size) if held and trial.holding else WAITS
            for trial, held in zip(self.trials, self.held, strict=True)
        ]
        self.place = list(self.before)
        limit = min(len(widths.sizes), widths.whole + len(self.devices)) - 1
        self.least = np.maximum(
            [least_place(trial, widths) for trial in self.trials], self._widest_of_the_best()
        )
        self.most = np.full(len(self.trials), limit, dtype=np.intp)
        for at, trial in enumerate(self.trials):
            if self.before[at] != WAITS and not self._may_resize(trial):
                self.frozen.add(at)
                self.least[at] = self.most[at] = self.before[at]
        held_least = np.where(self._running, np.maximum(self.before, self.least), self.least)
        self.target = self._target(held_least)

    def _widest_of_the_best(self) -> Places:
        """The width index, up to one device, below which a trial saves almost nothing.

        Where sharing a device gains nothing, sequential trials leave less idle time at the end.
        """
        whole = self.rules.widths.whole
        area = np.asarray(self.rules.widths.widths)[: whole + 1] / self.speeds[:, : whole + 1]
        cheap = area <= (1 + NEGLIGIBLE) * area.min(axis=1, keepdims=True)
        last: Places = whole - cheap[:, ::-1].argmax(axis=1)
        return last

    @property
    def _running(self) -> NDArray[np.bool_]:
        running: NDArray[np.bool_] = np.asarray(self.before, dtype=np.intp) != WAITS
        return running

    def _holding(self, trial: PlannedTrial) -> tuple[int, ...]:
        """The devices of a running trial, taken; none where one of them is gone."""
        holding = trial.holding
        if holding is None or not self.occupancy.knows(holding):
            return ()
        self.occupancy.take(holding.size, holding.devices)
        return holding.devices

    def _place_of(self, size: int) -> int:
        if size not in self.rules.widths.sizes:
            raise ValueError(f"{size} of {self.rules.widths.parts} parts of a device are no width")
        return self.rules.widths.sizes.index(size)

    def _may_resize(self, trial: PlannedTrial) -> bool:
        rested = trial.holding is not None and (
            self.now_s - trial.holding.since_s >= self.rules.rest_s
        )
        return trial.checkpoints and rested

    def _target(self, least: Places) -> float:
        """Seconds until all can have ended, with the idle time at the end of a schedule.

        While the last trials run, a device idles for half a trial on average, so N trials on n
        devices lose n / 2N of the time. Source: derived; the cap was swept.
        """
        count = len(self.devices)
        tail = min(MOST_TAIL, count / (2 * len(self.trials)))
        limits = (least, self.most, self.rules.widths, count)
        return (1 + tail) * target_s(self.work, self.speeds, *limits)

    def _size(self, place: int) -> int:
        return self.rules.widths.sizes[place]

    def _left_s(self, at: int) -> float:
        return float(self.work[at] / self.speeds[at, self.place[at]])

    def _set(self, at: int, place: int) -> bool:
        """Give a trial another width; ``False`` and unchanged where it does not fit."""
        old, devices = self.place[at], self.held[at]
        if old != WAITS:
            self.occupancy.give_back(self._size(old), devices)
        held = self.occupancy.place(self._size(place), devices)
        if held is None:
            if old != WAITS:
                self.occupancy.take(self._size(old), devices)
            return False
        self.occupancy.take(self._size(place), held)
        self.place[at], self.held[at] = place, held
        return True

    def make_room(self) -> None:
        """Narrow running trials where the gain of waiting ones exceeds the cost."""
        if self._running.all() or not self._running.any():
            return
        free = self._target(self.least)
        wanted = widths_for(free, self.work, self.speeds, self.least, self.most)
        gain = self.target - free
        narrowed = [
            at
            for at in np.flatnonzero(self._running).tolist()
            if wanted[at] < self.before[at]
            and gain > self.rules.gain_factor * self.trials[at].resize_cost_s
        ]
        for at in narrowed:
            self._set(at, int(wanted[at]))
        if narrowed:
            self.target = free
            self.frozen.update(narrowed)

    def start(self) -> None:
        """Place the longest first, at the narrowest width in time, until devices are full."""
        wanted = widths_for(self.target, self.work, self.speeds, self.least, self.most)
        for at in np.argsort(-self.work, kind="stable").tolist():
            if self.occupancy.largest_free < self._size(0):
                return
            if self.place[at] == WAITS:
                for place in range(int(wanted[at]), int(self.least[at]) - 1, -1):
                    if self._set(at, place):
                        break
            elif wanted[at] > self.place[at] and self._worth(at, int(wanted[at])):
                self._set(at, int(wanted[at]))

    def _worth(self, at: int, place: int) -> bool:
        """True when widening a running trial saves more than it costs."""
        if at in self.frozen:
            return False
        return self._gain_s(at, place) > self.rules.gain_factor * self.trials[at].resize_cost_s

    def _gain_s(self, at: int, place: int) -> float:
        speeds = self.speeds[at]
        return float(self.work[at] / speeds[self.before[at]] - self.work[at] / speeds[place])

    def widen(self) -> None:
        """Give free parts to the trial that ends last, repeatedly.

        A widening that is not worth its resize is undone, and its parts are given again once.
        """
        while True:
            settled = list(zip(self.place, self.held, strict=True))
            self._widen_once()
            idle = [
                at
                for at, (place, _) in enumerate(settled)
                if self.before[at] != WAITS
                and self.place[at] > max(place, self.before[at])
                and not self._worth(at, self.place[at])
            ]
            if not idle:
                return
            self._undo(settled)
            self.frozen.update(idle)

    def _undo(self, settled: list[tuple[int, tuple[int, ...]]]) -> None:
        for at, place in enumerate(self.place):
            if place != WAITS:
                self.occupancy.give_back(self._size(place), self.held[at])
        for at, (place, devices) in enumerate(settled):
            self.place[at], self.held[at] = place, devices
            if place != WAITS:
                self.occupancy.take(self._size(place), devices)

    def _widen_once(self) -> None:
        ends = [
            (-self._left_s(at), at)
            for at, place in enumerate(self.place)
            if place != WAITS and at not in self.frozen
        ]
        heapq.heapify(ends)
        while ends and self.occupancy.largest_free > 0:
            _, at = heapq.heappop(ends)
            place = self.place[at] + 1
            if place <= self.most[at] and self._set(at, place):
                heapq.heappush(ends, (-self._left_s(at), at))

    def plan(self) -> TrialPlan:
        """The difference from the current state."""
        starts: list[TrialStart] = []
        resizes: list[Resize] = []
        for at, trial in enumerate(self.trials):
            if self.place[at] == self.before[at]:
                continue
            size = self._size(self.place[at])
            if self.before[at] == WAITS:
                starts.append(TrialStart(trial=trial.number, size=size, devices=self.held[at]))
            else:
                resizes.append(
                    Resize(
                        trial=trial.number,
                        from_size=self._size(self.before[at]),
                        size=size,
                        devices=self.held[at],
                        gain_s=self._gain_s(at, self.place[at]),
                    )
                )
        return TrialPlan(starts=tuple(starts), resizes=tuple(resizes), target_s=self.target)
