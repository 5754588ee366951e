# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from fakes.cgroup_tree import run_hook
from fakes.device_rigs import EmulatedRig, a_binding
from ullage.api.devices import GPUMode
from ullage.api.reasons import Reason
from ullage_node.devices.cgroups import CpuLimits
from ullage_node.devices.emulated import EmulatedShare, judge
from ullage_node.model.devices import (
    AttachState,
    BackendUnavailable,
    BoundSlice,
    ContainerBinding,
    DeviceBackend,
    PrepareRefused,
)

FAST, SLOW, SLOW_TOO = EmulatedRig.gpus
FORTY = EmulatedShare(quota_us=40_000, cores=frozenset({0}), core_percent=100)


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> EmulatedRig:
    return EmulatedRig(tmp_path, version=request.param)


@pytest.fixture
async def backend(rig: EmulatedRig) -> DeviceBackend:
    backend = rig.open()
    await backend.probe.start()
    return backend


async def arguments(backend: DeviceBackend, binding: ContainerBinding) -> tuple[str, ...]:
    (hook,) = (await backend.driver.prepare(binding)).hooks
    return hook.args[2:]


class TestWhatAShareComesTo:
    async def test_percent_of_a_whole_core(self, backend: DeviceBackend) -> None:
        assert await arguments(backend, a_binding(FAST, percent=37)) == ("37000", "0")

    async def test_percent_of_a_slower_device(self, backend: DeviceBackend) -> None:
        assert await arguments(backend, a_binding(SLOW, percent=30)) == ("15000", "1")

    async def test_whole_devices_on_two_cores(self, backend: DeviceBackend) -> None:
        assert await arguments(backend, a_binding(FAST, SLOW)) == ("150000", "0-1")

    async def test_two_devices_of_one_core(self, backend: DeviceBackend) -> None:
        assert await arguments(backend, a_binding(SLOW, SLOW_TOO)) == ("100000", "1")

    async def test_a_share_that_the_kernel_cannot_hold_is_refused_with_numbers(
        self, backend: DeviceBackend
    ) -> None:
        with pytest.raises(PrepareRefused, match=r"500 us per 100000 us is below .*1000 us") as e:
            await backend.driver.prepare(a_binding(SLOW, percent=1))
        assert e.value.reason is Reason.CAPACITY_EXCEEDED

    async def test_the_operator_hears_the_smallest_share_that_is_not_refused(
        self, backend: DeviceBackend
    ) -> None:
        devices = {device.uuid: device for device in await backend.probe.discover()}
        assert (devices[FAST].least_percent, devices[SLOW].least_percent) == (1, 2)
        for uuid, device in devices.items():
            assert await arguments(backend, a_binding(uuid, percent=device.least_percent))
        with pytest.raises(PrepareRefused):
            await backend.driver.prepare(a_binding(SLOW, percent=1))

    async def test_a_slot_name_never_becomes_a_path(self, backend: DeviceBackend) -> None:
        part = BoundSlice(slot="../x", index=0, gpu=FAST, percent=50, memory_mib=1)
        bad = ContainerBinding(
            key=a_binding(FAST).key, pod_namespace="d", pod_name="p", slices=(part,)
        )
        with pytest.raises(PrepareRefused, match="no slot id"):
            await backend.driver.prepare(bad)

    async def test_both_modes_are_offered_and_the_name_says_what_it_is(
        self, backend: DeviceBackend
    ) -> None:
        fast, slow, _ = await backend.probe.discover()
        assert fast.modes == (GPUMode.EXCLUSIVE, GPUMode.FRACTIONAL)
        assert fast.contexts == 8
        assert slow.product_name == "emulated: 50 % of CPU core 1"
        assert slow.model == "emulated-slow"


