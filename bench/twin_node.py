# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The agent of one node in virtual time: the product's guard, rows and book of observations.

Step records and the kernel are played: a container is stopped as soon as the guard asks for it.
Servers count the time of serving as steps; histograms of latency are not played, the guard is told
the latency that the queue gives at the slowdown.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bench.twin_data import QUANTILE, JobClass
from ullage.api.slices import DesiredSlice, SlicePhase
from ullage.cluster.records.node import GPUNodeRecord
from ullage.engines.admission.queue_map import latency_s
from ullage_node.guard.gather import tenants as guarded
from ullage_node.guard.learning import observations
from ullage_node.guard.machine import GuardMachine
from ullage_node.model.devices import Attachment, AttachState, ContainerKey, StepProgress
from ullage_node.model.guard import Action, Freeze, ObjectiveWindow, PauseObservation, Thaw
from ullage_node.model.samples import Samples
from ullage_node.model.slices import HeldSlice, Pod, container_of
from ullage_node.telemetry.learning import NodeSnapshot, ObservationLearner
from ullage_node.telemetry.observations import ObservationBook
from ullage_node.telemetry.tenants import tenants_of

WINDOW_S: Final = 5.0
_RUNS: Final = Attachment(state=AttachState.ENFORCED, pids=(1,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How one container did in one window."""

    desired: DesiredSlice
    workload_class: JobClass
    slowdown: float
    """Against running alone on the whole device; infinite while it stood still."""
    requests: int | None = None
    """Requests that were answered; ``None`` = they are not played one by one."""
    latency_s: float = 0.0
    """Of these at the objective's quantile."""


@dataclass(slots=True)
class Agent:
    """What one node knows and says."""

    name: str
    models: Mapping[str, str]
    """Accelerator of each device."""
    now: float = 0.0
    frozen: set[ContainerKey] = field(default_factory=set)
    guard: GuardMachine = field(default_factory=GuardMachine)
    book: ObservationBook = field(init=False)
    _learning: ObservationLearner = field(init=False)
    _progress: dict[ContainerKey, StepProgress] = field(default_factory=dict)
    _steps: dict[ContainerKey, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.book = ObservationBook(clock=lambda: self.now)
        self._learning = ObservationLearner(self.name, self.book, Samples())

    def window(self, ran: Sequence[Ran], now: float) -> bool:
        """Take in the window that ends now; whether the guard has something new to say."""
        self.now, before = now, self.guard.marks
        held = [HeldSlice(desired=one.desired, phase=SlicePhase.ATTACHED, seen=True) for one in ran]
        keys = [one.container for one in held]
        attached = dict.fromkeys(keys, _RUNS)
        self._progress = {key: self._progress.get(key, StepProgress()) for key in keys}
        self._steps = {key: self._steps.get(key, 0.0) for key in keys}
        pods = {one.desired.key.pod_uid: _pod(one.desired) for one in ran}
        self._do(self.guard.see(guarded(held, attached, pods), now))
        for key, one in zip(keys, ran, strict=True):
            steps = self._count(key, one)
            if steps:
                self._do(self.guard.window(_window(key, one, now), now))
        self._do(self.guard.tick(now))
        look = NodeSnapshot(
            now=now,
            wall=now,
            tenants=tenants_of(held, attached, self._progress, self.frozen),
            models=self.models,
        )
        self._learning.take(look)
        return self.guard.marks != before

    def report(self, record: GPUNodeRecord) -> GPUNodeRecord:
        """The node's object with what the agent says now."""
        self.book.taken_in(record.observations_read)
        marks, tallies = self.guard.marks, self.guard.tallies
        observed = []
        for part in record.observed:
            if part.phase.started:
                key = ContainerKey(pod_uid=part.key.pod_uid, container=part.key.container)
                mark, tally = marks.get(key), tallies.get(key)
                part = replace(
                    part,
                    phase=(mark.phase if mark else None) or SlicePhase.ATTACHED,
                    reason=mark.reason.value if mark else "",
                    message=mark.message if mark else "",
                    windows=tally.windows if tally else 0,
                    violations=tally.violations if tally else 0,
                )
            observed.append(part)
        return replace(record, observed=tuple(observed), observations=self.book.rows)

    def _count(self, key: ContainerKey, one: Ran) -> int:
        """Steps that ended in the window."""
        work, step_s = one.workload_class, one.workload_class.step_s * one.slowdown
        if one.requests is not None:
            return one.requests
        rate = work.serving.load.requests_per_s if work.serving else 1 / step_s
        if key in self.frozen:
            return 0
        self._steps[key] += rate * WINDOW_S
        made = self._progress[key]
        steps = int(self._steps[key]) - made.steps
        if steps:
            self._progress[key] = replace(
                made,
                steps=made.steps + steps,
                busy_ns=made.busy_ns + round(steps * step_s * 1e9),
                last_step_ns=round(self.now * 1e9),
            )
        return steps

    def _do(self, actions: Iterable[Action]) -> None:
        left = deque(actions)
        while left:
            match left.popleft():
                case Freeze() as freeze:
                    self.frozen |= set(freeze.keys)
                    left.extend(self.guard.answered(freeze.pause, "", self.now))
                case Thaw() as thaw:
                    self.frozen -= set(thaw.keys)
                case PauseObservation() as learned:
                    for row in observations(learned, self.models[learned.victim.gpus[0]], self.now):
                        self.book.take(row)
                case _:
                    pass


def _pod(desired: DesiredSlice) -> Pod:
    key = desired.key.pod_uid
    return Pod(uid=key, namespace=desired.pod_namespace, name=desired.pod_name, phase="Running")


def _window(key: ContainerKey, one: Ran, now: float) -> ObjectiveWindow:
    """What the guard sees of a container: its steps, of a server its latency."""
    work, serving = one.workload_class, one.workload_class.serving
    step_s = work.step_s * one.slowdown
    window = ObjectiveWindow(
        key=key,
        begin_s=now - WINDOW_S,
        at_s=now,
        ratio=one.slowdown * 100 / max(1, one.desired.max_slowdown_percent),
        step_micros=round(step_s * 1e6),
        solo_micros=round(work.step_s * 1e6),
    )
    if one.requests is not None and one.desired.slo is not None:
        ratio = one.latency_s * 1e3 / one.desired.slo.latency_ms
        return replace(window, ratio=min(ratio, 1e6))
    if serving is None:
        return window
    limit_s = serving.latency_ms / 1000
    latency = latency_s(one.slowdown, serving.service, serving.load, QUANTILE)
    return replace(window, ratio=min(latency / limit_s, 1e6))


def key_of(desired: DesiredSlice) -> ContainerKey:
    """The container that a slice is for."""
    return container_of(desired)
