# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pynvml
import pytest

from fakes.host_reader import HostReader
from fakes.nvml import FakeGpu, FakeNvml, PatientNvml, patient_devices
from ullage.api.devices import GPUMode, Health
from ullage.api.reasons import Reason
from ullage_node.devices.backend import BACKENDS, BackendOptions, Hardware
from ullage_node.devices.nvidia.known import MpsShares
from ullage_node.devices.nvidia.nvml import NvmlStuck, NvmlThread
from ullage_node.devices.nvidia.probe import NvidiaProbe
from ullage_node.model.devices import BackendUnavailable, DeviceReading


class Node:
    """A probe over two GPUs, with a clock that a test turns by hand."""

    def __init__(self) -> None:
        self.first = FakeGpu(uuid="GPU-aaaa", minor=0)
        self.second = FakeGpu(uuid="GPU-bbbb", minor=1, name="Tesla T4", memory_mib=15360)
        self.nvml = FakeNvml(self.first, self.second)
        self.now = 1000.0
        self.devices = patient_devices(
            self.nvml, MpsShares(None), HostReader(PatientNvml(self.nvml))
        )
        self.probe = NvidiaProbe(self.devices, clock=lambda: self.now)

    async def open(self) -> Node:
        await self.probe.start()
        await self.probe.discover()
        return self

    async def first_reading(self) -> DeviceReading:
        return (await self.probe.health())[0]


@pytest.fixture
async def node() -> Node:
    return await Node().open()


@contextmanager
def hanging(nvml: FakeNvml) -> Iterator[None]:
    nvml.hang = threading.Event()
    try:
        yield
    finally:
        nvml.hang.set()
        nvml.hang = None


class TestDiscovery:
    async def test_a_device_is_offered_whole(self, node: Node) -> None:
        h100, t4 = await node.probe.discover()
        assert h100.model == "nvidia-h100-80gb-hbm3"
        assert (h100.memory_mib, h100.contexts) == (81559, 1)
        assert h100.modes == (GPUMode.EXCLUSIVE,)
        assert t4.model == "tesla-t4"
        assert node.devices.driver_version == "580.65.06"

    async def test_a_device_in_mig_mode_is_shown_and_offers_nothing(self, node: Node) -> None:
        node.first.mig = True
        node.second.mig = None
        first, second = await node.probe.discover()
        assert first.modes == ()
        assert second.modes == (GPUMode.EXCLUSIVE,)

    async def test_a_device_plugged_in_later_is_found_and_watched(self, node: Node) -> None:
        late = FakeGpu(uuid="GPU-cccc", minor=2)
        node.nvml.gpus.append(late)
        assert len(await node.probe.discover()) == 3
        node.nvml.raise_xid(late, 79)
        assert not (await node.probe.health())[2].healthy
        assert node.nvml.open_event_sets == 1

    async def test_a_node_without_a_gpu_says_where_to_look(self) -> None:
        probe = NvidiaProbe(
            patient_devices(FakeNvml(), MpsShares(None), HostReader(PatientNvml(FakeNvml())))
        )
        await probe.start()
        with pytest.raises(BackendUnavailable, match="nvidia-smi -L"):
            await probe.discover()

    @pytest.mark.parametrize(
        ("code", "hint"),
        [
            (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "libnvidia-ml.so.1"),
            (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "modprobe nvidia"),
            (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "reboot"),
            (pynvml.NVML_ERROR_NO_PERMISSION, "/dev/nvidiactl"),
            (pynvml.NVML_ERROR_UNKNOWN, "nvidia-smi"),
        ],
    )
    async def test_a_driver_that_does_not_answer_is_named_with_what_helps(
        self, code: int, hint: str
    ) -> None:
        node = Node()
        node.nvml.init_error = code
        with pytest.raises(BackendUnavailable, match=hint) as refused:
            await node.probe.start()
        assert refused.value.reason is Reason.DRIVER_MISSING

    async def test_the_real_library_answers_or_is_named_but_never_crashes(self) -> None:
        backend = BACKENDS[Hardware.NVIDIA](BackendOptions(node_name="here", contexts=8))
        reason = None
        try:
            await backend.probe.start()
        except BackendUnavailable as refused:
            reason = refused.reason
        await backend.probe.close()
        assert (reason is Reason.DRIVER_MISSING) != bool(backend.driver.version)


