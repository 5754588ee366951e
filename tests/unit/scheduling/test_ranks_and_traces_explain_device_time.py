# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks and the last trace of a job's present pods explain its unused time; older ones do not."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from builders import NOW, a_gpu_node, a_job, a_slice, a_snapshot, an_adopted, gpu
from builders_nodes import reported
from fakes.toy_books import on
from fakes.trace_world import a_request
from ullage.api.reasons import Reason
from ullage.api.rebalancing import StragglerPolicy
from ullage.api.slices import ObservedRank
from ullage.api.usage import ObservedUsage, RecentUsage
from ullage.api.words import EfficiencyRule as Rule
from ullage.cluster.records.efficiency import FindingRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.trace import (
    LastTrace,
    ProfileRequestRecord,
    ProfileRequestStatus,
    TracedPod,
    last_traces,
)
from ullage.engines.tracing.job_trace import ClockAlignment, JobTrace, TraceFinding
from ullage.scheduling.accounting.fleet import efficiencies
from ullage.scheduling.accounting.remedies import remedy
from ullage.scheduling.times import TRACE_AGE_MOST_S

RECENT = RecentUsage(
    allocated_ms=1_800_000,
    used_ms=1_000_000,
    needed_percent=98,
    duty_percent=100,
    kernel_idle_percent=5,
    memory_mib=70_000,
)
RANK = ObservedRank(
    rank=0, steps=500, step_micros=100_000, compute_micros=60_000, data_wait_micros=1_000
)
TRACE = LastTrace(
    name="digits-1",
    ended=NOW,
    pods=("uid-train-0",),
    first_step=1200,
    steps=5,
    findings=(TraceFinding(reason=Reason.SHORT_KERNELS, share_percent=30, message="7 of 9"),),
)


def a_cluster(
    *ranks: ObservedRank, trace: LastTrace | None = None, heartbeat: float = NOW, **job: object
) -> Snapshot:
    """A job of one container on a node that reports these ranks."""
    wanted = a_slice("uid-train-0", device=gpu("node-1"), percent=100)
    usage = ObservedUsage(allocated_ms=3_600_000, used_ms=2_000_000, recent=RECENT)
    seen = replace(reported(wanted), usage=usage, ranks=ranks)
    node = a_gpu_node("node-1", desired=(wanted,), observed=(seen,), heartbeat=heartbeat)
    placed = a_job().status(phase="Running", placement=(on("node-1"),)).with_(**job)
    snapshot = a_snapshot(placed, node)
    return replace(snapshot, traces={("default", "train"): trace} if trace is not None else {})


def found(snapshot: Snapshot) -> dict[Rule, FindingRecord]:
    (entry,) = efficiencies(snapshot, snapshot.workloads.values(), NOW)
    return {finding.rule: finding for finding in entry.record.findings}


def test_the_last_trace_of_the_present_pods_explains_unused_time() -> None:
    finding = found(a_cluster(trace=TRACE))[Rule.SHORT_KERNELS]
    assert finding.gain == "0.300"
    assert finding.message == "7 of 9, in trace digits-1 (steps 1200-1204)"


@pytest.mark.parametrize(
    "changes",
    [{"pods": ("uid-of-an-earlier-start",)}, {"ended": NOW - TRACE_AGE_MOST_S - 1}, {"steps": 3}],
)
def test_a_trace_of_other_pods_or_of_long_ago_says_nothing(changes: dict[str, object]) -> None:
    trace = replace(TRACE, **changes)  # type: ignore[arg-type]
    assert found(a_cluster(trace=trace)) == {}


def test_ranks_explain_unused_time_and_come_before_the_trace() -> None:
    waits = replace(RANK, data_wait_micros=25_000)
    data = TraceFinding(reason=Reason.WAITS_FOR_DATA, share_percent=12, message="old")
    trace = replace(TRACE, findings=(data, *TRACE.findings))
    findings = found(a_cluster(waits, trace=trace))
    assert findings.keys() == {Rule.WAITS_FOR_DATA, Rule.SHORT_KERNELS}
    assert findings[Rule.WAITS_FOR_DATA].gain == "0.250"


def test_ranks_of_a_silent_node_say_nothing() -> None:
    waits = replace(RANK, data_wait_micros=25_000)
    assert found(a_cluster(waits, heartbeat=NOW - 1000)) == {}


def test_a_slow_rank_is_told_while_batches_are_even_and_someone_wants_to_know() -> None:
    ranks = [replace(RANK, rank=at, compute_micros=50_000 + 35_000 * (at == 2)) for at in range(4)]
    finding = found(a_cluster(*ranks))[Rule.SLOW_RANK]
    assert "rank 2" in finding.message
    assert "mostly to compute" in finding.message
    divided = [replace(rank, batch=8 + rank.rank, even_batch=8) for rank in ranks]
    assert Rule.SLOW_RANK not in found(a_cluster(*divided))
    assert found(a_cluster(*ranks, stragglers=StragglerPolicy.DISABLED)) == {}


def test_the_newest_finished_trace_of_a_job_counts() -> None:
    def request(name: str, ended: float, **changes: object) -> ProfileRequestRecord:
        result = JobTrace(first_step=1, steps=5, alignment=ClockAlignment.ONE_CLOCK)
        status = ProfileRequestStatus(
            phase="Done",
            completion_time=ended,
            result=result,
            pods=(TracedPod(uid="uid-a", pod="a", node="node-1"),),
        )
        return a_request(name, **({"status": status} | changes))

    new, old = request("new", NOW), request("old", NOW - 100)
    failed = request("failed", NOW + 1, status=ProfileRequestStatus(phase="Failed"))
    other = request("other", NOW + 1, job_kind="Job")
    for order in ((new, old, failed, other), (other, failed, old, new)):
        (last,) = last_traces(order).values()
        assert (last.name, last.pods) == ("new", ("uid-a",))


STEPS = [
    Rule.WAITS_FOR_DATA,
    Rule.CPU_THROTTLED,
    Rule.SLOW_RANK,
    Rule.EXPOSED_COMMUNICATION,
    Rule.SHORT_KERNELS,
    Rule.SYNCHRONISES_OFTEN,
    Rule.ALLOCATES_IN_STEPS,
    Rule.PAGEABLE_COPIES,
]


@pytest.mark.parametrize("rule", STEPS)
def test_each_has_advice_for_jobs_and_for_pods_of_others(rule: Rule) -> None:
    finding = FindingRecord(rule=rule, since=NOW)
    for workload in (a_job().build(), an_adopted().build()):
        assert remedy(a_snapshot(workload), workload, finding).text


@pytest.mark.parametrize(
    ("rule", "spec"),
    [
        (Rule.WAITS_FOR_DATA, '{"spec":{"data":{"io":{"autotune":true}}}}'),
        (Rule.SLOW_RANK, '{"spec":{"stragglers":{"policy":"Rebalance"}}}'),
    ],
)
def test_what_ullage_can_do_is_one_command(rule: Rule, spec: str) -> None:
    job = a_job().build()
    command = remedy(a_snapshot(job), job, FindingRecord(rule=rule, since=NOW)).command
    assert shlex.split(command)[-1] == spec
    balanced = a_job().with_(stragglers=StragglerPolicy.REBALANCE).build()
    if rule is Rule.SLOW_RANK:
        found_again = FindingRecord(rule=rule, since=NOW)
        assert not remedy(a_snapshot(balanced), balanced, found_again).command
