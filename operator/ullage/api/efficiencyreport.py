# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""EfficiencyReport: device time of a namespace in the current week, and what wastes most of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

from ullage.api.base import AGE, Column, KindInfo, Resource
from ullage.api.spec import Spec, SpecReader, Whole

MOST_OPPORTUNITIES: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyReportSpec(Spec):
    """Contents of the report."""

    top: Annotated[int, Whole(1, MOST_OPPORTUNITIES)] = 10
    """Opportunities to list, the largest first."""


read_report_spec: Final = SpecReader(EfficiencyReportSpec)


class EfficiencyReport(Resource):
    """Device time of the workloads of its namespace in the current week.

    The operator writes its status every ten minutes. Workloads that are deleted meanwhile stay in
    it until the week ends.
    """

    info: ClassVar[KindInfo] = KindInfo(
        plural="efficiencyreports",
        singular="efficiencyreport",
        short_name="er",
        namespaced=True,
        columns=(
            Column(
                name="Workloads",
                path=".status.workloads",
                type="integer",
                description="Workloads with device time.",
            ),
            Column(
                name="Hours", path=".status.allocatedHours", description="Allocated device hours."
            ),
            Column(name="Used", path=".status.usedRatio", description="Used part of them, 0 to 1."),
            Column(name="Wasted", path=".status.wastedHours", description="Wasted device hours."),
            Column(name="Cost", path=".status.wastedCost", description="Price of them."),
            Column(
                name="Since",
                path=".status.since",
                type="date",
                description="Begin of the week.",
                wide=True,
            ),
            AGE,
        ),
    )

    kind: Literal["EfficiencyReport"] = "EfficiencyReport"
    """Kind of the object."""
    spec: EfficiencyReportSpec
    """Contents of the report."""
