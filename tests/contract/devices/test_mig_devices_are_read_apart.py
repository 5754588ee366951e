# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The agent has no right to see MIG devices: who has it answers two questions over a socket."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from fakes.device_rigs import MigRig
from ullage.api.devices import ObservedDevice
from ullage.api.reasons import Reason
from ullage_node.devices.nvidia.host_processes import UUID_CHARACTERS_MAX, UUIDS_MAX
from ullage_node.devices.nvidia.mig import HostMig, MigUnseen
from ullage_node.devices.nvidia.nvml import NvmlApi
from ullage_node.devices.nvidia.read import NvidiaDevice
from ullage_node.line_socket import LineServer, Unanswered, ask, exchange
from ullage_node.model.devices import BackendUnavailable, DeviceBackend, DeviceReading
from ullage_node.times import MIG_READER_AWAY_S

GPU = NvidiaDevice(uuid="GPU-a", product_name="NVIDIA H100", memory_mib=81_559, minor=0, mig=True)
PART = {
    "gpu": "GPU-a",
    "uuid": "MIG-a",
    "productName": "NVIDIA H100 MIG 1g.10gb",
    "memoryMiB": 9_728,
    "gpuInstance": 1,
    "computeInstance": 0,
}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[MigRig]:
    with tempfile.TemporaryDirectory(prefix="um") as folder:
        yield MigRig(tmp_path, Path(folder) / "mig.sock")


async def discovered(backend: DeviceBackend) -> dict[str, ObservedDevice]:
    return {device.uuid: device for device in await backend.probe.discover()}


async def readings(backend: DeviceBackend) -> dict[str, DeviceReading]:
    return {reading.uuid: reading for reading in await backend.probe.health()}


class TestTheReaderIsAway:
    async def test_at_the_start_nothing_is_offered_until_it_answers(self, rig: MigRig) -> None:
        """A slice on a MIG device would else pass for one on a device that is gone."""
        backend = rig.open()
        await backend.probe.start()
        with pytest.raises(BackendUnavailable, match="pod ullage-processes") as refused:
            await backend.probe.discover()
        assert refused.value.reason is Reason.DEVICE_UNHEALTHY
        async with rig.reader():
            await backend.probe.start()
            assert {rig.small.uuid, rig.large.uuid} < (await discovered(backend)).keys()

    async def test_devices_that_were_seen_stay_and_are_asked_for_again(self, rig: MigRig) -> None:
        backend = rig.open()
        await backend.probe.start()
        async with rig.reader():
            before = await discovered(backend)
            assert all(reading.healthy for reading in (await readings(backend)).values())
        assert await discovered(backend) == before
        assert all(reading.healthy for reading in (await readings(backend)).values())
        rig.gpu.instances.remove(rig.small)
        async with rig.reader():
            assert (await discovered(backend)).keys() == before.keys() - {rig.small.uuid}

    async def test_a_gpu_without_any_stays_shown_as_one(self, rig: MigRig) -> None:
        rig.gpu.instances.clear()
        backend = rig.open()
        await backend.probe.start()
        async with rig.reader():
            before = await discovered(backend)
        assert before[rig.gpu.uuid].modes == ()
        assert await discovered(backend) == before

    async def test_for_too_long_they_are_not_well_and_the_others_are(self, rig: MigRig) -> None:
        backend = rig.open()
        await backend.probe.start()
        async with rig.reader():
            await discovered(backend)
            await readings(backend)
        rig.clock.advance(MIG_READER_AWAY_S + 1)
        after = await readings(backend)
        assert not after[rig.small.uuid].healthy
        assert not after[rig.small.uuid].hard
        assert "pod ullage-processes" in after[rig.small.uuid].message
        assert all(after[gpu].healthy for gpu in rig.gpus[1:])
        async with rig.reader():
            assert (await readings(backend))[rig.small.uuid].healthy

    async def test_a_fault_that_was_seen_stays_meanwhile(self, rig: MigRig) -> None:
        backend = rig.open()
        await backend.probe.start()
        async with rig.reader():
            await discovered(backend)
            rig.small.error = pynvml.NVML_ERROR_UNKNOWN
            assert not (await readings(backend))[rig.small.uuid].healthy
        after = await readings(backend)
        assert (after[rig.small.uuid].healthy, after[rig.large.uuid].healthy) == (False, True)

    async def test_a_gpu_that_falls_off_the_bus_is_noticed_all_the_same(self, rig: MigRig) -> None:
        backend = rig.open()
        await backend.probe.start()
        async with rig.reader():
            await discovered(backend)
        rig.gpu.lost = True
        after = await readings(backend)
        assert after[rig.small.uuid].hard
        assert after[rig.small.uuid].reason is Reason.DEVICE_LOST


