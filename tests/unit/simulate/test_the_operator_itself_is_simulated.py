# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Traces under the operator's own decisions: gates, slices and statuses, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ullage.api.observations import Observation
from ullage.api.schedulingpolicy import Quota, Tenant
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.allocation.round_records import RoundSettings
from ullage.scheduling.assignment import judge
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.learning.loop import ENOUGH_ROWS
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.plan import DecideSettings
from ullage.scheduling.model.view import View
from ullage_simulate import comparison
from ullage_simulate.decided import resume, run_decided
from ullage_simulate.events import TraceSettings, run
from ullage_simulate.failures import FailureLaw
from ullage_simulate.founding import START, founded, job_record, profile_record
from ullage_simulate.from_cluster import fleet_of, trace_of
from ullage_simulate.outcome import PolicyOutcome
from ullage_simulate.policies import POLICIES
from ullage_simulate.readers import published
from ullage_simulate.speeds import built_in
from ullage_simulate.trace import Fleet, JobTrace, JobTraceError, TraceJob, fitted, in_order
from ullage_simulate.work import Costs
from ullage_simulate.world import World

SETTINGS = TraceSettings(rounds=RoundSettings(round_s=300.0), costs=Costs(restart_s=30.0))


def _job(name: str, steps: int, *, gang: int = 1, at: float = 0.0, **speeds: float) -> TraceJob:
    return TraceJob(
        name=name, gang=gang, steps=steps, arrival_s=at, speeds=speeds, kind=f"kind {name}"
    )


def _run(
    policy: str, *jobs: TraceJob, settings: TraceSettings = SETTINGS, **devices: int
) -> PolicyOutcome:
    fleet = Fleet(devices=devices)
    return run_decided(fitted(in_order("t", jobs), fleet), fleet, POLICIES[policy], settings)


def _jct(found: PolicyOutcome) -> dict[str, float]:
    return {job.name: job.jct_s for job in found.jobs}


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 3, 1000])
def test_fifo_without_the_operator_is_as_the_operator_plays_it(limit: int) -> None:
    rounds = RoundSettings(round_s=300.0, gang_skip_limit=limit)
    settings = TraceSettings(rounds=rounds, costs=Costs(restart_s=30.0))
    fleet = Fleet(devices={"v100": 2, "p100": 2, "k80": 2})
    trace = fitted(published(), fleet).first(24)  # each limit ends them at other times
    ours = run_decided(trace, fleet, POLICIES["fifo"], settings)
    bare = run(trace, fleet, POLICIES["fifo-fastest"], settings)
    assert ours.mean_jct_s == pytest.approx(bare.mean_jct_s, rel=0.02)
    assert ours.makespan_s == pytest.approx(bare.makespan_s, rel=0.02)


def test_first_come_first_served() -> None:
    found = _run("fifo", _job("a", 1000, t=2.0), _job("b", 100, at=10.0, gang=2, t=1.0), t=2)
    assert _jct(found) == pytest.approx({"a": 530.0, "b": 520.0 + 130.0}, abs=0.5)
    assert found.stops == 0
    assert found.held_s["t"] == pytest.approx(530.0 + 2 * 130.0, abs=1.0)
    assert found.moments[-1].busy == (0,)


def test_each_job_gets_the_type_on_which_it_is_quicker() -> None:
    jobs = (_job("a", 1000, t=10.0, u=1.0), _job("b", 1000, t=1.0, u=10.0))
    assert _jct(_run("las", *jobs, t=1, u=1)) == pytest.approx({"a": 130.0, "b": 130.0}, abs=0.5)


def test_two_jobs_take_turns_on_one_device_and_both_end() -> None:
    jobs = (_job("a", 3000, t=1.0), _job("b", 3000, t=1.0))
    found = _run("las", *jobs, t=1)
    assert found.stops >= 1
    assert 6000.0 <= found.makespan_s <= 6000.0 + 30.0 * (2 + found.stops) + 1.0
    assert found.utilisation > 0.99


