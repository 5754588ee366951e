# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a node learned of a class of work: one row per tenant and steady window.

Standard library only. Whole numbers on the wire: microseconds, percent, permille of a device's
peak; 0 or absent means not measured.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from ullage.api.readers import (
    MOST_COUNTED,
    JsonObject,
    WireError,
    bounded,
    count_of,
    filled,
    flag,
    objects,
    section,
    text,
    whole,
)

MAX_OBSERVATIONS: Final = 128
"""Most observations that one node keeps in its status; the oldest go first."""
MAX_PARTNERS: Final = 16
MAX_ID: Final = 64
"""Characters of an observation's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyObjective:
    """``slo`` of an InferenceService: the percentile of a latency histogram, over a window.

    ``percentile`` as the user wrote it (``"99"``, ``"99.9"``); ``metric`` is the name of the
    Prometheus histogram that the pod serves, "" = the server of the runtime library.
    """

    latency_ms: int
    percentile: str = "99"
    metric: str = ""
    window_seconds: int = 5

    @property
    def quantile(self) -> float:
        """The percentile as a fraction."""
        return float(self.percentile) / 100

    def to_wire(self) -> dict[str, object]:
        """The objective as the API stores it."""
        body: dict[str, object] = {
            "latencyMs": self.latency_ms,
            "percentile": self.percentile,
            "windowSeconds": self.window_seconds,
        }
        return body | ({"metric": self.metric} if self.metric else {})

    @classmethod
    def from_wire(cls, raw: JsonObject) -> LatencyObjective:
        """Read the objective.

        Raises:
            WireError: a field is of the wrong type, or the percentile is none.
        """
        percentile = raw.get("percentile", "99")
        written = str(percentile) if isinstance(percentile, int) else text(raw, "percentile", "99")
        try:
            if not 0 < float(written) < 100:
                raise ValueError("outside 0..100")
        except ValueError as error:
            raise WireError(f"slo.percentile: {written!r} is no percentile ({error})") from error
        return cls(
            latency_ms=whole(raw, "latencyMs"),
            percentile=written,
            metric=text(raw, "metric", ""),
            window_seconds=whole(raw, "windowSeconds", 5),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPartner:
    """Another tenant of the device during an observation."""

    workload_class: str
    percent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Demand alone on the device at the observation's share; permille of the peak, 0 = unknown."""

    sm_permille: int = 0
    dram_permille: int = 0
    tensor_permille: int = 0
    fp32_permille: int = 0
    fp16_permille: int = 0
    fp64_permille: int = 0
    occupancy_permille: int = 0
    kernel_idle_permille: int = 0
    duty_permille: int = 0
    cpu_permille: int = 0
    pcie_tx_kib_per_s: int = 0
    pcie_rx_kib_per_s: int = 0
    power_milliwatts: int = 0
    peak_memory_mib: int = 0

    def to_wire(self) -> dict[str, object]:
        """The fingerprint as the API stores it."""
        values = {name: getattr(self, attribute) for attribute, name in _WIRE_NAMES.items()}
        return {name: value for name, value in values.items() if value}

    @classmethod
    def from_wire(cls, raw: JsonObject) -> Fingerprint:
        """Read the fingerprint.

        Raises:
            WireError: a field is no whole number.
        """
        return cls(**{one: count_of(raw, name) for one, name in _WIRE_NAMES.items()})


def _camel(name: str) -> str:
    first, *rest = name.replace("_mib", "_MiB").replace("_kib", "_KiB").split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _id(raw: JsonObject) -> str:
    """Of an observation; the operator acknowledges it in the spec of the GPUNode."""
    found = text(raw, "id")
    if len(found) > MAX_ID:
        raise WireError(f"id: {len(found)} characters, at most {MAX_ID}")
    return found


_WIRE_NAMES: Final = {one.name: _camel(one.name) for one in fields(Fingerprint)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One steady window of one tenant, ``partners`` empty when it was alone.

    ``step_micros`` is its step (or mean service) time in the window, ``solo_step_micros`` the same
    alone on the whole device (0 = no reference). ``latency_micros`` is the latency at
    ``percentile`` of the requests, written as in the objective. ``requests_milli`` is the offered
    load in requests per 1,000 s. ``frozen`` marks a window measured while the others were stopped:
    the counterfactual of the one before. ``at_s`` is seconds since the epoch.
    """

    id: str
    workload_class: str
    namespace: str
    accelerator: str
    percent: int
    step_micros: int
    at_s: int
    family: str = ""
    partners: tuple[ObservedPartner, ...] = ()
    solo_step_micros: int = 0
    latency_micros: int = 0
    percentile: str = ""
    requests_milli: int = 0
    max_slowdown_percent: int = 0
    image: str = ""
    """Digest that the container runs."""
    frozen: bool = False
    probation: bool = False
    violated: bool = False
    fingerprint: Fingerprint | None = None

    def to_wire(self) -> dict[str, object]:
        """The observation as the API stores it; what is not known is left out."""
        body: dict[str, object] = {
            "id": self.id,
            "class": self.workload_class,
            "namespace": self.namespace,
            "accelerator": self.accelerator,
            "percent": self.percent,
            "stepMicros": min(self.step_micros, MOST_COUNTED),
            "at": self.at_s,
        }
        optional: dict[str, object] = {
            "family": self.family,
            "partners": [
                {"index": index, "class": one.workload_class, "percent": one.percent}
                for index, one in enumerate(self.partners)
            ],
            "soloStepMicros": self.solo_step_micros,
            "latencyMicros": self.latency_micros,
            "percentile": self.percentile,
            "requestsMilli": self.requests_milli,
            "maxSlowdownPercent": self.max_slowdown_percent,
            "image": self.image,
            "frozen": self.frozen,
            "probation": self.probation,
            "violated": self.violated,
            "fingerprint": self.fingerprint.to_wire() if self.fingerprint else None,
        }
        return body | filled(optional)

    @classmethod
    def from_wire(cls, raw: JsonObject) -> Observation:
        """Read one observation.

        Raises:
            WireError: a required field is missing, of the wrong type, or there are too many
                partners.
        """
        partners = objects(raw, "partners")
        if len(partners) > MAX_PARTNERS:
            raise WireError(f"partners: {len(partners)} entries, at most {MAX_PARTNERS}")
        print_ = raw.get("fingerprint")
        return cls(
            id=_id(raw),
            workload_class=text(raw, "class"),
            namespace=text(raw, "namespace"),
            accelerator=text(raw, "accelerator"),
            percent=bounded(raw, "percent", 0, 2**31 - 1),
            step_micros=count_of(raw, "stepMicros", None),
            at_s=count_of(raw, "at", None),
            family=text(raw, "family", ""),
            partners=tuple(
                ObservedPartner(
                    workload_class=text(one, "class"), percent=bounded(one, "percent", 0, 2**31 - 1)
                )
                for one in partners
            ),
            solo_step_micros=count_of(raw, "soloStepMicros"),
            latency_micros=count_of(raw, "latencyMicros"),
            percentile=text(raw, "percentile", ""),
            requests_milli=count_of(raw, "requestsMilli"),
            max_slowdown_percent=count_of(raw, "maxSlowdownPercent"),
            image=text(raw, "image", ""),
            frozen=flag(raw, "frozen"),
            probation=flag(raw, "probation"),
            violated=flag(raw, "violated"),
            fingerprint=Fingerprint.from_wire(section(raw, "fingerprint")) if print_ else None,
        )
