# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of device time only grow, name no job, and let no namespace change those of another."""

from __future__ import annotations

from dataclasses import replace

from builders import NOW, a_gpu_node, a_job, a_slice, a_snapshot, gpu, reported
from fakes.toy_books import on
from ullage.api.usage import DeviceTime, ObservedUsage, RecentUsage
from ullage.cluster.records.efficiency import EfficiencyRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.efficiency.ledger import UsageMark
from ullage.metrics.efficiency import EfficiencyFigures, EfficiencySums

IDLE = RecentUsage(allocated_ms=1_800_000)


def cluster(usage: ObservedUsage, *, created: float = NOW, namespace: str = "team") -> Snapshot:
    """One job on one node, whose row was last entered when it began."""
    job = (
        a_job(namespace=namespace)
        .with_(created=created)
        .status(
            phase="Running",
            placement=(on("n1"),),
            efficiency=EfficiencyRecord(since=0.0, as_of=NOW - 3600, mark=UsageMark(slices=1)),
        )
        .build()
    )
    part = a_slice("uid-train-0", device=gpu("n1"), percent=100)
    seen = replace(reported(part), usage=usage)
    return a_snapshot(job, a_gpu_node("n1", devices=1, observed=[seen]))


def merged(*clusters: Snapshot) -> Snapshot:
    workloads = {uid: job for one in clusters for uid, job in one.workloads.items()}
    return replace(clusters[0], workloads=workloads)


def test_time_is_added_as_it_is_used_wasted_withheld_or_unmeasured() -> None:
    sums = EfficiencySums(began=NOW - 10)
    usage = ObservedUsage(allocated_ms=5000, used_ms=2000, withheld_ms=700, unmeasured_ms=300)
    first = sums.figures(cluster(usage), NOW)
    assert first.seconds == {
        ("team", "used"): 2.0,
        ("team", "wasted"): 3.0,
        ("team", "withheld"): 0.7,
        ("team", "unmeasured"): 0.3,
    }
    more = replace(usage, allocated_ms=9000)
    assert sums.figures(cluster(more), NOW + 1) is first  # not computed at every scrape
    assert sums.figures(cluster(more), NOW + 61).seconds["team", "wasted"] == 7.0


def test_what_another_process_counted_is_not_counted_again_and_nothing_is_taken_back() -> None:
    sums = EfficiencySums(began=NOW)
    old = ObservedUsage(allocated_ms=5000)
    assert sums.figures(cluster(old, created=NOW - 500), NOW).seconds["team", "wasted"] == 0
    grown = replace(old, allocated_ms=6000)
    later = sums.figures(cluster(grown, created=NOW - 500), NOW + 61)
    assert later.seconds["team", "wasted"] == 1.0
    nothing = sums.figures(a_snapshot(), NOW + 122)
    assert nothing.seconds["team", "wasted"] == 1.0
    assert nothing.findings == {}


def test_idle_devices_are_told_by_namespace() -> None:
    idle = ObservedUsage(allocated_ms=5000, recent=IDLE)
    figures = EfficiencySums(began=NOW).figures(cluster(idle), NOW)
    assert figures.findings == {("team", "Idle"): 1}
    assert figures.explained == {("team", "Idle"): 1.0}


def test_a_row_of_another_namespace_changes_no_figure_of_this_one() -> None:
    own = cluster(ObservedUsage(allocated_ms=5000, used_ms=1000, recent=IDLE))
    wild = EfficiencyRecord(
        since=0.0,
        as_of=NOW,
        row=DeviceTime(allocated_ms=1, used_ms=2**53, withheld_ms=2**53, unmeasured_ms=2**53),
        gain="999999999",
    )
    forged = a_snapshot(a_job(namespace="other").status(phase="Running", efficiency=wild))

    def of_team(figures: EfficiencyFigures) -> list[dict[tuple[str, str], float]]:
        tables = (figures.seconds, figures.findings, figures.explained)
        return [
            {label: value for label, value in table.items() if label[0] == "team"}
            for table in tables
        ]

    alone = EfficiencySums(began=0.0).figures(own, NOW)
    beside = EfficiencySums(began=0.0).figures(merged(own, forged), NOW)
    assert of_team(beside) == of_team(alone)
    assert beside.seconds["other", "wasted"] == 0.0
