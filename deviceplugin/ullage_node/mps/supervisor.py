# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the daemons of a node: exactly one for each device that the agent ordered.

The agent's last order stays in force while the agent is away: its restart disturbs no client. A
device with a foreign daemon is left alone and reported. Every device has its own task, so a hanging
daemon delays no other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace

import structlog

from ullage.api.devices import MpsState
from ullage_node.mps.control import control_for
from ullage_node.mps.daemon import Daemon, Launcher
from ullage_node.mps.places import Places, PlaceUnusable
from ullage_node.mps.probe import Processes, look_around
from ullage_node.mps.programs import ProgramRunner
from ullage_node.mps.records import Installed, MpsLimits, MpsReport, MpsServer, ServerOrder
from ullage_node.times import MPS_FIRST_S, MPS_FRESH_S, MPS_SURVEY_S

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class StillLooking(Exception):
    """The supervisor has just started and has no data yet."""


class MpsSupervisor:
    """Serves devices. ``look`` and the others may be called at any time, also concurrently."""

    def __init__(
        self, programs: ProgramRunner, places: Places, processes: Processes, launcher: Launcher
    ) -> None:
        self._programs = programs
        self._places = places
        self._processes = processes
        self._launcher = launcher
        self._driver = ""
        self._installed: Installed | None = None
        self._daemons: dict[str, tuple[Daemon, asyncio.Task[None]]] = {}
        self._refused: dict[str, MpsServer] = {}
        self._changing = asyncio.Lock()
        self._first: asyncio.Task[Installed] | None = None

    async def run(self) -> None:
        """Probe until cancelled; then end every daemon and remove its directory."""
        try:
            while True:
                await self._look_around()
                await asyncio.sleep(MPS_SURVEY_S)
        finally:
            await self.retire()

    async def look(
        self, orders: Sequence[ServerOrder] | None, fresh: Sequence[str] = (), driver: str = ""
    ) -> MpsReport:
        """Serve exactly these devices and report their state.

        Args:
            orders: all devices to serve from now on; ``None`` = as before.
            fresh: devices whose clients must be current.
            driver: version of the driver, as NVML reports it; "" = as before.

        Raises:
            StillLooking: the installation is not known yet; retry.
        """
        installed = await self._known(driver)
        async with self._changing:
            if orders is not None:
                await self._follow(orders, installed)
        wanted = [self._daemons[uuid][0] for uuid in set(fresh) & self._daemons.keys()]
        if wanted:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MPS_FRESH_S):
                    await asyncio.gather(*(daemon.refresh() for daemon in wanted))
        known = {uuid: self._seen(daemon) for uuid, (daemon, _) in self._daemons.items()}
        return MpsReport(installed=installed, servers=self._refused | known)

    def _seen(self, daemon: Daemon) -> MpsServer:
        """A daemon's server with the initial environments of its running clients."""
        server = daemon.server
        environments = [self._processes.environment(pid) for pid in server.clients or ()]
        return replace(
            server,
            environments=tuple(
                environment for environment in environments if environment is not None
            ),
        )

    async def terminate(self, uuid: str, pid: int) -> str:
        """Terminate one client of a device; "" = done, or not a client."""
        entry = self._daemons.get(uuid)
        return await entry[0].terminate(pid) if entry else ""

    async def limit(self, uuid: str, limits: MpsLimits) -> str:
        """Give a namespace its limits; "" = done."""
        entry = self._daemons.get(uuid)
        return await entry[0].limit(limits) if entry else f"{uuid} is not served"

    async def unlimit(self, uuid: str, name: str) -> str:
        """Remove a namespace; "" = done."""
        entry = self._daemons.get(uuid)
        return await entry[0].unlimit(name) if entry else ""

    async def retire(self) -> None:
        """End every daemon, clients first, and remove its files."""
        async with self._changing:
            await self._drop(list(self._daemons))
            self._refused.clear()

    async def _known(self, driver: str) -> Installed:
        """The installed MPS; the first probe may take longer than callers wait."""
        if driver and driver != self._driver:
            self._driver, self._installed, self._first = driver, None, None
        if self._installed is None:
            if self._first is None or self._first.done():
                self._first = asyncio.create_task(self._look_around())
            await asyncio.wait({self._first}, timeout=MPS_FIRST_S)
        if self._installed is None:
            raise StillLooking("the MPS supervisor still looks at what is installed")
        return self._installed

    async def _look_around(self) -> Installed:
        driver = self._driver
        installed = await look_around(self._programs, self._processes, self._places.root, driver)
        if driver != self._driver:
            return installed  # a newer probe is under way
        if installed != self._installed:
            _log.info(
                "MPS installed",
                version=installed.version,
                protocols=installed.protocols,
                problem=installed.problem,
                strangers=[stranger.pid for stranger in installed.strangers],
            )
        self._installed = installed
        return installed

    async def _follow(self, orders: Sequence[ServerOrder], installed: Installed) -> None:
        wanted = {order.uuid: order for order in orders}
        obsolete = [
            uuid
            for uuid, (daemon, task) in self._daemons.items()
            if wanted.get(uuid) != daemon.order or task.done()
        ]
        await self._drop(obsolete)
        self._refused = {}
        for uuid, order in sorted(wanted.items()):
            if uuid not in self._daemons:
                self._begin(order, installed)

    def _begin(self, order: ServerOrder, installed: Installed) -> None:
        why = _obstacle(order, installed)
        try:
            if why:
                raise PlaceUnusable(why)
            control = control_for(order.protocol, self._places.of(order), self._programs, installed)
            daemon = Daemon(order, control, self._programs, self._places, self._launcher)
        except PlaceUnusable as error:
            self._refused[order.uuid] = MpsServer(
                uuid=order.uuid, protocol=order.protocol, state=MpsState.DOWN, why=str(error)
            )
            return
        task = asyncio.create_task(daemon.run(), name=f"mps {order.index}")
        self._daemons[order.uuid] = (daemon, task)

    async def _drop(self, uuids: Sequence[str]) -> None:
        gone = [self._daemons.pop(uuid)[1] for uuid in uuids]
        for task in gone:
            task.cancel()
        for task, outcome in zip(
            gone, await asyncio.gather(*gone, return_exceptions=True), strict=True
        ):
            if isinstance(outcome, Exception):
                _log.error("MPS daemon's task failed", task=task.get_name(), error=str(outcome))


def _obstacle(order: ServerOrder, installed: Installed) -> str:
    """The obstacle to serving a device; empty = none."""
    if installed.problem:
        return installed.problem
    if order.protocol not in installed.protocols:
        return f"the control program {installed.version} does not speak protocol {order.protocol}"
    return installed.rival(order.uuid)
