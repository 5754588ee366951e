# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What every device backend promises to the agent, asked of each of them in the same words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from fakes.device_rigs import EmulatedRig, NvidiaRig, Rig, a_binding
from fakes.mps_rig import MpsRig
from ullage.api.devices import Backend, GPUMode, Health, ObservedDevice
from ullage_node.model.devices import (
    Attachment,
    AttachState,
    BackendUnavailable,
    ContainerBinding,
    DeviceBackend,
    DeviceReading,
    PrepareRefused,
)
from ullage_node.mps import daemon

RIGS: Mapping[str, Callable[[Path], Rig]] = {
    "emulated-cgroup-v1": lambda base: EmulatedRig(base, version=1),
    "emulated-cgroup-v2": lambda base: EmulatedRig(base, version=2),
    "exclusive": NvidiaRig,
    "timeslice": lambda base: MpsRig(base, Backend.TIME_SLICE),
    "mps2": lambda base: MpsRig(base, Backend.MPS2),
    "mps3": lambda base: MpsRig(base, Backend.MPS3),
}


@pytest_asyncio.fixture(params=RIGS)
async def rig(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Rig]:
    for pause in ("SERVER_YOUNG_LOOK_S", "SERVER_UNSETTLED_LOOK_S"):
        monkeypatch.setattr(daemon, pause, 0.01)
    made = RIGS[request.param](tmp_path)
    yield made
    await made.close()


def wants(rig: Rig, *gpus: str) -> ContainerBinding:
    """A share of one device, as the rig's kind has them, or several whole ones."""
    return a_binding(*gpus, percent=rig.percent if len(gpus) == 1 else 100)


@pytest.fixture
async def backend(rig: Rig) -> DeviceBackend:
    return await opened(rig)


async def opened(rig: Rig) -> DeviceBackend:
    backend = rig.open()
    await backend.probe.start()
    await backend.probe.discover()
    await rig.settle(backend)
    return backend


async def started(rig: Rig, backend: DeviceBackend, *gpus: str) -> tuple[ContainerBinding, int]:
    binding = wants(rig, *gpus)
    return binding, await rig.start_container(binding, await backend.driver.prepare(binding))


async def reading_of(backend: DeviceBackend, gpu: str) -> DeviceReading:
    (reading,) = [one for one in await backend.probe.health() if one.uuid == gpu]
    return reading


async def device_of(backend: DeviceBackend, gpu: str) -> ObservedDevice:
    (device,) = [one for one in await backend.probe.discover() if one.uuid == gpu]
    return device


async def seen(backend: DeviceBackend, binding: ContainerBinding) -> Attachment:
    return (await backend.driver.observe([binding]))[binding.key]


class TestDiscovery:
    async def test_every_device_is_described_in_full(
        self, rig: Rig, backend: DeviceBackend
    ) -> None:
        devices = await backend.probe.discover()
        assert tuple(device.uuid for device in devices) == tuple(sorted(rig.gpus))
        for device in devices:
            assert device.backend is rig.kind
            assert device.health is Health.HEALTHY
            assert device.memory_mib > 0
            assert device.contexts >= 1
            assert device.model == device.model.lower()
            assert device.product_name
            assert GPUMode.EXCLUSIVE in device.modes
            assert ObservedDevice.from_wire(device.to_wire()) == device

    async def test_devices_are_the_same_after_a_restart_of_the_agent(
        self, rig: Rig, backend: DeviceBackend
    ) -> None:
        before = await backend.probe.discover()
        await backend.probe.close()
        assert await (await opened(rig)).probe.discover() == before

    async def test_without_what_it_is_made_of_it_says_what_to_do_and_starts_later(
        self, rig: Rig
    ) -> None:
        rig.take_everything()
        backend = rig.open()
        with pytest.raises(BackendUnavailable) as refused:
            await backend.probe.start()
        assert len(refused.value.message) > 30
        assert "\n" not in refused.value.message
        rig.give_everything()
        await backend.probe.start()
        assert len(await backend.probe.discover()) == len(rig.gpus)

    async def test_start_and_close_may_come_twice(self, rig: Rig, backend: DeviceBackend) -> None:
        await backend.probe.start()
        assert len(await backend.probe.discover()) == len(rig.gpus)
        await backend.probe.close()
        await backend.probe.close()

    async def test_the_driver_says_its_version(self, backend: DeviceBackend) -> None:
        assert backend.driver.version


