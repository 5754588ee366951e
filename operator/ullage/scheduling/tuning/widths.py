# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Widths of trials: the part of a device that each gets (``spec.resources``).

A width is chosen when a TrainingJob is created. A resize of a running trial is written into the
status first; once it was read back, the TrainingJob is deleted and created again, and its program
resumes from its checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.tuning import MOST_RESIZES, TrialPool, TrialResize
from ullage.cluster.records.workload import WorkloadRecord
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
"""Least work left of a trial relative to its work until now: its progress is known only at its end,
and the longer a trial runs, the longer it is expected to run (chosen for log-normal times)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthPlan:
    """Widths of trials that start, and resizes.

    Attributes:
        starts: Percent of a device, 100 per whole device, by trial to start; the others wait.
        resizes: Resizes to write into the status.
        again_at: Time at which the plan may change, seconds since the epoch; 0 = never.
    """

    starts: Mapping[int, int] = field(default_factory=dict)
    resizes: tuple[TrialResize, ...] = ()
    again_at: float = 0.0


def plan_widths(
    pool: TrialPool, times: TrialTimes, due: Sequence[DueTrial], now: float
) -> WidthPlan:
    """Plan the widths of trials.

    Args:
        pool: Devices that the search divides.
        times: Times of the trials.
        due: Trials that run or could.
        now: Seconds since the epoch.
    """
    return _Planning(pool, times, {trial.trial: trial for trial in due}, now).plan()


def target_percent(resizes: Sequence[TrialResize], trial: int, epoch: int) -> int:
    """Percent of a device to which a trial was last resized before an epoch; 0 = never.

    Args:
        resizes: Resizes of the status in order.
        trial: Number of the trial.
        epoch: The epoch to reach.
    """
    return next(
        (
            resize.to_percent
            for resize in reversed(resizes)
            if (resize.trial, resize.epoch) == (trial, epoch) and _is_width(resize.to_percent)
        ),
        0,
    )


def resized_runs(
    resizes: Sequence[TrialResize], runs: Iterable[WorkloadRecord]
) -> Iterator[tuple[WorkloadRecord, int]]:
    """TrainingJobs that the status replaces by ones of another width, and that width.

    A TrainingJob that was created after the resize is left alone.

    Args:
        resizes: Resizes of the status in order.
        runs: TrainingJobs that have not ended.
    """
    newest = {
        (resize.trial, resize.epoch): resize for resize in resizes if _is_width(resize.to_percent)
    }
    for run in runs:
        of = run.trial
        resize = newest.get((of.trial, of.until_epoch)) if of is not None else None
        if resize is None or run.deleting or run.created > resize.time:
            continue
        if percent_had(run.gpu) != resize.to_percent:
            yield run, resize.to_percent


def kept_resizes(
    resizes: Sequence[TrialResize], due: Mapping[int, int], counted: Iterable[tuple[int, int]]
) -> tuple[TrialResize, ...]:
    """Resizes that stay in the status: those of due trials, and the newest of counted ones.

    Args:
        resizes: Resizes in order.
        due: Epoch to reach, by trial.
        counted: Trials and epochs that have a result.
    """
    counted_runs = frozenset(counted)
    open_ones = {at for at, resize in enumerate(resizes) if due.get(resize.trial) == resize.epoch}
    others = [
        at
        for at, resize in enumerate(resizes)
        if at not in open_ones and (resize.trial, resize.epoch) in counted_runs
    ]
    room = max(0, MOST_RESIZES - len(open_ones))
    kept_positions = open_ones | set(others[len(others) - min(room, len(others)) :])
    return tuple(resize for at, resize in enumerate(resizes) if at in kept_positions)[
        -MOST_RESIZES:
    ]


def _is_width(percent: int) -> bool:
    return 0 < percent < WHOLE or (percent > 0 and percent % WHOLE == 0)


@dataclass(slots=True)
class _Planning:
    """A plan: running trials are put onto the devices, the planner adds the rest."""

    pool: TrialPool
    times: TrialTimes
    due: Mapping[int, DueTrial]
    now: float
    rules: PlanRules = field(init=False)
    devices: tuple[TrialDevice, ...] = field(init=False)
    cost_s: float = field(init=False)
    settled: bool = field(init=False)
    """True when every TrainingJob has started, so that each requested width has room."""
    cap: int = field(init=False)
    """Most percent of a device that a trial requests."""

    def __post_init__(self) -> None:
        self.rules = PlanRules(widths=self.times.widths)
        self.devices = tuple(TrialDevice(number=at) for at in range(self.pool.devices))
        self.cost_s = self._cost_s()
        self.settled = all(
            trial.run is None or trial.run.status.start_time > 0 for trial in self.due.values()
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
        trial_plan = plan(trials, self.devices, self.rules, self.now)
        resizes = (*self._narrower(), *self._resizes(trial_plan))
        makes_room = any(resize.to_percent < resize.from_percent for resize in resizes)
        # a resize that makes room is read back before a trial starts there
        starts = () if makes_room else trial_plan.starts
        return WidthPlan(
            starts={start.trial: min(self._percent(start.size), self.cap) for start in starts},
            resizes=resizes,
            again_at=self._again_at(trials),
        )

    def _percent(self, size: int) -> int:
        return percent_of(self.times.widths, size)

    def _trials(self) -> list[PlannedTrial]:
        """Trials in the planner's terms, without running ones that have no room here."""
        holdings = self._holdings()
        return [
            self._trial(trial, holdings.get(trial.trial))
            for trial in self.due.values()
            if trial.trial in holdings or not self._size(trial)
        ]

    def _size(self, trial: DueTrial) -> int:
        """Parts of a device that a trial has or is resized to; 0 = it waits."""
        percent = target_percent(self._parts(trial), trial.trial, trial.until_epoch)
        if not percent and trial.run is not None:
            percent = percent_had(trial.run.gpu)
        return size_of(self.times.widths, percent) if percent else 0

    def _parts(self, trial: DueTrial) -> Sequence[TrialResize]:
        return self.times.parts.get((trial.trial, trial.until_epoch), ())

    def _holdings(self) -> dict[int, TrialHolding]:
        """Assign running trials, the widest first, to abstract devices."""
        occupancy = TrialOccupancy(self.devices, self.times.widths.parts)
        sizes = {trial.trial: size for trial in self.due.values() if (size := self._size(trial))}
        holdings: dict[int, TrialHolding] = {}
        for trial in sorted(sizes, key=lambda trial: (-sizes[trial], trial)):
            devices = occupancy.place(sizes[trial])
            if devices is not None:
                occupancy.take(sizes[trial], devices)
                holdings[trial] = TrialHolding(
                    size=sizes[trial], devices=devices, since_s=self._since(self.due[trial])
                )
        return holdings

    def _since(self, trial: DueTrial) -> float:
        """Time at which the trial got its width, seconds since the epoch."""
        decided = [part.time for part in self._parts(trial)]
        created = [trial.run.created] if trial.run is not None else []
        return max((*decided, *created), default=self.now)

    def _trial(self, trial: DueTrial, holding: TrialHolding | None) -> PlannedTrial:
        done_s = self._done_s(trial)
        return PlannedTrial(
            number=trial.trial,
            work_s=max(self._whole_s(trial) - done_s, LEFT * done_s),
            curve=self.times.curve,
            checkpoints=self._may_resize(trial),
            resize_cost_s=self.cost_s,
            holding=holding,
        )

    def _whole_s(self, trial: DueTrial) -> float:
        """Work of a trial up to its epoch, seconds."""
        return trial.epochs * (self.times.epoch_s(trial.trial) or EPOCH_UNKNOWN_S)

    def _ran_s(self, run: WorkloadRecord) -> float:
        """Seconds for which a TrainingJob has run."""
        began = run.status.start_time
        return max(0.0, self.now - began) if began else 0.0

    def _done_s(self, trial: DueTrial) -> float:
        """Work that a trial did, seconds."""
        before = self.times.before_s(trial.trial, trial.until_epoch)
        if trial.run is None or not self._has_its_width(trial, trial.run):
            return before  # the status counts what its TrainingJob did
        return before + self._ran_s(trial.run) * self.times.speed(percent_had(trial.run.gpu))

    def _has_its_width(self, trial: DueTrial, run: WorkloadRecord) -> bool:
        """True when a TrainingJob is not about to be replaced by one of another width."""
        target = target_percent(self._parts(trial), trial.trial, trial.until_epoch)
        return target in (0, percent_had(run.gpu))

    def _may_resize(self, trial: DueTrial) -> bool:
        """True when a trial runs, can save its state and has a known speed."""
        run = trial.run
        return (
            self.settled
            and run is not None
            and run.checkpoint
            and not run.deleting
            and run.status.phase == Phase.RUNNING
            and self.times.epoch_s(trial.trial) is not None
            and self._has_its_width(trial, run)
        )

    def _cost_s(self) -> float:
        """Seconds of a checkpoint and a restart: measured, else from the quickest launch."""
        runs = [
            (trial, trial.run)
            for trial in self.due.values()
            if trial.run and trial.run.status.start_time
        ]
        seen = [
            run.status.start_time - parts[-1].time
            for trial, run in runs
            if (parts := self._parts(trial)) and self._has_its_width(trial, run)
        ]
        if seen:
            return max(0.0, sum(seen) / len(seen))
        launches = [run.status.start_time - run.created for _, run in runs]
        return max(0.0, min(launches, default=TRIAL_LAUNCH_S)) + TRIAL_SAVE_S

    def _resizes(self, trial_plan: TrialPlan) -> Iterator[TrialResize]:
        """The planner's resizes, within the cap.

        Until a trial that was widened has ended, no other trial is widened to the same width: only
        its end shows the speed at that width.
        """
        tried = {part.to_percent for trial in self.due.values() for part in self._parts(trial)}
        for resize in trial_plan.resizes:
            made = self._resize(resize)
            if made is None:
                continue
            if made.to_percent > made.from_percent:
                if made.to_percent in tried:
                    continue
                tried.add(made.to_percent)
            yield made

    def _resize(self, resize: Resize) -> TrialResize | None:
        trial = self.due[resize.trial]
        if trial.run is None:
            return None
        had, percent = percent_had(trial.run.gpu), self._percent(resize.size)
        if percent > had:
            percent = max(had, min(percent, self.cap))
        if percent == had:
            return None
        return TrialResize(
            trial=trial.trial,
            epoch=trial.until_epoch,
            from_percent=had,
            to_percent=percent,
            seconds=round(self._ran_s(trial.run)),
            gain_seconds=max(0, round(resize.gain_s)),
            time=whole_second(self.now),
        )

    def _narrower(self) -> Iterator[TrialResize]:
        """Resizes of TrainingJobs that found no device."""
        for trial in self.due.values():
            if not self._waits(trial) or self.now < self._since(trial) + TRIAL_WAITS_S:
                continue
            had = percent_had(trial.run.gpu) if trial.run is not None else 0
            less = [
                percent
                for size in self.times.widths.sizes
                if (percent := self._percent(size)) < had
            ]
            if less:
                yield TrialResize(
                    trial=trial.trial,
                    epoch=trial.until_epoch,
                    from_percent=had,
                    to_percent=less[-1],
                    not_started=True,
                    time=whole_second(self.now),
                )

    def _waits(self, trial: DueTrial) -> bool:
        """True when a TrainingJob never got a device."""
        run = trial.run
        return (
            run is not None
            and not run.deleting
            and not run.status.start_time
            and run.status.phase in ("", Phase.PENDING)
            and self._has_its_width(trial, run)
        )

    def _again_at(self, trials: Sequence[PlannedTrial]) -> float:
        moments = [
            planned.holding.since_s + self.rules.rest_s
            for planned in trials
            if planned.holding is not None and planned.checkpoints
        ]
        moments += [
            self._since(trial) + TRIAL_WAITS_S for trial in self.due.values() if self._waits(trial)
        ]
        if any(
            self._may_resize(trial) and self._done_s(trial) >= self._whole_s(trial)
            for trial in self.due.values()
        ):
            moments.append(self.now + TRIAL_LOOK_S)
        return min((at for at in moments if at > self.now), default=0.0)
