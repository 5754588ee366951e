# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A workload has one row of device time, whoever leads; it rides on writes that happen anyway."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import NOW, a_gpu_node, a_job, a_service, a_slice, a_snapshot, an_adopted, gpu
from builders import reported as reported_slice
from fakes.toy_books import on
from ullage.api.slices import SlicePhase
from ullage.api.usage import DeviceTime, ObservedUsage, RecentUsage
from ullage.api.words import EfficiencyRule
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.efficiency import EfficiencyRecord
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.engines.efficiency.ledger import plus
from ullage.scheduling.accounting.efficiency import UsageReports, entered, period_of
from ullage.scheduling.accounting.fleet import efficiencies
from ullage.scheduling.accounting.rates import Rate
from ullage.scheduling.model.phases import Phase

MONDAY = 1_767_571_200.0  # 2026-01-05T00:00:00Z
PLACES = (on("n1", pod="train-0"), on("n2", pod="train-1"))
IDLE = ObservedUsage(
    allocated_ms=10,
    recent=RecentUsage(allocated_ms=1_800_000),
)


def nodes(*usages: ObservedUsage | None) -> dict[str, GPUNodeRecord]:
    """One node for each member; ``None`` = it does not report the slice."""
    made = {}
    for at, usage in enumerate(usages):
        name = f"n{at + 1}"
        part = a_slice(f"uid-train-{at}", device=gpu(name), percent=100)
        seen = replace(reported_slice(part, SlicePhase.ATTACHED), usage=usage)
        made[name] = a_gpu_node(name, observed=[] if usage is None else [seen])
    return made


class Life:
    """A job whose status is written when the test says so, and stored as the API would."""

    def __init__(self) -> None:
        self.now = MONDAY + 1000
        self.counters = [ObservedUsage(), ObservedUsage()]
        self.workload: WorkloadRecord = a_job().gang(2).build()

    def work(self, seconds: float, used: float = 0.25) -> None:
        """Time passes, and the nodes count it."""
        self.now += seconds
        grown = DeviceTime(allocated_ms=int(seconds * 1000), used_ms=int(seconds * 1000 * used))
        self.counters = [
            replace(
                counter,
                allocated_ms=counter.allocated_ms + grown.allocated_ms,
                used_ms=counter.used_ms + grown.used_ms,
            )
            for counter in self.counters
        ]

    def write(self, *usages: ObservedUsage | None, **changes: object) -> EfficiencyRecord:
        """A status is written, by whichever operator leads: all it knows stands in the API."""
        status = replace(self.workload.status, **changes)  # type: ignore[arg-type]
        reports = UsageReports(nodes(*(usages or self.counters)), NOW)
        status = entered(self.workload, status, reports, Rate(per_hour=4.0), self.now)
        stored = as_stored(WorkloadKind.TRAINING_JOB, status)
        assert stored == as_stored(WorkloadKind.TRAINING_JOB, stored)
        self.workload = replace(self.workload, status=stored)
        assert stored.efficiency is not None
        return stored.efficiency

    def start(self) -> None:
        self.write(phase="Running", placement=PLACES)


def test_a_row_is_the_growth_of_the_counters_and_what_was_not_used_is_wasted() -> None:
    life = Life()
    life.work(60)  # before all members run: not the user's time
    life.start()
    assert life.write().row == DeviceTime()
    life.work(100)
    record = life.write()
    assert record.row == DeviceTime(allocated_ms=200_000, used_ms=50_000)
    assert record.row.wasted_ms + record.row.used_ms == record.row.allocated_ms
    assert record.used_ratio == "0.250"
    assert record.per_device_hour == "2"  # 4 an hour for two devices


def test_a_status_that_is_not_written_has_no_row() -> None:
    workload = a_job().status(phase="Running", placement=PLACES).build()
    reports = UsageReports(nodes(None, None), NOW)
    assert entered(workload, workload.status, reports, Rate(), NOW) is workload.status
    old_agents = UsageReports(
        {
            "n1": a_gpu_node(
                "n1", observed=[reported_slice(a_slice("uid-train-0", device=gpu("n1")))]
            )
        },
        NOW,
    )
    assert entered(workload, workload.status, old_agents, Rate(), NOW) is workload.status


def test_time_while_another_operator_takes_over_is_counted() -> None:
    life = Life()
    life.start()
    life.work(7200)  # nobody wrote a status for two hours
    assert life.write().row.allocated_ms == 2 * 7_200_000
    again = life.write()
    assert again.row.allocated_ms == 2 * 7_200_000


def test_a_restart_begins_another_row_and_loses_none_of_the_first() -> None:
    life = Life()
    life.start()
    life.work(100)
    life.write(phase="Restarting", placement=())
    record = life.write(phase="Running", placement=PLACES, restarts=1)
    assert (record.attempt, record.row) == (1, DeviceTime())
    assert record.earlier == DeviceTime(allocated_ms=200_000, used_ms=50_000)
    life.work(10)
    assert life.write().row.allocated_ms == 20_000


