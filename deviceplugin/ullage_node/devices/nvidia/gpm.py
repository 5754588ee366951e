# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D102
"""Device counters of NVIDIA GPUs: GPM where the device has it, and plain NVML readings.

GPM compares two samples and gives the mean between them. All counters are of the **device**: under
MPS no counter belongs to one tenant, so a figure belongs to a tenant only while it is alone or the
others are frozen. A counter that a device or driver lacks is absent and flagged, never zero. Every
call runs on the NVML thread, at most once a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

import pynvml
import structlog

from ullage_node.devices.nvidia.nvml import NvmlApi, NvmlError, NvmlStuck
from ullage_node.model.samples import DeviceSample, Metric
from ullage_node.times import GPM_GAP_MOST_S

_IDS: Final[Mapping[int, Metric]] = {
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: Metric.GRAPHICS,
    pynvml.NVML_GPM_METRIC_SM_UTIL: Metric.SM,
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: Metric.OCCUPANCY,
    pynvml.NVML_GPM_METRIC_INTEGER_UTIL: Metric.INTEGER,
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: Metric.TENSOR,
    pynvml.NVML_GPM_METRIC_HMMA_TENSOR_UTIL: Metric.TENSOR_HMMA,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: Metric.DRAM,
    pynvml.NVML_GPM_METRIC_FP64_UTIL: Metric.FP64,
    pynvml.NVML_GPM_METRIC_FP32_UTIL: Metric.FP32,
    pynvml.NVML_GPM_METRIC_FP16_UTIL: Metric.FP16,
}
_PCIE_TX: Final[int] = pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC
_PCIE_RX: Final[int] = pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC
_WANTED: Final = (*_IDS, _PCIE_TX, _PCIE_RX)
_KIB_PER_MIB: Final = 1024
_PERCENT: Final = 100.0
_ROUNDING: Final = 1.0
"""Percent by which a counter may overshoot 100."""

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class GpmMetric(Protocol):
    """One metric of an answer, valid when ``nvmlReturn`` is 0."""

    metricId: int
    nvmlReturn: int
    value: float


class GpmAnswer(Protocol):
    """The fields that ``nvmlGpmMetricsGet`` fills in."""

    version: int
    numMetrics: int
    sample1: object
    sample2: object

    @property
    def metrics(self) -> Mapping[int, GpmMetric]:
        """The metrics by position."""
        ...


class GpmSupport(Protocol):
    """Support of GPM by a device."""

    isSupportedDevice: int


class Utilisation(Protocol):
    """Percent of time in which the device was busy."""

    gpu: int


class GpmApi(Protocol):
    """Functions of ``pynvml`` that only sampling needs, under their own names (see NVML)."""

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> object: ...
    def nvmlGpmQueryDeviceSupport(self, device: object) -> GpmSupport: ...
    def nvmlGpmSampleAlloc(self) -> object: ...
    def nvmlGpmSampleFree(self, gpmSample: object) -> None: ...
    def nvmlGpmSampleGet(self, device: object, gpmSample: object) -> object: ...
    def nvmlGpmMetricsGet(self, metricsGet: GpmAnswer) -> object: ...
    def nvmlDeviceGetUtilizationRates(self, handle: object) -> Utilisation: ...
    def nvmlDeviceGetPowerUsage(self, handle: object) -> int: ...
    def nvmlDeviceGetClockInfo(self, handle: object, type: int) -> int: ...
    def nvmlDeviceGetMaxClockInfo(self, handle: object, type: int) -> int: ...
    def nvmlDeviceGetPcieReplayCounter(self, handle: object) -> int: ...


class Caller(Protocol):
    """Runs work on the NVML thread."""

    async def call(self, work: Callable[[NvmlApi], object]) -> object:
        """Run it there.

        Raises:
            NvmlError: the library refuses.
            NvmlStuck: it does not answer in time.
        """
        ...


@dataclass(slots=True)
class _SampledGpu:
    """State of one device."""

    supported: bool = False
    buffers: list[object] = field(default_factory=list)
    taken_at: float = -math.inf
    """Time at which the older buffer was filled."""


class NvmlSampler:
    """Samples the devices that ``uuids`` names; a ``DeviceSampler``."""

    def __init__(self, thread: Caller, uuids: Callable[[], Iterable[str]]) -> None:
        self._thread = thread
        self._uuids = uuids
        self._gpus: dict[str, _SampledGpu] = {}
        self._problem = ""

    async def sample(self, now: float) -> tuple[DeviceSample, ...]:
        """One sample of every device; none while the library does not answer."""
        uuids = sorted(self._uuids())
        try:
            samples = await self._thread.call(
                lambda api: tuple(self._one(cast(GpmApi, api), uuid, now) for uuid in uuids)
            )
        except (NvmlError, NvmlStuck) as error:
            self._note(str(error))
            return ()
        self._note("")
        return cast(tuple[DeviceSample, ...], samples)

    async def close(self) -> None:
        """Give the sample buffers back, if the library still answers."""
        try:
            await self._thread.call(lambda api: self._free(cast(GpmApi, api)))
        except (NvmlError, NvmlStuck):
            return  # the library frees them

    def _note(self, problem: str) -> None:
        if problem and problem != self._problem:
            _log.warning("devices not sampled", problem=problem)
        self._problem = problem

    # The rest runs on the NVML thread.

    def _one(self, api: GpmApi, uuid: str, now: float) -> DeviceSample:
        try:
            handle = api.nvmlDeviceGetHandleByUUID(uuid)
        except NvmlError:
            self._gpus.pop(uuid, None)  # its buffers are gone too
            return DeviceSample(uuid=uuid, at_s=now)
        clock, most = _clocks(api, handle)
        plain = DeviceSample(
            uuid=uuid,
            at_s=now,
            busy=_fraction(_ask(lambda: api.nvmlDeviceGetUtilizationRates(handle).gpu)),
            power_milliwatts=_ask(lambda: api.nvmlDeviceGetPowerUsage(handle)),
            clock_ratio=clock / most if clock is not None and most else None,
            pcie_replays=_ask(lambda: api.nvmlDeviceGetPcieReplayCounter(handle)),
        )
        gpu = self._gpus.get(uuid)
        if gpu is None:
            gpu = self._gpus[uuid] = _open(api, handle)
        return _with_gpm(api, handle, gpu, plain)

    def _free(self, api: GpmApi) -> None:
        for gpu in self._gpus.values():
            for buffer in gpu.buffers:
                api.nvmlGpmSampleFree(buffer)
        self._gpus.clear()


def _open(api: GpmApi, handle: object) -> _SampledGpu:
    """Query GPM support of the device, and allocate two buffers if it has it."""
    try:
        if not api.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            return _SampledGpu()
        return _SampledGpu(
            supported=True, buffers=[api.nvmlGpmSampleAlloc(), api.nvmlGpmSampleAlloc()]
        )
    except NvmlError:
        return _SampledGpu()  # a driver before GPM


def _with_gpm(api: GpmApi, handle: object, gpu: _SampledGpu, plain: DeviceSample) -> DeviceSample:
    """The reading, with the means since the previous sample if available."""
    if not gpu.supported:
        return plain
    older, newer = gpu.buffers
    before, span = gpu.taken_at, plain.at_s - gpu.taken_at
    try:
        api.nvmlGpmSampleGet(handle, newer)
        gpu.buffers, gpu.taken_at = [newer, older], plain.at_s
        means: Mapping[int, float] = {}
        if math.isfinite(before) and 0 < span <= GPM_GAP_MOST_S:
            means = _read(api, older, newer)
    except NvmlError:
        gpu.taken_at = -math.inf  # never compare with a failed sample
        means = {}
    ratios = {
        metric: ratio
        for number, metric in _IDS.items()
        if (ratio := _fraction(means.get(number))) is not None
    }
    return DeviceSample(
        uuid=plain.uuid,
        at_s=plain.at_s,
        gpm=True,
        ratios=ratios,
        pcie_tx_kib_per_s=_rate(means.get(_PCIE_TX)),
        pcie_rx_kib_per_s=_rate(means.get(_PCIE_RX)),
        busy=plain.busy,
        power_milliwatts=plain.power_milliwatts,
        clock_ratio=plain.clock_ratio,
        pcie_replays=plain.pcie_replays,
    )


def _read(api: GpmApi, older: object, newer: object) -> dict[int, float]:
    """The metrics that the device reported, by number."""
    answer = cast(GpmAnswer, pynvml.c_nvmlGpmMetricsGet_t())
    answer.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    answer.numMetrics = len(_WANTED)
    answer.sample1, answer.sample2 = older, newer
    for position, number in enumerate(_WANTED):
        answer.metrics[position].metricId = number
    api.nvmlGpmMetricsGet(answer)
    given = (answer.metrics[position] for position in range(len(_WANTED)))
    return {
        gpm_metric.metricId: gpm_metric.value
        for gpm_metric in given
        if not gpm_metric.nvmlReturn and math.isfinite(gpm_metric.value)
    }


def _ask(question: Callable[[], int]) -> int | None:
    """One reading; ``None`` = not reported by the device or its driver."""
    try:
        return question()
    except NvmlError:
        return None


def _clocks(api: GpmApi, handle: object) -> tuple[int | None, int | None]:
    """Clock of the multiprocessors now and at most, MHz."""
    return (
        _ask(lambda: api.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
        _ask(lambda: api.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)),
    )


def _fraction(percent: float | None) -> float | None:
    """A percentage as a fraction; ``None`` = absent or not a percentage."""
    if percent is None or not 0 <= percent <= _PERCENT + _ROUNDING:
        return None
    return min(percent / _PERCENT, 1.0)


def _rate(mib_per_s: float | None) -> int | None:
    return None if mib_per_s is None or mib_per_s < 0 else round(mib_per_s * _KIB_PER_MIB)
