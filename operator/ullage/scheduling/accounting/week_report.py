# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The report of one namespace and week, from the previous report and the present workloads.

Rows are identified by uid and start. A new row replaces the earlier one of the same start, so an
operator that restarts counts nothing twice. Rows of deleted workloads stay until the week ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal

from ullage.api.times import HOUR_MS
from ullage.api.usage import DeviceTime
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.efficiency import (
    MOST_ROWS,
    EfficiencyReportStatus,
    OpportunityRecord,
    ReportRow,
)
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.efficiency.ledger import NO_TIME, plus
from ullage.engines.efficiency.ranking import Opportunity, RankedRow, summary
from ullage.scheduling.accounting.cost_records import money
from ullage.scheduling.accounting.efficiency import period_of, ratio_text
from ullage.scheduling.accounting.fleet import WorkloadEfficiency, efficiencies, ranked_row
from ullage.scheduling.accounting.remedies import remedy


def week_report(
    before: EfficiencyReportStatus | None, snapshot: Snapshot, namespace: str, now: float, top: int
) -> EfficiencyReportStatus:
    """The status of a report.

    Args:
        before: The status so far.
        snapshot: The cluster; only workloads of the namespace count.
        namespace: The report's namespace.
        now: Seconds since the epoch.
        top: Number of opportunities.
    """
    since = period_of(whole_second(now))
    workloads = [w for w in snapshot.workloads.values() if w.ref.namespace == namespace]
    earlier = {row.key: row for row in before.rows} if before is not None else {}
    same_week = before is not None and before.since == since
    rows = dict(earlier) if same_week else {}
    ranked: dict[tuple[str, int], RankedRow] = {}
    entries: dict[str, WorkloadEfficiency] = {}
    for entry in efficiencies(snapshot, workloads, now):
        row = _row(entry, earlier, since, same_week=same_week)
        rows[row.key] = row
        ranked[row.key] = ranked_row(snapshot, entry, row.time)
        entries[ranked[row.key].name] = entry
    ended = [_ended(row, namespace) for row in rows.values() if row.key not in ranked]
    fleet = summary([*ranked.values(), *ended])
    time = fleet.time
    kept = sorted(rows.values(), key=lambda row: (-row.time.held_ms, row.key))
    return EfficiencyReportStatus(
        since=since,
        as_of=whole_second(now),
        workloads=len({row.uid for row in rows.values()}),
        total=time,
        allocated_hours=_hours(time.allocated_ms),
        used_ratio=ratio_text(time.used_ms / time.allocated_ms) if time.allocated_ms else "",
        wasted_hours=_hours(time.wasted_ms),
        explained_hours=_hours(fleet.gain_ms),
        wasted_cost="" if fleet.cost is None else money(fleet.cost),
        unpriced=fleet.unpriced,
        left_out=max(0, len(kept) - MOST_ROWS),
        opportunities=tuple(_opportunities(snapshot, fleet.opportunities[:top], entries)),
        rows=tuple(kept[:MOST_ROWS]),
    )


def _row(
    entry: WorkloadEfficiency,
    earlier: dict[tuple[str, int], ReportRow],
    since: float,
    *,
    same_week: bool,
) -> ReportRow:
    """The row of a workload's present start.

    If the workload's status was last written in an earlier week, its row still includes that week:
    the time that earlier reports hold is subtracted.
    """
    record, ref = entry.record, entry.workload.ref
    key = (ref.uid, record.attempt)
    reported = earlier.get(key)
    before = NO_TIME
    if record.since != since or entry.workload.adopted:
        stored = entry.workload.status.efficiency
        if reported is not None:
            before = reported.before if same_week else plus(reported.before, reported.time)
        elif stored is not None and record.since != since:
            before = stored.row
    return ReportRow(
        uid=ref.uid,
        attempt=record.attempt,
        kind=ref.kind,
        name=ref.name,
        time=_minus(record.row, before),
        before=before,
        per_device_hour=record.per_device_hour,
    )


def _minus(time: DeviceTime, before: DeviceTime) -> DeviceTime:
    """The growth of a device time; a part that shrank counts as zero."""
    allocated = max(0, time.allocated_ms - before.allocated_ms)
    return DeviceTime(
        allocated_ms=allocated,
        used_ms=min(allocated, max(0, time.used_ms - before.used_ms)),
        withheld_ms=max(0, time.withheld_ms - before.withheld_ms),
        unmeasured_ms=max(0, time.unmeasured_ms - before.unmeasured_ms),
    )


def _ended(row: ReportRow, namespace: str) -> RankedRow:
    price = Decimal(row.per_device_hour) if row.per_device_hour else None
    return RankedRow(
        name=f"{namespace}/{row.name}",
        group=(namespace, "", ""),
        time=replace(row.time),
        per_device_hour=price,
    )


def _opportunities(
    snapshot: Snapshot, opportunities: Sequence[Opportunity], entries: dict[str, WorkloadEfficiency]
) -> Iterator[OpportunityRecord]:
    for opportunity in opportunities:
        entry = entries[opportunity.example]
        finding = next(f for f in entry.record.findings if f.rule is opportunity.rule)
        advice = remedy(snapshot, entry.workload, finding)
        _, tenant, accelerator = opportunity.group
        yield OpportunityRecord(
            rule=opportunity.rule,
            tenant=tenant,
            accelerator=accelerator,
            workloads=opportunity.rows,
            hours=_hours(opportunity.gain_ms),
            cost="" if opportunity.cost is None else money(opportunity.cost),
            example=entry.workload.ref.name,
            remedy=advice.text,
            command=advice.command,
        )


def _hours(time_ms: int) -> str:
    return f"{min(time_ms / HOUR_MS, 999_999_999):.2f}"
