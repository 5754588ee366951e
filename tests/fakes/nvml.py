# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An in-memory stand-in for the functions of ``pynvml`` that the nvidia backend calls.

It stands at the function boundary, so the backend's own code runs. Constants and error classes are
pynvml's. A test changes :class:`FakeGpu` and the fake answers as a driver would; nothing here
knows what the backend makes of it.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pynvml

from ullage_node.devices.nvidia.host_processes import ProcessSource
from ullage_node.devices.nvidia.known import MpsShares, NvidiaDevices
from ullage_node.devices.nvidia.nvml import NvmlApi, NvmlThread

MIB = 1 << 20
_SUPPORTED_EVENTS = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError


@dataclass(frozen=True)
class FakeMemory:
    total: int
    used: int
    free: int


@dataclass(frozen=True)
class FakeProcess:
    pid: int
    usedGpuMemory: int | None
    gpuInstanceId: int = 0xFFFFFFFF
    computeInstanceId: int = 0xFFFFFFFF


@dataclass(frozen=True)
class FakeEvent:
    device: FakeGpu
    eventType: int
    eventData: int
    gpuInstanceId: int = 0xFFFFFFFF


@dataclass(frozen=True)
class FakeNumber:
    uiVal: int


@dataclass(frozen=True)
class FakeFieldValue:
    value: FakeNumber
    nvmlReturn: int


@dataclass(eq=False)
class FakeGpu:
    """One device; every field may change at any time. It is its own handle."""

    uuid: str
    minor: int
    name: str = "NVIDIA H100 80GB HBM3"
    memory_mib: int = 81559
    used_mib: int = 0
    mig: bool | None = False
    """``None`` = the type of device knows no MIG."""
    lost: bool = False
    """Fell off the bus: its handle still exists, every call on it fails."""
    absent: bool = False
    """Not there at all: no handle, not counted."""
    error: int | None = None
    """NVML error that every call on the device gives."""
    clock_reasons: int = pynvml.nvmlClocksEventReasonGpuIdle
    recovery_action: int | None = pynvml.NVML_GPU_RECOVERY_ACTION_NONE
    """``None`` = the driver does not know the field."""
    rows_pending: bool = False
    rows_failed: bool = False
    events_supported: int = _SUPPORTED_EVENTS
    capability: tuple[int, int] = (9, 0)
    cores: int | None = 16_896
    """CUDA cores; ``None`` = the driver does not say."""
    compute_mode: int = pynvml.NVML_COMPUTEMODE_DEFAULT
    processes: dict[int, int | None] = field(default_factory=dict)
    """Host pid to MiB; ``None`` = the driver does not say."""
    mps_processes: dict[int, int] = field(default_factory=dict)
    gpm: dict[int, float] | None = None
    """GPM metric number to what it is, the mean of all time; ``None`` = a device without GPM."""
    busy_percent: int | None = None
    """Utilisation, power, clocks, replays: ``None`` = the device does not say."""
    power_milliwatts: int | None = None
    sm_mhz: int | None = None
    sm_mhz_most: int | None = None
    pcie_replays: int | None = None
    instances: list[FakeMig] = field(default_factory=list)
    """Its MIG devices, in MIG mode; their places may have gaps."""
    shows_instances: bool = True
    """Whether the caller may see them."""


@dataclass(eq=False)
class FakeMig(FakeGpu):
    """A MIG device. What the driver answers for whole GPUs only is an error here."""

    gpu: FakeGpu | None = None
    gpu_instance: int = 1
    compute_instance: int = 0
    sm_count: int = 16

    @classmethod
    def of(cls, gpu: FakeGpu, gpu_instance: int, profile: str, memory_mib: int) -> FakeMig:
        """A new one on this GPU, in MIG mode from then on."""
        made = cls(
            uuid=f"MIG-{gpu.minor}{gpu_instance:07d}-aaaa-bbbb-cccc-dddddddddddd",
            minor=-1,
            name=f"{gpu.name} MIG {profile}",
            memory_mib=memory_mib,
            gpu=gpu,
            gpu_instance=gpu_instance,
        )
        gpu.mig = True
        gpu.instances.append(made)
        return made


@dataclass(frozen=True)
class FakeAttributes:
    multiprocessorCount: int
    gpuInstanceSliceCount: int


@dataclass(frozen=True)
class FakeUtilisation:
    gpu: int
    memory: int = 0


@dataclass(frozen=True)
class FakeGpmSupport:
    isSupportedDevice: int


