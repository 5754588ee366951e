# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""WorkloadProfile: how a workload class uses a device, alone and beside others."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ullage.api.base import (
    AGE,
    Column,
    Count,
    KindInfo,
    Model,
    Resource,
    condition_column,
    list_map,
)
from ullage.api.gpurequest import Accelerator
from ullage.api.profilerows import (
    ClassName,
    SoloRows,
    StepTimes,
)
from ullage.api.words import Kernel

MAX_OPS = 256

_KERNEL = f"Kind of convolution, where the trace tells it. {Kernel.explained()}"
_Amount = Annotated[float, Field(ge=0, le=1e18)]


class Precision(StrEnum):
    """Number format of the arithmetic."""

    FP64 = "FP64"
    FP32 = "FP32"
    TF32 = "TF32"
    FP16 = "FP16"
    BF16 = "BF16"
    FP8 = "FP8"
    INT8 = "INT8"


class Op(Model):
    """Operations of one type and size in a step."""

    index: Count
    """Which row, from 0."""
    type: Annotated[str, Field(min_length=1, max_length=128)]
    """Type of the operation, as the framework calls it."""
    count: Annotated[int, Field(ge=1, le=10**6, json_schema_extra={"format": "int32"})] = 1
    """How often a step runs it."""
    flops: _Amount | None = None
    """Floating-point operations of one execution."""
    bytes_read: _Amount | None = None
    """Bytes that one execution reads, parameters included."""
    parameter_bytes: _Amount | None = None
    """Bytes of parameters among those that one execution reads."""
    bytes_written: _Amount | None = None
    """Bytes that one execution writes."""
    kernel: Annotated[Kernel | None, Field(description=_KERNEL)] = None
    seconds: _Amount | None = None
    """Time of one execution on the device."""


class OpTable(Model):
    """The operations of one step of one member."""

    accelerator: Accelerator | None = None
    """Accelerator key of the device that the times were taken on; absent = without times."""
    precision: Precision | None = None
    """Number format of most of the arithmetic."""
    ops: Annotated[
        tuple[Op, ...],
        Field(min_length=1, max_length=MAX_OPS, json_schema_extra=list_map("index")),
    ]
    """The operations."""


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
    across_nodes: Annotated[float | None, Field(ge=0.01, le=1)] = None
    """Speed of a gang whose members are on several nodes, against the same gang on one node: 0.4 =
    a step takes 2.5 times as long. Such a gang takes the fewest nodes, and waits a while for fewer;
    absent = as fast."""
    step_time: StepTimes = ()
    """Windows measured elsewhere, as `kubectl ullage profile export` writes them."""
    op_table: OpTable | None = None
    """Operations of one step, as `kubectl ullage profile import --from` reads them from a trace.
    Ullage uses them to estimate speeds on device types where the class never ran."""


class WorkloadProfile(Resource):
    """How a workload class uses a device, alone and beside others; it predicts sharing.

    A TrainingJob or InferenceDeployment names it in `spec.profileRef`; for other workloads the
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
                "Isolated",
                "Isolated",
                "Whether the class shares with itself alone after a fault.",
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
