# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Simulates trials under a planner in virtual time: starts, resizes, losses, reports by epoch.

The planner sees measured curves; only the simulated devices have the true ones. A resize takes its
cost, during which the trial does nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from ullage.engines.tuning.records import (
    PlannedTrial,
    Planner,
    PlanRules,
    Resize,
    TrialAssignment,
    TrialDevice,
    TrialHolding,
    TrialStart,
)
from ullage.engines.tuning.rungs import SearchAlgorithm
from ullage.engines.tuning.speed_curves import SpeedCurve, concave

Metric = Callable[[int, int], float | None]
"""Metric of a trial at the end of an epoch."""
AT_ONCE_S: Final = 1e-9
"""Events closer than this are simultaneous."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFacts:
    """True values of a trial: seconds of an epoch at width 1, its speeds, its resizes.

    ``epochs`` is its length without an algorithm; ``believed`` the curve that the planner sees, by
    default the concave hull of the true one; ``checkpoint_epochs`` the number of epochs between
    checkpoints that a loss returns to, 0 for none.
    """

    number: int
    epoch_s: float
    curve: SpeedCurve
    believed: SpeedCurve | None = None
    epochs: int = 1
    arrival_s: float = 0.0
    checkpoints: bool = True
    resize_cost_s: float = 0.0
    memory_part: float = 0.0
    checkpoint_epochs: int = 1


class ChangeKind(StrEnum):
    """External event."""

    LOST = "lost"
    GAINED = "gained"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedChange:
    """Loss or gain of a device, or stop of a trial; ``number`` identifies it."""

    at_s: float
    kind: ChangeKind
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A trial held a width for a while; ``cost_s`` of it was its resize or restart."""

    trial: int
    start_s: float
    end_s: float
    size: int
    devices: tuple[int, ...]
    cost_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedTrials:
    """Results of the trials.

    ``ends_s`` by ended trial; ``stuck`` those that never could; ``reports`` in their order.
    """

    segments: tuple[Segment, ...]
    ends_s: Mapping[int, float]
    resizes: int
    plans: int
    reports: tuple[tuple[int, int], ...]
    stuck: tuple[int, ...]

    @property
    def makespan_s(self) -> float:
        """The latest end."""
        return max(self.ends_s.values(), default=0.0)

    def useful_fraction(self, devices: int, parts: int) -> float:
        """The fraction of all device time until the last end in which trials did work."""
        held = sum((s.end_s - s.start_s - s.cost_s) * s.size / parts for s in self.segments)
        return held / max(devices * self.makespan_s, AT_ONCE_S)


@dataclass(slots=True, kw_only=True)
class _TrialState:
    """A simulated trial; progress in epochs."""

    facts: TrialFacts
    seen: SpeedCurve
    until: int
    done: float = 0.0
    reported: int = 0
    running: bool = False
    size: int = 0
    place: int = 0
    devices: tuple[int, ...] = ()
    since_s: float = 0.0
    resumes_s: float = 0.0
    seen_s: float = 0.0
    version: int = 0
    started: bool = False
    active: bool = False


