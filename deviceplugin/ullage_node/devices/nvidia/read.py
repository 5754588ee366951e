# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads inventory, health, processes and events of devices from NVML.

Uses only :class:`NvmlApi`, on the NVML thread; it holds no state and decides nothing. An error that
a healthy device may return (an old driver lacks a function, a device type lacks a feature) counts
as "unknown", never as a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, TypeVar

import pynvml

from ullage.api.codec import Wire
from ullage.api.reasons import Reason
from ullage.api.wire_fields import NEEDED, Name, Text, Whole, between
from ullage.api.xids import xid_of
from ullage_node.devices.nvidia.nvml import NO_INSTANCE, NvmlApi, NvmlError, Process
from ullage_node.mps.records import PID_MAX

EVENTS_PER_READING_MAX: Final = 64

SLOWDOWN_REASONS: Final[int] = (
    pynvml.nvmlClocksEventReasonHwSlowdown
    | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    | pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown
    | pynvml.nvmlClocksEventReasonSwThermalSlowdown
)
"""Reasons for low clocks caused by heat or power faults, not by idleness or an ordinary cap."""

CORES_PER_SM: Final = {(7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64}
"""CUDA cores of one SM by compute capability (CUDA programming guide): Volta, Turing, A100."""
CORES_PER_SM_LATER: Final = 128
"""GA10x, Ada, Hopper, Blackwell."""

Result = TypeVar("Result")

_HARD_ERRORS: Final = frozenset(
    {
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_GPU_NOT_FOUND,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_RESET_REQUIRED,
    }
)
_UNSUPPORTED: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_NO_PERMISSION,
    }
)
_RECOVERY_ACTIONS: Final = {
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "a reset of the GPU",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "a reboot of the node",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "draining and a reset of the GPU",
    pynvml.NVML_GPU_RECOVERY_ACTION_BUS_RESET: "a reset of the bus",
    pynvml.NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT: "a reboot of the system",
}
_EVENTS_WANTED: Final[int] = (
    pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaDevice:
    """Identity of a device; ``minor`` is the number of its device file.

    ``capability`` is the compute capability, (0, 0) = unknown; ``sm_count`` 0 = unknown;
    ``prohibited`` = its compute mode admits no program, ``one_process`` = it admits one. ``mig`` =
    a GPU in MIG mode of which no MIG device is seen. A MIG device has the uuid of its GPU as
    ``parent``, the numbers of its GPU instance and compute instance as ``instance``, and its GPU's
    ``minor``. ``index`` is the driver's number of the GPU.
    """

    uuid: str
    product_name: str
    memory_mib: int
    minor: int
    mig: bool
    capability: tuple[int, int] = (0, 0)
    sm_count: int = 0
    prohibited: bool = False
    one_process: bool = False
    parent: str = ""
    instance: tuple[int, int] | None = None
    index: int | None = None

    @property
    def gpu(self) -> str:
        """UUID of the GPU: its own, or its parent's."""
        return self.parent or self.uuid

    @property
    def in_mig(self) -> bool:
        """True if it is a MIG device, or a GPU in MIG mode."""
        return self.mig or bool(self.parent)

    @property
    def faulty_as(self) -> tuple[str, ...]:
        """Names under which its faults are recorded: its own, its GPU's, its part's."""
        if self.instance is None:
            return (self.uuid,)
        return (self.uuid, self.parent, part_of(self.parent, self.instance[0]))


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaFault:
    """The fault of a device; ``hard`` makes it unhealthy at once."""

    hard: bool
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaState:
    """One reading of a device: its fault if any, and if heat or power holds its clocks down."""

    fault: NvidiaFault | None = None
    slowed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess(Wire):
    """One process on one device; the PID in its reader's namespace, memory in MiB."""

    gpu: Name
    pid: Annotated[int, between(1, PID_MAX), NEEDED]
    memory_mib: Annotated[Whole, NEEDED]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadDevice(Wire):
    """A device whose processes are unknown, and the reason."""

    gpu: Name
    why: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Processes on the devices; ``unread`` lists the devices where they are unknown, and why."""

    processes: tuple[GpuProcess, ...]
    unread: Mapping[str, str]


def read_inventory(api: NvmlApi, *, parts: bool = True) -> tuple[NvidiaDevice, ...]:
    """Every device that answers, in the driver's order; lost ones are omitted.

    Args:
        api: The library.
        parts: Replace a GPU in MIG mode by its MIG devices that this process may see; else they are
            not read.

    Raises:
        NvmlError: the driver itself does not answer.
    """
    devices: list[NvidiaDevice] = []
    for index in range(api.nvmlDeviceGetCount()):
        try:
            handle = api.nvmlDeviceGetHandleByIndex(index)
            device = replace(_describe(api, handle), index=index)
            devices += (_mig_devices(api, handle, device) if parts and device.mig else ()) or (
                device,
            )
        except NvmlError as error:
            if _code(error) not in _HARD_ERRORS:
                raise
    return tuple(devices)


def read_parts(api: NvmlApi, uuid: str) -> tuple[NvidiaDevice, ...]:
    """The MIG devices of a GPU; none where it is not in MIG mode.

    Raises:
        NvmlError: the GPU or the driver does not answer.
    """
    handle = api.nvmlDeviceGetHandleByUUID(uuid)
    gpu = _describe(api, handle)
    return _mig_devices(api, handle, gpu) if gpu.mig else ()


def _describe(api: NvmlApi, handle: object) -> NvidiaDevice:
    capability = _capability(api, handle)
    mode = _known(lambda: api.nvmlDeviceGetComputeMode(handle), pynvml.NVML_COMPUTEMODE_DEFAULT)
    return NvidiaDevice(
        uuid=api.nvmlDeviceGetUUID(handle),
        product_name=api.nvmlDeviceGetName(handle),
        memory_mib=api.nvmlDeviceGetMemoryInfo(handle).total >> 20,
        minor=api.nvmlDeviceGetMinorNumber(handle),
        mig=_known(lambda: api.nvmlDeviceGetMigMode(handle)[0], 0) == pynvml.NVML_DEVICE_MIG_ENABLE,
        capability=capability,
        sm_count=_sm_count(api, handle, capability),
        prohibited=mode == pynvml.NVML_COMPUTEMODE_PROHIBITED,
        one_process=mode == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
    )


def _mig_devices(api: NvmlApi, handle: object, gpu: NvidiaDevice) -> tuple[NvidiaDevice, ...]:
    """MIG devices of a GPU visible to this process; their numbers may have gaps."""
    devices = []
    for index in range(api.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            devices.append(
                _describe_mig(api, api.nvmlDeviceGetMigDeviceHandleByIndex(handle, index), gpu)
            )
        except NvmlError as error:
            if _code(error) not in _UNSUPPORTED | {pynvml.NVML_ERROR_NOT_FOUND}:
                raise
    return tuple(devices)


def _describe_mig(api: NvmlApi, handle: object, gpu: NvidiaDevice) -> NvidiaDevice:
    """A MIG device. NVML's name contains its profile; otherwise the size is used."""
    name = api.nvmlDeviceGetName(handle)
    has = api.nvmlDeviceGetAttributes_v2(handle)
    return replace(
        gpu,
        uuid=api.nvmlDeviceGetUUID(handle),
        product_name=name
        if name != gpu.product_name
        else f"{name} MIG {has.gpuInstanceSliceCount}g",
        memory_mib=api.nvmlDeviceGetMemoryInfo(handle).total >> 20,
        mig=False,
        sm_count=has.multiprocessorCount,
        parent=gpu.uuid,
        instance=(
            api.nvmlDeviceGetGpuInstanceId(handle),
            api.nvmlDeviceGetComputeInstanceId(handle),
        ),
    )


def part_of(gpu: str, instance: int) -> str:
    """Name of a part of a GPU in MIG mode, for faults."""
    return f"{gpu}/{instance}"


def gpu_of(name: str) -> str:
    """The GPU of a name for faults."""
    return name.partition("/")[0]


def _capability(api: NvmlApi, handle: object) -> tuple[int, int]:
    nothing: Sequence[int] = (0, 0)
    major, minor = _known(lambda: api.nvmlDeviceGetCudaComputeCapability(handle), nothing)
    return major, minor


def _sm_count(api: NvmlApi, handle: object, capability: tuple[int, int]) -> int:
    """SMs of a device. NVML counts cores only; cores per SM depend on the generation."""
    cores = _known(lambda: api.nvmlDeviceGetNumGpuCores(handle), 0)
    return cores // CORES_PER_SM.get(capability, CORES_PER_SM_LATER) if capability[0] >= 7 else 0


def _known(read: Callable[[], Result], otherwise: Result) -> Result:
    """A value that an old driver or a device type may not support."""
    try:
        return read()
    except NvmlError as error:
        if _code(error) in _UNSUPPORTED:
            return otherwise
        raise


def read_state(api: NvmlApi, uuid: str) -> NvidiaState:
    """Read if a device answers, waits for a reset, or is throttled by heat or power."""
    try:
        handle = api.nvmlDeviceGetHandleByUUID(uuid)
        api.nvmlDeviceGetMemoryInfo(handle)
        needed = _recovery_needed(api, handle) or _rows_wait_for_reset(api, handle)
        reasons = _known(lambda: api.nvmlDeviceGetCurrentClocksEventReasons(handle), 0)
        slowed = bool(reasons & SLOWDOWN_REASONS)
    except NvmlError as error:
        return NvidiaState(fault=_fault_of(error))
    if needed:
        text = f"the driver asks for {needed}"
        return NvidiaState(
            fault=NvidiaFault(hard=True, reason=Reason.DEVICE_UNHEALTHY, message=text),
            slowed=slowed,
        )
    return NvidiaState(slowed=slowed)


def read_processes(api: NvmlApi, uuids: Iterable[str]) -> Usage:
    """Processes that hold a compute context on each device, with and without MPS.

    PIDs are those of the caller's namespace; processes outside it are silently omitted.
    """
    used_mib: dict[tuple[str, int], int] = {}
    unread: dict[str, str] = {}
    for uuid in uuids:
        try:
            handle = api.nvmlDeviceGetHandleByUUID(uuid)
            plain = api.nvmlDeviceGetComputeRunningProcesses(handle)
            shared = _mps_processes(api, handle)
        except NvmlError as error:
            unread[uuid] = explain(error)
            continue
        for process in (*plain, *shared):
            used_mib[uuid, process.pid] = (process.usedGpuMemory or 0) >> 20
    processes = tuple(
        GpuProcess(gpu=gpu, pid=pid, memory_mib=mib) for (gpu, pid), mib in sorted(used_mib.items())
    )
    return Usage(processes=processes, unread=unread)


def open_events(api: NvmlApi, uuids: Sequence[str]) -> object | None:
    """An event set over all devices that report critical errors; ``None`` where none does.

    Raises:
        NvmlError: the driver itself does not answer.
    """
    events = api.nvmlEventSetCreate()
    registered = 0
    for uuid in uuids:
        try:
            handle = api.nvmlDeviceGetHandleByUUID(uuid)
            wanted = api.nvmlDeviceGetSupportedEventTypes(handle) & _EVENTS_WANTED
            if wanted:
                api.nvmlDeviceRegisterEvents(handle, wanted, events)
                registered += 1
        except NvmlError as error:
            if _code(error) not in _UNSUPPORTED | _HARD_ERRORS:
                raise
    if registered:
        return events
    api.nvmlEventSetFree(events)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalError:
    """A critical error: the GPU or part of it (:func:`part_of`), and the Xid.

    ``xid`` is ``None`` for an error that has none: the driver's own report of a double-bit error.
    """

    name: str
    xid: int | None

    @property
    def fault(self) -> NvidiaFault | None:
        """The fault that it means for the device; ``None`` = none."""
        if self.xid is None:
            text = "double-bit ECC error"
        elif (row := xid_of(self.xid)).cause.unhealthy:
            text = f"critical error, {row.text}"
        else:
            return None
        return NvidiaFault(hard=True, reason=Reason.DEVICE_UNHEALTHY, message=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalErrors:
    """Critical errors, oldest first; ``complete`` = no earlier one is still unread."""

    errors: tuple[CriticalError, ...] = ()
    complete: bool = True


def drain_events(api: NvmlApi, events: object) -> CriticalErrors:
    """Critical errors since the last call, up to a limit; never waits.

    An event carries neither time nor process.
    """
    errors: list[CriticalError] = []
    for _ in range(EVENTS_PER_READING_MAX):
        try:
            event = api.nvmlEventSetWait_v2(events, 0)
        except NvmlError as error:
            if _code(error) == pynvml.NVML_ERROR_TIMEOUT:
                return CriticalErrors(errors=tuple(errors))
            if errors:
                break  # the next call raises it again
            raise
        name = api.nvmlDeviceGetUUID(event.device)
        if event.gpuInstanceId != NO_INSTANCE:
            name = part_of(name, event.gpuInstanceId)
        is_xid = event.eventType == pynvml.nvmlEventTypeXidCriticalError
        errors.append(CriticalError(name=name, xid=event.eventData if is_xid else None))
    return CriticalErrors(errors=tuple(errors), complete=False)


def explain(error: Exception) -> str:
    """NVML's text of an error, with a hint for the administrator."""
    hints = {
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
            "libnvidia-ml.so.1 is not in this container: install the driver and mount it "
            "(runtime class nvidia)"
        ),
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "load the kernel module: modprobe nvidia",
        pynvml.NVML_ERROR_NO_PERMISSION: "the agent may not open /dev/nvidiactl",
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
            "driver and library differ in version: reboot after the driver's update"
        ),
    }
    hint = hints.get(_code(error), "see nvidia-smi and the kernel log")
    return f"NVML: {error}; {hint}"


