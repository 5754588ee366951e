# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The part of GPUNode in which a node says what it learned of classes of work."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ullage.api.base import Count, LongCount, Model, Word, list_map
from ullage.api.observations import MAX_PARTNERS

ClassOfWork = Annotated[str, Field(min_length=1, max_length=253)]


class SeenPartner(Model):
    """Another tenant of the device during an observation."""

    index: Count
    """Which of the others, from 0."""
    workload_class: ClassOfWork
    """Its class of work."""
    percent: Count
    """Its share."""


class SeenFingerprint(Model):
    """Demand alone on the device at the observation's share."""

    sm_permille: Count | None = None
    """Multiprocessors busy."""
    dram_permille: Count | None = None
    """Memory bandwidth used."""
    tensor_permille: Count | None = None
    """Tensor cores busy."""
    fp32_permille: Count | None = None
    """Single precision units busy."""
    fp16_permille: Count | None = None
    """Half precision units busy."""
    fp64_permille: Count | None = None
    """Double precision units busy."""
    occupancy_permille: Count | None = None
    """Warps resident, of what fits."""
    kernel_idle_permille: Count | None = None
    """Time without a kernel on the device."""
    duty_permille: Count | None = None
    """Time in which the container worked at all."""
    cpu_permille: Count | None = None
    """CPU used, in thousandths of a core."""
    pcie_tx_kib_per_s: Count | None = None
    """Bytes from the device over PCIe, KiB per second."""
    pcie_rx_kib_per_s: Count | None = None
    """Bytes to the device over PCIe, KiB per second."""
    power_milliwatts: Count | None = None
    """Power of the device."""
    peak_memory_mib: LongCount | None = None
    """Most device memory in use, in MiB."""


class NodeObservation(Model):
    """One steady window of one tenant, alone or beside others."""

    id: Word
    """Identity; the operator takes every observation once."""
    workload_class: ClassOfWork
    """Class of work."""
    family: ClassOfWork | None = None
    """Family of models."""
    namespace: Word
    """Namespace of the workload."""
    accelerator: Annotated[str, Field(max_length=63)]
    """Accelerator key of the device."""
    percent: Count
    """Share of the tenant."""
    partners: Annotated[
        tuple[SeenPartner, ...],
        Field(max_length=MAX_PARTNERS, json_schema_extra=list_map("index")),
    ] = ()
    """The others on the device; empty = alone."""
    step_micros: LongCount
    """Time of one step, or of one request's service, in microseconds."""
    solo_step_micros: LongCount | None = None
    """The same alone on the whole device, where known."""
    latency_micros: LongCount | None = None
    """Latency at the objective's percentile."""
    percentile: Annotated[str, Field(max_length=16)] | None = None
    """The percentile that latencyMicros stands for, as the objective writes it."""
    requests_milli: LongCount | None = None
    """Offered load in requests per 1,000 seconds."""
    max_slowdown_percent: Count | None = None
    """Objective that held, in percent."""
    image: Annotated[str, Field(max_length=253)] | None = None
    """Digest of the image that ran."""
    frozen: bool = False
    """Measured while the others were stopped."""
    probation: bool = False
    """The class was on probation."""
    violated: bool = False
    """The objective was broken in this window."""
    at: LongCount
    """When the window ended, seconds since the epoch."""
    fingerprint: SeenFingerprint | None = None
    """Demand on the device, measured alone."""
