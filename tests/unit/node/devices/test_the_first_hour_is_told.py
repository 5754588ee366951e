# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The checks of a node with GPUs: from nothing seen to everything shown, and each way to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from fakes.device_rigs import NvidiaRig, a_binding
from fakes.mps_inline import on_rig as on_settled_rig
from fakes.mps_rig import MpsRig
from ullage.api.checks import MAX_CHECKS, CheckState, NodeCheck
from ullage.api.devices import Backend
from ullage_node.devices.nvidia.checks import FirstHour, checks_of
from ullage_node.devices.nvidia.choice import Driver
from ullage_node.model.devices import DeviceBackend
from ullage_node.mps.records import Installed

A, B, _ = MpsRig.gpus
OK, FAILED, OPEN = CheckState.OK, CheckState.FAILED, CheckState.UNCONFIRMED
LINES = ("kubectl ", "nvidia-ctk ", "nvidia-smi ")
"""What a line that mends a failed check begins with."""


def told(backend: DeviceBackend) -> dict[str, NodeCheck]:
    found = backend.driver.checks()
    assert len(found) < MAX_CHECKS
    assert len({check.name for check in found}) == len(found)
    for check in found:
        if check.state is FAILED:
            assert any(line in check.remedy for line in LINES), check
    return {check.name: check for check in found}


def states(backend: DeviceBackend) -> dict[str, CheckState]:
    return {name: check.state for name, check in told(backend).items()}


def on_rig(
    tmp_path: Path,
    test: Callable[[MpsRig, DeviceBackend], Awaitable[None]],
    harm: Callable[[MpsRig], None] = lambda rig: None,
) -> None:
    def make() -> MpsRig:
        rig = MpsRig(tmp_path, Backend.MPS2)
        harm(rig)
        return rig

    on_settled_rig(make, test)


def test_nothing_is_confirmed_before_it_was_seen_and_everything_afterwards(tmp_path: Path) -> None:
    async def live(rig: MpsRig, backend: DeviceBackend) -> None:
        assert states(backend) == {
            "Driver": OK,
            "MPSProgram": OK,
            "HostProcesses": OK,
            "WholeGPU": OPEN,
            "MPSServers": OK,
            "ShareProof": OPEN,
            "MemoryLimit": OK,
            "DaemonLog": OK,
            "MixedUsers": OPEN,
            "ContainerToolkit": OPEN,
        }
        share, whole = a_binding(A, percent=40), a_binding(B)
        for binding in (share, whole):
            edits = await backend.driver.prepare(binding)
            rig.start_process(binding, dict(edits.env))
        await backend.driver.observe([share, whole])
        seen = states(backend)
        assert {name for name, state in seen.items() if state is not OK} == {
            "MPSServers",  # the whole GPU has none now
            "MixedUsers",
            "ContainerToolkit",
        }
        assert FAILED not in seen.values()
        assert told(backend)["ShareProof"].message == "proven by Reported"
        for binding in (share, whole):
            await backend.driver.release(binding)
        assert (states(backend)["WholeGPU"], states(backend)["ShareProof"]) == (OK, OK)

    on_rig(tmp_path, live)


def test_an_escape_is_told_while_it_lasts(tmp_path: Path) -> None:
    async def live(rig: MpsRig, backend: DeviceBackend) -> None:
        binding = a_binding(A, percent=40)
        await backend.driver.prepare(binding)
        rig.start_process(binding, {}, reports=False)
        for _ in range(6):
            await backend.driver.observe([binding])
            await asyncio.sleep(1)
        assert told(backend)["ShareProof"].state is FAILED
        assert "past the MPS server" in told(backend)["ShareProof"].message
        await backend.driver.release(binding)
        assert states(backend)["ShareProof"] is OPEN

    on_rig(tmp_path, live)


def test_each_daemon_that_is_not_as_documented_is_told(tmp_path: Path) -> None:
    def harm(rig: MpsRig) -> None:
        rig.programs.refused = "-multiuser-server"
        rig.programs.deaf_keys = ("0",)
        rig.programs.prints = True

    async def live(rig: MpsRig, backend: DeviceBackend) -> None:
        found = told(backend)
        assert found["MixedUsers"].state is FAILED
        assert "runAsUser" in found["MixedUsers"].remedy
        assert (found["MemoryLimit"].state, "by UUID" in found["MemoryLimit"].message) == (OK, True)
        assert found["DaemonLog"].message == "health reads daemon.log"

    on_rig(tmp_path, live, harm)


async def test_without_mps_and_without_a_look_the_node_says_so(tmp_path: Path) -> None:
    rig = NvidiaRig(tmp_path)
    backend = rig.open()
    assert told(backend)["Driver"].state is FAILED
    await backend.probe.start()
    await backend.probe.discover()
    assert states(backend) == {
        "Driver": OK,
        "MPSProgram": OK,
        "HostProcesses": OPEN,
        "WholeGPU": OPEN,
        "ContainerToolkit": OPEN,
    }
    binding = a_binding(rig.gpus[0])
    await rig.start_container(binding, await backend.driver.prepare(binding))
    await backend.driver.observe([binding])
    assert states(backend)["WholeGPU"] is OK
    rig.take_everything()
    backend = rig.open()
    rig.give_everything()
    await backend.probe.start()
    await backend.probe.discover()
    rig.take_everything()
    await backend.probe.health()
    assert told(backend)["HostProcesses"].state is FAILED


def test_a_supervisor_that_is_away_has_failed_and_one_that_never_was_is_off(tmp_path: Path) -> None:
    async def live(rig: MpsRig, backend: DeviceBackend) -> None:
        rig.port.away = "the MPS supervisor is not reached"
        await backend.probe.health()
        assert told(backend)["MPSProgram"].state is FAILED
        rig.port.away = ""
        await backend.probe.health()
        assert states(backend)["MPSProgram"] is OK
        (rig.run_dir / "mps").rename(rig.run_dir / "elsewhere")
        rig.port.away = "the MPS supervisor is not reached"
        await backend.probe.health()
        assert "given whole" in told(backend)["MPSProgram"].message
        rig.port.away = ""
        (rig.run_dir / "elsewhere").rename(rig.run_dir / "mps")

    on_rig(tmp_path, live)


def test_texts_hold_no_counters(tmp_path: Path) -> None:
    """Each change of a check is a write of the status."""

    async def live(rig: MpsRig, backend: DeviceBackend) -> None:
        binding = a_binding(A, percent=40)
        edits = await backend.driver.prepare(binding)
        rig.start_process(binding, dict(edits.env))
        await backend.driver.observe([binding])
        before = told(backend)
        for _ in range(20):
            rig.start_process(binding, dict(edits.env), memory_mib=1)
            await asyncio.sleep(1)
            await backend.probe.health()
            await backend.driver.observe([binding])
            assert told(backend) == before

    on_rig(tmp_path, live)


def test_an_old_driver_and_a_missing_program_have_failed() -> None:
    hour = FirstHour(driver=Driver(version="470.1", cuda=11_040), devices={}, choices={}, mps=True)
    by_name = {check.name: check for check in checks_of(hour)}
    assert (by_name["Driver"].state, "535" in by_name["Driver"].remedy) == (FAILED, True)
    assert by_name["MPSProgram"].state is OPEN
    gone = replace(hour, installed=Installed(problem="nvidia-cuda-mps-control is not there"))
    assert {check.name: check.state for check in checks_of(gone)}["MPSProgram"] is FAILED
