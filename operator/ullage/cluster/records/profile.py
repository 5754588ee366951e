# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Profiles of classes of work and of types of devices, as records.

``None`` means not measured, never zero. Fractions are of the device's peak; times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, TypeAlias

from ullage.api.readers import JsonObject, WireError, quoted, text
from ullage.api.wire_fields import (
    ACCELERATOR,
    BELIEVED,
    INT32,
    KEPT,
    NEEDED,
    THRESHOLD,
    AcceleratorKey,
    Count,
    Embedded,
    Flag,
    Kind,
    Listed,
    Moment,
    Name,
    Number,
    Percent,
    Schema,
    Text,
    Time,
    Whole,
    Word,
    at_most,
    between,
    keyed,
    known_word,
    number,
    one_of,
)
from ullage.api.words import Kernel
from ullage.api.words import Source as Source
from ullage.api.xids import MAX_XID
from ullage.cluster.records.status import BY_TYPE, Condition
from ullage.cluster.values.quantiles import percentile_of, quantile_of
from ullage.engines.admission.records import Fingerprint, Partner

RATIO: Final = 1e6
"""Largest ratio of a table, such as a slowdown."""
MAX_PERCENTILES: Final = 8
MAX_OPS: Final = 256
PERCENTILE: Final = Schema(type="string", minLength=1, maxLength=16)
NOT: Final = Schema(default=False)
Ratio: TypeAlias = Annotated[float, number(RATIO)]
MOST_RATIO: Final = Schema(maximum=RATIO)
BY_ACCELERATOR: Final = keyed("accelerator", most=64)


class Counter(StrEnum):
    """Readers of a device's counters."""

    GPM = "GPM"
    DCGM = "DCGM"
    NVML = "NVML"


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloEntry:
    """Behaviour alone on one type of device at one share."""

    device: Annotated[AcceleratorKey, NEEDED]
    """Accelerator key of the device."""
    share: Percent
    """Percent of the device that the work had."""
    sm_util: float = 0.0
    """That of the fingerprint; 0 = not known."""
    steps_per_second: Number = 0.0
    """Steps, or requests served one after another, per second."""
    latency: tuple[tuple[float, float], ...] = ()
    """Quantiles and seconds of the time to serve a request that does not wait, in rising order."""
    cs2: Ratio | None = None
    """Squared coefficient of variation of the time to serve a request."""
    measured: tuple[tuple[float, float], ...] = ()
    """Latency as it was measured alone, at the percentiles that objectives asked for."""
    requests_per_s: Annotated[Number | None, "requestsPerSecond"] = None
    """Load of one replica under which that latency was measured."""
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    counter: Annotated[Text, one_of(*Counter)] = ""
    """What read the device's counters."""
    samples: Annotated[Count, KEPT, INT32, Schema(default=0)] = 0
    """Windows that the row stands for."""

    @property
    def step_s(self) -> float:
        """Seconds of a step, or of serving one request; 0 = not known."""
        return 1 / self.steps_per_second if self.steps_per_second > 0 else 0.0


