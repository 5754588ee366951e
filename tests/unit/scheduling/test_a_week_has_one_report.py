# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The report of a week holds every start once, whoever writes it and whatever is deleted."""

from __future__ import annotations

from dataclasses import replace

from builders import a_gpu_node, a_job, a_slice, a_snapshot, gpu, reported
from fakes.toy_books import on
from ullage.api.usage import DeviceTime, ObservedUsage, RecentUsage
from ullage.cluster.codecs.efficiency import report_status_from_wire, report_status_to_wire
from ullage.cluster.records.efficiency import MOST_ROWS, EfficiencyRecord, EfficiencyReportStatus
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.efficiency.ledger import UsageMark
from ullage.scheduling.accounting.week_report import week_report

MONDAY = 1_767_571_200.0  # 2026-01-05T00:00:00Z
WEEK = 7 * 86_400
HOUR = 3_600_000
NOW = MONDAY + 36_000


def a_row(
    hours: int, used: int = 0, *, since: float = MONDAY, attempt: int = 0
) -> EfficiencyRecord:
    """A row that was entered last when it ended."""
    return EfficiencyRecord(
        since=since,
        attempt=attempt,
        as_of=NOW,
        row=DeviceTime(allocated_ms=hours * HOUR, used_ms=used * HOUR),
        per_device_hour="2",
    )


def a_done(name: str, row: EfficiencyRecord, namespace: str = "team") -> WorkloadRecord:
    return a_job(name, namespace=namespace).status(phase="Succeeded", efficiency=row).build()


def told(
    before: EfficiencyReportStatus | None, cluster: Snapshot, now: float = NOW, top: int = 10
) -> EfficiencyReportStatus:
    """The report, stored and read back."""
    status = week_report(before, cluster, "team", now, top)
    assert report_status_from_wire(report_status_to_wire(status)) == status
    assert status.total.used_ms + status.total.wasted_ms == status.total.allocated_ms
    return status


def test_sums_of_the_namespace_alone() -> None:
    cluster = a_snapshot(
        a_done("a", a_row(10, 4)), a_done("b", a_row(6, 6)), a_done("c", a_row(100), "other")
    )
    status = told(None, cluster)
    assert status.since == MONDAY
    assert (status.workloads, status.allocated_hours, status.wasted_hours) == (2, "16.00", "6.00")
    assert (status.used_ratio, status.wasted_cost) == ("0.625", "12")


def test_a_report_that_is_made_again_counts_nothing_twice() -> None:
    cluster = a_snapshot(a_done("a", a_row(10)))
    once = told(None, cluster)
    assert told(once, cluster) == once
    assert told(None, cluster).total == once.total  # another operator, and a lost status


def test_rows_of_deleted_workloads_stay_until_the_week_ends() -> None:
    first = told(None, a_snapshot(a_done("a", a_row(10))))
    later = told(first, a_snapshot(a_done("b", a_row(5))))
    assert later.total.allocated_ms == 15 * HOUR
    assert later.workloads == 2
    assert later.wasted_cost == "30"
    next_week = told(later, a_snapshot(), NOW + WEEK)
    assert next_week.total == DeviceTime()
    assert next_week.rows == ()


def test_each_start_is_a_row() -> None:
    first = told(None, a_snapshot(a_done("a", a_row(10))))
    again = replace(a_row(3, attempt=1), earlier=a_row(10).row)
    second = told(first, a_snapshot(a_done("a", again)))
    assert second.total.allocated_ms == 13 * HOUR
    assert (second.workloads, len(second.rows)) == (1, 2)


def live(hours: int, as_of: float) -> Snapshot:
    """A quiet job: its status was last written at ``as_of``, in the first week."""
    mark = UsageMark(slices=1)
    row = EfficiencyRecord(since=MONDAY, as_of=as_of, mark=mark, per_device_hour="2")
    job = a_job(namespace="team").status(phase="Running", placement=(on("n1"),), efficiency=row)
    part = a_slice("uid-train-0", device=gpu("n1"), percent=100)
    recent = RecentUsage(allocated_ms=1_800_000)
    usage = ObservedUsage(allocated_ms=hours * HOUR, recent=recent)
    node = a_gpu_node("n1", devices=1, observed=[replace(reported(part), usage=usage)])
    return a_snapshot(job, replace(node, heartbeat=MONDAY + 4 * WEEK))


def test_a_quiet_job_is_counted_in_the_week_in_which_it_held_its_devices() -> None:
    begun = MONDAY + WEEK - 10 * 3600
    before = told(None, live(10, begun), MONDAY + WEEK - 1)
    assert before.total.allocated_ms == 10 * HOUR
    after = told(before, live(14, begun), MONDAY + WEEK + 4 * 3600)
    assert after.since == MONDAY + WEEK
    assert after.total.allocated_ms == 4 * HOUR
    again = told(after, live(15, begun), MONDAY + WEEK + 5 * 3600)
    assert again.total.allocated_ms == 5 * HOUR


def test_the_largest_opportunity_has_its_command() -> None:
    status = told(None, live(10, NOW - 36_000), NOW)
    (opportunity,) = status.opportunities
    assert (opportunity.rule.value, opportunity.hours, opportunity.cost) == ("Idle", "10.00", "20")
    assert opportunity.command.startswith("kubectl patch trainingjob train -n team")
    assert opportunity.example == "train"
    assert told(None, live(10, NOW - 36_000), NOW, top=1).opportunities == (opportunity,)


def test_rows_are_bounded_and_what_is_left_out_is_counted() -> None:
    jobs = [a_done(f"job-{at}", a_row(1 + at % 3)) for at in range(MOST_ROWS + 5)]
    status = told(None, a_snapshot(*jobs))
    assert len(status.rows) == MOST_ROWS
    assert status.left_out == 5
    assert status.workloads == MOST_ROWS + 5
    assert status.total.allocated_ms == sum(1 + at % 3 for at in range(MOST_ROWS + 5)) * HOUR