def test_a_device_that_fails_costs_no_try_and_comes_back() -> None:
    law = FailureLaw(mtbf_h=1.0, repair_s=120.0)
    settings = replace(SETTINGS, failures=law, seed=2, costs=Costs(restart_s=10.0, every_s=60.0))
    jobs = (_job("a", 4000, t=1.0), _job("b", 4000, gang=2, t=1.0))
    found = _run("fifo", *jobs, settings=settings, t=3)
    assert found.failures > 0
    assert found.lost_device_s > 0
    assert found == _run("fifo", *jobs, settings=settings, t=3)


def test_a_job_that_no_decision_can_be_made_about_ends_the_simulation_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really = judge.training_step

    def life(view: View, ground: Inventory, job: WorkloadRecord) -> LifecycleStep:
        if job.ref.name.endswith("b"):
            raise OverflowError("math range error")
        return really(view, ground, job)

    monkeypatch.setattr(judge, "training_step", life)
    with pytest.raises(JobTraceError, match=r"no decision about .*b: OverflowError"):
        _run("fifo", _job("a", 10, t=1.0), _job("b", 10, t=1.0), t=1)


def test_a_policy_that_no_cluster_has_is_refused() -> None:
    with pytest.raises(JobTraceError, match="water-filling"):
        _run("water-filling", _job("a", 10, t=1.0), t=1)


def _running() -> Snapshot:
    """A picture with one job at work on one of two devices, one waiting for both."""
    fleet = Fleet(devices={"t": 2})
    world = World(base=founded(fleet, POLICIES["fifo"], PolicyRecord(round_seconds=300)), now=START)
    for job in (_job("a", 1000, t=1.0), _job("b", 500, gang=2, t=1.0)):
        record, profile = job_record(job, START), profile_record(job, aware=True)
        world.profiles[profile.namespace, profile.name] = profile
        world.workloads[record.ref.uid] = record
    for _ in range(20):
        snapshot = world.snapshot()
        plan = decide(snapshot, START, DecideSettings(epoch=3))
        world.apply(diff(plan, snapshot))
    world.now = START + 400
    world.report_steps("uid-a", 400, 1.0)
    return world.snapshot()


@pytest.mark.parametrize("mode", ["fast", "decide"])
@pytest.mark.parametrize("file", [None, PolicyRecord(round_seconds=120)])
def test_a_live_cluster_runs_under_its_own_rules_unless_a_file_states_others(
    monkeypatch: pytest.MonkeyPatch, mode: str, file: PolicyRecord | None
) -> None:
    decided: list[PolicyRecord] = []

    def seen(live: Snapshot, *rest: Any) -> PolicyOutcome:
        decided.append(live.policy)
        return resume(live, *rest)

    monkeypatch.setattr(comparison, "resume", seen)
    live = _running()
    asked = comparison.ComparisonRequest(snapshot=live, rules=file, mode=mode, policies=["fifo"])
    found = comparison.compare(asked, lambda *_: lambda _: None)
    rules = file or live.policy
    assert found.settings.rounds.round_s == rules.round_seconds
    assert decided == ([] if mode == "fast" else [rules] * len(found.outcomes))


def test_a_live_picture_is_where_a_simulation_can_start() -> None:
    snapshot = _running()
    assert [pod.stage for pod in snapshot.pods.values()].count(PodStage.RUNNING) == 1
    fleet = fleet_of(snapshot, {"t": 2.0})
    trace = trace_of(snapshot, fleet, 300.0)
    assert fleet.devices == {"t": 2}
    assert {(job.name, job.gang) for job in trace.jobs} == {("trace/job-a", 1), ("trace/job-b", 2)}
    found = resume(snapshot, trace, fleet, POLICIES["fifo"], SETTINGS)
    left = next(job.steps for job in trace.jobs if job.name == "trace/job-a")
    jct = _jct(found)
    # Who runs goes on without a new start; the gang waits for both devices.
    assert jct["trace/job-a"] == pytest.approx(left, abs=0.5)
    assert jct["trace/job-b"] == pytest.approx(left + 30.0 + 500.0, abs=1.0)
    assert found.dollars == pytest.approx(2.0 * sum(found.held_s.values()) / 3600)