class TestWhatStands:
    def test_the_decided_limits_are_enforced(self) -> None:
        limits = CpuLimits(quota_us=40_000, effective_us=40_000, cores="0")
        assert judge(limits, FORTY) == (AttachState.ENFORCED, None, "")

    def test_a_lower_limit_is_enforced_with_a_warning_that_says_what_to_raise(self) -> None:
        limits = CpuLimits(quota_us=40_000, effective_us=15_000, cores="0")
        state, reason, message = judge(limits, FORTY)
        assert (state, reason) == (AttachState.ENFORCED, Reason.CPU_LIMIT_BELOW_SHARE)
        assert message == (
            "a CPU limit of 150m stands below the slice's 400m; raise resources.limits.cpu to "
            "400m or leave it out"
        )

    @pytest.mark.parametrize(
        ("limits", "text"),
        [
            (CpuLimits(quota_us=None, effective_us=None, cores="0"), "no CPU quota"),
            (CpuLimits(quota_us=None, effective_us=10_000, cores="0"), "no CPU quota"),
            (CpuLimits(quota_us=40_001, effective_us=40_001, cores="0"), "quota of 40001 us"),
            (CpuLimits(quota_us=40_000, effective_us=40_000, cores="0-1"), "runs on cores '0-1'"),
            (CpuLimits(quota_us=40_000, effective_us=40_000, cores=""), "runs on cores ''"),
        ],
    )
    def test_anything_wider_is_unenforced_with_numbers(self, limits: CpuLimits, text: str) -> None:
        state, reason, message = judge(limits, FORTY)
        assert (state, reason) == (AttachState.UNENFORCED, Reason.UNENFORCED)
        assert text in message

    async def test_a_pod_limit_below_the_share_is_told_in_both_versions(
        self, rig: EmulatedRig, backend: DeviceBackend
    ) -> None:
        binding = a_binding(FAST, percent=40)
        rig.tree.create(binding.key.pod_uid, "c", 77, pod_limit_us=10_000)
        for hook in (await backend.driver.prepare(binding)).hooks:
            assert run_hook(hook, 77).returncode == 0
        reading = (await backend.driver.observe([binding]))[binding.key]
        assert (reading.state, reading.reason) == (
            AttachState.ENFORCED,
            Reason.CPU_LIMIT_BELOW_SHARE,
        )

    async def test_processes_that_the_agent_cannot_see_still_hold_the_slice(
        self, rig: EmulatedRig, backend: DeviceBackend
    ) -> None:
        binding = a_binding(FAST)
        pid = await rig.start_container(binding, await backend.driver.prepare(binding))
        path = rig.tree.container_path(binding.key.pod_uid, f"c{pid}")
        rig.tree.hide_pids(path)
        assert (await backend.driver.observe([binding]))[binding.key].pids == (pid,)
        rig.tree.set_pids(path, ())
        reading = (await backend.driver.observe([binding]))[binding.key]
        assert (reading.state, reading.pids) == (AttachState.ABSENT, ())

    async def test_unreadable_limits_keep_the_processes_in_the_reading(
        self, rig: EmulatedRig, backend: DeviceBackend
    ) -> None:
        binding = a_binding(FAST)
        pid = await rig.start_container(binding, await backend.driver.prepare(binding))
        rig.blind()
        assert (await backend.driver.observe([binding]))[binding.key].pids == (pid,)

    async def test_time_alone_is_cpu_time_by_the_devices_part_of_a_core(
        self, rig: EmulatedRig, backend: DeviceBackend
    ) -> None:
        fast, slow = a_binding(FAST, percent=50), a_binding(SLOW, percent=50)
        for binding in (fast, slow):
            await rig.start_container(binding, await backend.driver.prepare(binding))
        readings = await backend.driver.observe([fast, slow])
        assert readings[fast.key].cpu_time_ns == readings[slow.key].cpu_time_ns == 5_000_000_000
        assert readings[fast.key].solo_time_ns == 5_000_000_000
        assert readings[slow.key].solo_time_ns == 10_000_000_000


class TestTheFileAtRunTime:
    async def test_an_appended_device_is_found_without_a_restart(
        self, rig: EmulatedRig, backend: DeviceBackend
    ) -> None:
        whole = {"percent": 50, "memoryMiB": 1, "model": "emulated"}
        rig.write_config([{"core": 0} | whole, {"core": 0} | whole])
        fresh = rig.open()
        await fresh.probe.start()
        rig.write_config([{"core": 0} | whole, {"core": 0} | whole, {"core": 1} | whole])
        assert len(await fresh.probe.discover()) == 3
        assert all(reading.healthy for reading in await fresh.probe.health())

    async def test_a_changed_device_keeps_its_limits_and_says_what_to_do(
        self, rig: EmulatedRig, backend: DeviceBackend
    ) -> None:
        rig.lose(FAST)
        (reading,) = [one for one in await backend.probe.health() if one.uuid == FAST]
        assert "restart the agent" in reading.message
        assert await arguments(backend, a_binding(FAST)) == ("100000", "0")

    async def test_a_broken_file_is_a_soft_fault_that_names_the_field(
        self, rig: EmulatedRig, backend: DeviceBackend
    ) -> None:
        rig.write_config([{"core": 9, "percent": 100, "memoryMiB": 1, "model": "emulated"}])
        readings = await backend.probe.health()
        assert all(not one.healthy and not one.hard for one in readings)
        assert all("core 9 is not on this machine, which has 0, 1" in r.message for r in readings)

    async def test_a_state_directory_that_cannot_be_written_is_named(
        self, rig: EmulatedRig
    ) -> None:
        (rig.tree.paths.state_dir / "bin").write_text("in the way")
        with pytest.raises(BackendUnavailable, match="slice-hook cannot be written"):
            await rig.open().probe.start()


async def test_a_hook_that_was_taken_away_is_written_again_before_the_next_start(
    rig: EmulatedRig, backend: DeviceBackend
) -> None:
    script = rig.tree.paths.state_dir / "bin" / "slice-hook"
    script.unlink()
    await backend.driver.prepare(a_binding(FAST))
    assert script.stat().st_mode & 0o111


async def test_cleaning_up_leaves_the_administrators_file_alone(
    rig: EmulatedRig, backend: DeviceBackend
) -> None:
    binding = a_binding(FAST)
    await rig.start_container(binding, await backend.driver.prepare(binding))
    await backend.driver.cleanup_all()
    assert [path.name for path in rig.tree.paths.state_dir.iterdir()] == ["emulated.json"]
