# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tracks the node's devices: which exist, their health, and why none is found.

The only caller of a backend's probe. A backend that cannot work is retried for ever and its reason
is kept for the status; a device once seen stays listed, so that slices on a lost device are
reported and not forgotten.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from ullage.api.checks import MAX_CHECKS, CheckState, NodeCheck
from ullage.api.devices import Backend, MpsState, ObservedDevice
from ullage.api.reasons import Reason
from ullage_node.health import HealthChange, HealthTracker
from ullage_node.model.devices import BackendUnavailable, DeviceProbe, FaultReading, ShareDriver
from ullage_node.model.slices import NodeDevice, SliceRefusal
from ullage_node.settings import PeriodSettings
from ullage_node.status import effective
from ullage_node.times import PROBE_S

UNSERVED: Final = frozenset({MpsState.FAULT, MpsState.DOWN, MpsState.UNKNOWN})
"""States of an MPS server in which its device is not granted; one that starts will serve soon."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class DeviceWatch:
    """Probes the devices and applies hysteresis."""

    def __init__(
        self,
        probe: DeviceProbe,
        driver: ShareDriver,
        tracker: HealthTracker,
        rhythm: PeriodSettings,
    ) -> None:
        self._probe = probe
        self._driver = driver
        self._tracker = tracker
        self._rhythm = rhythm
        self._devices: dict[str, ObservedDevice] = {}
        self._opened = False
        self._discovered_at = -rhythm.discover_seconds
        self._retry = asyncio.Event()
        self.paused = False
        """Leave the devices alone."""
        self._problems: Mapping[str, str] = {}
        self._unserved: dict[str, SliceRefusal] = {}
        self.faults: Counter[str] = Counter()
        """Times that a device's MPS server stopped serving."""
        self.problem: SliceRefusal | None = None
        """The reason why the backend cannot work, if any."""
        self.on_faults: Callable[[FaultReading, float], None] = lambda reading, wall: None
        """Called in every round with the faults that the driver reported, and the time."""
        self.on_change: Callable[[tuple[HealthChange, ...]], None] = lambda changes: None
        """Called after every round with the devices whose health changed."""

    @property
    def known(self) -> bool:
        """True once the devices were found."""
        return bool(self._devices)

    @property
    def observed(self) -> tuple[ObservedDevice, ...]:
        """All devices with their health after hysteresis."""
        return tuple(
            effective(device, self._refusal(uuid)) for uuid, device in sorted(self._devices.items())
        )

    @property
    def quarantine(self) -> Mapping[str, float]:
        """Devices that are not trusted, for the checkpoint."""
        return self._tracker.quarantine

    @property
    def problems(self) -> Mapping[str, str]:
        """Obstacles to the best way of sharing devices, by uuid."""
        return self._problems

    @property
    def checks(self) -> tuple[NodeCheck, ...]:
        """The check that devices exist, and those of their backend."""
        if self.problem is not None:
            remedy = f"see kubectl ullage explain {self.problem.reason.value}"
            check = NodeCheck(
                name="Devices",
                state=CheckState.FAILED,
                message=self.problem.message,
                remedy=remedy,
            )
        elif self._devices:
            models = sorted({device.model for device in self._devices.values()})
            check = NodeCheck(name="Devices", state=CheckState.OK, message=", ".join(models))
        else:
            check = NodeCheck(
                name="Devices", state=CheckState.UNCONFIRMED, message="not checked yet"
            )
        return (check, *(self._driver.checks() if self._devices else ()))[:MAX_CHECKS]

    @property
    def lost(self) -> tuple[str, ...]:
        """Devices that are gone."""
        return tuple(
            uuid
            for uuid in sorted(self._devices)
            if (refusal := self._tracker.refusal(uuid)) and refusal.reason is Reason.DEVICE_LOST
        )

    def devices(self, max_sharers: int) -> tuple[NodeDevice, ...]:
        """The devices as the invariants see them."""
        return tuple(
            NodeDevice(
                uuid=uuid,
                memory_mib=device.memory_mib,
                contexts=min(device.contexts, max_sharers),
                context_limit=device.contexts if device.mps else 0,
                contexts_used=device.mps.contexts if device.mps else 0,
                equal_turns=device.backend is Backend.TIME_SLICE,
                overhead_mib=self._driver.context_overhead_mib(uuid),
                refusal=self._refusal(uuid),
            )
            for uuid, device in sorted(self._devices.items())
        )

    def reopen(self) -> None:
        """Resume, and reopen the backend at once, after it was cleaned off the node."""
        self.paused = False
        self._opened = False
        self._discovered_at = -self._rhythm.discover_seconds
        self._retry.set()

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                if not self.paused:
                    changes = await self.run_once(now=time.monotonic(), wall=time.time())
                    self.on_change(changes)
                self._retry.clear()
                try:
                    async with asyncio.timeout(self._rhythm.probe_seconds):
                        await self._retry.wait()
                except TimeoutError:
                    continue
        finally:
            self._opened = False
            await self._probe.close()

    async def run_once(self, *, now: float, wall: float) -> tuple[HealthChange, ...]:
        """One round: open and discover when due, then probe."""
        try:
            async with asyncio.timeout(PROBE_S):
                await self._discover(now)
            self._set_problem(None)
        except BackendUnavailable as error:
            self._opened = False
            self._set_problem(SliceRefusal(reason=error.reason, message=error.message))
        except TimeoutError:
            message = f"the devices did not answer within {PROBE_S:.0f} s"
            self._set_problem(SliceRefusal(reason=Reason.DEVICE_UNHEALTHY, message=message))
        if not self._devices:
            return ()
        changes = await self._judge(now, wall)
        self.on_faults(self._probe.take_faults(), wall)
        return (*changes, *self._judge_servers())

    async def _discover(self, now: float) -> None:
        if not self._opened:
            await self._probe.start()
            self._opened = True
        due = now - self._discovered_at >= self._rhythm.discover_seconds
        if self.problem or due or self._probe.problems() != self._problems:
            discovered = {device.uuid: device for device in await self._probe.discover()}
            self._discovered_at = now
            if discovered.keys() - self._devices.keys():
                _log.info("devices", uuids=sorted(discovered))
            self._devices = discovered
            self._problems = dict(self._probe.problems())

    async def _judge(self, now: float, wall: float) -> tuple[HealthChange, ...]:
        try:
            async with asyncio.timeout(PROBE_S):
                readings = await self._probe.health()
        except TimeoutError:
            return ()
        changes = self._tracker.take(readings, now=now, wall=wall)
        for change in changes:
            why = change.refusal.message if change.refusal else "healthy again"
            _log.warning("device health", uuid=change.uuid, why=why)
        return changes

    def _judge_servers(self) -> tuple[HealthChange, ...]:
        """Devices whose server stopped or resumed serving: at once, without other devices."""
        before = self._unserved
        self._unserved = {
            uuid: SliceRefusal(
                reason=Reason.MPS_NOT_READY,
                message=f"{uuid}: {self._problems.get(uuid, 'its MPS server does not serve')}",
            )
            for uuid, device in self._devices.items()
            if device.mps is not None and device.mps.state in UNSERVED
        }
        self.faults.update(self._unserved.keys() - before.keys())
        turned = before.keys() ^ self._unserved.keys()
        return tuple(
            HealthChange(uuid=uuid, refusal=self._unserved.get(uuid)) for uuid in sorted(turned)
        )

    def _refusal(self, uuid: str) -> SliceRefusal | None:
        """The refusal of starts on a device: its own health first, then its server's."""
        return self._tracker.refusal(uuid) or self._unserved.get(uuid)

    def _set_problem(self, problem: SliceRefusal | None) -> None:
        if problem and problem != self.problem:
            _log.warning("backend unavailable", reason=problem.reason, problem=problem.message)
        self.problem = problem
