# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Someone else's MPS control daemon: who was first on a device stays, and the other is named."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from fakes.device_rigs import a_binding
from fakes.mps import ClientState
from fakes.mps_inline import inline
from fakes.mps_rig import MpsRig
from fakes.virtual_time import run_virtual
from ullage.api.devices import Backend
from ullage_node.model.devices import AttachState, DeviceBackend
from ullage_node.mps.records import Stranger

MINE, OTHER, _ = MpsRig.gpus


def on_rig(tmp_path: Path, test: Callable[[MpsRig], Awaitable[None]]) -> None:
    async def live() -> None:
        rig = MpsRig(tmp_path, Backend.MPS2)
        try:
            await test(rig)
        finally:
            await rig.close()

    run_virtual(live())


async def an_agent(rig: MpsRig) -> DeviceBackend:
    backend = inline(rig)
    await backend.probe.start()
    await backend.probe.discover()
    return backend


async def backends(backend: DeviceBackend) -> dict[str, Backend]:
    return {device.uuid: device.backend for device in await backend.probe.discover()}


async def arrives(rig: MpsRig, *gpus: str) -> None:
    """A daemon of someone else; the supervisor notices it with its next look around."""
    rig.processes.found = (Stranger(pid=77, gpus=gpus),)
    await rig.supervisor._look_around()


def test_where_someone_was_first_ours_stays_away(tmp_path: Path) -> None:
    async def live(rig: MpsRig) -> None:
        rig.processes.found = (Stranger(pid=77, gpus=(MINE,)),)
        backend = await an_agent(rig)
        await rig.settle(backend)
        found = await backends(backend)
        assert (found[MINE], found[OTHER]) == (Backend.EXCLUSIVE, Backend.MPS2)
        assert "process 77 of someone else" in backend.probe.problems()[MINE]

    on_rig(tmp_path, live)


def test_who_comes_second_is_named_and_ends_no_one_not_even_through_a_new_agent(
    tmp_path: Path,
) -> None:
    async def live(rig: MpsRig) -> None:
        backend = await an_agent(rig)
        await rig.settle(backend)
        binding = a_binding(MINE, percent=40)
        env = dict((await backend.driver.prepare(binding)).env)
        client = rig.clients[rig.start_process(binding, env)]
        await backend.driver.observe([binding])
        await arrives(rig, MINE)
        for _ in range(2):
            await rig.settle(backend)
            seen = await backend.driver.observe([binding])
            assert seen[binding.key].state is AttachState.ENFORCED
            assert client.state is ClientState.ATTACHED
            assert (await backends(backend))[MINE] is Backend.MPS2
            assert "second MPS control daemon" in backend.probe.problems()[MINE]
            assert OTHER not in backend.probe.problems()
            backend = await an_agent(rig)  # the agent is restarted, the supervisor is not
        assert (await rig.supervisor.look(None)).servers[MINE].restarts == 0

    on_rig(tmp_path, live)


def test_a_rival_that_ends_is_forgotten(tmp_path: Path) -> None:
    async def live(rig: MpsRig) -> None:
        backend = await an_agent(rig)
        await rig.settle(backend)
        await arrives(rig)
        await rig.settle(backend)
        assert set(backend.probe.problems()) == set(rig.gpus), "it may serve all of them"
        rig.processes.found = ()
        await rig.supervisor._look_around()
        await rig.settle(backend)
        assert backend.probe.problems() == {}

    on_rig(tmp_path, live)
