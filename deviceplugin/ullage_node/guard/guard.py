# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The guard inside the agent: reads windows, feeds the state machine, executes its actions.

One task owns everything here. It needs neither the operator nor the API server: it works from the
last known book. Without a freezer only pausing is lost.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from ullage.api.observations import Observation
from ullage_node.events import AgentEvent, EventSubject
from ullage_node.guard.client import FreezerClient
from ullage_node.guard.learning import observations
from ullage_node.guard.machine import GuardMachine
from ullage_node.guard.metrics import GuardMetrics
from ullage_node.guard.protocol import FreezeTarget
from ullage_node.model.devices import ContainerKey
from ullage_node.model.guard import (
    Action,
    Cut,
    Ended,
    Freeze,
    GuardTenant,
    PauseObservation,
    SliceMark,
    Tell,
    Thaw,
    Windows,
    WindowTally,
    WindowVerdict,
)
from ullage_node.model.guard import GuardSubject as Watched
from ullage_node.times import (
    GUARD_HEARTBEAT_S,
    GUARD_RECONNECT_S,
    GUARD_REST_S,
    GUARD_STILL_S,
    WINDOWS_LOOK_S,
)

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardDependencies:
    """Dependencies of the guard."""

    tenants: Callable[[], tuple[GuardTenant, ...]]
    """The current tenants of the devices."""
    subjects: Callable[[], tuple[Watched, ...]]
    """Those with an objective."""
    windows: Windows
    freezer: FreezerClient
    learn: Callable[[Observation], None]
    """Stores observations of a pause; never waits and never fails."""
    metrics: GuardMetrics
    model_of: Callable[[str], str]
    """Accelerator key of a device."""
    say: Callable[[AgentEvent], bool]
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time


@dataclass(slots=True)
class Guard:
    """The task and its reports."""

    around: GuardDependencies
    machine: GuardMachine = field(default_factory=GuardMachine)
    on_change: Callable[[], None] = lambda: None
    _tenants: dict[ContainerKey, GuardTenant] = field(default_factory=dict)
    _marks: Mapping[ContainerKey, SliceMark] = field(default_factory=dict)
    _beat_due: float = 0.0
    _busy: bool = False
    _active_at: float = -math.inf
    """Last time at which a window held steps or requests."""

    @property
    def pause_s(self) -> float:
        """Time until the next look: longer while no objective can break and no one is frozen."""
        return WINDOWS_LOOK_S if self._busy else GUARD_REST_S

    @property
    def marks(self) -> Mapping[ContainerKey, SliceMark]:
        """The guard's additions to each tenant's status."""
        return self._marks

    @property
    def tallies(self) -> Mapping[ContainerKey, WindowTally]:
        """The counted windows of each tenant."""
        return self.machine.tallies

    async def run(self) -> None:
        """Work until cancelled; the freezer thaws all containers when it loses the agent."""
        try:
            while True:
                await self.look()
                await asyncio.sleep(self.pause_s)
        finally:
            self.around.freezer.close()

    async def stand_still(self, key: ContainerKey, pids: tuple[int, ...], seconds: float) -> str:
        """Stop a container while its memory is moved off or onto its device; "" = it was stopped.

        Args:
            key: The container.
            pids: Its processes, by host PID.
            seconds: Duration.
        """
        if key in self.machine.frozen:  # already frozen, and runs again when its pause is over
            await asyncio.sleep(seconds)
            return ""
        target = FreezeTarget(key=key, pids=pids)
        return await self.around.freezer.stand_still(target, seconds, "its memory moves")

    async def look(self) -> None:
        """Process all events since the last call, and act on them."""
        around = self.around
        self._tenants = {tenant.key: tenant for tenant in around.tenants()}
        await self._do(self.machine.see(self._tenants.values(), around.clock()))
        subjects = around.subjects()
        for window in around.windows.next(subjects, around.clock()):
            around.metrics.windows.labels(window.verdict.value).inc()
            if window.verdict is not WindowVerdict.NO_DATA:
                self._active_at = around.clock()
            await self._do(self.machine.window(window, around.clock()))
        await self._do(self.machine.tick(around.clock()))
        await self._beat()
        self._publish()
        active = around.clock() - self._active_at < GUARD_STILL_S
        self._busy = bool(self.machine.frozen or (subjects and active))

    async def _beat(self) -> None:
        now = self.around.clock()
        if now < self._beat_due:
            return
        problem = await self.around.freezer.beat()
        self.around.metrics.reachable.set(0.0 if problem else 1.0)
        self._beat_due = now + (GUARD_RECONNECT_S if problem else GUARD_HEARTBEAT_S)
        if problem and self.machine.frozen:
            await self._do(self.machine.lost(problem, self.around.clock()))

    def _publish(self) -> None:
        self.around.metrics.frozen.set(len(self.machine.frozen))
        marks = self.machine.marks
        if marks != self._marks:
            self._marks = marks
            self.on_change()

    async def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Freeze():
                    await self._freeze(action)
                case Thaw():
                    targets = [FreezeTarget(key=key) for key in action.keys]
                    if problem := await self.around.freezer.thaw(targets):
                        # They stay in the journal: the freezer thaws them when their time is up.
                        _log.warning("not thawed", problem=problem)
                case Cut():
                    self.around.windows.cut(action.key, self.around.clock())
                case Tell():
                    self._tell(action)
                case Ended():
                    self.around.metrics.freezes.labels(action.result.value).inc()
                    if action.seconds:
                        self.around.metrics.seconds.observe(action.seconds)
                    _log.info("pause over", result=action.result.value, seconds=action.seconds)
                case PauseObservation():
                    model = self.around.model_of(action.victim.gpus[0])
                    for observation in observations(action, model, self.around.wall()):
                        self.around.learn(observation)

    async def _freeze(self, action: Freeze) -> None:
        targets = [FreezeTarget(key=key, pids=self._tenants[key].pids) for key in action.keys]
        problem = await self.around.freezer.freeze(targets, action.limit_seconds, action.why)
        _log.info(
            "pause",
            containers=[key.directory for key in action.keys],
            why=action.why,
            problem=problem,
        )
        await self._do(self.machine.answered(action.pause, problem, self.around.clock()))

    def _tell(self, action: Tell) -> None:
        tenant = self._tenants.get(action.key)
        if tenant is None:
            return
        subject = EventSubject(namespace=tenant.namespace, name=tenant.pod, uid=tenant.key.pod_uid)
        self.around.say(
            AgentEvent(
                subject=subject,
                reason=action.reason.value,
                message=action.message,
                warning=action.warning,
            )
        )
        _log.info("guard", pod=tenant.name, reason=action.reason.value, message=action.message)