@dataclass(slots=True, kw_only=True)
class _Game:
    facts: Mapping[int, TrialFacts]
    planner: Planner
    rules: PlanRules
    devices: dict[int, TrialDevice]
    algorithm: SearchAlgorithm | None
    metric: Metric
    now_s: float = 0.0
    states: dict[int, _TrialState] = field(default_factory=dict)
    waiting_order: dict[int, None] = field(default_factory=dict)
    events: list[tuple[float, int, int, int]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    ends: dict[int, float] = field(default_factory=dict)
    reports: list[tuple[int, int]] = field(default_factory=list)
    resizes: int = 0
    plans: int = 0
    spare: dict[int, TrialDevice] = field(default_factory=dict)

    def assign(self, assignments: Sequence[TrialAssignment]) -> None:
        """Start trials, or continue them to a later epoch."""
        for assignment in assignments:
            state = self.states.get(assignment.trial)
            if state is None:
                facts = self.facts[assignment.trial]
                seen = facts.believed or concave(self.rules.widths, facts.curve)
                state = _TrialState(facts=facts, seen=seen, until=assignment.until_epoch)
                self.states[assignment.trial] = state
            state.until = max(state.until, assignment.until_epoch)
            if state.done < state.until:
                state.active = True
                self.waiting_order[assignment.trial] = None
                self.ends.pop(assignment.trial, None)

    def advance(self, state: _TrialState) -> None:
        """Update progress to now."""
        begin = max(state.seen_s, state.resumes_s)
        if state.running and self.now_s > begin:
            speed = state.facts.curve.speeds[state.place]
            state.done += (self.now_s - begin) * speed / state.facts.epoch_s
        state.seen_s = self.now_s

    def schedule(self, number: int) -> None:
        """The end of the running epoch."""
        state = self.states[number]
        state.version += 1
        next_epoch = min(state.until, int(state.done + 1e-9) + 1)
        speed = state.facts.curve.speeds[state.place]
        left_s = max(0.0, next_epoch - state.done) * state.facts.epoch_s / speed
        at_s = max(self.now_s, state.resumes_s) + left_s
        heapq.heappush(self.events, (at_s, 1, number, state.version))

    def release(self, number: int) -> None:
        """Release the devices of a trial."""
        state = self.states[number]
        if not state.running:
            return
        self.close(number)
        state.running, state.size, state.devices = False, 0, ()
        state.version += 1

    def close(self, number: int) -> None:
        """End the segment of a running trial."""
        state = self.states[number]
        if self.now_s > state.since_s:
            cost = min(self.now_s, max(state.resumes_s, state.since_s)) - state.since_s
            self.segments.append(
                Segment(
                    trial=number,
                    start_s=state.since_s,
                    end_s=self.now_s,
                    size=state.size,
                    devices=state.devices,
                    cost_s=cost,
                )
            )

    def finish(self, number: int) -> None:
        """Stop a trial that has nothing to run, for now or permanently."""
        self.release(number)
        self.states[number].active = False
        self.waiting_order.pop(number, None)
        self.ends[number] = self.now_s

    def epoch_ended(self, number: int) -> bool:
        """Report the epoch that ended; true when the trial releases its devices."""
        state = self.states[number]
        self.advance(state)
        epoch = round(state.done)
        state.done = float(epoch)
        self.reports.append((number, epoch))
        answered: Sequence[TrialAssignment] = ()
        if epoch >= state.until:
            self.finish(number)
        if self.algorithm is not None:
            answered = self.algorithm.report(number, epoch, self.metric(number, epoch)).runs
            self.assign(answered)
        if state.running:
            self.schedule(number)
        return epoch >= state.until or bool(answered) or not state.active

    def lose(self, number: int) -> None:
        """Remove a device; its trial returns to its last checkpoint and waits."""
        device = self.devices.pop(number, None)
        if device is None:
            return
        self.spare[number] = device
        for trial, state in self.states.items():
            if state.running and number in state.devices:
                self.advance(state)
                self.release(trial)
                every = state.facts.checkpoint_epochs if state.facts.checkpoints else 0
                state.done = float(int(state.done) // every * every) if every else 0.0

    def change(self, change: SimulatedChange) -> None:
        """Apply an external event."""
        if change.kind is ChangeKind.LOST:
            self.lose(change.number)
        elif change.kind is ChangeKind.GAINED:
            self.devices[change.number] = self.spare.pop(
                change.number, TrialDevice(number=change.number)
            )
        elif change.number in self.states and self.states[change.number].active:
            self.advance(self.states[change.number])
            self.finish(change.number)
            if self.algorithm is not None:
                self.assign(self.algorithm.ended(change.number))

    def trials(self) -> list[PlannedTrial]:
        """Trials as input of the planner."""
        trials = []
        for number in self.waiting_order:
            state = self.states[number]
            self.advance(state)
            facts = state.facts
            holding = None
            if state.running:
                holding = TrialHolding(
                    size=state.size, devices=state.devices, since_s=state.since_s
                )
            trials.append(
                PlannedTrial(
                    number=number,
                    work_s=max(0.0, state.until - state.done) * facts.epoch_s,
                    curve=state.seen,
                    checkpoints=facts.checkpoints,
                    resize_cost_s=facts.resize_cost_s,
                    memory_part=facts.memory_part,
                    holding=holding,
                )
            )
        return trials

    def replan(self) -> None:
        """Call the planner and apply its plan."""
        self.plans += 1
        trials = self.trials()
        plan = self.planner(trials, tuple(self.devices.values()), self.rules, self.now_s)
        for resize in plan.resizes:
            self.close(resize.trial)
        given: list[Resize | TrialStart] = [*plan.resizes, *plan.starts]
        for action in given:
            state = self.states[action.trial]
            again = state.running or (state.started and state.done > 0)
            self.resizes += state.running
            state.running, state.started = True, True
            state.size, state.devices = action.size, action.devices
            state.place = self.rules.widths.sizes.index(action.size)
            state.since_s = self.now_s
            state.resumes_s = self.now_s + (state.facts.resize_cost_s if again else 0.0)
            self.schedule(action.trial)


def play(
    facts: Sequence[TrialFacts],
    planner: Planner,
    rules: PlanRules,
    devices: Sequence[TrialDevice],
    *,
    algorithm: SearchAlgorithm | None = None,
    metric: Metric = lambda _trial, _epoch: None,
    changes: Sequence[SimulatedChange] = (),
) -> PlayedTrials:
    """Simulate trials to their end.

    Args:
        facts: All trials, including those that an algorithm starts later.
        planner: Decides widths and devices.
        rules: Of the planner.
        devices: Initial devices.
        algorithm: Decides which trials continue; without one all run to their last epoch.
        metric: Metric of the trials.
        changes: External events.
    """
    game = _Game(
        facts={trial.number: trial for trial in facts},
        planner=planner,
        rules=rules,
        devices={device.number: device for device in devices},
        algorithm=algorithm,
        metric=metric,
    )
    outside: list[tuple[float, SimulatedChange | TrialAssignment]] = [
        (change.at_s, change) for change in changes
    ]
    if game.algorithm is not None:
        outside += [(0.0, assignment) for assignment in game.algorithm.first()]
    else:
        outside += [
            (trial.arrival_s, TrialAssignment(trial=trial.number, until_epoch=trial.epochs))
            for trial in facts
        ]
    for at, (when, _) in enumerate(outside):
        heapq.heappush(game.events, (when, 0, at, 0))
    while game.events:
        _step(game, outside)
    return PlayedTrials(
        segments=tuple(game.segments),
        ends_s=dict(game.ends),
        resizes=game.resizes,
        plans=game.plans,
        reports=tuple(game.reports),
        stuck=tuple(sorted(game.waiting_order)),
    )


def _step(game: _Game, outside: Sequence[tuple[float, SimulatedChange | TrialAssignment]]) -> None:
    """Process all simultaneous events, then plan once if they require it."""
    game.now_s = game.events[0][0]
    ask = False
    while game.events and game.events[0][0] <= game.now_s + AT_ONCE_S:
        _, kind, number, version = heapq.heappop(game.events)
        if kind == 0:
            event = outside[number][1]
            if isinstance(event, SimulatedChange):
                game.change(event)
            else:
                game.assign([event])
            ask = True
        elif game.states[number].version == version:
            ask |= game.epoch_ended(number)
    if ask and game.waiting_order:
        game.replan()