class TestTheReader:
    async def test_it_says_of_which_gpu_it_knows_nothing(self, rig: MigRig) -> None:
        backend = rig.open()
        await backend.probe.start()
        async with rig.reader():
            gpus = [
                GPU,
                NvidiaDevice(uuid=rig.gpu.uuid, product_name="", memory_mib=1, minor=0, mig=True),
            ]
            assert rig.socket is not None
            with pytest.raises(MigUnseen, match="MIG devices of GPU-a are not read"):
                await HostMig(rig.socket).parts(gpus)

    async def test_a_driver_that_comes_back_is_opened_again(self, rig: MigRig) -> None:
        assert rig.socket is not None
        apart, device = (
            HostMig(rig.socket),
            NvidiaDevice(uuid=rig.gpu.uuid, product_name="", memory_mib=1, minor=0, mig=True),
        )
        async with rig.reader():
            rig.nvml.init_error = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
            with pytest.raises(MigUnseen, match="modprobe nvidia"):
                await apart.parts([device])
            rig.nvml.init_error = None
            assert len((await apart.parts([device]))[rig.gpu.uuid]) == 2
            rig.nvml.initialised = 0  # unloaded and loaded again
            with pytest.raises(MigUnseen, match="Uninitialized"):
                await apart.parts([device])
            assert len((await apart.parts([device]))[rig.gpu.uuid]) == 2

    @pytest.mark.parametrize(
        "request_",
        [
            {},
            {"verb": "destroy", "uuids": ["MIG-a"]},
            {"verb": "parts", "uuids": "GPU-a"},
            {"verb": "parts", "uuids": ["x" * (UUID_CHARACTERS_MAX + 1)]},
            {"verb": "states", "uuids": ["MIG-a"] * (UUIDS_MAX + 1)},
        ],
        ids=["nothing", "no word of ours", "no list", "a long name", "too many"],
    )
    async def test_everything_else_is_refused_before_the_driver_is_asked(
        self, rig: MigRig, request_: dict[str, object]
    ) -> None:
        assert rig.socket is not None
        async with rig.reader():
            answer = json.loads(await exchange(rig.socket, json.dumps(request_).encode() + b"\n"))
        assert answer.keys() == {"error"}
        assert rig.nvml.calls == 0

    async def test_it_changes_nothing_on_a_device(self) -> None:
        """What agent and readers may call of the library at all creates and destroys no part."""
        words = ("Create", "Destroy", "SetMig", "Reset")
        names = [name for name in dir(NvmlApi) if name.startswith("nvml")]
        assert [name for name in names if any(word in name for word in words)] == [
            "nvmlEventSetCreate"
        ]


@pytest.mark.parametrize(
    "seen",
    [
        None,
        {"parts": 1},
        {"parts": [{**PART, "gpu": "GPU-other"}]},
        {"parts": [{"gpu": "GPU-a", "uuid": "MIG-a"}]},
        {"parts": [{**PART, "uuid": f"MIG-{number}"} for number in range(UUIDS_MAX + 1)]},
    ],
    ids=["nothing", "no list", "a GPU not asked for", "half a part", "too many"],
)
async def test_an_answer_that_is_none_proves_nothing(rig: MigRig, seen: object) -> None:
    async def say(_: object) -> dict[str, object]:
        return {"seen": seen}

    assert rig.socket is not None
    async with LineServer(rig.socket, say):
        with pytest.raises(MigUnseen):
            await HostMig(rig.socket).parts([GPU])
        with pytest.raises(MigUnseen):
            await HostMig(rig.socket).states(["MIG-a"])


async def test_a_socket_answers_its_owner_alone(
    rig: MigRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rig.socket is not None
    async with rig.reader():
        assert rig.socket.stat().st_mode & 0o777 == 0o600
        own = os.geteuid()
        monkeypatch.setattr("ullage_node.line_socket.os.geteuid", lambda: own + 1)
        with pytest.raises(Unanswered):
            await ask(rig.socket, {"verb": "parts", "uuids": []}, 5.0, "the reader")
    assert rig.nvml.calls == 0