class TestHealth:
    async def test_all_devices_are_read_and_healthy(self, rig: Rig, backend: DeviceBackend) -> None:
        readings = await backend.probe.health()
        assert [reading.uuid for reading in readings] == sorted(rig.gpus)
        assert all(reading.healthy and not reading.hard for reading in readings)

    @pytest.mark.parametrize("which", [0, -1], ids=["broken", "vanished"])
    async def test_a_lost_device_is_a_hard_fault_of_that_device_alone(
        self, rig: Rig, backend: DeviceBackend, which: int
    ) -> None:
        gpu = rig.gpus[which]
        rig.lose(gpu)
        reading = await reading_of(backend, gpu)
        assert (reading.healthy, reading.hard) == (False, True)
        assert reading.reason is not None
        assert reading.message
        others = [one for one in await backend.probe.health() if one.uuid != gpu]
        assert len(others) == len(rig.gpus) - 1
        assert all(other.healthy for other in others)

    @pytest.mark.parametrize("which", [0, -1], ids=["broken", "vanished"])
    async def test_a_lost_device_stays_in_the_list_as_unhealthy(
        self, rig: Rig, backend: DeviceBackend, which: int
    ) -> None:
        healthy = await device_of(backend, rig.gpus[which])
        rig.lose(rig.gpus[which])
        lost = await device_of(backend, rig.gpus[which])
        assert lost.health is Health.UNHEALTHY
        assert lost.memory_mib == healthy.memory_mib

    @pytest.mark.parametrize("which", [0, -1], ids=["broken", "vanished"])
    async def test_a_device_found_again_is_healthy_again(
        self, rig: Rig, backend: DeviceBackend, which: int
    ) -> None:
        gpu = rig.gpus[which]
        rig.lose(gpu)
        assert not (await reading_of(backend, gpu)).healthy
        rig.find_again(gpu)
        assert (await reading_of(backend, gpu)).healthy
        assert (await device_of(backend, gpu)).health is Health.HEALTHY

    async def test_losing_everything_at_run_time_is_a_soft_fault_of_all_and_no_crash(
        self, rig: Rig, backend: DeviceBackend
    ) -> None:
        rig.take_everything()
        readings = await backend.probe.health()
        assert [reading.uuid for reading in readings] == sorted(rig.gpus)
        assert not any(reading.healthy or reading.hard for reading in readings)
        with pytest.raises(BackendUnavailable):
            await backend.probe.discover()


class TestPrepare:
    async def test_a_device_never_seen_is_refused(self, backend: DeviceBackend) -> None:
        with pytest.raises(PrepareRefused, match="GPU-unknown"):
            await backend.driver.prepare(a_binding("GPU-unknown"))

    async def test_asking_again_gives_the_same_edits(
        self, rig: Rig, backend: DeviceBackend
    ) -> None:
        binding = wants(rig, rig.gpus[0])
        first = await backend.driver.prepare(binding)
        assert first == await backend.driver.prepare(binding)
        assert first.hooks or first.device_nodes

    async def test_edits_differ_by_device(self, rig: Rig, backend: DeviceBackend) -> None:
        one = await backend.driver.prepare(wants(rig, rig.gpus[0]))
        other = await backend.driver.prepare(wants(rig, rig.gpus[1]))
        assert (one.hooks, one.device_nodes) != (other.hooks, other.device_nodes)

    async def test_overhead_is_a_number_for_every_device(
        self, rig: Rig, backend: DeviceBackend
    ) -> None:
        assert all(backend.driver.context_overhead_mib(gpu) >= 0 for gpu in rig.gpus)