def test_a_week_ends_a_row() -> None:
    life = Life()
    life.now = MONDAY + 7 * 86_400 - 50
    life.start()
    life.work(100)
    record = life.write()
    assert record.since == MONDAY + 7 * 86_400 == period_of(life.now)
    assert record.row == DeviceTime()
    assert record.earlier.allocated_ms == 200_000


def test_a_slice_that_nobody_reports_is_unmeasured_time() -> None:
    life = Life()
    life.start()
    life.work(50)
    record = life.write(life.counters[0], None)
    assert record.row == DeviceTime(unmeasured_ms=100_000)
    life.work(50)
    record = life.write()
    assert record.row == DeviceTime(unmeasured_ms=200_000)  # nothing of it twice
    life.work(50)
    assert life.write().row.allocated_ms == 100_000


def test_findings_keep_the_time_since_they_hold() -> None:
    life = Life()
    life.now = NOW
    life.start()
    (finding,) = life.write(IDLE, IDLE).findings
    assert finding.rule is EfficiencyRule.IDLE
    life.now += 60
    (later,) = life.write(IDLE, IDLE, restarts=0).findings
    assert later.since == finding.since
    assert life.write(IDLE, IDLE, phase="Suspending").findings == ()


def test_windows_of_a_silent_agent_are_no_evidence_and_its_sums_stay() -> None:
    job = a_job().status(phase="Running", placement=PLACES[:1]).build()
    silent = UsageReports(nodes(IDLE), NOW + 1000)
    status = entered(job, replace(job.status, restarts=0), silent, Rate(), NOW)
    assert status.efficiency is not None
    assert status.efficiency.findings == ()
    assert status.efficiency.mark is not None
    assert status.efficiency.mark.allocated_ms == IDLE.allocated_ms


def test_a_service_counts_while_it_answers() -> None:
    service = a_service("train").status(phase=Phase.PENDING, placement=PLACES[:1]).build()
    ready = replace(service.status, phase=Phase.READY)
    status = entered(service, ready, UsageReports(nodes(IDLE), NOW), Rate(), NOW)
    assert status.efficiency is not None
    assert status.efficiency.mark is not None


def test_adopted_pods_count_by_what_their_nodes_report() -> None:
    pods = an_adopted("train").status(phase="Running").build()
    cluster = a_snapshot(*nodes(replace(IDLE, allocated_ms=3_600_000, used_ms=600_000)).values())
    cluster = replace(cluster, workloads={pods.ref.uid: pods})
    (entry,) = efficiencies(cluster, [pods], NOW)
    assert entry.time == DeviceTime(allocated_ms=3_600_000, used_ms=600_000)
    assert entry.accelerator
    assert [finding.rule for finding in entry.record.findings] == [EfficiencyRule.IDLE]


def test_what_is_shown_now_is_what_the_next_entry_writes() -> None:
    life = Life()
    life.start()
    life.work(100)
    cluster = a_snapshot(*nodes(*life.counters).values(), life.workload)
    (entry,) = efficiencies(cluster, [life.workload], life.now)
    assert entry.record.row == life.write().row


@pytest.mark.parametrize("stale", [None, EfficiencyRecord(since=0.0, as_of=0.0)])
def test_without_nodes_the_last_entry_is_shown(stale: EfficiencyRecord | None) -> None:
    job = a_job().status(phase="Running", placement=PLACES, efficiency=stale).build()
    shown = [entry.record for entry in efficiencies(a_snapshot(job), [job], NOW)]
    assert shown == ([] if stale is None else [stale])


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["write", "nothing", "restart", "away", "agent"]), st.integers(1, 5000)
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(EVENTS)
def test_no_order_of_writes_restarts_and_losses_counts_time_twice(
    events: list[tuple[str, int]],
) -> None:
    life = Life()
    life.start()
    begun, restarts = life.now, 0
    counted = DeviceTime()
    for what, seconds in events:
        life.work(seconds)
        if what == "write":
            record = life.write()
        elif what == "restart":
            life.write(phase="Restarting", placement=())
            restarts += 1
            life.counters = [ObservedUsage(), ObservedUsage()]  # other pods
            record = life.write(phase="Running", placement=PLACES, restarts=restarts)
        elif what == "away":
            record = life.write(life.counters[0], None)
        elif what == "agent":
            life.counters[1] = ObservedUsage()  # its node lost all that was counted
            record = life.write()
        else:
            continue
        total = plus(record.earlier, record.row)
        assert total.allocated_ms >= counted.allocated_ms
        assert total.used_ms + total.wasted_ms == total.allocated_ms
        assert total.held_ms <= 2 * (life.now - begun) * 1000
        counted = total
