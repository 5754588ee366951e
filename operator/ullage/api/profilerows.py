# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Numeric tables of a WorkloadProfile: behaviour alone, and beside others.

Fractions are of the device's peak, 0 to 1; seconds and bytes where the name says so. A column that
is absent was not measured, which is not the same as 0.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from ullage.api.base import Count, Model, Percent, Time, Word, list_map
from ullage.api.gpurequest import Accelerator
from ullage.api.observations import MAX_PARTNERS
from ullage.api.words import Source as Source

Fraction = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0, le=1e18)]
Ratio = Annotated[float, Field(ge=0, le=1e6)]
Percentile = Annotated[str, Field(min_length=1, max_length=16)]
ClassName = Annotated[str, Field(min_length=1, max_length=253)]

MAX_SOLO_ROWS = 256
MAX_STEP_ROWS = 200
MAX_PERCENTILES = 8


class Counter(StrEnum):
    """What read the device's counters."""

    GPM = "GPM"
    DCGM = "DCGM"
    NVML = "NVML"


class SoloLatency(Model):
    """Latency of requests alone at one percentile, their wait for one another included."""

    percentile: Percentile
    """Percent of the requests that took no longer, as the objective writes it."""
    seconds: Amount
    """Median over the windows alone."""


class Solo(Model):
    """Behaviour alone on one type of device at one share."""

    device: Accelerator
    """Accelerator key of the device."""
    share: Percent
    """Percent of the device that the work had."""
    sm_util: Fraction | None = None
    """Part of the device's compute that the work keeps busy; absent counts as all of its share."""
    steps_per_second: Amount | None = None
    """Steps, or requests served one after another, per second."""
    latency_p50_seconds: Amount | None = None
    """Median time to serve a request that does not wait."""
    latency_p90_seconds: Amount | None = None
    """The same at 90 percent of the requests."""
    latency_p99_seconds: Amount | None = None
    """The same at 99 percent of the requests."""
    latency_p999_seconds: Amount | None = None
    """The same at 99.9 percent of the requests."""
    cs2: Ratio | None = None
    """Squared coefficient of variation of the time to serve a request."""
    latency: Annotated[
        tuple[SoloLatency, ...],
        Field(max_length=MAX_PERCENTILES, json_schema_extra=list_map("percentile")),
    ] = ()
    """Latency as it was measured alone, at the percentiles that objectives asked for."""
    requests_per_second: Amount | None = None
    """Load of one replica under which that latency was measured."""
    occupancy: Fraction | None = None
    """Warps resident, of what fits."""
    tensor_util: Fraction | None = None
    """Tensor cores busy."""
    fp32_util: Fraction | None = None
    """Single precision units busy."""
    fp16_util: Fraction | None = None
    """Half precision units busy."""
    fp64_util: Fraction | None = None
    """Double precision units busy."""
    dram_util: Fraction | None = None
    """Memory bandwidth used."""
    pcie_tx_bytes_per_second: Amount | None = None
    """Bytes from the device over PCIe per second."""
    pcie_rx_bytes_per_second: Amount | None = None
    """Bytes to the device over PCIe per second."""
    launches_per_second: Amount | None = None
    """Kernels launched per second."""
    graph_fraction: Fraction | None = None
    """Part of the launches that are graphs."""
    kernel_idle_fraction: Fraction | None = None
    """Part of a step without a kernel on the device."""
    duty_cycle: Fraction | None = None
    """Part of the time in which the container worked at all."""
    cpu_util: Ratio | None = None
    """CPU cores used."""
    power_watts: Amount | None = None
    """Power of the device."""
    peak_memory_bytes: Amount | None = None
    """Most device memory in use."""
    counter: Counter | None = None
    """What read the device's counters."""


class MeasuredSolo(Solo):
    """Behaviour alone on one type of device at one share, as nodes measured it."""

    samples: Count = 0
    """Windows that the row stands for."""


class StepPartner(Model):
    """Another tenant of the device."""

    index: Count
    """Which of the others, from 0."""
    workload_class: ClassName
    """Its class of work."""
    share: Count
    """Its percent of the device."""


class StepTime(Model):
    """One steady window of the class on a device, alone or beside others."""

    id: Word
    """Identity of the observation."""
    accelerator: Accelerator
    """Accelerator key of the device."""
    share: Percent
    """Percent of the device that the work had."""
    partners: Annotated[
        tuple[StepPartner, ...],
        Field(max_length=MAX_PARTNERS, json_schema_extra=list_map("index")),
    ] = ()
    """The others on the device; empty = alone."""
    step_seconds: Amount
    """Time of one step, or of serving one request."""
    slowdown: Ratio | None = None
    """Against running alone on the whole device; absent = the reference was not known."""
    max_slowdown: Ratio | None = None
    """Objective that held, as a slowdown."""
    requests_per_second: Amount | None = None
    """Load that one replica was offered."""
    latency_seconds: Amount | None = None
    """Latency of requests at the percentile."""
    percentile: Percentile | None = None
    """The percentile that latencySeconds stands for."""
    at: Time
    """When the window ended."""
    source: Source = Source.MEASURED
    """Where the row comes from."""
    counterfactual: bool = False
    """Measured while the neighbours were stopped."""
    probation: bool = False
    """Measured while the class was on probation."""
    violated: bool = False
    """The objective was broken in this window."""


SoloRows = Annotated[
    tuple[Solo, ...], Field(max_length=MAX_SOLO_ROWS, json_schema_extra=list_map("device", "share"))
]
MeasuredSoloRows = Annotated[
    tuple[MeasuredSolo, ...],
    Field(max_length=MAX_SOLO_ROWS, json_schema_extra=list_map("device", "share")),
]
StepTimes = Annotated[
    tuple[StepTime, ...], Field(max_length=MAX_STEP_ROWS, json_schema_extra=list_map("id"))
]