def _quantile(raw: JsonObject, field: str) -> float | None:
    percentile = text(raw, field)
    return quantile_of(percentile) if percentile else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One steady window of the class on a device, alone or beside others."""

    id: Annotated[Name, at_most(64)]
    """Identity of the observation."""
    accelerator: Annotated[AcceleratorKey, NEEDED]
    """Accelerator key of the device."""
    share: Percent
    """Percent of the device that the work had."""
    partners: tuple[Partner, ...] = ()
    """The others on the device; empty = alone."""
    step_s: Annotated[Number, "stepSeconds", NEEDED]
    """Time of one step, or of serving one request."""
    slowdown: Ratio | None = None
    """Against running alone on the whole device; absent = the reference was not known."""
    max_slowdown: Ratio | None = None
    """Objective that held, as a slowdown."""
    requests_per_s: Annotated[Number | None, "requestsPerSecond"] = None
    """Load that one replica was offered."""
    latency_s: Annotated[Number | None, "latencySeconds"] = None
    """Latency of requests at the percentile."""
    quantile: Annotated[
        float | None, Kind(_quantile, percentile_of, schema=PERCENTILE), "percentile"
    ] = None
    """The percentile that latencySeconds stands for."""
    at_s: Annotated[Moment, "at"]
    """When the window ended."""
    source: Annotated[Source, known_word(Source), KEPT, Schema(default=Source.MEASURED.value)] = (
        Source.MEASURED
    )
    """Where the row comes from."""
    counterfactual: Annotated[Flag, NOT] = False
    """Measured while the neighbours were stopped."""
    probation: Annotated[Flag, NOT] = False
    """Measured while the class was on probation."""
    violated: Annotated[Flag, NOT] = False
    """The objective was broken in this window."""


class Method(StrEnum):
    """Source of a speed on an accelerator."""

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


_STORED_METHOD: Final = one_of(*(method for method in Method if method is not Method.TYPICAL))


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputEntry:
    """Speed of the class on one type of device: measured, declared or estimated."""

    accelerator: Annotated[Name, ACCELERATOR]
    """Accelerator key of the device."""
    steps_per_second: Annotated[Number, NEEDED]
    """Steps per second of one member, alone on a whole device."""
    low: Annotated[Number | None, "lowStepsPerSecond"] = None
    """The speed is at least this in four of five such estimates; absent = measured or declared."""
    high: Annotated[Number | None, "highStepsPerSecond"] = None
    """The speed is at most this in four of five such estimates; absent = measured or declared."""
    source: Annotated[Source, known_word(Source), NEEDED]
    """Measured replaces Estimated; Declared is what people stated."""
    method: Annotated[Method, known_word(Method), NEEDED, _STORED_METHOD]
    """How it came to be known: Windows alone there, Declared, Siblings or Neighbours (other
    classes that ran on several types), Ops (fitted op times), Roofline (peak rates of types)."""
    confidence: Annotated[float, number(1), NEEDED]
    """How far the speed can be relied on, 0 to 1."""
    samples: Annotated[Count, INT32] = 0
    """Windows, or classes of reference, behind it."""


FORMATS: Final = ("FP64", "FP32", "TF32", "FP16", "BF16", "FP8", "INT8")
"""Number formats that peak rates and op tables are stated for."""


def _format(raw: JsonObject, field: str) -> str:
    number_format = text(raw, field)
    if number_format and number_format not in FORMATS:
        raise WireError(f"{field}: {number_format!r} is none of {', '.join(FORMATS)}")
    return number_format


_KERNEL: Final = f"Kind of convolution, where the trace tells it. {Kernel.explained()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow:
    """Operations of one type and size in a step."""

    type: Annotated[Name, Schema(minLength=1, maxLength=128)]
    """Type of the operation, as the framework calls it."""
    count: Annotated[int, between(1, 10**6), KEPT, Schema(default=1)] = 1
    """How often a step runs it."""
    flops: Number | None = None
    """Floating-point operations of one execution."""
    bytes_read: Number | None = None
    """Bytes that one execution reads, parameters included."""
    parameter_bytes: Number | None = None
    """Bytes of parameters among those that one execution reads."""
    bytes_written: Number | None = None
    """Bytes that one execution writes."""
    kernel: Annotated[Kernel | None, known_word(Kernel), Schema(description=_KERNEL)] = None
    seconds: Number | None = None
    """Time of one execution on the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTable:
    """The operations of one step of one member."""

    accelerator: AcceleratorKey = ""
    """Accelerator key of the device that the times were taken on; absent = without times."""
    precision: Annotated[str, Kind(_format, schema=one_of(*FORMATS))] = ""
    """Number format of most of the arithmetic."""
    ops: Annotated[
        tuple[OpRow, ...],
        Listed(rank="index", says=Schema(description="Which row, from 0.")),
        KEPT,
        keyed("index", most=MAX_OPS),
        Schema(minItems=1),
    ]
    """The operations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterferenceEntry:
    """How the class takes and causes slowdowns on one type of device."""

    accelerator: Annotated[Name, ACCELERATOR]
    """Accelerator key of the device."""
    sensitivity: Annotated[Ratio, NEEDED]
    """How slow it becomes beside others, geometric mean."""
    aggressiveness: Ratio | None = None
    """How slow others become beside it, geometric mean over pairs; absent = never seen."""
    rows: Annotated[Count, KEPT, INT32, Schema(required=True)] = 0
    """Rows beside others that stand behind it."""


MAX_CHARGED: Final = 32
"""Most faults that a profile lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargedFault:
    """A fault of a device that was charged to the class."""

    id: Annotated[Word, NEEDED, Schema(minLength=1)]
    """Identity that the node gave it."""
    xid: Annotated[int, between(0, MAX_XID), NEEDED]
    """NVIDIA's number of the fault."""
    node: Name
    """Node of the device."""
    gpu: Name
    """UUID of the device."""
    pod: Name
    """Pod of the class that was there, the first by name where it had several."""
    at_s: Annotated[Moment, "at"]
    """Time of the fault, as its node says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileStatus:
    """Measurements of the class."""

    requests_per_s: float | None = None
    """Load that one replica is offered, as measured."""
    observed_generation: Count = 0
    """Generation of the spec that this status reflects."""
    source: Annotated[Text, one_of(*Source)] = ""
    """Source of the best values."""
    source_hash: Annotated[Text, at_most(253)] = ""
    """Image digest that the measured values hold for; a new digest discards them."""
    former_hash: Annotated[Text, at_most(253)] = ""
    """Previous digest; its late rows are ignored."""
    family: Annotated[Text, at_most(253), Schema(minLength=1)] = ""
    """Family of models that the class belongs to."""
    since: Time = 0.0
    """Rows count from this time: the last change of the image or of the behaviour."""
    updated: Time = 0.0
    """Time at which observations were last stored here."""
    last_used: Time = 0.0
    """End of the newest window."""
    confidence: Annotated[Number, Schema(maximum=1)] = 0.0
    """Confidence in the measured values, 0 to 1: rows / (rows + 10)."""
    novel: Flag = False
    """The behaviour of the class changed, so it counts as unknown until it has enough new rows."""
    drift_slower: Annotated[Number, MOST_RATIO] = 0.0
    """Cumulated drift towards longer times, in standard deviations."""
    drift_faster: Annotated[Number, MOST_RATIO] = 0.0
    """Cumulated drift towards shorter times, in standard deviations."""
    trial_s: Annotated[Number, "trialSeconds", MOST_RATIO] = 0.0
    """Seconds that trials of the class on shared devices have cost since its last new row."""
    trial_rows: Annotated[Count, INT32] = 0
    """Rows of the class when the last trial was charged."""
    faults: Annotated[Count, INT32] = 0
    """How often a program of the class faulted a device."""
    faults_counted_to: Time = 0.0
    """Faults up to this time are counted, whether they are listed or not."""
    recent_faults: Annotated[
        tuple[ChargedFault, ...],
        Listed(newest=MAX_CHARGED, order=lambda charge: (charge.at_s, charge.id)),
        keyed("id", most=MAX_CHARGED),
    ] = ()
    """The newest of them; each is counted once."""
    lane_persistent_mib: Count = 0
    """Most memory that a program of the class kept between two steps in a lane, in MiB; a new
    image discards it."""
    lane_ephemeral_mib: Count = 0
    """Most memory that a step of it took above that, in MiB."""
    solo: tuple[SoloEntry, ...] = ()
    """Measured behaviour alone: medians of times, running means of counters."""
    step_time: tuple[StepRow, ...] = ()
    """The newest windows, alone and beside others."""
    interference: Annotated[
        tuple[InterferenceEntry, ...], Listed(order=lambda entry: entry.accelerator), BY_ACCELERATOR
    ] = ()
    """Slowdowns that the class suffers and causes."""
    throughput: Annotated[
        tuple[ThroughputEntry, ...], Listed(order=lambda entry: entry.accelerator), BY_ACCELERATOR
    ] = ()
    """Speed per device type, estimated where the class never ran."""
    throughput_basis: Word = ""
    """Digest of the inputs of the estimates; when it changes, they are computed again."""
    throughput_at: Annotated[Time, "throughputUpdated"] = 0.0
    """Time of the last estimates."""
    conditions: Annotated[tuple[Condition, ...], BY_TYPE] = ()
    """Fresh, Conflicting; Invalid, when the newest version cannot be used."""

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
    across_nodes: float | None = None
    """Speed of a gang on several nodes against one node, 0.01 to 1; ``None`` = not stated."""
    step_time: tuple[StepRow, ...] = ()
    """Rows that were imported, newest first."""
    op_table: OpTable | None = None
    status: ProfileStatus = field(default_factory=ProfileStatus)

    @property
    def rows(self) -> tuple[StepRow, ...]:
        """Imported and measured windows, newest first; of the same one the measured."""
        by_id = {row.id: row for row in (*self.step_time, *self.status.step_time)}
        return tuple(sorted(by_id.values(), key=lambda row: (-row.at_s, row.id)))


REFUSE: Final = "Refuse"
MOST_PARAMETER: Final = 1e9


def _threshold(raw: JsonObject) -> float | None:
    literal = text(raw, "lambda")
    try:
        value = None if literal == REFUSE else float(literal)
    except ValueError as error:
        raise WireError(f"lambda: {quoted(literal)} is neither a number nor {REFUSE}") from error
    if value is not None and not abs(value) <= MOST_PARAMETER:
        raise WireError(f"lambda: {quoted(literal)} is no threshold")
    return value


_LAMBDA: Final = Embedded(
    _threshold,
    lambda threshold: {"lambda": REFUSE if threshold is None else f"{threshold:.4f}"},
    Schema(
        properties={
            "lambda": Schema(
                **THRESHOLD.keywords,
                required=True,
                description="Minimum margin in standard deviations; "
                "`Refuse` = no work is admitted.",
                before="rows",
            )
        }
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelThreshold:
    """Minimum safety margin for one group of mixtures and one band of objectives."""

    threshold: Annotated[float | None, _LAMBDA]
    group: Annotated[Word, NEEDED]
    """Novelty of the mixture: G0 (seen before) to G4 (three or more tenants)."""
    band: Annotated[Word, NEEDED]
    """Band of the tightest objective on the device."""
    rows: Annotated[Count, KEPT, INT32, Schema(required=True)] = 0
    """Rows that the threshold was chosen from."""
    violations: Annotated[Count, KEPT, INT32, Schema(required=True)] = 0
    """Broken objectives among the rows that the threshold would have admitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceModel:
    """The model that predicts slowdowns on this device type."""

    version: Annotated[Whole, NEEDED, BELIEVED]
    """Increases with every refit."""
    rung: Annotated[Word, NEEDED]
    """Model in force: utilisation-sum, prior, prior+bias or prior+gp."""
    rows: Annotated[Count, KEPT, INT32]
    """Observations that the model was fitted on."""
    knee: Annotated[Number | None, Schema(maximum=2)] = None
    """Sum of memory demands, as a fraction of the peak, above which tenants slow down."""
    hyperparameters: tuple[tuple[str, float], ...] = ()
    """Fitted parameters of the model."""
    thresholds: Annotated[
        tuple[ModelThreshold, ...],
        Listed(order=lambda threshold: (threshold.group, threshold.band)),
        KEPT,
        keyed("group", "band", most=64),
    ] = ()
    """Margins that the risk budget requires, per group and band."""
    updated: Moment
    """Time of the fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRates:
    """Peak rates of a known type of device."""

    peak_flops: tuple[tuple[str, float], ...]
    """FLOP/s by number format (as in ``OpTable.precision``), sorted."""
    memory_bytes_per_s: float
    sources: tuple[tuple[str, str], ...]
    """Field of the spec and where its figures come from."""


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