@dataclass(eq=False)
class FakeGpmSample:
    """A buffer of GPM: what the device showed when it was filled, ``None`` = never filled."""

    gpu: FakeGpu | None = None
    filled: int = 0
    freed: bool = False
    memory: ctypes.Array[ctypes.c_char] = field(
        default_factory=lambda: ctypes.create_string_buffer(8)
    )


class FakeEventSet:
    """Devices registered with one event set, and whether it was freed."""

    def __init__(self) -> None:
        self.devices: dict[str, int] = {}
        self.freed = False


@dataclass(frozen=True)
class PidNamespace:
    """A PID namespace that is not the host's: numbers of the host to its own.

    The rule of Linux and of the driver (``pid_vnr``, os_find_ns_pid in NVIDIA's
    open-gpu-kernel-modules): a process has one number in each namespace from its own up to the
    host's, and none elsewhere.
    """

    numbers: Mapping[int, int] = field(default_factory=dict)


class SeenFrom:
    """The library as a process of a namespace gets it: processes that have no number are left out.

    No call fails: the driver leaves them out in silence. Without the right to them there are no MIG
    devices.
    """

    def __init__(self, nvml: FakeNvml, namespace: PidNamespace, *, mig: bool) -> None:
        self._nvml = nvml
        self._namespace = namespace
        self._mig = mig

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nvml, name)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: object, index: int) -> object:
        return self._shown(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index))

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object:
        return self._shown(self._nvml.nvmlDeviceGetHandleByUUID(uuid))

    def _shown(self, handle: object) -> object:
        if isinstance(handle, FakeMig) and not self._mig:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return handle

    def nvmlDeviceGetComputeRunningProcesses(self, handle: object) -> list[FakeProcess]:
        return self._numbered(self._nvml.nvmlDeviceGetComputeRunningProcesses(handle))

    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, handle: object) -> list[FakeProcess]:
        return self._numbered(self._nvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(handle))

    def _numbered(self, processes: list[FakeProcess]) -> list[FakeProcess]:
        numbers = self._namespace.numbers
        return [
            replace(process, pid=numbers[process.pid])
            for process in processes
            if process.pid in numbers
        ]


