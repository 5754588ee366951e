# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""GPUs in MIG mode: their MIG devices are devices of a type of their own, given whole.

The fake answers on a MIG device what NVIDIA documents for it, and refuses everything else.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pynvml
import pytest

from fakes.device_rigs import MIG_MINORS, MigRig, NvidiaRig, a_binding
from fakes.nvml import FakeMig, PatientNvml
from ullage.api.checks import CheckState
from ullage.api.devices import Backend, GPUMode, Health
from ullage.api.reasons import Reason
from ullage_node.device_watch import DeviceWatch
from ullage_node.devices.nvidia.device_files import FilesUnknown, files_of, read_minors
from ullage_node.devices.nvidia.gpm import NvmlSampler
from ullage_node.devices.nvidia.read import read_inventory
from ullage_node.health import HealthTracker
from ullage_node.model.devices import AttachState, DeviceBackend, PrepareRefused
from ullage_node.settings import PeriodSettings


@pytest.fixture(params=["sees them itself", "asks their reader"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MigRig]:
    if request.param == "sees them itself":
        yield MigRig(tmp_path)
        return
    with tempfile.TemporaryDirectory(prefix="um") as folder:
        rig = MigRig(tmp_path, Path(folder) / "mig.sock")
        async with rig.reader():
            yield rig


async def opened(rig: NvidiaRig) -> DeviceBackend:
    backend = rig.open()
    await backend.probe.start()
    await backend.probe.discover()
    return backend


async def healthy(backend: DeviceBackend) -> dict[str, bool]:
    return {reading.uuid: reading.healthy for reading in await backend.probe.health()}


class TestDiscovery:
    async def test_mig_devices_stand_for_their_gpu_with_a_type_of_their_own(
        self, rig: MigRig
    ) -> None:
        backend = await opened(rig)
        found = {device.uuid: device for device in await backend.probe.discover()}
        assert found.keys() == {rig.small.uuid, rig.large.uuid, *rig.gpus[1:]}
        small = found[rig.small.uuid]
        assert small.model == "nvidia-h100-80gb-hbm3-mig-1g-10gb"
        assert small.product_name == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
        assert (small.memory_mib, small.contexts, small.backend) == (9_728, 1, Backend.EXCLUSIVE)
        assert small.modes == (GPUMode.EXCLUSIVE,)
        assert (small.health, small.mps) == (Health.HEALTHY, None)
        assert found[rig.large.uuid].model == "nvidia-h100-80gb-hbm3-mig-3g-40gb"
        assert {small.uuid, rig.large.uuid}.isdisjoint(backend.probe.problems())

    async def test_a_long_name_keeps_its_profile(self, rig: MigRig) -> None:
        rig.gpu.name = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"
        rig.small.name = f"{rig.gpu.name} MIG 1g.24gb+me"
        backend = await opened(rig)
        found = {device.uuid: device for device in await backend.probe.discover()}
        model = found[rig.small.uuid].model
        assert len(model) == 63
        assert model.endswith("-mig-1g-24gb-me")
        assert model.startswith("nvidia-rtx-pro-6000-blackwell-max-q")

    def test_its_multiprocessors_are_its_own(self, rig: MigRig) -> None:
        rig.nvml.nvmlInit()
        found = {device.uuid: device for device in read_inventory(rig.nvml)}
        assert (found[rig.small.uuid].sm_count, found[rig.large.uuid].sm_count) == (16, 60)

    def test_a_name_without_a_profile_never_passes_for_the_whole_gpu(self, rig: MigRig) -> None:
        rig.nvml.nvmlInit()
        rig.small.name = rig.gpu.name
        found = {device.uuid: device for device in read_inventory(rig.nvml)}
        assert found[rig.small.uuid].product_name == f"{rig.gpu.name} MIG 1g"

    @pytest.mark.parametrize("how", ["none made", "none shown"])
    async def test_a_gpu_without_any_that_is_seen_is_shown_and_says_what_to_do(
        self, rig: MigRig, how: str
    ) -> None:
        if how == "none made":
            rig.gpu.instances.clear()
        rig.gpu.shows_instances = how != "none shown"
        backend = await opened(rig)
        found = {device.uuid: device for device in await backend.probe.discover()}
        assert found[rig.gpu.uuid].modes == ()
        problem = backend.probe.problems()[rig.gpu.uuid]
        assert "node.mig.enabled" in problem
        assert "nvidia-smi mig -cgi" in problem
        (check,) = [check for check in backend.driver.checks() if check.name == "MIG"]
        assert (check.state, bool(check.remedy)) == (CheckState.FAILED, True)
        with pytest.raises(PrepareRefused, match="MIG mode"):
            await backend.driver.prepare(a_binding(rig.gpu.uuid, percent=40))

    async def test_a_gpu_that_is_cut_anew_shows_what_it_has_now(self, rig: MigRig) -> None:
        backend = await opened(rig)
        watch = DeviceWatch(
            backend.probe, backend.driver, HealthTracker(30.0), PeriodSettings(discover_seconds=1)
        )

        async def uuids(now: float) -> set[str]:
            await watch.run_once(now=now, wall=now)
            return {device.uuid for device in watch.observed} - set(rig.gpus[1:])

        assert await uuids(0) == {rig.small.uuid, rig.large.uuid}
        rig.gpu.instances.remove(rig.small)
        assert await uuids(10) == {rig.large.uuid}
        rig.gpu.instances.clear()
        rig.gpu.mig = False
        assert await uuids(20) == {rig.gpu.uuid}
        again = FakeMig.of(rig.gpu, 2, "7g.80gb", 80_000)
        assert await uuids(30) == {again.uuid}
        assert watch.lost == ()
        rig.gpu.lost = True
        assert await uuids(40) == {again.uuid}, "what fell off the bus is not forgotten"
        assert watch.lost == (again.uuid,)


class TestHealth:
    async def test_a_fault_of_the_gpu_is_one_of_all_its_parts(self, rig: MigRig) -> None:
        backend = await opened(rig)
        rig.gpu.recovery_action = pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET
        found = await healthy(backend)
        assert found == {rig.small.uuid: False, rig.large.uuid: False} | dict.fromkeys(
            rig.gpus[1:], True
        )

    async def test_a_fault_of_a_part_is_its_own(self, rig: MigRig) -> None:
        backend = await opened(rig)
        rig.nvml.raise_xid(rig.small, 79)
        found = await healthy(backend)
        assert (found[rig.small.uuid], found[rig.large.uuid]) == (False, True)
        rig.nvml.raise_xid(rig.gpu, 79)
        found = await healthy(backend)
        assert (found[rig.small.uuid], found[rig.large.uuid]) == (False, False)

    async def test_counters_that_a_part_has_not_are_absent(self, rig: MigRig) -> None:
        rig.nvml.nvmlInit()
        thread = PatientNvml(rig.nvml)
        (sample,) = await NvmlSampler(thread, lambda: [rig.small.uuid]).sample(1.0)
        thread.stop()
        assert (sample.busy, sample.gpm, sample.power_milliwatts) == (None, False, None)


class TestContainers:
    async def test_it_gets_its_gpus_file_and_its_two_capabilities(self, rig: MigRig) -> None:
        backend = await opened(rig)
        edits = await backend.driver.prepare(a_binding(rig.large.uuid))
        paths = [node.path for node in edits.device_nodes]
        assert paths[:3] == [
            "/dev/nvidia0",
            "/dev/nvidia-caps/nvidia-cap48",
            "/dev/nvidia-caps/nvidia-cap49",
        ]
        assert not {path for path in paths if path.endswith(("cap12", "cap13"))}
        assert edits.env["NVIDIA_VISIBLE_DEVICES"] == rig.large.uuid

    @pytest.mark.parametrize("name", ["0:5", "by uuid"])
    async def test_the_toolkits_entry_is_found_by_uuid_or_by_its_files(
        self, rig: MigRig, name: str
    ) -> None:
        caps = ["/dev/nvidia-caps/nvidia-cap48", "/dev/nvidia-caps/nvidia-cap49"]
        devices = [
            {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}},
            {
                "name": rig.large.uuid if name == "by uuid" else name,
                "containerEdits": {
                    "env": ["FOUND=1"],
                    "deviceNodes": [{"path": path} for path in ("/dev/nvidia0", *caps)],
                },
            },
        ]
        body = {
            "cdiVersion": "0.5.0",
            "kind": "nvidia.com/gpu",
            "devices": devices,
            "containerEdits": {},
        }
        place = rig.tree.paths.cdi_dirs[1]
        place.mkdir()
        (place / "nvidia.json").write_text(json.dumps(body))
        edits = await (await opened(rig)).driver.prepare(a_binding(rig.large.uuid))
        assert edits.env == {"FOUND": "1"}

    async def test_a_share_or_two_of_them_in_one_container_are_refused(self, rig: MigRig) -> None:
        backend = await opened(rig)
        with pytest.raises(PrepareRefused, match="given whole") as refused:
            await backend.driver.prepare(a_binding(rig.large.uuid, percent=50))
        assert refused.value.reason is Reason.MODE_UNSUPPORTED
        with pytest.raises(PrepareRefused, match="one MIG device in a process"):
            await backend.driver.prepare(a_binding(rig.small.uuid, rig.large.uuid))

    async def test_a_capability_that_the_kernel_does_not_list_is_an_error(
        self, rig: MigRig
    ) -> None:
        (rig.tree.paths.proc_root / "driver" / "nvidia-caps" / "mig-minors").unlink()
        backend = await opened(rig)
        with pytest.raises(PrepareRefused, match="gpu0/gi5/access") as refused:
            await backend.driver.prepare(a_binding(rig.large.uuid))
        assert refused.value.reason is Reason.CDI_UNAVAILABLE

    async def test_processes_are_seen_on_the_part_and_a_strange_part_is_an_escape(
        self, rig: MigRig
    ) -> None:
        backend = await opened(rig)
        binding = a_binding(rig.small.uuid)
        await backend.driver.prepare(binding)
        rig.tree.create(binding.key.pod_uid, "c7001", 7001)
        rig.small.processes[7001] = 100
        seen = (await backend.driver.observe([binding]))[binding.key]
        assert (seen.state, seen.pids, seen.memory_used_mib) == (AttachState.ENFORCED, (7001,), 100)
        rig.large.processes[7001] = 1
        seen = (await backend.driver.observe([binding]))[binding.key]
        assert seen.state is AttachState.UNENFORCED
        assert rig.large.uuid in seen.message


def test_capabilities_are_read_as_the_kernel_lists_them(tmp_path: Path) -> None:
    assert read_minors(tmp_path) == {}
    path = tmp_path / "driver" / "nvidia-caps" / "mig-minors"
    path.parent.mkdir(parents=True)
    path.write_text(f"{MIG_MINORS}gpu0/gi9/access x\n../../gi1/access 7\n")
    assert read_minors(tmp_path) == {
        "gpu0/gi1/access": 12,
        "gpu0/gi1/ci0/access": 13,
        "gpu0/gi5/access": 48,
        "gpu0/gi5/ci0/access": 49,
    }
    path.write_bytes(b"x" * (2 << 20))
    with pytest.raises(FilesUnknown, match="cannot be read"):
        read_minors(tmp_path)


def test_a_whole_gpu_is_one_file(rig: MigRig) -> None:
    rig.nvml.nvmlInit()
    whole = next(device for device in read_inventory(rig.nvml) if not device.parent)
    assert files_of(whole, {}) == (f"/dev/nvidia{whole.minor}",)