def test_what_nodes_observed_before_it_is_taken_in_once() -> None:
    snapshot = _running()
    rows = tuple(
        Observation(
            id=f"row-{number}",
            workload_class="resnet",
            namespace="trace",
            accelerator="t",
            percent=40,
            step_micros=10_000,
            at_s=int(START),
        )
        for number in range(2 * ENOUGH_ROWS)
    )
    nodes = {name: replace(one, observations=rows) for name, one in snapshot.gpu_nodes.items()}
    snapshot = replace(snapshot, gpu_nodes=nodes)
    fleet = fleet_of(snapshot, {"t": 2.0})
    trace = trace_of(snapshot, fleet, 300.0)
    found = resume(snapshot, trace, fleet, POLICIES["fifo"], SETTINGS)
    assert len(found.jobs) == 2


def test_a_picture_without_devices_or_jobs_says_so() -> None:
    empty = Snapshot(version=1, taken_at=START)
    with pytest.raises(JobTraceError, match="no healthy device"):
        fleet_of(empty, {})
    with pytest.raises(JobTraceError, match="no job"):
        trace_of(empty, Fleet(devices={"t": 1}), 300.0)


def test_notes_tell_what_a_picture_did_not_say() -> None:
    snapshot = _running()
    jobs = {uid: replace(one, work_steps=0) for uid, one in snapshot.workloads.items()}
    trace: JobTrace = trace_of(
        replace(snapshot, workloads=jobs, profiles={}), Fleet(devices={"t": 2}), 300.0
    )
    assert any("do not say their steps" in note for note in trace.notes)
    assert any("no known speed at all" in note for note in trace.notes)


@pytest.mark.parametrize(("ages", "victim", "lost_s"), [(False, "new", 90.0), (True, "old", 5.0)])
def test_the_operator_takes_whom_it_costs_least(ages: bool, victim: str, lost_s: float) -> None:
    costs = Costs(every_s=100.0, saves_on_stop=False)
    jobs = (
        _job("old", 1000, t=1.0),
        _job("new", 1000, at=15.0, t=1.0),
        replace(_job("urgent", 1000, at=205.0, t=1.0), priority=1),
    )
    fleet = Fleet(devices={"t": 2})
    trace = fitted(in_order("t", jobs), fleet)
    found = run_decided(trace, fleet, POLICIES["fifo"], TraceSettings(costs=costs), ages=ages)
    stopped = {job.name: job.lost_device_s for job in found.jobs if job.stops}
    assert stopped == {victim: pytest.approx(lost_s, abs=1.0)}
    assert _jct(found)["urgent"] == pytest.approx(1000.0, abs=1.0)


@pytest.mark.slow
def test_jobs_of_one_device_are_paired_by_what_the_table_says() -> None:
    table = built_in()
    kinds = ("ResNet-18 (batch size 128)", "Recommendation (batch size 1024)")
    jobs = [
        TraceJob(
            name=f"{at}",
            gang=1,
            steps=round(3000 * table.alone[kind, 1]["v100"]),
            arrival_s=0.0,
            speeds={"v100": table.alone[kind, 1]["v100"]},
            kind=kind,
        )
        for at, kind in enumerate(kinds * 2)
    ]
    pairs = table.pairs(("v100",))
    alone = _run("las", *jobs, v100=1)
    paired = _run("las", *jobs, settings=replace(SETTINGS, pairs=pairs), v100=1)
    assert paired.makespan_s < 0.9 * alone.makespan_s
    assert paired.held_s["v100"] < 0.9 * alone.held_s["v100"]


def test_a_quota_of_the_policy_holds_in_the_simulator() -> None:
    quota = Quota(accelerator="t", nominal_quota=100)
    tenant = Tenant(name="research", namespaces=frozenset({"vision"}), quota=(quota,))
    jobs = [replace(_job(name, 1000, t=2.0), tenant="research") for name in ("a", "b")]
    free = _job("free", 1000, t=2.0)
    fleet = Fleet(devices={"t": 3})
    trace = fitted(in_order("t", (*jobs, free)), fleet)
    rules = PolicyRecord(tenants=(tenant,))
    found = run_decided(trace, fleet, POLICIES["fifo"], SETTINGS, rules=rules)
    assert _jct(found) == pytest.approx({"a": 530.0, "b": 1060.0, "free": 530.0}, abs=5)
