# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""WorkloadProfile: what a class of work does to a device when it is alone on it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ullage.api.base import (
    AGE,
    Column,
    Count,
    KindInfo,
    LongCount,
    Model,
    Resource,
    Time,
    condition_column,
)
from ullage.api.conditions import Conditions
from ullage.api.optable import OpTable
from ullage.api.profilerows import (
    Amount,
    ClassName,
    Fraction,
    InterferenceRows,
    MeasuredSoloRows,
    Ratio,
    SoloRows,
    Source,
    StepTimes,
    Throughputs,
)


class WorkloadProfileSpec(Model):
    """Declared values."""

    workload_class: ClassName
    """Class of work that the values hold for: the label ullage.dev/class of the pods, else a hash
    of image, command and arguments."""
    solo: SoloRows = ()
    """Behaviour alone, per type of device and share; without a row a workload counts as using
    all that it is given."""
    family: ClassName | None = None
    """Family of models that the class belongs to; what was measured says it too."""
    step_time: StepTimes = ()
    """Windows measured elsewhere, as `kubectl ullage profile export` writes them."""
    op_table: OpTable | None = None
    """What one step runs, as `kubectl ullage profile import --from` reads it from a trace; with it
    speeds on types of device are estimated where the class never ran."""


class WorkloadProfileStatus(Model):
    """What was measured of the class."""

    observed_generation: LongCount | None = None
    """Generation of the spec that this status speaks of."""
    source: Source | None = None
    """Where the best values come from."""
    source_hash: Annotated[str, Field(max_length=253)] | None = None
    """Image digest that the measured values hold for; another one starts them again."""
    former_hash: Annotated[str, Field(max_length=253)] | None = None
    """Digest before that; late rows of it are left out."""
    family: ClassName | None = None
    """Family of models that the class belongs to."""
    since: Time | None = None
    """Since when rows count: the last change of the image, or of the behaviour."""
    updated: Time | None = None
    """When this status last took in observations."""
    last_used: Time | None = None
    """End of the newest window."""
    rows: Count | None = None
    """Rows in stepTime."""
    confidence: Fraction | None = None
    """How far the measured values can be relied on, 0 to 1: rows / (rows + 10)."""
    novel: bool | None = None
    """The class behaves otherwise than before, so it counts as unknown until enough new rows."""
    drift_slower: Ratio | None = None
    """How far times have become longer than before, in standard deviations (cumulated)."""
    drift_faster: Ratio | None = None
    """How far times have become shorter than before, in standard deviations (cumulated)."""
    trial_seconds: Ratio | None = None
    """Seconds that trials of the class on shared devices have cost since its last new row."""
    trial_rows: Count | None = None
    """Rows that the class had when the last trial was booked."""
    faults: Count | None = None
    """How often the class faulted a device that it shared; above 0 it shares no more."""
    requests_per_second: Amount | None = None
    """Load of one replica: what nine of ten of the newest windows stayed below."""
    solo: MeasuredSoloRows = ()
    """Behaviour alone, measured: medians of times, running means of counters."""
    step_time: StepTimes = ()
    """The newest windows, alone and beside others."""
    interference: InterferenceRows = ()
    """How the class takes and causes slowdowns."""
    throughput: Throughputs = ()
    """Speed per type of device, estimated where the class never ran."""
    throughput_basis: Annotated[str, Field(max_length=64)] | None = None
    """Digest of what the estimates rest on; they are made again when it changes."""
    throughput_updated: Time | None = None
    """When the estimates were last made."""
    conditions: Conditions = ()
    """Fresh, Conflicting; Invalid, when the newest version cannot be used."""


class WorkloadProfile(Resource):
    """How a class of work uses a device, alone and beside others, so that sharing can be predicted.

    A TrainingJob or InferenceService names it in `spec.profileRef`; for the others the operator
    keeps one per class. `spec` is what people declare, `status` what was measured.
    """

    info: ClassVar[KindInfo] = KindInfo(
        plural="workloadprofiles",
        singular="workloadprofile",
        short_name="wp",
        namespaced=True,
        columns=(
            Column(name="Class", path=".spec.class", description="Class of work."),
            Column(name="Source", path=".status.source", description="Where the values come from."),
            Column(
                name="Confidence",
                path=".status.confidence",
                type="number",
                description="How far the measured values can be relied on, 0 to 1.",
            ),
            Column(
                name="Samples",
                path=".status.rows",
                type="integer",
                description="Windows that were measured.",
            ),
            condition_column("Fresh", "Fresh", "Whether the values hold for what runs now."),
            condition_column(
                "Conflicting",
                "Conflicting",
                "Whether declared and measured values disagree.",
                wide=True,
            ),
            condition_column(
                "Invalid", "Invalid", "Whether the newest version is unusable.", wide=True
            ),
            AGE,
        ),
    )

    kind: Literal["WorkloadProfile"] = "WorkloadProfile"
    """Kind of the object."""
    spec: WorkloadProfileSpec
    """Declared values."""
    status: WorkloadProfileStatus | None = None
    """What was measured of the class."""