class TestEvents:
    @pytest.mark.parametrize("xid", [48, 63, 64, 74, 79, 95, 119])
    async def test_a_critical_xid_is_a_hard_fault_told_once(self, node: Node, xid: int) -> None:
        node.nvml.raise_xid(node.first, xid)
        reading = await node.first_reading()
        assert (reading.healthy, reading.hard) == (False, True)
        assert reading.message.startswith(f"critical error, Xid {xid} (")
        assert (await node.first_reading()).healthy

    @pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 94, 109])
    async def test_a_programs_own_fault_is_none_of_the_devices(self, node: Node, xid: int) -> None:
        node.nvml.raise_xid(node.first, xid)
        assert (await node.first_reading()).healthy

    async def test_a_double_bit_error_is_a_hard_fault(self, node: Node) -> None:
        node.nvml.raise_double_bit_error(node.second)
        first, second = await node.probe.health()
        assert first.healthy
        assert (second.hard, second.message) == (True, "double-bit ECC error")

    async def test_discovery_sees_an_event_and_leaves_it_to_health(self, node: Node) -> None:
        node.nvml.raise_xid(node.first, 79)
        assert (await node.probe.discover())[0].health is Health.UNHEALTHY
        assert (await node.first_reading()).hard
        assert (await node.probe.discover())[0].health is Health.HEALTHY

    async def test_an_event_survives_a_change_of_the_set_of_devices(self, node: Node) -> None:
        node.nvml.raise_xid(node.first, 79)
        node.nvml.gpus.append(FakeGpu(uuid="GPU-cccc", minor=2))
        await node.probe.discover()
        assert (await node.first_reading()).hard

    async def test_an_event_of_a_lost_device_is_told_with_the_loss(self, node: Node) -> None:
        node.nvml.raise_xid(node.first, 79)
        node.first.lost = True
        assert (await node.first_reading()).hard

    async def test_devices_without_events_are_watched_by_reading_alone(self) -> None:
        node = Node()
        node.first.events_supported = node.second.events_supported = 0
        await node.open()
        assert node.nvml.open_event_sets == 0
        node.nvml.raise_xid(node.first, 79)
        assert (await node.first_reading()).healthy

    async def test_an_event_storm_is_read_in_bounded_pieces(self, node: Node) -> None:
        for _ in range(200):
            node.nvml.raise_xid(node.first, 79)
        before = node.nvml.calls
        assert (await node.first_reading()).hard
        assert node.nvml.calls - before < 200

    async def test_closing_gives_everything_back(self, node: Node) -> None:
        await node.probe.close()
        assert (node.nvml.initialised, node.nvml.open_event_sets) == (0, 0)


