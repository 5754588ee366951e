# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""WorkloadProfile: how a workload class uses a device, alone and beside others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field, InstanceOf

from ullage.api.base import AGE, Column, KindInfo, Resource, condition_column, record, records
from ullage.api.spec import SAYS_NOTHING, Number, Spec, SpecReader, listed

MAX_SOLO_ROWS: Final = 256
MAX_STEP_ROWS: Final = 200
Row = InstanceOf[dict[str, object]]
"""A row of a table, which the codec of its record reads."""
ClassName = Annotated[str, Field(min_length=1, max_length=253)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadProfileSpec(Spec):
    """Declared values."""

    workload_class: ClassName
    """Workload class of the values: the label ullage.dev/class of the pods, else a hash of image,
    command and arguments."""
    solo: Annotated[
        tuple[Row, ...],
        listed(MAX_SOLO_ROWS),
        records("SoloEntry", MAX_SOLO_ROWS, "device", "share"),
    ] = ()
    """Behaviour alone, per device type and share; without a row, Ullage assumes that the workload
    uses all of its share."""
    family: Annotated[ClassName, SAYS_NOTHING] = ""
    """Family of models that the class belongs to; measured rows name it too."""
    across_nodes: Annotated[float, Number(0.01, 1)] | None = None
    """Speed of a gang whose members are on several nodes, against the same gang on one node: 0.4 =
    a step takes 2.5 times as long. Such a gang takes the fewest nodes, and waits a while for fewer;
    absent = as fast."""
    step_time: Annotated[
        tuple[Row, ...], listed(MAX_STEP_ROWS), records("StepRow", MAX_STEP_ROWS, "id")
    ] = ()
    """Windows measured elsewhere, as `kubectl ullage profile export` writes them."""
    op_table: Annotated[Row | None, record("OpTable")] = None
    """Operations of one step, as `kubectl ullage profile import --from` reads them from a trace.
    Ullage uses them to estimate speeds on device types where the class never ran."""


read_profile_spec: Final = SpecReader(WorkloadProfileSpec)


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
