# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""SchedulingPolicy: how the whole cluster decides; the object named ``default`` binds."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ullage.api.base import (
    AGE,
    Column,
    KindInfo,
    LongCount,
    Model,
    Resource,
    condition_column,
)
from ullage.api.conditions import Conditions


class Objective(StrEnum):
    """What the order of waiting workloads follows."""

    FIFO = "FIFO"


class Packing(Model):
    """How full a shared device may be."""

    max_percent_sum: Annotated[int, Field(ge=10, le=400, json_schema_extra={"format": "int32"})] = (
        100
    )
    """Ceiling of the sum of shares on one device, in percent; above 100 the shares overlap."""


class RiskPredictor(StrEnum):
    """What foretells the slowdowns that admission goes by."""

    LEARNED = "Learned"
    UTILISATION_SUM = "UtilisationSum"


class TightSLO(StrEnum):
    """What happens to objectives so tight that too few observations back a risk threshold."""

    CONFORMAL = "Conformal"
    REFUSE = "Refuse"


_Int32 = Field(json_schema_extra={"format": "int32"})


class Risk(Model):
    """How much risk an admission may take with anybody's objective."""

    predictor: RiskPredictor = RiskPredictor.LEARNED
    """`Learned`: the model that observations certify; `UtilisationSum`: shares and utilisations
    alone, without learning."""
    eps_percent: Annotated[int, Field(ge=1, le=50), _Int32] = 5
    """Risk budget: of 100 admissions beside others, so many may break somebody's objective."""
    confidence_percent: Annotated[int, Field(ge=50, le=99), _Int32] = 80
    """How sure the budget must be before a threshold counts as certified."""
    min_combined_percent: Annotated[int, Field(ge=0, le=400), _Int32] = 100
    """Least sum of speeds on a shared device, in percent of one tenant alone; below it, taking
    turns would be faster."""
    probation_seconds_per_class: Annotated[int, Field(ge=0, le=86400), _Int32] = 60
    """Seconds of broken objectives that a new class may cost while it is on probation; 0 = no
    probation."""
    tight_slo: Annotated[TightSLO, Field(alias="tightSLO")] = TightSLO.CONFORMAL
    """`Conformal`: objectives without a certified threshold are admitted by a 95 % bound;
    `Refuse`: not at all."""


class SchedulingPolicySpec(Model):
    """The policy."""

    objective: Objective = Objective.FIFO
    """`FIFO`: by priority, then by age."""
    packing: Packing = Packing()
    """How full a shared device may be."""
    risk: Risk = Risk()
    """How much risk an admission may take with anybody's objective."""
    round_seconds: Annotated[int, Field(ge=1, le=86400, json_schema_extra={"format": "int32"})] = (
        360
    )
    """Length of a round; the unit of gangSkipLimit."""
    gang_skip_limit: Annotated[int, Field(ge=0, le=1000, json_schema_extra={"format": "int32"})] = 1
    """Rounds that a waiting workload may be passed over before free room is held for it."""


class SchedulingPolicyStatus(Model):
    """How deciding goes."""

    observed_generation: LongCount | None = None
    """Generation of the spec that this status speaks of."""
    conditions: Conditions = ()
    """SolverDegraded; Invalid on every object that is not named `default`."""


class SchedulingPolicy(Resource):
    """How the whole cluster decides; only the object named `default` binds.

    Without it the defaults of its fields hold.
    """

    info: ClassVar[KindInfo] = KindInfo(
        plural="schedulingpolicies",
        singular="schedulingpolicy",
        short_name="sp",
        namespaced=False,
        columns=(
            Column(name="Objective", path=".spec.objective", description="What the order follows."),
            Column(
                name="Round",
                path=".spec.roundSeconds",
                type="integer",
                description="Length of a round in seconds.",
            ),
            Column(
                name="Percent",
                path=".spec.packing.maxPercentSum",
                type="integer",
                description="Most percent that the tenants of one device may add up to.",
            ),
            Column(
                name="Risk",
                path=".spec.risk.epsPercent",
                type="integer",
                description="Risk budget in percent.",
            ),
            condition_column("Degraded", "SolverDegraded", "Whether decisions are late."),
            condition_column(
                "Invalid", "Invalid", "Whether the object is not in force.", wide=True
            ),
            AGE,
        ),
    )

    kind: Literal["SchedulingPolicy"] = "SchedulingPolicy"
    """Kind of the object."""
    spec: SchedulingPolicySpec
    """The policy."""
    status: SchedulingPolicyStatus | None = None
    """How deciding goes."""