class TestReadings:
    @pytest.mark.parametrize(
        "code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED]
    )
    async def test_errors_that_need_a_person_are_hard(self, node: Node, code: int) -> None:
        node.first.error = code
        reading = await node.first_reading()
        assert (reading.hard, reading.reason) == (True, Reason.DEVICE_LOST)

    async def test_an_error_that_may_pass_is_soft(self, node: Node) -> None:
        node.first.error = pynvml.NVML_ERROR_IRQ_ISSUE
        reading = await node.first_reading()
        assert (reading.healthy, reading.hard) == (False, False)
        assert "Interrupt Request Issue" in reading.message

    @pytest.mark.parametrize(
        ("change", "text"),
        [
            ({"recovery_action": pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET}, "a reset of the GPU"),
            ({"recovery_action": pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT}, "a reboot"),
            ({"rows_pending": True}, "memory rows wait to be remapped"),
            ({"rows_failed": True}, "could not be remapped"),
        ],
    )
    async def test_a_device_that_waits_for_a_reset_stays_out_until_it_had_one(
        self, node: Node, change: dict[str, object], text: str
    ) -> None:
        before = {name: getattr(node.first, name) for name in change}
        for name, value in change.items():
            setattr(node.first, name, value)
        for _ in range(2):
            reading = await node.first_reading()
            assert reading.hard
            assert text in reading.message
        for name, value in before.items():
            setattr(node.first, name, value)
        assert (await node.first_reading()).healthy

    async def test_draining_peer_traffic_alone_is_no_fault(self, node: Node) -> None:
        node.first.recovery_action = pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P
        assert (await node.first_reading()).healthy

    async def test_an_old_driver_without_the_field_is_healthy(self, node: Node) -> None:
        node.first.recovery_action = None
        assert (await node.first_reading()).healthy

    async def test_heat_is_a_soft_fault_after_a_minute_and_passes(self, node: Node) -> None:
        node.first.clock_reasons = pynvml.nvmlClocksEventReasonHwThermalSlowdown
        assert (await node.first_reading()).healthy
        node.now += 59
        assert (await node.first_reading()).healthy
        node.now += 2
        reading = await node.first_reading()
        assert (reading.healthy, reading.hard) == (False, False)
        assert "for 61 s" in reading.message
        node.first.clock_reasons = 0
        assert (await node.first_reading()).healthy
        node.first.clock_reasons = pynvml.nvmlClocksEventReasonHwThermalSlowdown
        assert (await node.first_reading()).healthy

    async def test_idle_and_power_capped_clocks_are_no_fault(self, node: Node) -> None:
        node.first.clock_reasons = (
            pynvml.nvmlClocksEventReasonGpuIdle | pynvml.nvmlClocksEventReasonSwPowerCap
        )
        await node.first_reading()
        node.now += 600
        assert (await node.first_reading()).healthy


class TestOneThread:
    async def test_every_call_comes_from_the_one_thread(self, node: Node) -> None:
        await asyncio.gather(node.probe.health(), node.probe.discover(), node.probe.health())
        assert node.nvml.callers == {"nvml"}

    @pytest.mark.slow
    async def test_a_hanging_driver_is_a_soft_fault_of_every_device(self) -> None:
        node = Node()
        await node.open()
        node.devices.thread = NvmlThread(node.nvml, deadline_seconds=0.05)
        with hanging(node.nvml):
            readings = await node.probe.health()
            assert [one.healthy for one in readings] == [False, False]
            assert not any(one.hard for one in readings)
            assert "did not answer within 0.05 s" in readings[0].message
            again = await node.probe.health()
            assert "still hangs" in again[0].message

    async def test_after_the_hang_calls_work_again(self) -> None:
        nvml = FakeNvml()
        thread = NvmlThread(nvml, deadline_seconds=0.05)
        with hanging(nvml):
            with pytest.raises(NvmlStuck):
                await thread.call(lambda api: api.nvmlInit())
            with pytest.raises(NvmlStuck):
                await thread.call(lambda api: api.nvmlInit())
        patient = PatientNvml(nvml)
        await patient.call(lambda api: api.nvmlInit())
        for _ in range(6000):
            try:
                await thread.call(lambda api: api.nvmlDeviceGetCount())
                break
            except NvmlStuck:
                await asyncio.sleep(0.01)
        else:
            pytest.fail("the thread never came back")
        assert nvml.initialised == 2, "the call that hung ends once, the refused one never ran"
        thread.stop()
        patient.stop()

    async def test_the_thread_ends_when_told(self, node: Node) -> None:
        names = [thread.name for thread in threading.enumerate()]
        await node.probe.close()
        for _ in range(6000):
            if [t.name for t in threading.enumerate()].count("nvml") < names.count("nvml"):
                return
            await asyncio.sleep(0.01)
        pytest.fail("the thread is still there")
