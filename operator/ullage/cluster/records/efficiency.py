# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The ledger row in the status of a workload, with its findings; rows and sums of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from ullage.api.efficiencyreport import MOST_OPPORTUNITIES
from ullage.api.usage import DeviceTime
from ullage.api.wire_fields import (
    IF_KNOWN,
    INT32,
    KEPT,
    NEEDED,
    Count,
    Decimal,
    Flag,
    Listed,
    Moment,
    Money,
    Name,
    Schema,
    Text,
    Word,
    at_most,
    atomic,
    between,
    cut,
    word,
)
from ullage.api.words import EfficiencyRule
from ullage.engines.efficiency.ledger import NO_TIME, UsageMark

MOST_FINDINGS: Final = 8
"""Findings that one status holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingRecord:
    """One explanation of unused device time."""

    rule: Annotated[EfficiencyRule, word(EfficiencyRule, grows=True), NEEDED]
    """The explanation, in one stable word."""
    since: Moment
    """Begin of the time for which it has held."""
    gain: Decimal = ""
    """Part of the allocated time that it explains, 0 to 1; gains of several findings overlap."""
    confidence: Decimal = ""
    """Confidence in it, 0 to 1; less where counters are estimates or the workload's own reports."""
    percent: Annotated[int, between(0, 100)] = 0
    """Share of a device that would be enough, in percent."""
    memory_mib: Count = 0
    """Device memory that would be enough, in MiB."""
    message: Annotated[str, cut(512)] = ""
    """Evidence with figures, in a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyRecord:
    """Device time of the workload: one row for each start in each week.

    Written only together with other changes of the status, so it may be older than the nodes'
    counters; growth since then is added with the next change.
    """

    since: Moment
    """Begin of the week of `row`."""
    attempt: Annotated[Count, INT32] = 0
    """Start of the workload that `row` is for: the number of restarts before it."""
    as_of: Moment
    """End of the time that the sums cover."""
    row: Annotated[DeviceTime, KEPT] = NO_TIME
    """Device time of this start in this week."""
    earlier: Annotated[DeviceTime, KEPT] = NO_TIME
    """Device time of earlier starts and weeks."""
    mark: UsageMark | None = None
    """Counters of the nodes at the last entry; absent = counting starts with the next entry."""
    used_ratio: Decimal = ""
    """Used part of the allocated time of `row`, 0 to 1."""
    gain: Decimal = ""
    """Part of the allocated time that all findings explain together, 0 to 1."""
    per_device_hour: Decimal = ""
    """Price of an hour of a whole device, in the currency of the prices; absent = unknown."""
    estimated: Annotated[Flag, Schema(default=False)] = False
    """The use of a shared device is known as a whole only: the used time is an upper bound
    for this workload."""
    findings: Annotated[
        tuple[Annotated[FindingRecord, IF_KNOWN], ...],
        Listed(most=MOST_FINDINGS),
        atomic(MOST_FINDINGS),
    ] = ()
    """Explanations of unused time, the largest gain first."""


MOST_ROWS: Final = 256
"""Rows that one report keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRow:
    """Device time of one start of a workload in the week of the report."""

    uid: Annotated[Word, NEEDED]
    """uid of the workload."""
    attempt: Annotated[Count, INT32, KEPT] = 0
    """Start of the workload: the number of restarts before it."""
    kind: Name
    """Kind of the workload."""
    name: Name
    """Its name."""
    time: Annotated[DeviceTime, KEPT] = NO_TIME
    """Its device time in this week."""
    before: Annotated[DeviceTime, KEPT] = NO_TIME
    """Device time of this start that reports of earlier weeks hold."""
    per_device_hour: Decimal = ""
    """Price of an hour of a whole device; absent = unknown."""

    @property
    def key(self) -> tuple[str, int]:
        """The identity of a row within its week."""
        return self.uid, self.attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class OpportunityRecord:
    """Device time of a tenant on one accelerator type that findings of one rule explain."""

    rule: Annotated[EfficiencyRule, word(EfficiencyRule, grows=True), NEEDED]
    """The explanation, in one stable word."""
    tenant: Annotated[Text, at_most(253)] = ""
    """Tenant of the workloads."""
    accelerator: Annotated[Text, at_most(253)] = ""
    """Accelerator type."""
    workloads: Count = 0
    """Number of workloads."""
    hours: Decimal = ""
    """Device hours that it explains; those of two rules overlap."""
    cost: Money = ""
    """Price of these hours; absent = a price is missing."""
    example: Annotated[Text, at_most(253)] = ""
    """The workload with the largest part."""
    remedy: Annotated[str, cut(512)] = ""
    """Advice for this workload."""
    command: Annotated[str, cut(2048)] = ""
    """A command that applies the advice; absent = there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyReportStatus:
    """Device time of the workloads of a namespace in one week."""

    since: Moment
    """Begin of the week, Monday 00:00 UTC."""
    as_of: Moment
    """End of the time that the report covers."""
    workloads: Count = 0
    """Workloads with device time."""
    total: Annotated[DeviceTime, KEPT] = NO_TIME
    """Their device time."""
    allocated_hours: Decimal = ""
    """Allocated device hours."""
    used_ratio: Decimal = ""
    """Used part of them, 0 to 1."""
    wasted_hours: Decimal = ""
    """Device hours that were allocated and not used."""
    explained_hours: Decimal = ""
    """Part of the wasted hours that findings explain now, each moment once."""
    wasted_cost: Money = ""
    """Price of the wasted hours with a price; absent = none has one."""
    unpriced: Count = 0
    """Workloads without a price."""
    left_out: Count = 0
    """Rows beyond the limit of the list, those with the least device time; if their
    workloads are deleted, the sums no longer include them."""
    opportunities: Annotated[
        tuple[Annotated[OpportunityRecord, IF_KNOWN], ...], atomic(MOST_OPPORTUNITIES)
    ] = ()
    """Findings by tenant and accelerator, the most device time first."""
    rows: Annotated[tuple[ReportRow, ...], Listed(most=MOST_ROWS), atomic(MOST_ROWS)] = ()
    """One row for each start of a workload in this week."""
