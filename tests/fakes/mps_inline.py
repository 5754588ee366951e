# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA backend without its thread, so that it runs on virtual time; a port that can be away.

What the thread adds (deadlines for a driver that hangs) has its own tests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from fakes.host_reader import HostReader
from fakes.mps_rig import MpsRig
from fakes.nvml import FakeNvml
from fakes.virtual_time import run_virtual
from ullage_node.devices.nvidia.driver import NvidiaDriver
from ullage_node.devices.nvidia.known import MpsShares, NvidiaDevices
from ullage_node.devices.nvidia.nvml import NvmlApi, NvmlThread
from ullage_node.devices.nvidia.probe import NvidiaProbe
from ullage_node.model.devices import DeviceBackend
from ullage_node.mps.client import MpsUnreachable
from ullage_node.mps.records import MpsLimits, MpsReport, ServerOrder

Result = TypeVar("Result")


class InlineNvml(NvmlThread):
    """Calls at once, on the caller's own thread."""

    def __init__(self, nvml: FakeNvml) -> None:
        super().__init__(nvml)
        self._nvml = nvml

    async def call(self, work: Callable[[NvmlApi], Result]) -> Result:
        return work(self._nvml)


class FlakyPort:
    """The supervisor, while nothing is in the way."""

    def __init__(self, rig: MpsRig) -> None:
        self._rig = rig
        self.away = ""

    async def look(
        self, orders: Sequence[ServerOrder] | None, fresh: Sequence[str] = (), driver: str = ""
    ) -> MpsReport:
        self._check()
        return await self._rig.supervisor.look(orders, fresh, driver)

    async def terminate(self, uuid: str, pid: int) -> str:
        self._check()
        return await self._rig.supervisor.terminate(uuid, pid)

    async def limit(self, uuid: str, limits: MpsLimits) -> str:
        self._check()
        return await self._rig.supervisor.limit(uuid, limits)

    async def unlimit(self, uuid: str, name: str) -> str:
        self._check()
        return await self._rig.supervisor.unlimit(uuid, name)

    async def retire(self) -> None:
        self._check()
        await self._rig.supervisor.retire()

    def _check(self) -> None:
        if self.away:
            raise MpsUnreachable(self.away)


def inline(rig: MpsRig) -> DeviceBackend:
    """A new backend over the rig, as after a restart of the agent."""
    rig.port = FlakyPort(rig)
    reader = HostReader(InlineNvml(rig.nvml))
    devices = NvidiaDevices(rig.nvml, MpsShares(rig.port), reader)
    devices.thread = InlineNvml(rig.nvml)
    return DeviceBackend(probe=NvidiaProbe(devices), driver=NvidiaDriver(devices, rig.paths))


def on_rig(
    make: Callable[[], MpsRig], test: Callable[[MpsRig, DeviceBackend], Awaitable[None]]
) -> None:
    """Run a test on virtual time against a rig whose servers have settled."""

    async def live() -> None:
        rig = make()
        backend = inline(rig)
        await backend.probe.start()
        await backend.probe.discover()
        await rig.settle(backend)
        try:
            await test(rig, backend)
        finally:
            await rig.close()

    run_virtual(live())
