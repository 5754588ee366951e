# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Groups of trials whose results are needed together, and their promotions.

A rung compares values of one epoch. Time is not used, so resized trials are promoted like others.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from ullage.engines.tuning.metrics import MetricHistory, ReportProblem
from ullage.engines.tuning.records import TrialAssignment


class SearchAlgorithm(Protocol):
    """Decides by reports which trials continue; it never sees the time.

    Every algorithm has these members, whatever its groups: successive halving, brackets of it,
    ASHA, an external service.
    """

    @property
    def members(self) -> Sequence[int]:
        """Trials of the algorithm."""
        ...

    @property
    def rungs(self) -> Sequence[HalvingRung]:
        """Groups opened so far; a trial's last one is its next comparison."""
        ...

    def first(self) -> Sequence[TrialAssignment]:
        """Initial runs."""
        ...

    def report(self, trial: int, epoch: int, value: float | None) -> Reported:
        """Report the end of an epoch of a trial.

        Args:
            trial: Number of the trial.
            epoch: From 1 on.
            value: Its metric; ``None`` = missing.
        """
        ...

    def ended(self, trial: int) -> Sequence[TrialAssignment]:
        """Settle a trial that failed or was stopped; returns the runs that follow."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """Result of a report: the reason to ignore it, and the runs that follow."""

    problem: ReportProblem | None = None
    runs: tuple[TrialAssignment, ...] = ()


@dataclass(slots=True, kw_only=True)
class HalvingRung:
    """Trials that are compared at the end of one epoch.

    A trial is settled when it has reached the epoch or will never report; ``problems`` has the
    reason of a missing value. Without a value it is never promoted.
    """

    group: str
    members: tuple[int, ...]
    until_epoch: int
    values: dict[int, float] = field(default_factory=dict)
    problems: dict[int, ReportProblem] = field(default_factory=dict)
    _held: frozenset[int] = field(init=False, repr=False, compare=False, default=frozenset())

    def holds(self, trial: int) -> bool:
        """True when the trial is a member."""
        if len(self._held) != len(self.members):  # members are never removed
            self._held = frozenset(self.members)
        return trial in self._held

    @property
    def complete(self) -> bool:
        """True when all trials are settled."""
        return len(self.values) + len(self.problems) == len(self.members)

    @property
    def pending(self) -> tuple[int, ...]:
        """Trials without a report."""
        return tuple(trial for trial in self.members if not self.settled(trial))

    def settled(self, trial: int) -> bool:
        """True when the trial has reported, or never will."""
        return trial in self.values or trial in self.problems

    def settle(self, trial: int, value: float | None, problem: ReportProblem | None) -> None:
        """Keep the first problem of a trial."""
        if not self.holds(trial) or self.settled(trial):
            return
        if value is None:
            self.problems[trial] = problem or ReportProblem.MISSING
        else:
            self.values[trial] = value

    def report(
        self, history: MetricHistory, trial: int, epoch: int, value: float | None
    ) -> ReportProblem | None:
        """Record a report of a member, or return the reason to ignore it.

        A trial that passed the epoch without a report of it is settled without a value.

        Args:
            history: Store of values.
            trial: Number of the trial.
            epoch: From 1 on.
            value: Its metric; ``None`` = missing.
        """
        if epoch > self.until_epoch:
            self.settle(trial, None, ReportProblem.MISSING)
            return ReportProblem.BEYOND_BUDGET
        if epoch == self.until_epoch and self.settled(trial):
            return ReportProblem.REPEATED
        problem = history.record(trial, epoch, value)
        if epoch == self.until_epoch:
            self.settle(trial, history.value(trial, epoch), problem)
        return problem

    def best(self, count: int, *, maximise: bool) -> tuple[int, ...]:
        """The best trials by value, ties by number."""
        sign = -1 if maximise else 1
        return tuple(
            sorted(self.values, key=lambda trial: (sign * self.values[trial], trial))[:count]
        )


def budgets(least_epochs: int, most_epochs: int, eta: int) -> tuple[int, ...]:
    """Last epochs of rungs: r, r eta, r eta^2, ..., R.

    Args:
        least_epochs: Of the first rung.
        most_epochs: Of the last one.
        eta: Factor between rungs.

    Raises:
        ValueError: the arguments make no rung.
    """
    if not 1 <= least_epochs <= most_epochs or eta < 2:
        raise ValueError("at least 1 epoch, no more than the most, and eta from 2 on")
    epochs = [least_epochs]
    while epochs[-1] * eta < most_epochs:
        epochs.append(epochs[-1] * eta)
    return (*epochs, most_epochs) if epochs[-1] < most_epochs else tuple(epochs)


def _check(members: Sequence[int], epochs: Sequence[int], eta: int) -> None:
    if not members or len(set(members)) != len(members):
        raise ValueError("there are trials, each of them once")
    rising = all(a < b for a, b in pairwise(epochs))
    if not epochs or epochs[0] < 1 or not rising or eta < 2:
        raise ValueError("epochs of rungs are 1 at least and rise, eta is 2 at least")


@dataclass(slots=True, kw_only=True)
class SyncHalving:
    """Successive halving: when all of a rung have reported, one in eta is promoted.

    Source: Jamieson and Talwalkar, 2016. A bracket of Hyperband is one of these.

    Raises:
        ValueError: there is no trial, one appears twice, or budgets do not rise.
    """

    members: tuple[int, ...]
    epochs: tuple[int, ...]
    eta: int = 3
    maximise: bool = True
    group: str = "rung"
    history: MetricHistory = field(default_factory=MetricHistory)
    rungs: list[HalvingRung] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        _check(self.members, self.epochs, self.eta)
        self._open(self.members)

    def first(self) -> tuple[TrialAssignment, ...]:
        """The first rung."""
        return self._runs()

    @property
    def promotions(self) -> tuple[tuple[int, ...], ...]:
        """Trials promoted into each rung after the first."""
        return tuple(rung.members for rung in self.rungs[1:])

    def report(self, trial: int, epoch: int, value: float | None) -> Reported:
        """Record a report; see :class:`SearchAlgorithm`."""
        if not self.rungs[0].holds(trial):
            return Reported(problem=ReportProblem.UNKNOWN_TRIAL)
        rung = next(rung for rung in reversed(self.rungs) if rung.holds(trial))
        problem = rung.report(self.history, trial, epoch, value)
        return Reported(problem=problem, runs=self._decided())

    def ended(self, trial: int) -> tuple[TrialAssignment, ...]:
        """Settle a trial; see :class:`SearchAlgorithm`."""
        self.rungs[-1].settle(trial, None, ReportProblem.MISSING)
        return self._decided()

    def _open(self, members: Sequence[int]) -> None:
        at = len(self.rungs)
        self.rungs.append(
            HalvingRung(
                group=f"{self.group}-{at}", members=tuple(members), until_epoch=self.epochs[at]
            )
        )

    def _runs(self) -> tuple[TrialAssignment, ...]:
        rung = self.rungs[-1]
        return tuple(
            TrialAssignment(trial=member, until_epoch=rung.until_epoch) for member in rung.members
        )

    def _decided(self) -> tuple[TrialAssignment, ...]:
        """Open the next rung, when this one is complete."""
        rung = self.rungs[-1]
        if not rung.complete or len(self.rungs) == len(self.epochs):
            return ()
        promoted = rung.best(max(1, len(rung.members) // self.eta), maximise=self.maximise)
        if not promoted:
            return ()
        self._open(sorted(promoted))
        return self._runs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """Trials of a bracket of Hyperband and the last epochs of its rungs."""

    trials: int
    epochs: tuple[int, ...]


def hyperband(most_epochs: int, eta: int = 3) -> tuple[Bracket, ...]:
    """The brackets, from many short trials to few long ones.

    Source: Li et al., Hyperband, JMLR 2018, algorithm 1: s = floor(log_eta R) down to 0,
    n = ceil((s_max + 1) eta^s / (s + 1)), r = R eta^-s. BOHB has the same ones.

    Args:
        most_epochs: R, the most epochs of a trial.
        eta: Factor between rungs.

    Raises:
        ValueError: the arguments make no bracket.
    """
    if most_epochs < 1 or eta < 2:
        raise ValueError("at least 1 epoch, and eta from 2 on")
    top = 0
    while eta ** (top + 1) <= most_epochs:
        top += 1
    return tuple(
        Bracket(
            trials=math.ceil((top + 1) * eta**s / (s + 1)),
            epochs=tuple(max(1, most_epochs // eta ** (s - at)) for at in range(s + 1)),
        )
        for s in range(top, -1, -1)
    )


def for_trials(shapes: Sequence[Bracket], trials: int) -> tuple[Bracket, ...]:
    """Brackets of exactly this many trials: the shapes in turn, repeated while trials remain.

    The last one is cut where trials run out.

    Args:
        shapes: Result of :func:`hyperband`.
        trials: Of all brackets together.

    Raises:
        ValueError: there is no shape or no trial.
    """
    if not shapes or trials < 1:
        raise ValueError("at least one bracket and one trial")
    brackets: list[Bracket] = []
    while trials:
        shape = shapes[len(brackets) % len(shapes)]
        brackets.append(Bracket(trials=min(trials, shape.trials), epochs=shape.epochs))
        trials -= brackets[-1].trials
    return tuple(brackets)


@dataclass(slots=True, kw_only=True)
class Brackets:
    """Brackets of successive halving side by side, as in Hyperband; each decides for its trials.

    Raises:
        ValueError: a trial is in two brackets.
    """

    brackets: tuple[SyncHalving, ...]
    _bracket: dict[int, SyncHalving] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for bracket in self.brackets:
            if not self._bracket.keys().isdisjoint(bracket.members):
                raise ValueError("a trial is in one bracket")
            self._bracket.update(dict.fromkeys(bracket.members, bracket))

    @property
    def members(self) -> tuple[int, ...]:
        """Trials of all brackets."""
        return tuple(self._bracket)

    @property
    def rungs(self) -> tuple[HalvingRung, ...]:
        """Rungs of all brackets, one bracket after the other."""
        return tuple(rung for bracket in self.brackets for rung in bracket.rungs)

    def first(self) -> tuple[TrialAssignment, ...]:
        """The first rung of each."""
        return tuple(run for bracket in self.brackets for run in bracket.first())

    def report(self, trial: int, epoch: int, value: float | None) -> Reported:
        """Record a report; see :class:`SearchAlgorithm`."""
        if trial not in self._bracket:
            return Reported(problem=ReportProblem.UNKNOWN_TRIAL)
        return self._bracket[trial].report(trial, epoch, value)

    def ended(self, trial: int) -> tuple[TrialAssignment, ...]:
        """Settle a trial; see :class:`SearchAlgorithm`."""
        return self._bracket[trial].ended(trial) if trial in self._bracket else ()


def in_brackets(shapes: Sequence[Bracket], eta: int = 3, *, maximise: bool = True) -> Brackets:
    """Brackets with trials from 0 on.

    Args:
        shapes: Result of :func:`hyperband`.
        eta: Factor between rungs.
        maximise: The largest value is the best.
    """
    brackets, begin = [], 0
    for at, shape in enumerate(shapes):
        brackets.append(
            SyncHalving(
                members=tuple(range(begin, begin + shape.trials)),
                epochs=shape.epochs,
                eta=eta,
                maximise=maximise,
                group=f"bracket-{at}",
            )
        )
        begin += shape.trials
    return Brackets(brackets=tuple(brackets))


@dataclass(slots=True, kw_only=True)
class AsyncHalving:
    """ASHA: a trial is promoted as soon as it is among the best seen by its rung.

    The pending trials of a rung are a group. Source: Li et al., MLSys 2020, algorithm 2.

    Raises:
        ValueError: there is no trial, one appears twice, or budgets do not rise.
    """

    members: tuple[int, ...]
    epochs: tuple[int, ...]
    eta: int = 3
    maximise: bool = True
    history: MetricHistory = field(default_factory=MetricHistory)
    rungs: list[HalvingRung] = field(init=False, default_factory=list)
    _ranked: list[list[tuple[float, int]]] = field(init=False, repr=False, default_factory=list)
    """Value and number of the reported trials of each rung, the best first."""

    def __post_init__(self) -> None:
        _check(self.members, self.epochs, self.eta)
        self.rungs = [
            HalvingRung(group=f"rung-{at}", members=() if at else self.members, until_epoch=epoch)
            for at, epoch in enumerate(self.epochs)
        ]
        self._ranked = [[] for _ in self.rungs]

    def first(self) -> tuple[TrialAssignment, ...]:
        """All trials in the first rung."""
        return tuple(
            TrialAssignment(trial=trial, until_epoch=self.epochs[0]) for trial in self.members
        )

    def report(self, trial: int, epoch: int, value: float | None) -> Reported:
        """Record a report; see :class:`SearchAlgorithm`."""
        if not self.rungs[0].holds(trial):
            return Reported(problem=ReportProblem.UNKNOWN_TRIAL)
        at = self._rung_of(trial)
        rung = self.rungs[at]
        before = len(rung.values)
        problem = rung.report(self.history, trial, epoch, value)
        if len(rung.values) == before:
            return Reported(problem=problem)
        sign = -1 if self.maximise else 1
        entry = (sign * rung.values[trial], trial)
        insort(self._ranked[at], entry)
        return Reported(problem=problem, runs=self._promoted(at, entry))

    def ended(self, trial: int) -> tuple[TrialAssignment, ...]:
        """Settle a trial; see :class:`SearchAlgorithm`."""
        if self.rungs[0].holds(trial):
            self.rungs[self._rung_of(trial)].settle(trial, None, ReportProblem.MISSING)
        return ()

    def _rung_of(self, trial: int) -> int:
        return max(at for at, rung in enumerate(self.rungs) if rung.holds(trial))

    def _promoted(self, at: int, entry: tuple[float, int]) -> tuple[TrialAssignment, ...]:
        """Trials that are promoted because of a new value.

        All of the best were promoted before it, so only itself or the last of the best is new.

        Args:
            at: Index of the rung.
            entry: The new value, as it is ranked.
        """
        ranked = self._ranked[at]
        best = len(ranked) // self.eta
        if at + 1 == len(self.rungs) or not best:
            return ()
        above, last = self.rungs[at + 1], ranked[best - 1]
        promoted = tuple(
            member for _, member in sorted({min(entry, last), last}) if not above.holds(member)
        )
        above.members += promoted
        return tuple(
            TrialAssignment(trial=member, until_epoch=above.until_epoch) for member in promoted
        )


@dataclass(slots=True, kw_only=True)
class StatedTrials:
    """Trials that run to epochs set by an external client: each is a group of its own.

    The client adds an epoch when it continues a trial.

    Raises:
        ValueError: a trial has no epoch, or its epochs do not rise.
    """

    epochs: Mapping[int, tuple[int, ...]]
    history: MetricHistory = field(default_factory=MetricHistory)
    _rungs: dict[int, list[HalvingRung]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for trial, epochs in self.epochs.items():
            _check((trial,), epochs, 2)
            self._open(trial)

    @property
    def members(self) -> tuple[int, ...]:
        """Trials of the client."""
        return tuple(self.epochs)

    @property
    def rungs(self) -> tuple[HalvingRung, ...]:
        """Rungs of all trials, one trial after the other."""
        return tuple(rung for rungs in self._rungs.values() for rung in rungs)

    def by_epoch(self) -> tuple[HalvingRung, ...]:
        """The rungs with trials of one epoch together, for display."""
        by_epoch: dict[int, list[HalvingRung]] = {}
        for rung in self.rungs:
            by_epoch.setdefault(rung.until_epoch, []).append(rung)
        return tuple(
            HalvingRung(
                group=f"epoch-{epoch}",
                members=tuple(trial for rung in rungs for trial in rung.members),
                until_epoch=epoch,
                values={trial: value for rung in rungs for trial, value in rung.values.items()},
                problems={trial: why for rung in rungs for trial, why in rung.problems.items()},
            )
            for epoch, rungs in sorted(by_epoch.items())
        )

    def first(self) -> tuple[TrialAssignment, ...]:
        """Run each trial to its first epoch."""
        return tuple(
            TrialAssignment(trial=trial, until_epoch=epochs[0])
            for trial, epochs in self.epochs.items()
        )

    def report(self, trial: int, epoch: int, value: float | None) -> Reported:
        """Record a report; see :class:`SearchAlgorithm`."""
        if trial not in self._rungs:
            return Reported(problem=ReportProblem.UNKNOWN_TRIAL)
        rung = self._rungs[trial][-1]
        problem = rung.report(self.history, trial, epoch, value)
        further = rung.values and len(self._rungs[trial]) < len(self.epochs[trial])
        if not further:
            return Reported(problem=problem)
        until = self._open(trial).until_epoch
        return Reported(problem=problem, runs=(TrialAssignment(trial=trial, until_epoch=until),))

    def ended(self, trial: int) -> tuple[TrialAssignment, ...]:
        """Settle a trial; see :class:`SearchAlgorithm`."""
        if trial in self._rungs:
            self._rungs[trial][-1].settle(trial, None, ReportProblem.MISSING)
        return ()

    def _open(self, trial: int) -> HalvingRung:
        rungs = self._rungs.setdefault(trial, [])
        at = len(rungs)
        group = f"trial-{trial}-{at}"
        rungs.append(HalvingRung(group=group, members=(trial,), until_epoch=self.epochs[trial][at]))
        return rungs[-1]


def families_of(algorithm: SearchAlgorithm) -> tuple[tuple[HalvingRung, ...], ...]:
    """The rungs of an algorithm, first to last; trials move within one family of them."""
    if isinstance(algorithm, Brackets):
        return tuple(tuple(bracket.rungs) for bracket in algorithm.brackets)
    if isinstance(algorithm, StatedTrials):
        return tuple((rung,) for rung in algorithm.by_epoch())
    return (tuple(algorithm.rungs),)
