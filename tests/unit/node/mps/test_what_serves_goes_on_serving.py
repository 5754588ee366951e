# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One bad answer about the installation ends no tenant: what serves is judged by how it serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.device_rigs import a_binding
from fakes.mps import Client, ClientState
from fakes.mps_inline import inline
from fakes.mps_rig import MpsRig
from fakes.virtual_time import run_virtual
from ullage.api.devices import Backend, MpsState
from ullage_node.model.devices import AttachState, DeviceBackend

GPU = MpsRig.gpus[0]
BOTH = pytest.mark.parametrize("kind", [Backend.MPS2, Backend.MPS3])


async def look_while_silent(rig: MpsRig) -> None:
    """The control program cannot be started at this moment."""
    rig.programs.missing = "nvidia-cuda-mps-control: no answer"
    await rig.supervisor._look_around()
    rig.programs.missing = ""


async def look_while_slow(rig: MpsRig) -> None:
    """The daemon that was to prove protocol 3 did not answer in time."""
    script = rig.programs.script
    rig.programs.script = replace(script, protocols=(2,))
    await rig.supervisor._look_around()
    rig.programs.script = script


class Tenant:
    """A container with a share that runs, and the agent's view of it."""

    def __init__(self, rig: MpsRig, backend: DeviceBackend, kind: Backend) -> None:
        self.rig, self.backend, self.kind = rig, backend, kind
        self.binding = a_binding(GPU, percent=40)
        self.client: Client

    async def start(self) -> None:
        env = dict((await self.backend.driver.prepare(self.binding)).env)
        self.client = self.rig.clients[self.rig.start_process(self.binding, env)]
        await self.still_runs()

    async def still_runs(self) -> None:
        for _ in range(3):
            await self.backend.probe.health()
        seen = (await self.backend.driver.observe([self.binding]))[self.binding.key]
        assert (self.client.state, seen.state) == (ClientState.ATTACHED, AttachState.ENFORCED)
        device = {one.uuid: one for one in await self.backend.probe.discover()}[GPU]
        assert device.backend is self.kind
        assert device.mps is not None
        assert device.mps.state is MpsState.ACTIVE
        assert (await self.rig.supervisor.look(None)).servers[GPU].restarts == 0


def with_tenant(tmp_path: Path, kind: Backend, test: Callable[[Tenant], Awaitable[None]]) -> None:
    async def live() -> None:
        rig = MpsRig(tmp_path, kind)
        backend = inline(rig)
        await backend.probe.start()
        await backend.probe.discover()
        await rig.settle(backend)
        tenant = Tenant(rig, backend, kind)
        try:
            await tenant.start()
            await test(tenant)
        finally:
            await rig.close()

    run_virtual(live())


LOOKS = pytest.mark.parametrize("look", [look_while_silent, look_while_slow])
Look = Callable[[MpsRig], Awaitable[None]]


@BOTH
@LOOKS
def test_a_look_around_that_failed_ends_no_one(tmp_path: Path, kind: Backend, look: Look) -> None:
    async def live(tenant: Tenant) -> None:
        await look(tenant.rig)
        await tenant.still_runs()
        await tenant.rig.supervisor._look_around()
        await tenant.still_runs()

    with_tenant(tmp_path, kind, live)


@BOTH
@LOOKS
def test_neither_does_it_through_a_new_agent(tmp_path: Path, kind: Backend, look: Look) -> None:
    async def live(tenant: Tenant) -> None:
        await look(tenant.rig)
        tenant.backend = inline(tenant.rig)
        await tenant.backend.probe.start()
        await tenant.backend.probe.discover()
        await tenant.still_runs()

    with_tenant(tmp_path, kind, live)
