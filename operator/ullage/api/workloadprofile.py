# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""WorkloadProfile: how a workload class uses a device, alone and beside others."""

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
    """Workload class of the values: the label ullage.dev/class of the pods, else a hash of image,
    command and arguments."""
    solo: SoloRows = ()
    """Behaviour alone, per device type and share; without a row, Ullage assumes that the workload
    uses all of its share."""
    family: ClassName | None = None
    """Family of models that the class belongs to; measured rows name it too."""
    step_time: StepTimes = ()
    """Windows measured elsewhere, as `kubectl ullage profile export` writes them."""
    op_table: OpTable | None = None
    """Operations of one step, as `kubectl ullage profile import --from` reads them from a trace.
    Ullage uses them to estimate speeds on device types where the class never ran."""


class WorkloadProfileStatus(Model):
    """Measurements of the class."""

    observed_generation: LongCount | None = None
    """Generation of the spec that this status reflects."""
    source: Source | None = None
    """Source of the best values."""
    source_hash: Annotated[str, Field(max_length=253)] | None = None
    """Image digest that the measured values hold for; a new digest discards them."""
    former_hash: Annotated[str, Field(max_length=253)] | None = None
    """Previous digest; its late rows are ignored."""
    family: ClassName | None = None
    """Family of models that the class belongs to."""
    since: Time | None = None
    """Rows count from this time: the last change of the image or of the behaviour."""
    updated: Time | None = None
    """Time at which observations were last stored here."""
    last_used: Time | None = None
    """End of the newest window."""
    rows: Count | None = None
    """Rows in stepTime."""
    confidence: Fraction | None = None
    """Confidence in the measured values, 0 to 1: rows / (rows + 10)."""
    novel: bool | None = None
    """The behaviour of the class changed, so it counts as unknown until it has enough new rows."""
    drift_slower: Ratio | None = None
    """Cumulated drift towards longer times, in standard deviations."""
    drift_faster: Ratio | None = None
    """Cumulated drift towards shorter times, in standard deviations."""
    trial_seconds: Ratio | None = None
    """Seconds that trials of the class on shared devices have cost since its last new row."""
    trial_rows: Count | None = None
    """Rows of the class when the last trial was charged."""
    faults: Count | None = None
    """How often the class faulted a shared device; above 0 it no longer shares."""
    requests_per_second: Amount | None = None
    """Load of one replica: the 90th percentile of the newest windows."""
    solo: MeasuredSoloRows = ()
    """Measured behaviour alone: medians of times, running means of counters."""
    step_time: StepTimes = ()
    """The newest windows, alone and beside others."""
    interference: InterferenceRows = ()
    """Slowdowns that the class suffers and causes."""
    throughput: Throughputs = ()
    """Speed per device type, estimated where the class never ran."""
    throughput_basis: Annotated[str, Field(max_length=64)] | None = None
    """Digest of the inputs of the estimates; when it changes, they are computed again."""
    throughput_updated: Time | None = None
    """Time of the last estimates."""
    conditions: Conditions = ()
    """Fresh, Conflicting; Invalid, when the newest version cannot be used."""


class WorkloadProfile(Resource):
    """How a workload class uses a device, alone and beside others; it predicts sharing.

    A TrainingJob or InferenceService names it in `spec.profileRef`; for other workloads the
    operator keeps one per class. `spec` holds declared values, `status` measured ones.
    """

    info: ClassVar[KindInfo] = KindInfo(
        plural="workloadprofiles",
        singular="workloadprofile",
        short_name="wp",
        namespaced=True,
        columns=(
            Column(name="Class", path=".spec.class", description="Workload class."),
            Column(name="Source", path=".status.source", description="Source of the values."),
            Column(
                name="Confidence",
                path=".status.confidence",
                type="number",
                description="Confidence in the measured values, 0 to 1.",
            ),
            Column(
                name="Samples",
                path=".status.rows",
                type="integer",
                description="Measured windows.",
            ),
            condition_column("Fresh", "Fresh", "Whether the values hold for the running work."),
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
    """Measurements of the class."""
