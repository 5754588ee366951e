# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How much of a device each trial gets, for a search that divides devices (``spec.resources``).

Pure. A width is chosen when a TrainingJob is created. Another one, for a trial that runs, is
written into the status first; once it was read back the TrainingJob goes and is created again, and
its program resumes from its checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.tuning import MOST_RESIZES, TrialPool, TrialResize
from ullage.engines.tuning.occupancy import TrialOccupancy
from ullage.engines.tuning.planner import plan
from ullage.engines.tuning.records import (
    PlannedTrial,
    PlanRules,
    Resize,
    TrialDevice,
    TrialHolding,
    TrialPlan,
)
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.times import (
    EPOCH_UNKNOWN_S,
    TRIAL_LAUNCH_S,
    TRIAL_LOOK_S,
    TRIAL_SAVE_S,
    TRIAL_WAITS_S,
    TRIAL_WIDTH_CAP_S,
)
from ullage.scheduling.tuning.times import (
    WHOLE,
    DueTrial,
    TrialTimes,
    percent_had,
    percent_of,
    size_of,
)

LEFT: Final = 0.5
"""Of its work until now, what a trial has left at least: how far it is, it says at its end, and the
longer one runs, the longer it is expected to run (chosen for log-normal times)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthPlan:
    """Percent of a device by trial that starts, 100 for each whole one, and resizes.

    Attributes:
        starts: Trials whose TrainingJobs are to be created; the others wait.
        resizes: To write into the status.
        again_at: When time alone may change the plan, seconds since the epoch; 0 = never.
    """

    starts: Mapping[int, int] = field(default_factory=dict)
    resizes: tuple[TrialResize, ...] = ()
    again_at: float = 0.0


def plan_widths(
    pool: TrialPool, times: TrialTimes, due: Sequence[DueTrial], now: float
) -> WidthPlan:
    """How much of a device each trial gets now.

    Args:
        pool: Devices that the search divides.
        times: What is known of the trials' times.
        due: Trials that run or could.
        now: Seconds since the epoch.
    """
    return _Planning(pool, times, {one.trial: one for one in due}, now).plan()


def target_percent(resizes: Sequence[TrialResize], trial: int, epoch: int) -> int:
    """Percent of a device that a trial was resized to on its way to an epoch; 0 = it was not.

    Args:
        resizes: Of the status, in their order.
        trial: Number of the trial.
        epoch: That it runs to.
    """
    return next(
        (
            one.to_percent
            for one in reversed(resizes)
            if (one.trial, one.epoch) == (trial, epoch) and _is_width(one.to_percent)
        ),
        0,
    )


def resized_runs(
    resizes: Sequence[TrialResize], runs: Iterable[WorkloadRecord]
) -> Iterator[tuple[WorkloadRecord, int]]:
    """TrainingJobs that the status replaces by ones of another width, and that width.

    One that was created since is left alone, whatever became of its request.

    Args:
        resizes: Of the status, in their order.
        runs: TrainingJobs that have not ended.
    """
    newest = {(one.trial, one.epoch): one for one in resizes if _is_width(one.to_percent)}
    for run in runs:
        of = run.trial
        one = newest.get((of.trial, of.until_epoch)) if of is not None else None
        if one is None or run.deleting or run.created > one.time:
            continue
        if percent_had(run.gpu) != one.to_percent:
            yield run, one.to_percent


def kept_resizes(
    resizes: Sequence[TrialResize], due: Mapping[int, int], counted: Iterable[tuple[int, int]]
) -> tuple[TrialResize, ...]:
    """Resizes that stay in the status: of trials that are due, and the newest of counted ones.

    Args:
        resizes: In their order.
        due: Epoch that each trial is to reach.
        counted: Trials and epochs that have a result.
    """
    known = frozenset(counted)
    open_ones = {at for at, one in enumerate(resizes) if due.get(one.trial) == one.epoch}
    others = [
        at
        for at, one in enumerate(resizes)
        if at not in open_ones and (one.trial, one.epoch) in known
    ]
    room = max(0, MOST_RESIZES - len(open_ones))
    kept = open_ones | set(others[len(others) - min(room, len(others)) :])
    return tuple(one for at, one in enumerate(resizes) if at in kept)[-MOST_RESIZES:]


def _is_width(percent: int) -> bool:
    return 0 < percent < WHOLE or (percent > 0 and percent % WHOLE == 0)


@dataclass(slots=True)
class _Planning:
    """One plan: what runs is put onto the devices of the search, the rest is for the planner."""

    pool: TrialPool
    times: TrialTimes
    due: Mapping[int, DueTrial]
    now: float
    rules: PlanRules = field(init=False)
    devices: tuple[TrialDevice, ...] = field(init=False)
    cost_s: float = field(init=False)
    settled: bool = field(init=False)
    """Every TrainingJob has started, so no width is asked for that no device has room for."""
    cap: int = field(init=False)
    """Percent of a device that no trial asks for more than."""

    def __post_init__(self) -> None:
        self.rules = PlanRules(widths=self.times.widths)
        self.devices = tuple(TrialDevice(number=at) for at in range(self.pool.devices))
        self.cost_s = self._cost_s()
        self.settled = all(
            one.run is None or one.run.status.start_time > 0 for one in self.due.values()
        )
        lately = [
            part.to_percent
            for parts in self.times.parts.values()
            for part in parts
            if part.not_started and part.time > self.now - TRIAL_WIDTH_CAP_S
        ]
        self.cap = min(lately, default=self._percent(self.times.widths.sizes[-1]))

    def plan(self) -> WidthPlan:
        trials = self._trials()
        found = plan(trials, self.devices, self.rules, self.now)
        resizes = (*self._narrower(), *self._resizes(found))
        makes_room = any(one.to_percent < one.from_percent for one in resizes)
        # what makes room is read back before anyone starts in it
        starts = () if makes_room else found.starts
        return WidthPlan(
            starts={one.trial: min(self._percent(one.size), self.cap) for one in starts},
            resizes=resizes,
            again_at=self._again_at(trials),
        )

    def _percent(self, size: int) -> int:
        return percent_of(self.times.widths, size)

    def _trials(self) -> list[PlannedTrial]:
        """Trials as the planner sees them; one that runs and has no room here stays as it is."""
        holdings = self._holdings()
        return [
            self._trial(one, holdings.get(one.trial))
            for one in self.due.values()
            if one.trial in holdings or not self._size(one)
        ]

    def _size(self, one: DueTrial) -> int:
        """Parts of a device that a trial has, or is about to have again; 0 = it waits."""
        percent = target_percent(self._parts(one), one.trial, one.until_epoch)
        if not percent and one.run is not None:
            percent = percent_had(one.run.gpu)
        return size_of(self.times.widths, percent) if percent else 0

    def _parts(self, one: DueTrial) -> Sequence[TrialResize]:
        return self.times.parts.get((one.trial, one.until_epoch), ())

    def _holdings(self) -> dict[int, TrialHolding]:
        """What runs, the widest first, on devices that only count: real ones are chosen later."""
        occupancy = TrialOccupancy(self.devices, self.times.widths.parts)
        sizes = {one.trial: size for one in self.due.values() if (size := self._size(one))}
        holdings: dict[int, TrialHolding] = {}
        for trial in sorted(sizes, key=lambda trial: (-sizes[trial], trial)):
            devices = occupancy.place(sizes[trial])
            if devices is not None:
                occupancy.take(sizes[trial], devices)
                holdings[trial] = TrialHolding(
                    size=sizes[trial], devices=devices, since_s=self._since(self.due[trial])
                )
        return holdings

    def _since(self, one: DueTrial) -> float:
        """When the trial got its width, seconds since the epoch."""
        decided = [part.time for part in self._parts(one)]
        created = [one.run.created] if one.run is not None else []
        return max((*decided, *created), default=self.now)

    def _trial(self, one: DueTrial, holding: TrialHolding | None) -> PlannedTrial:
        return PlannedTrial(
            number=one.trial,
            work_s=self._left_s(one),
            curve=self.times.curve,
            checkpoints=self._may_resize(one),
            resize_cost_s=self.cost_s,
            holding=holding,
        )

    def _left_s(self, one: DueTrial) -> float:
        """Work that a trial has left, seconds."""
        done = self._done_s(one)
        return max(self._whole_s(one) - done, LEFT * done)

    def _whole_s(self, one: DueTrial) -> float:
        """Work of a trial as far as it is to go, seconds."""
        return one.epochs * (self.times.epoch_s(one.trial) or EPOCH_UNKNOWN_S)

    def _ran_s(self, run: WorkloadRecord) -> float:
        """How long a TrainingJob has run."""
        began = run.status.start_time
        return max(0.0, self.now - began) if began else 0.0

    def _done_s(self, one: DueTrial) -> float:
        """Work that a trial did, seconds."""
        before = self.times.before_s(one.trial, one.until_epoch)
        if one.run is None or not self._has_its_width(one, one.run):
            return before  # the status counts what its TrainingJob did
        return before + self._ran_s(one.run) * self.times.speed(percent_had(one.run.gpu))

    def _has_its_width(self, one: DueTrial, run: WorkloadRecord) -> bool:
        """Whether a TrainingJob is not about to be replaced by one of another width."""
        target = target_percent(self._parts(one), one.trial, one.until_epoch)
        return target in (0, percent_had(run.gpu))

    def _may_resize(self, one: DueTrial) -> bool:
        """Whether a trial runs that can save its state, at a speed that is known."""
        run = one.run
        return (
            self.settled
            and run is not None
            and run.checkpoint
            and not run.deleting
            and run.status.phase == Phase.RUNNING
            and self.times.epoch_s(one.trial) is not None
            and self._has_its_width(one, run)
        )

    def _cost_s(self) -> float:
        """A checkpoint and a restart: as it was seen, else from the quickest launch."""
        runs = [
            (one, one.run) for one in self.due.values() if one.run and one.run.status.start_time
        ]
        seen = [
            run.status.start_time - parts[-1].time
            for one, run in runs
            if (parts := self._parts(one)) and self._has_its_width(one, run)
        ]
        if seen:
            return max(0.0, sum(seen) / len(seen))
        launches = [run.status.start_time - run.created for _, run in runs]
        return max(0.0, min(launches, default=TRIAL_LAUNCH_S)) + TRIAL_SAVE_S

    def _resizes(self, found: TrialPlan) -> Iterator[TrialResize]:
        """What the planner resizes, within the cap.

        While a trial that was widened to a width has not ended, no other one is widened to it: only
        its end tells what the width brings.
        """
        tried = {part.to_percent for one in self.due.values() for part in self._parts(one)}
        for resize in found.resizes:
            made = self._resize(resize)
            if made is None:
                continue
            if made.to_percent > made.from_percent:
                if made.to_percent in tried:
                    continue
                tried.add(made.to_percent)
            yield made

    def _resize(self, found: Resize) -> TrialResize | None:
        one = self.due[found.trial]
        if one.run is None:
            return None
        had, percent = percent_had(one.run.gpu), self._percent(found.size)
        if percent > had:
            percent = max(had, min(percent, self.cap))
        if percent == had:
            return None
        return TrialResize(
            trial=one.trial,
            epoch=one.until_epoch,
            from_percent=had,
            to_percent=percent,
            seconds=round(self._ran_s(one.run)),
            gain_seconds=max(0, round(found.gain_s)),
            time=whole_second(self.now),
        )

    def _narrower(self) -> Iterator[TrialResize]:
        """TrainingJobs that found no device ask for less."""
        for one in self.due.values():
            if not self._waits(one) or self.now < self._since(one) + TRIAL_WAITS_S:
                continue
            had = percent_had(one.run.gpu) if one.run is not None else 0
            less = [
                percent
                for size in self.times.widths.sizes
                if (percent := self._percent(size)) < had
            ]
            if less:
                yield TrialResize(
                    trial=one.trial,
                    epoch=one.until_epoch,
                    from_percent=had,
                    to_percent=less[-1],
                    not_started=True,
                    time=whole_second(self.now),
                )

    def _is_late(self, one: DueTrial) -> bool:
        """Whether a trial that may be resized runs longer than expected."""
        return self._may_resize(one) and self._done_s(one) >= self._whole_s(one)

    def _waits(self, one: DueTrial) -> bool:
        """Whether a TrainingJob never got a device; one that has pulls its image perhaps."""
        run = one.run
        return (
            run is not None
            and not run.deleting
            and not run.status.start_time
            and run.status.phase in ("", Phase.PENDING)
            and self._has_its_width(one, run)
        )

    def _again_at(self, trials: Sequence[PlannedTrial]) -> float:
        moments = [
            one.holding.since_s + self.rules.rest_s
            for one in trials
            if one.holding is not None and one.checkpoints
        ]
        moments += [
            self._since(one) + TRIAL_WAITS_S for one in self.due.values() if self._waits(one)
        ]
        if any(self._is_late(one) for one in self.due.values()):
            moments.append(self.now + TRIAL_LOOK_S)
        return min((at for at in moments if at > self.now), default=0.0)
