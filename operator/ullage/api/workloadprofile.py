# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""WorkloadProfile: how a workload class uses a device, alone and beside others."""

from __future__ import annotations

from typing import ClassVar, Literal

from ullage.api.base import (
    AGE,
    Column,
    KindInfo,
    Model,
    Resource,
    condition_column,
)
from ullage.api.optable import OpTable
from ullage.api.profilerows import (
    ClassName,
    SoloRows,
    StepTimes,
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
