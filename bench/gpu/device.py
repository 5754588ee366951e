# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What NVML says of the GPU while windows run: names, counters between two samples, clocks, Xids.

Readings of the **device**: under MPS no counter belongs to one tenant. What a driver cannot say is
``None``, never zero. Only reads; changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, Final

import pynvml

_GPM: Final = {
    "gpm_gfx": pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
    "gpm_sm": pynvml.NVML_GPM_METRIC_SM_UTIL,
    "gpm_occ": pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "gpm_tensor": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "gpm_hmma": pynvml.NVML_GPM_METRIC_HMMA_TENSOR_UTIL,
    "gpm_fp32": pynvml.NVML_GPM_METRIC_FP32_UTIL,
    "gpm_fp16": pynvml.NVML_GPM_METRIC_FP16_UTIL,
    "gpm_int": pynvml.NVML_GPM_METRIC_INTEGER_UTIL,
    "gpm_dram": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    "gpm_pcie_tx": pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
    "gpm_pcie_rx": pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC,
}
SPOILS: Final = (
    pynvml.nvmlClocksThrottleReasonHwSlowdown
    | pynvml.nvmlClocksThrottleReasonHwThermalSlowdown
    | pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown
    | pynvml.nvmlClocksThrottleReasonSwThermalSlowdown
)
"""Reasons for a low clock that spoil a window. The software power cap does not: sharing the power
budget is part of what neighbours do to each other."""
MIB: Final = 1 << 20


class NoDevice(Exception):
    """There is no NVIDIA GPU here; the text says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What every output names."""

    gpu_uuid: str
    gpu_name: str
    driver: str
    cuda: str
    memory_mib: int
    fake: bool

    def said(self) -> str:
        """One line for people."""
        line = f"GPU {self.gpu_name} ({self.gpu_uuid}), driver {self.driver}, CUDA {self.cuda}"
        return (
            f"{line}; no GPU was used: a stand-in, nothing here was measured" if self.fake else line
        )


@dataclass(slots=True)
class Gauge:
    """Readings of one window."""

    counters: dict[str, float] = field(default_factory=dict)
    sm_clock: list[int] = field(default_factory=list)
    mem_clock: list[int] = field(default_factory=list)
    power_w: list[float] = field(default_factory=list)
    temp: list[int] = field(default_factory=list)
    reasons: list[int] = field(default_factory=list)
    """Why the clock was below its most, a mask a reading."""
    sampled: bool = False

    @property
    def throttle_mask(self) -> int | None:
        """All reasons of the window; ``None`` = the driver does not tell."""
        return reduce(or_, self.reasons) if self.reasons else None


class Device:
    """The first GPU, or the one of a UUID; ``api`` is pynvml or something with its functions."""

    def __init__(self, api: Any = pynvml, *, uuid: str = "", fake: bool = False) -> None:
        self._api = api
        try:
            api.nvmlInit()
            if uuid:
                self.handle = api.nvmlDeviceGetHandleByUUID(uuid)
            else:
                self.handle = api.nvmlDeviceGetHandleByIndex(0)
        except (pynvml.NVMLError, IndexError) as error:
            raise NoDevice(f"no NVIDIA GPU here: {error}; use --dry to run without one") from error
        self.facts = self._facts(fake)
        self._xids: list[int] = []
        self._events = self._register()
        self._buffers = self._open_gpm()

    def _facts(self, fake: bool) -> Facts:
        api, version = self._api, self._api.nvmlSystemGetCudaDriverVersion()
        return Facts(
            gpu_uuid=api.nvmlDeviceGetUUID(self.handle),
            gpu_name=api.nvmlDeviceGetName(self.handle),
            driver=api.nvmlSystemGetDriverVersion(),
            cuda=f"{version // 1000}.{version % 1000 // 10}",
            memory_mib=api.nvmlDeviceGetMemoryInfo(self.handle).total // MIB,
            fake=fake,
        )

    def _register(self) -> Any:
        try:
            events = self._api.nvmlEventSetCreate()
            wanted = pynvml.nvmlEventTypeXidCriticalError
            self._api.nvmlDeviceRegisterEvents(self.handle, wanted, events)
        except pynvml.NVMLError:
            return None  # a guest without events: Xids show as dead workers
        return events

    def _open_gpm(self) -> list[Any]:
        try:
            if not self._api.nvmlGpmQueryDeviceSupport(self.handle).isSupportedDevice:
                return []
            return [self._api.nvmlGpmSampleAlloc(), self._api.nvmlGpmSampleAlloc()]
        except pynvml.NVMLError:
            return []

    @property
    def gpm(self) -> bool:
        """Whether counters can be read."""
        return bool(self._buffers)

    def xids(self) -> list[int]:
        """Critical errors since the start."""
        while self._events is not None:
            try:
                event = self._api.nvmlEventSetWait_v2(self._events, 0)
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    self._events = None
                break
            self._xids.append(int(event.eventData))
        return self._xids

    def used_mib(self) -> int:
        """Memory in use on the device."""
        return int(self._api.nvmlDeviceGetMemoryInfo(self.handle).used) // MIB

    def process_utilisation(self) -> list[tuple[int, int]]:
        """PID and SM percent of every process, as the driver tells it.

        Raises:
            NoDevice: the driver does not tell.
        """
        try:
            found = self._api.nvmlDeviceGetProcessUtilization(self.handle, 0)
        except pynvml.NVMLError as error:
            raise NoDevice(f"ProcessUtilization: {error}") from error
        return [(int(one.pid), int(one.smUtil)) for one in found]

    def begin(self) -> Gauge:
        """Take the first sample of a window."""
        return Gauge(sampled=self._sample(0))

    def _sample(self, place: int) -> bool:
        try:
            if self._buffers:
                self._api.nvmlGpmSampleGet(self.handle, self._buffers[place])
        except pynvml.NVMLError:
            return False  # this window has no counters
        return bool(self._buffers)

    def tick(self, gauge: Gauge) -> None:
        """Clocks, power, temperature, reasons; five times a second."""
        api, handle = self._api, self.handle
        questions: tuple[tuple[list[Any], Callable[[], Any]], ...] = (
            (gauge.sm_clock, lambda: api.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            (gauge.mem_clock, lambda: api.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
            (gauge.power_w, lambda: api.nvmlDeviceGetPowerUsage(handle) / 1000),
            (gauge.temp, lambda: api.nvmlDeviceGetTemperature(handle, 0)),
            (gauge.reasons, lambda: api.nvmlDeviceGetCurrentClocksEventReasons(handle)),
        )
        for found, question in questions:
            try:
                found.append(question())
            except pynvml.NVMLError:
                continue  # absent stays absent

    def end(self, gauge: Gauge) -> None:
        """Take the last sample and read what lies between."""
        if not gauge.sampled or not self._sample(1):
            return
        api = self._api
        answer = pynvml.c_nvmlGpmMetricsGet_t()
        answer.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        answer.numMetrics = len(_GPM)
        answer.sample1, answer.sample2 = self._buffers
        for place, number in enumerate(_GPM.values()):
            answer.metrics[place].metricId = number
        try:
            api.nvmlGpmMetricsGet(answer)
        except pynvml.NVMLError:
            return  # this window has no counters
        for place, name in enumerate(_GPM):
            one = answer.metrics[place]
            if not one.nvmlReturn and math.isfinite(one.value):
                gauge.counters[name] = float(one.value)

    def close(self) -> None:
        """Give the buffers back."""
        for buffer in self._buffers:
            self._api.nvmlGpmSampleFree(buffer)
        self._buffers = []
        self._api.nvmlShutdown()