def failure_text(error: Exception) -> str:
    """Text of a failure of NVML, or of the wait for it."""
    return explain(error) if isinstance(error, NvmlError) else str(error)


def _fault_of(error: Exception) -> NvidiaFault:
    hard = _code(error) in _HARD_ERRORS
    reason = Reason.DEVICE_LOST if hard else Reason.DEVICE_UNHEALTHY
    return NvidiaFault(hard=hard, reason=reason, message=explain(error))


def _code(error: Exception) -> int:
    """NVML's number of an error."""
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else pynvml.NVML_ERROR_UNKNOWN


def _recovery_needed(api: NvmlApi, handle: object) -> str:
    """The recovery action that the driver requests after a fault; empty when none or unknown."""
    try:
        (field,) = api.nvmlDeviceGetFieldValues(
            handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
        )
    except NvmlError as error:
        if _code(error) in _UNSUPPORTED | {pynvml.NVML_ERROR_INVALID_ARGUMENT}:
            return ""
        raise
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        return ""
    return _RECOVERY_ACTIONS.get(field.value.uiVal, "")


def _rows_wait_for_reset(api: NvmlApi, handle: object) -> str:
    """The remedy for broken memory rows: a reset, or another GPU; empty = none needed."""
    nothing: Sequence[int] = (0, 0, 0, 0)
    _, _, pending, failed = _known(lambda: api.nvmlDeviceGetRemappedRows(handle), nothing)
    if failed:
        return "a replacement of the GPU: memory rows could not be remapped"
    return "a reset of the GPU: memory rows wait to be remapped" if pending else ""


def _mps_processes(api: NvmlApi, handle: object) -> Sequence[Process]:
    nothing: Sequence[Process] = ()
    return _known(lambda: api.nvmlDeviceGetMPSComputeRunningProcesses_v3(handle), nothing)