class TestObserve:
    async def test_nothing_is_there_before_the_container(
        self, rig: Rig, backend: DeviceBackend
    ) -> None:
        binding = wants(rig, rig.gpus[0])
        await backend.driver.prepare(binding)
        assert await seen(backend, binding) == Attachment(state=AttachState.ABSENT)

    async def test_a_running_container_is_seen_with_pid_and_memory(
        self, rig: Rig, backend: DeviceBackend
    ) -> None:
        binding, pid = await started(rig, backend, rig.gpus[0])
        attachment = await seen(backend, binding)
        assert attachment.state is AttachState.ENFORCED
        assert attachment.pids == (pid,)
        assert attachment.memory_used_mib == 64
        assert (attachment.reason, attachment.message) == (None, "")

    async def test_an_ended_container_is_gone(self, rig: Rig, backend: DeviceBackend) -> None:
        binding, _ = await started(rig, backend, rig.gpus[0])
        rig.end_container(binding)
        assert await seen(backend, binding) == Attachment(state=AttachState.ABSENT)

    async def test_a_new_agent_sees_running_containers_without_preparing_them(
        self, rig: Rig, backend: DeviceBackend
    ) -> None:
        binding, _ = await started(rig, backend, rig.gpus[1])
        before = await seen(backend, binding)
        await backend.probe.close()
        assert await seen(await opened(rig), binding) == before

    async def test_a_restarted_container_is_seen_with_its_new_pid(
        self, rig: Rig, backend: DeviceBackend
    ) -> None:
        binding, first = await started(rig, backend, rig.gpus[0])
        rig.end_container(binding)
        edits = await backend.driver.prepare(binding)
        assert (await seen(backend, binding)).state is AttachState.ABSENT
        second = await rig.start_container(binding, edits)
        assert second != first
        assert (await seen(backend, binding)).pids == (second,)

    async def test_two_containers_are_told_apart(self, rig: Rig, backend: DeviceBackend) -> None:
        one, pid_one = await started(rig, backend, rig.gpus[0])
        two, pid_two = await started(rig, backend, rig.gpus[1])
        both = await backend.driver.observe([one, two])
        assert both[one.key].pids == (pid_one,)
        assert both[two.key].pids == (pid_two,)

    async def test_a_container_with_two_whole_devices_is_one_reading(
        self, rig: Rig, backend: DeviceBackend
    ) -> None:
        binding, pid = await started(rig, backend, rig.gpus[1], rig.gpus[2])
        attachment = await seen(backend, binding)
        assert attachment.state is AttachState.ENFORCED
        assert attachment.pids == (pid,)
        assert attachment.memory_used_mib == 64

    async def test_a_container_outside_its_limits_is_unenforced_with_a_reason(
        self, rig: Rig, backend: DeviceBackend
    ) -> None:
        binding, pid = await started(rig, backend, rig.gpus[0])
        rig.escape(binding)
        attachment = await seen(backend, binding)
        assert attachment.state is AttachState.UNENFORCED
        assert attachment.reason is not None
        assert attachment.message
        assert pid in attachment.pids

    async def test_what_cannot_be_read_is_unverified_and_says_so(
        self, rig: Rig, backend: DeviceBackend
    ) -> None:
        binding, _ = await started(rig, backend, rig.gpus[0])
        rig.blind()
        attachment = await seen(backend, binding)
        assert attachment.state is AttachState.UNVERIFIED
        assert attachment.message

    async def test_a_slice_on_a_device_never_seen_is_unverified_or_absent_but_no_error(
        self, backend: DeviceBackend
    ) -> None:
        attachment = await seen(backend, a_binding("GPU-unknown"))
        assert attachment.state in (AttachState.UNVERIFIED, AttachState.ABSENT)
        assert attachment.pids == ()

    async def test_every_binding_gets_a_reading(self, rig: Rig, backend: DeviceBackend) -> None:
        running, _ = await started(rig, backend, rig.gpus[0])
        waiting = wants(rig, rig.gpus[1])
        readings = await backend.driver.observe([running, waiting])
        assert set(readings) == {running.key, waiting.key}
        assert await backend.driver.observe([]) == {}


class TestRelease:
    async def test_release_may_come_twice_and_without_prepare(
        self, rig: Rig, backend: DeviceBackend
    ) -> None:
        binding, _ = await started(rig, backend, rig.gpus[0])
        rig.end_container(binding)
        await backend.driver.release(binding)
        await backend.driver.release(binding)
        await backend.driver.release(wants(rig, rig.gpus[1]))
        assert (await seen(backend, binding)).state is AttachState.ABSENT

    async def test_a_slot_given_to_another_pod_shows_nothing_of_the_last_one(
        self, rig: Rig, backend: DeviceBackend
    ) -> None:
        old, _ = await started(rig, backend, rig.gpus[0])
        other = wants(rig, rig.gpus[0])
        heir = ContainerBinding(
            key=other.key, pod_namespace="default", pod_name="heir", slices=old.slices
        )
        assert (await seen(backend, heir)).state is AttachState.ABSENT

    @pytest.mark.slow
    async def test_cleaning_up_leaves_running_containers_alone_and_may_come_twice(
        self, rig: Rig, backend: DeviceBackend
    ) -> None:
        await started(rig, backend, rig.gpus[0])
        await backend.driver.cleanup_all()
        await backend.driver.cleanup_all()
        assert len(await backend.probe.discover()) == len(rig.gpus)
