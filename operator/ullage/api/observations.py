# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Observations of a class of work by a node: one row per tenant and steady window.

Standard library only. Whole numbers on the wire: microseconds, percent, permille of a device's
peak; 0 or absent means not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from ullage.api.codec import Wire, derived, rows
from ullage.api.readers import JsonObject, WireError, objects, text
from ullage.api.wire_fields import (
    CLASS,
    INT32,
    INT32_MAX,
    KEPT,
    NEEDED,
    Counted,
    Flag,
    Kind,
    Listed,
    Name,
    Schema,
    Text,
    Whole,
    Word,
    at_most,
    between,
    keyed,
)

MAX_OBSERVATIONS: Final = 128
"""Most observations that one node keeps in its status; the oldest go first."""
MAX_PARTNERS: Final = 16
MAX_ID: Final = 64
"""Characters of an observation's id."""
Permille: TypeAlias = Annotated[Counted, INT32]
_Percent: TypeAlias = Annotated[int, between(0, INT32_MAX), NEEDED]


def _percentile(raw: JsonObject, field: str) -> str:
    stated = raw[field]
    written = str(stated) if isinstance(stated, int) else text(raw, field)
    try:
        if not 0 < float(written) < 100:
            raise ValueError("outside 0..100")
    except ValueError as error:
        raise WireError(f"{field}: {written!r} is no percentile ({error})") from error
    return written


TIME_TO_FIRST_TOKEN: Final = "ttft"
INTER_TOKEN: Final = "itl"
"""Values of ``slo.metric`` that stand for a histogram of vLLM or SGLang."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyObjective(Wire):
    """``slo`` of an InferenceDeployment: the percentile of a latency histogram, over a window.

    ``percentile`` as the user wrote it (``"99"``, ``"99.9"``); ``metric`` is the name of the
    Prometheus histogram that the pod serves, "" = the server of the runtime library.
    """

    latency_ms: Annotated[Whole, NEEDED]
    percentile: Annotated[str, Kind(_percentile), KEPT] = "99"
    metric: Text = ""
    window_seconds: Annotated[Whole, KEPT] = 5

    @property
    def quantile(self) -> float:
        """The percentile as a fraction."""
        return float(self.percentile) / 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPartner:
    """Another tenant of the device during an observation."""

    workload_class: Annotated[Name, "class", CLASS]
    """Its class of work."""
    percent: _Percent
    """Its share."""


_INDEX: Final = Schema(description="Which of the others, from 0.")
_IN_ORDER: Final = rows(derived(ObservedPartner), Listed(rank="index", says=_INDEX))


def _partners(raw: JsonObject, field: str) -> object:
    stated = len(objects(raw, field))
    if stated > MAX_PARTNERS:
        raise WireError(f"{field}: {stated} entries, at most {MAX_PARTNERS}")
    return _IN_ORDER.read(raw, field)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint(Wire):
    """Demand alone on the device at the observation's share."""

    sm_permille: Permille = 0
    """Multiprocessors busy."""
    dram_permille: Permille = 0
    """Memory bandwidth used."""
    tensor_permille: Permille = 0
    """Tensor cores busy."""
    fp32_permille: Permille = 0
    """Single precision units busy."""
    fp16_permille: Permille = 0
    """Half precision units busy."""
    fp64_permille: Permille = 0
    """Double precision units busy."""
    occupancy_permille: Permille = 0
    """Warps resident, of what fits."""
    kernel_idle_permille: Permille = 0
    """Time without a kernel on the device."""
    duty_permille: Permille = 0
    """Time in which the container worked at all."""
    cpu_permille: Permille = 0
    """CPU used, in thousandths of a core."""
    pcie_tx_kib_per_s: Permille = 0
    """Bytes from the device over PCIe, KiB per second."""
    pcie_rx_kib_per_s: Permille = 0
    """Bytes to the device over PCIe, KiB per second."""
    power_milliwatts: Permille = 0
    """Power of the device."""
    peak_memory_mib: Counted = 0
    """Most device memory in use, in MiB."""


def _id(raw: JsonObject, field: str) -> str:
    """Of an observation; the operator acknowledges it in the spec of the GPUNode."""
    stated = text(raw, field)
    if len(stated) > MAX_ID:
        raise WireError(f"{field}: {len(stated)} characters, at most {MAX_ID}")
    return stated


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation(Wire):
    """One steady window of one tenant, alone or beside others."""

    id: Annotated[str, Kind(_id, schema=at_most(MAX_ID)), NEEDED]
    """Identity; the operator takes every observation once."""
    workload_class: Annotated[Name, "class", CLASS]
    """Class of work."""
    family: Annotated[Text, CLASS] = ""
    """Family of models."""
    namespace: Annotated[Word, NEEDED]
    """Namespace of the workload."""
    accelerator: Annotated[Name, at_most(63)]
    """Accelerator key of the device."""
    percent: _Percent
    """Share of the tenant."""
    partners: Annotated[
        tuple[ObservedPartner, ...],
        Kind(_partners, _IN_ORDER.write, schema=_IN_ORDER.schema),
        keyed("index", most=MAX_PARTNERS),
    ] = ()
    """The others on the device; empty = alone."""
    step_micros: Annotated[Counted, NEEDED]
    """Time of one step, or of one request's service, in microseconds."""
    solo_step_micros: Counted = 0
    """The same alone on the whole device, where known."""
    latency_micros: Counted = 0
    """Latency at the objective's percentile."""
    percentile: Annotated[Text, at_most(16)] = ""
    """The percentile that latencyMicros stands for, as the objective writes it."""
    requests_milli: Counted = 0
    """Offered load in requests per 1,000 seconds."""
    max_slowdown_percent: Permille = 0
    """Objective that held, in percent."""
    image: Annotated[Text, at_most(253)] = ""
    """Digest of the image that ran."""
    frozen: Annotated[Flag, Schema(default=False)] = False
    """Measured while the others were stopped."""
    probation: Annotated[Flag, Schema(default=False)] = False
    """The class was on probation."""
    violated: Annotated[Flag, Schema(default=False)] = False
    """The objective was broken in this window."""
    at_s: Annotated[Counted, "at", NEEDED]
    """When the window ended, seconds since the epoch."""
    fingerprint: Fingerprint | None = None
    """Demand on the device, measured alone."""
