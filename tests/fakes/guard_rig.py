# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A guard on virtual time: windows that a test speaks, a freezer that a test breaks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from prometheus_client import CollectorRegistry

from fakes.clock import FakeClock
from ullage.api.observations import Observation
from ullage_node.events import AgentEvent
from ullage_node.guard.guard import Guard, GuardDependencies
from ullage_node.guard.metrics import GuardMetrics
from ullage_node.guard.protocol import FreezeTarget
from ullage_node.model.devices import ContainerKey
from ullage_node.model.guard import GuardSubject, GuardTenant, ObjectiveWindow

GPU = "gpu-0"


def key_of(name: str) -> ContainerKey:
    return ContainerKey(pod_uid=f"uid-{name}", container="main")


def a_tenant(name: str, *, gpus: tuple[str, ...] = (GPU,), **change: object) -> GuardTenant:
    """A best-effort tenant unless said otherwise."""
    base = GuardTenant(
        key=key_of(name),
        namespace="team",
        pod=name,
        gpus=gpus,
        percent=40,
        epoch=1,
        workload_class=f"class-{name}",
        pids=(4711,),
    )
    return replace(base, **change)  # type: ignore[arg-type]


VICTIM = a_tenant("victim", protected=True, max_slowdown_percent=130)


def a_window(
    name: str, ratio: float, begin_s: float, at_s: float, *, step_micros: int = 50_000
) -> ObjectiveWindow:
    return ObjectiveWindow(
        key=key_of(name),
        begin_s=begin_s,
        at_s=at_s,
        ratio=ratio,
        step_micros=step_micros if ratio else 0,
        solo_micros=20_000,
    )


@dataclass
class SpokenWindows:
    """Windows of a second in which every tenant is as the test says."""

    ratios: dict[str, float] = field(default_factory=dict)
    seconds: float = 1.0
    cuts: list[tuple[str, float]] = field(default_factory=list)
    _begun: dict[ContainerKey, float] = field(default_factory=dict)

    def next(self, subjects: tuple[GuardSubject, ...], now: float) -> tuple[ObjectiveWindow, ...]:
        found = []
        for subject in subjects:
            name = subject.key.pod_uid.removeprefix("uid-")
            begun = self._begun.setdefault(subject.key, now)
            if now - begun >= self.seconds:
                found.append(a_window(name, self.ratios.get(name, 0.0), begun, now))
                self._begun[subject.key] = now
        return tuple(found)

    def cut(self, key: ContainerKey, now: float) -> None:
        self._begun[key] = now
        self.cuts.append((key.pod_uid, now))


@dataclass
class FakeFreezer:
    """Remembers who stands still; ``problem`` makes every call fail."""

    problem: str = ""
    takes_seconds: float = 0.003
    frozen: dict[ContainerKey, float] = field(default_factory=dict)
    log: list[tuple[str, tuple[ContainerKey, ...]]] = field(default_factory=list)
    beats: int = 0
    clock: FakeClock = field(default_factory=FakeClock)

    async def freeze(self, targets: Iterable[FreezeTarget], limit_seconds: float, why: str) -> str:
        keys = tuple(target.key for target in targets)
        self.log.append(("freeze", keys))
        self.clock.advance(self.takes_seconds)
        if not self.problem:
            self.frozen |= dict.fromkeys(keys, limit_seconds)
        return self.problem

    async def thaw(self, targets: Iterable[FreezeTarget]) -> str:
        keys = tuple(target.key for target in targets)
        self.log.append(("thaw", keys))
        for key in keys:
            self.frozen.pop(key, None)
        return self.problem

    async def stand_still(self, target: FreezeTarget, seconds: float, why: str) -> str:
        self.log.append(("stand still", (target.key,)))
        return self.problem

    async def beat(self) -> str:
        self.beats += 1
        return self.problem

    def close(self) -> None:
        self.frozen.clear()


@dataclass
class GuardRig:
    """The guard, its tenants and everything it says, on one clock."""

    tenants: list[GuardTenant] = field(default_factory=lambda: [VICTIM, a_tenant("noise")])
    clock: FakeClock = field(default_factory=FakeClock)
    windows: SpokenWindows = field(default_factory=SpokenWindows)
    learned: list[Observation] = field(default_factory=list)
    events: list[AgentEvent] = field(default_factory=list)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    changes: int = 0

    def __post_init__(self) -> None:
        self.freezer = FakeFreezer(clock=self.clock)
        self.guard = Guard(
            around=GuardDependencies(
                tenants=lambda: tuple(self.tenants),
                subjects=lambda: tuple(
                    GuardSubject(key=one.key, max_slowdown_percent=130, solo_micros=20_000)
                    for one in self.tenants
                    if one.protected
                ),
                windows=self.windows,
                freezer=self.freezer,
                learn=self.learned.append,
                metrics=GuardMetrics(self.registry),
                model_of=lambda gpu: "emulated",
                say=self._say,
                clock=self.clock.monotonic,
                wall=self.clock.now,
            ),
            on_change=self._changed,
        )

    def _say(self, event: AgentEvent) -> bool:
        self.events.append(event)
        return True

    def _changed(self) -> None:
        self.changes += 1

    async def pass_time(self, seconds: float) -> None:
        """Let the guard look four times a second for so long."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            await self.guard.look()
            self.clock.advance(0.25)

    def counted(self, result: str) -> float:
        found = self.registry.get_sample_value("ullage_guard_freezes_total", {"result": result})
        assert found is not None
        return found

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.events]
