# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a node learned of a class of work: one row per tenant and steady window.

Standard library only. Whole numbers on the wire: microseconds, percent, permille of a device's
peak; 0 or absent means not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias

from ullage.api.codec import Wire, derived, rows
from ullage.api.readers import JsonObject, WireError, objects, text
from ullage.api.wire_fields import (
    INT32_MAX,
    KEPT,
    NEEDED,
    Counted,
    Flag,
    Kind,
    Listed,
    Name,
    Text,
    Whole,
    between,
)

MAX_OBSERVATIONS: Final = 128
"""Most observations that one node keeps in its status; the oldest go first."""
MAX_PARTNERS: Final = 16
MAX_ID: Final = 64
"""Characters of an observation's id."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyObjective(Wire):
    """``slo`` of an InferenceService: the percentile of a latency histogram, over a window.

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

    workload_class: Annotated[Name, "class"]
    percent: _Percent


_IN_ORDER: Final = rows(derived(ObservedPartner), Listed(rank="index"))


def _partners(raw: JsonObject, field: str) -> object:
    stated = len(objects(raw, field))
    if stated > MAX_PARTNERS:
        raise WireError(f"{field}: {stated} entries, at most {MAX_PARTNERS}")
    return _IN_ORDER.read(raw, field)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint(Wire):
    """Demand alone on the device at the observation's share; permille of the peak, 0 = unknown."""

    sm_permille: Counted = 0
    dram_permille: Counted = 0
    tensor_permille: Counted = 0
    fp32_permille: Counted = 0
    fp16_permille: Counted = 0
    fp64_permille: Counted = 0
    occupancy_permille: Counted = 0
    kernel_idle_permille: Counted = 0
    duty_permille: Counted = 0
    cpu_permille: Counted = 0
    pcie_tx_kib_per_s: Counted = 0
    pcie_rx_kib_per_s: Counted = 0
    power_milliwatts: Counted = 0
    peak_memory_mib: Counted = 0


def _id(raw: JsonObject, field: str) -> str:
    """Of an observation; the operator acknowledges it in the spec of the GPUNode."""
    found = text(raw, field)
    if len(found) > MAX_ID:
        raise WireError(f"{field}: {len(found)} characters, at most {MAX_ID}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation(Wire):
    """One steady window of one tenant, ``partners`` empty when it was alone.

    ``step_micros`` is its step (or mean service) time in the window, ``solo_step_micros`` the same
    alone on the whole device (0 = no reference). ``latency_micros`` is the latency at
    ``percentile`` of the requests, written as in the objective. ``requests_milli`` is the offered
    load in requests per 1,000 s. ``frozen`` marks a window measured while the others were stopped:
    the counterfactual of the one before. ``at_s`` is seconds since the epoch.
    """

    id: Annotated[str, Kind(_id), NEEDED]
    workload_class: Annotated[Name, "class"]
    namespace: Name
    accelerator: Name
    percent: _Percent
    step_micros: Annotated[Counted, NEEDED]
    at_s: Annotated[Counted, "at", NEEDED]
    family: Text = ""
    partners: Annotated[tuple[ObservedPartner, ...], Kind(_partners, _IN_ORDER.write)] = ()
    solo_step_micros: Counted = 0
    latency_micros: Counted = 0
    percentile: Text = ""
    requests_milli: Counted = 0
    max_slowdown_percent: Counted = 0
    image: Text = ""
    """Digest that the container runs."""
    frozen: Flag = False
    probation: Flag = False
    violated: Flag = False
    fingerprint: Fingerprint | None = None