class FakeNvml:
    """The functions of ``pynvml``, over a list of :class:`FakeGpu`.

    It answers as to a process with the host's numbers; :meth:`seen_from` as to another one.
    """

    def __init__(self, *gpus: FakeGpu, driver_version: str = "580.65.06") -> None:
        self.cuda_version = 13_000
        self.gpus = list(gpus)
        self.driver_version = driver_version
        self.init_error: int | None = None
        self.initialised = 0
        self.callers: set[str] = set()
        self.calls = 0
        self.event_sets: list[FakeEventSet] = []
        self.gpm_samples: list[FakeGpmSample] = []
        self.hang: threading.Event | None = None
        """While set to an event, every call waits for it: a driver that hangs."""
        self._events: deque[FakeEvent] = deque()

    def seen_from(self, namespace: PidNamespace, *, mig: bool = True) -> SeenFrom:
        """The same driver, called from another PID namespace, with or without MIG devices."""
        return SeenFrom(self, namespace, mig=mig)

    def raise_xid(self, gpu: FakeGpu, xid: int) -> None:
        """The driver reports a critical error; who did not register never hears of it.

        One of a MIG device comes from its GPU, with the number of its instance.
        """
        kind = pynvml.nvmlEventTypeXidCriticalError
        if isinstance(gpu, FakeMig):
            assert gpu.gpu is not None
            self._raise(FakeEvent(gpu.gpu, kind, xid, gpu.gpu_instance))
        else:
            self._raise(FakeEvent(gpu, kind, xid))

    def raise_double_bit_error(self, gpu: FakeGpu) -> None:
        self._raise(FakeEvent(gpu, pynvml.nvmlEventTypeDoubleBitEccError, 0))

    @property
    def open_event_sets(self) -> int:
        return sum(not events.freed for events in self.event_sets)

    # The functions, under pynvml's names.

    def nvmlInit(self) -> None:
        self._call(needs_init=False)
        if self.init_error is not None:
            raise pynvml.NVMLError(self.init_error)
        self.initialised += 1

    def nvmlShutdown(self) -> None:
        self._call()
        self.initialised -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        self._call()
        return self.driver_version

    def nvmlDeviceGetCount(self) -> int:
        self._call()
        return len(self._present())

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:
        self._call()
        gpu = self._present()[index]
        if gpu.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return gpu

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object:
        self._call()
        for gpu in self._present():
            for one in (gpu, *(gpu.instances if gpu.mig and gpu.shows_instances else ())):
                if one.uuid == uuid:
                    return self._device(one)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetUUID(self, handle: object) -> str:
        self._call()
        assert isinstance(handle, FakeGpu)
        return handle.uuid  # also of a lost device: events name it

    def nvmlDeviceGetName(self, handle: object) -> str:
        return self._device(handle).name

    def nvmlDeviceGetMinorNumber(self, handle: object) -> int:
        return self._whole(handle).minor

    def nvmlDeviceGetMemoryInfo(self, handle: object) -> FakeMemory:
        gpu = self._device(handle)
        total, used = gpu.memory_mib * MIB, gpu.used_mib * MIB
        return FakeMemory(total=total, used=used, free=total - used)

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        self._call()
        return self.cuda_version

    def nvmlDeviceGetCudaComputeCapability(self, handle: object) -> tuple[int, int]:
        return self._whole(handle).capability

    def nvmlDeviceGetComputeMode(self, handle: object) -> int:
        return self._whole(handle).compute_mode

    def nvmlDeviceGetNumGpuCores(self, device: object) -> int:
        cores = self._whole(device).cores
        if cores is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return cores

    def nvmlDeviceGetMigMode(self, device: object) -> list[int]:
        gpu = self._whole(device)
        if gpu.mig is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [int(gpu.mig), int(gpu.mig)]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: object) -> int:
        return 7 if self._whole(device).mig else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: object, index: int) -> object:
        gpu = self._whole(device)
        places = {mig.gpu_instance: mig for mig in gpu.instances if gpu.shows_instances}
        if index not in places:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return places[index]

    def nvmlDeviceGetGpuInstanceId(self, device: object) -> int:
        return self._part(device).gpu_instance

    def nvmlDeviceGetComputeInstanceId(self, device: object) -> int:
        return self._part(device).compute_instance

    def nvmlDeviceGetAttributes_v2(self, device: object) -> FakeAttributes:
        mig = self._part(device)
        return FakeAttributes(mig.sm_count, mig.sm_count // 16)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: object) -> list[FakeProcess]:
        return [
            FakeProcess(pid, None if mib is None else mib * MIB)
            for pid, mib in self._device(handle).processes.items()
        ]

    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, handle: object) -> list[FakeProcess]:
        return [
            FakeProcess(pid, mib * MIB) for pid, mib in self._device(handle).mps_processes.items()
        ]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: object) -> int:
        return self._whole(handle).clock_reasons

    def nvmlDeviceGetRemappedRows(self, device: object) -> tuple[int, int, int, int]:
        gpu = self._whole(device)
        return (0, 0, int(gpu.rows_pending), int(gpu.rows_failed))

    def nvmlDeviceGetFieldValues(
        self, handle: object, fieldIds: Sequence[int]
    ) -> list[FakeFieldValue]:
        gpu = self._whole(handle)
        return [
            FakeFieldValue(FakeNumber(gpu.recovery_action), pynvml.NVML_SUCCESS)
            if one == pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION and gpu.recovery_action is not None
            else FakeFieldValue(FakeNumber(0), pynvml.NVML_ERROR_NOT_SUPPORTED)
            for one in fieldIds
        ]

    def nvmlDeviceGetSupportedEventTypes(self, handle: object) -> int:
        return self._whole(handle).events_supported

    def nvmlDeviceRegisterEvents(self, handle: object, eventTypes: int, eventSet: object) -> None:
        gpu = self._whole(handle)
        if eventTypes & ~gpu.events_supported:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self._set(eventSet).devices[gpu.uuid] = eventTypes

    def nvmlEventSetCreate(self) -> object:
        self._call()
        self.event_sets.append(FakeEventSet())
        return self.event_sets[-1]

    def nvmlEventSetWait_v2(self, eventSet: object, timeoutms: int) -> FakeEvent:
        self._call()
        self._set(eventSet)
        assert timeoutms == 0, "waiting would hold up every other call"
        if not self._events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        return self._events.popleft()

    def nvmlEventSetFree(self, eventSet: object) -> None:
        self._call()
        self._set(eventSet).freed = True

    def nvmlDeviceGetUtilizationRates(self, handle: object) -> FakeUtilisation:
        return FakeUtilisation(_known(self._whole(handle).busy_percent))

    def nvmlDeviceGetPowerUsage(self, handle: object) -> int:
        return _known(self._device(handle).power_milliwatts)

    def nvmlDeviceGetClockInfo(self, handle: object, type: int) -> int:
        assert type == pynvml.NVML_CLOCK_SM
        return _known(self._device(handle).sm_mhz)

    def nvmlDeviceGetMaxClockInfo(self, handle: object, type: int) -> int:
        assert type == pynvml.NVML_CLOCK_SM
        return _known(self._device(handle).sm_mhz_most)

    def nvmlDeviceGetPcieReplayCounter(self, handle: object) -> int:
        return _known(self._device(handle).pcie_replays)

    def nvmlGpmQueryDeviceSupport(self, device: object) -> FakeGpmSupport:
        return FakeGpmSupport(int(self._whole(device).gpm is not None))

    def nvmlGpmSampleAlloc(self) -> object:
        self._call()
        self.gpm_samples.append(FakeGpmSample())
        return ctypes.cast(self.gpm_samples[-1].memory, pynvml.c_nvmlGpmSample_t)

    def nvmlGpmSampleFree(self, gpmSample: object) -> None:
        self._call()
        sample = self._sample(gpmSample)
        assert not sample.freed, "freed twice"
        sample.freed = True

    def nvmlGpmSampleGet(self, device: object, gpmSample: object) -> object:
        gpu = self._device(device)
        sample = self._sample(gpmSample)
        if gpu.gpm is None or sample.freed:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        sample.gpu, sample.filled = gpu, self.calls
        return gpmSample

    def nvmlGpmMetricsGet(self, metricsGet: pynvml.c_nvmlGpmMetricsGet_t) -> object:
        self._call()
        older, newer = (self._sample(one) for one in (metricsGet.sample1, metricsGet.sample2))
        if older.gpu is None or older.gpu is not newer.gpu or older.filled >= newer.filled:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        given = older.gpu.gpm or {}
        for metric in metricsGet.metrics[: metricsGet.numMetrics]:
            known = metric.metricId in given
            metric.value = given.get(metric.metricId, 0.0)
            metric.nvmlReturn = pynvml.NVML_SUCCESS if known else pynvml.NVML_ERROR_NOT_SUPPORTED
        return metricsGet

    def _sample(self, pointer: object) -> FakeGpmSample:
        """The buffer that a pointer of the library's own type leads to."""
        assert isinstance(pointer, pynvml.c_nvmlGpmSample_t)
        address = ctypes.cast(pointer, ctypes.c_void_p).value
        (found,) = (one for one in self.gpm_samples if ctypes.addressof(one.memory) == address)
        return found

    def _raise(self, event: FakeEvent) -> None:
        wanted = any(
            events.devices.get(event.device.uuid, 0) & event.eventType
            for events in self.event_sets
            if not events.freed
        )
        if wanted:
            self._events.append(event)

    def _present(self) -> list[FakeGpu]:
        return [gpu for gpu in self.gpus if not gpu.absent]

    def _call(self, *, needs_init: bool = True) -> None:
        self.calls += 1
        self.callers.add(threading.current_thread().name)
        if self.hang is not None:
            self.hang.wait()
        if needs_init and self.initialised < 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)

    def _device(self, handle: object) -> FakeGpu:
        self._call()
        assert isinstance(handle, FakeGpu), "not a handle of this library"
        if handle.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        if handle.error is not None:
            raise pynvml.NVMLError(handle.error)
        if isinstance(handle, FakeMig):
            assert handle.gpu is not None
            if handle not in handle.gpu.instances:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
            self._device(handle.gpu)
        return handle

    def _whole(self, handle: object) -> FakeGpu:
        gpu = self._device(handle)
        if isinstance(gpu, FakeMig):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return gpu

    def _part(self, handle: object) -> FakeMig:
        mig = self._device(handle)
        if not isinstance(mig, FakeMig):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return mig

    def _set(self, handle: object) -> FakeEventSet:
        assert isinstance(handle, FakeEventSet), "not an event set of this library"
        if handle.freed:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return handle


def _known(value: int | None) -> int:
    """A reading, or the driver's error where the device does not give it."""
    if value is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return value


class PatientNvml(NvmlThread):
    """The thread for calls that a busy machine may keep waiting: nothing here hangs by itself."""

    def __init__(self, api: NvmlApi) -> None:
        super().__init__(api, deadline_seconds=60.0)


def patient_devices(api: NvmlApi, shares: MpsShares, processes: ProcessSource) -> NvidiaDevices:
    """The devices behind such a thread."""
    devices = NvidiaDevices(api, shares, processes)
    devices.thread = PatientNvml(api)
    return devices
