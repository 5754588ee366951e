# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What is known of classes of work and of types of devices: profiles as records.

``None`` means not measured, never zero. Fractions are of the device's peak; times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

from ullage.api.contract import JsonObject, WireError, quoted, text
from ullage.api.wire_fields import (
    KEPT,
    NEEDED,
    Count,
    Embedded,
    Flag,
    Kind,
    Listed,
    Moment,
    Name,
    Number,
    Percent,
    Text,
    Time,
    Whole,
    between,
    known_word,
    number,
)
from ullage.api.words import Source as Source
from ullage.cluster.records.status import Condition
from ullage.cluster.values.quantiles import percentile_of, quantile_of
from ullage.engines.admission.records import Fingerprint, Partner

RATIO: Final = 1e6
"""Largest ratio of a table, such as a slowdown."""
Ratio: TypeAlias = Annotated[float, number(RATIO)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloEntry:
    """Behaviour of a class of work alone on a device type at a share (percent).

    ``sm_util`` and ``steps_per_second`` 0 = not known. ``latency`` holds (quantile, seconds) of
    the time to serve one request that does not wait, in rising order; ``measured`` the same of
    requests as they came, waiting included, while ``requests_per_s`` were offered. ``n`` is how
    many windows a measured row stands for.
    """

    device: Name
    share: Percent
    sm_util: float = 0.0
    steps_per_second: Number = 0.0
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    latency: tuple[tuple[float, float], ...] = ()
    measured: tuple[tuple[float, float], ...] = ()
    requests_per_s: Annotated[Number | None, "requestsPerSecond"] = None
    cs2: Ratio | None = None
    counter: Text = ""
    samples: Annotated[Count, KEPT] = 0

    @property
    def step_s(self) -> float:
        """Seconds of a step, or of serving one request; 0 = not known."""
        return 1 / self.steps_per_second if self.steps_per_second > 0 else 0.0


def _quantile(raw: JsonObject, field: str) -> float | None:
    stated = text(raw, field)
    return quantile_of(stated) if stated else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One steady window of a class on a device, ``partners`` empty when it was alone.

    ``slowdown`` is against running alone on the whole device, ``latency_s`` the latency of requests
    at ``quantile``.
    """

    id: Name
    accelerator: Name
    share: Percent
    step_s: Annotated[Number, "stepSeconds", NEEDED]
    at_s: Annotated[Moment, "at"]
    partners: tuple[Partner, ...] = ()
    slowdown: Ratio | None = None
    max_slowdown: Ratio | None = None
    requests_per_s: Annotated[Number | None, "requestsPerSecond"] = None
    latency_s: Annotated[Number | None, "latencySeconds"] = None
    quantile: Annotated[float | None, Kind(_quantile, percentile_of), "percentile"] = None
    source: Annotated[Source, known_word(Source), KEPT] = Source.MEASURED
    counterfactual: Flag = False
    probation: Flag = False
    violated: Flag = False


class Method(StrEnum):
    """How a speed on an accelerator came to be known."""

    WINDOWS = "Windows"
    """Windows alone there, exponentially smoothed."""
    DECLARED = "Declared"
    """Stated by people, or imported."""
    SIBLINGS = "Siblings"
    """From the speed on another type, by what classes measured on both did."""
    NEIGHBOURS = "Neighbours"
    """From the speeds on several other types, by the classes whose rows look alike."""
    OPS = "Ops"
    """Sum of op times that were fitted on op tables measured there."""
    ROOFLINE = "Roofline"
    """From the speed on another type, by peak rates of both."""
    TYPICAL = "Typical"
    """The class never ran: what others do there; ratios of types count, the level does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputEntry:
    """Steps per second of one member alone on a whole device of a type.

    ``low`` and ``high`` bound an estimate; ``confidence`` is 0 to 1, ``samples`` how many windows,
    or classes of reference, stand behind it.
    """

    accelerator: Name
    steps_per_second: Annotated[Number, NEEDED]
    source: Annotated[Source, known_word(Source), NEEDED]
    method: Annotated[Method, known_word(Method), NEEDED]
    confidence: Annotated[float, number(1.0), NEEDED]
    samples: Count = 0
    low: Annotated[Number | None, "lowStepsPerSecond"] = None
    high: Annotated[Number | None, "highStepsPerSecond"] = None


FORMATS: Final = ("FP64", "FP32", "TF32", "FP16", "BF16", "FP8", "INT8")
"""Number formats that peak rates and op tables are stated for."""


def _format(raw: JsonObject, field: str) -> str:
    stated = text(raw, field)
    if stated and stated not in FORMATS:
        raise WireError(f"{field}: {stated!r} is none of {', '.join(FORMATS)}")
    return stated


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow:
    """Operations of one type and size in a step; ``None`` = the trace did not say."""

    type: Name
    count: Annotated[int, between(1, 10**6), KEPT] = 1
    flops: Number | None = None
    bytes_read: Number | None = None
    bytes_written: Number | None = None
    seconds: Number | None = None
    """Of one execution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTable:
    """What one step of one member runs; ``accelerator`` is empty where nothing was timed."""

    ops: Annotated[tuple[OpRow, ...], Listed(rank="index"), KEPT]
    accelerator: Text = ""
    precision: Annotated[str, Kind(_format)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterferenceEntry:
    """How a class takes and causes slowdowns on one device type (geometric means)."""

    accelerator: Name
    sensitivity: Annotated[Ratio, NEEDED]
    aggressiveness: Ratio | None = None
    rows: Annotated[Count, KEPT] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileStatus:
    """Status of a WorkloadProfile: what was measured; read and written as one record."""

    observed_generation: Count = 0
    source: Text = ""
    source_hash: Text = ""
    """Image digest that the values hold for."""
    former_hash: Text = ""
    family: Text = ""
    since: Time = 0.0
    """Since when rows count, seconds since the epoch."""
    updated: Time = 0.0
    last_used: Time = 0.0
    confidence: Number = 0.0
    novel: Flag = False
    """The class counts as unknown until it has enough new rows."""
    drift_slower: Number = 0.0
    drift_faster: Number = 0.0
    """Sums of residuals that do not average out (CUSUM), in standard deviations."""
    trial_s: Annotated[Number, "trialSeconds"] = 0.0
    """Seconds that trials have cost, ``trial_rows`` the rows it had when the last was booked."""
    trial_rows: Count = 0
    faults: Count = 0
    """How often the class faulted a device that it shared."""
    requests_per_s: float | None = None
    """Load that one replica is offered, as measured."""
    solo: tuple[SoloEntry, ...] = ()
    step_time: tuple[StepRow, ...] = ()
    """Newest first."""
    interference: Annotated[
        tuple[InterferenceEntry, ...], Listed(order=lambda entry: entry.accelerator)
    ] = ()
    throughput: Annotated[
        tuple[ThroughputEntry, ...], Listed(order=lambda entry: entry.accelerator)
    ] = ()
    """By accelerator, at most one each; sorted by it."""
    throughput_basis: Text = ""
    """Digest of what the estimates among them rest on."""
    throughput_at: Annotated[Time, "throughputUpdated"] = 0.0
    """When the estimates were last made."""
    conditions: tuple[Condition, ...] = ()

    def condition(self, type_: str) -> Condition | None:
        """The condition of this type, if it is set."""
        return next((c for c in self.conditions if c.type == type_), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRecord:
    """A WorkloadProfile: declared rows, and the status with the measured ones.

    ``uid`` is empty while the object was only asked for.
    """

    namespace: str
    name: str
    workload_class: str
    uid: str = ""
    generation: int = 0
    solo: tuple[SoloEntry, ...] = ()
    family: str = ""
    step_time: tuple[StepRow, ...] = ()
    """Rows that were imported, newest first."""
    op_table: OpTable | None = None
    status: ProfileStatus = field(default_factory=ProfileStatus)

    @property
    def rows(self) -> tuple[StepRow, ...]:
        """Imported and measured windows, newest first; of the same one the measured."""
        known = {row.id: row for row in (*self.step_time, *self.status.step_time)}
        return tuple(sorted(known.values(), key=lambda row: (-row.at_s, row.id)))


REFUSE: Final = "Refuse"
MOST_PARAMETER: Final = 1e9


def _threshold(raw: JsonObject) -> float | None:
    said = text(raw, "lambda")
    try:
        value = None if said == REFUSE else float(said)
    except ValueError as error:
        raise WireError(f"lambda: {quoted(said)} is neither a number nor {REFUSE}") from error
    if value is not None and not abs(value) <= MOST_PARAMETER:
        raise WireError(f"lambda: {quoted(said)} is no threshold")
    return value


def _threshold_to_wire(threshold: float | None) -> dict[str, object]:
    return {"lambda": REFUSE if threshold is None else f"{threshold:.4f}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelThreshold:
    """Least safety margin of a group and band; ``threshold`` ``None`` = refuse."""

    group: Name
    band: Name
    threshold: Annotated[float | None, Embedded(_threshold, _threshold_to_wire)]
    rows: Annotated[Count, KEPT] = 0
    violations: Annotated[Count, KEPT] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceModel:
    """``DeviceProfile.status.model``: the predictor of slowdowns on one type of device."""

    version: Annotated[Whole, NEEDED]
    rung: Name
    rows: Annotated[Count, KEPT]
    updated: Moment
    knee: Number | None = None
    hyperparameters: tuple[tuple[str, float], ...] = ()
    """Sorted by name."""
    thresholds: Annotated[
        tuple[ModelThreshold, ...], Listed(order=lambda one: (one.group, one.band)), KEPT
    ] = ()
    """Sorted by group and band."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfileRecord:
    """A DeviceProfile; the name is the accelerator key."""

    name: str
    memory_mib: int = 0
    context_overhead_mib: int = 0
    peak_flops: tuple[tuple[str, float], ...] = ()
    """FLOP/s by number format (as in ``OpTable.precision``), sorted."""
    memory_bytes_per_s: float = 0.0
    """Bandwidth of the device's memory; 0 = not known."""
    price_per_hour: float | None = None
    """Of one device, in the administrator's currency."""
    uid: str = ""
    generation: int = 0
    model: DeviceModel | None = None
    conditions: tuple[Condition, ...] = ()
