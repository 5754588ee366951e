# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of sharing follow from pictures and actions: each change once, no pod remembered."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import Histogram

from builders import NOW, a_device, a_gpu_node, a_job, a_snapshot
from fakes.lesson_rig import GPU, profile, row
from ullage.api.reasons import ConditionType, Reason
from ullage.api.slices import DesiredSlice, ObservedSlice, SliceKey, SlicePhase
from ullage.app.outcomes import Outcomes
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Condition, DecisionRecord, Sharing, WorkloadStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.model import LearnedModel
from ullage.scheduling.model.plan import Emit, SetProfile, SetStatus, TellPod

KEY = SliceKey(pod_uid="uid-pod", container="main", index=0)


def status(chosen: str, reason: Reason, group: str = "") -> WorkloadStatus:
    decision = DecisionRecord(
        time=NOW,
        epoch=1,
        inputs_hash="",
        chosen=chosen,
        runner_up="",
        reason=reason,
        message="",
    )
    shared = Sharing(percent=50, memory_mib=1, group=group) if group else None
    return WorkloadStatus(decision=decision, sharing=shared)


def told(job: WorkloadRecord, after: WorkloadStatus) -> SetStatus:
    return SetStatus(
        owner=job.ref,
        resource_version="1",
        status=after,
        epoch=1,
        reason=Reason.PLACED,
        text="",
    )


def counted(histogram: Histogram) -> tuple[int, float]:
    """How many values, and their sum."""
    found = {
        sample.name.removeprefix(family.name): sample.value
        for family in histogram.collect()
        for sample in family.samples
    }
    return int(found["_count"]), found["_sum"]


def test_each_change_of_a_decision_counts_once() -> None:
    job = a_job("train").record
    outcomes = Outcomes()
    admitted = status("node-1/GPU-0", Reason.PLACED, "G1")
    outcomes.look(a_snapshot(job), [told(job, admitted)], 0.02)
    outcomes.look(a_snapshot(replace(job, status=admitted)), [told(job, admitted)], 0.02)
    assert dict(outcomes.decisions) == {("admitted", "Placed", "G1"): 1}
    assert counted(outcomes.admission_seconds) == (1, pytest.approx(0.02))


def test_refusals_and_trials_are_told_apart() -> None:
    refused, tried = a_job("refused").record, a_job("tried").record
    outcomes = Outcomes()
    trial = Emit(target=tried.ref, warning=False, epoch=1, reason=Reason.PROBATION_STARTED, text="")
    outcomes.look(
        a_snapshot(refused, tried),
        [
            told(refused, status("", Reason.PREDICTED_SLO_BREACH)),
            told(tried, status("node-1/GPU-0", Reason.PLACED, "G3")),
            trial,
        ],
        0.1,
    )
    assert dict(outcomes.decisions) == {
        ("refused", "PredictedSLOBreach", ""): 1,
        ("probation", "Placed", "G3"): 1,
    }
    assert counted(outcomes.admission_seconds) == (2, pytest.approx(0.1))


def test_faults_that_were_charged_are_counted() -> None:
    held = profile("bert", [])
    snapshot = replace(a_snapshot(), profiles={("default", "bert"): held})
    outcomes = Outcomes()
    for faults in (2, 0):
        write = SetProfile(
            target=ObjectRef(kind="WorkloadProfile", namespace="default", name="bert", uid="u"),
            status=replace(held.status, faults=faults),
            epoch=1,
            reason=Reason.MEASURED,
            text="",
        )
        outcomes.look(snapshot, [write], 0.01)
        assert outcomes.class_faults == 2


def test_new_windows_are_held_against_the_model_of_that_moment() -> None:
    held = profile("bert", [row(1, "lstm", 2.0)])
    snapshot = replace(
        a_snapshot(),
        profiles={("default", "bert"): held},
        models={GPU: LearnedModel(accelerator=GPU)},
    )
    after = replace(held.status, step_time=(*held.status.step_time, row(2, "lstm", 2.2)))
    write = SetProfile(
        target=ObjectRef(kind="WorkloadProfile", namespace="default", name="bert", uid="u"),
        status=after,
        epoch=1,
        reason=Reason.MEASURED,
        text="",
    )
    outcomes = Outcomes()
    outcomes.look(snapshot, [write], 0.01)
    assert counted(outcomes.observed) == (1, pytest.approx(2.2))
    predicted = counted(outcomes.predicted)[1]
    assert outcomes.error() == pytest.approx(abs(predicted - 2.2) / 2.2)
    assert set(outcomes.coverage().values()) <= {0.0, 1.0}
    outcomes.look(
        replace(snapshot, profiles={("default", "bert"): replace(held, status=after)}),
        [write],
        0.01,
    )
    assert counted(outcomes.observed) == (1, pytest.approx(2.2))


def node(
    violations: int, at_s: float, *, reason: str = "", trial: bool = False, windows: int = 100
) -> Snapshot:
    wanted = DesiredSlice(
        key=KEY, pod_namespace="default", pod_name="p", gpu="GPU-0", percent=50,
        memory_mib=1, epoch=1, protected=True, probation=trial,
    )  # fmt: skip
    seen = ObservedSlice(
        key=KEY, gpu="GPU-0", percent=50, memory_mib=1, epoch=1, phase=SlicePhase.ATTACHED,
        reason=reason, windows=windows, violations=violations,
    )  # fmt: skip
    record = replace(
        a_gpu_node(), devices=(a_device("GPU-0"),), desired=(wanted,), observed=(seen,)
    )
    return replace(a_snapshot(record), taken_at=at_s)


def test_windows_above_an_objective_count_from_the_first_look_on() -> None:
    outcomes = Outcomes()
    for violations, reason in ((7, ""), (9, ""), (9, ""), (10, Reason.SELF_VIOLATING.value)):
        outcomes.look(node(violations, NOW, reason=reason), [], 0.0)
    assert dict(outcomes.violations) == {"neighbours": 2, "load": 1}
    outcomes.look(node(0, NOW), [], 0.0)  # the node began again
    outcomes.look(node(1, NOW), [], 0.0)
    assert outcomes.violations["neighbours"] == 3


def test_windows_are_kept_or_broken_by_namespace() -> None:
    outcomes = Outcomes()
    for windows, violations in ((100, 7), (110, 9), (110, 9), (4, 1), (9, 1)):
        outcomes.look(node(violations, NOW, windows=windows), [], 0.0)
    # the third look brings nothing, the fourth a container that began again
    assert dict(outcomes.windows) == {("default", "kept"): 13, ("default", "broken"): 2}


def admitted(since: float, *, yes: bool, reason: Reason) -> WorkloadStatus:
    said = Condition(type=ConditionType.ADMITTED, status=str(yes), reason=reason.value, since=since)
    return WorkloadStatus(conditions=(said,))


def test_a_wait_counts_once_when_it_ends_with_what_it_was_for() -> None:
    outcomes = Outcomes()
    fresh = a_job("fresh").record
    waits = replace(
        a_job("waits").record,
        tenant="team",
        status=admitted(NOW - 500, yes=False, reason=Reason.NO_CAPACITY),
    )
    runs = replace(a_job("runs").record, status=admitted(NOW - 900, yes=True, reason=Reason.PLACED))
    snapshot = replace(a_snapshot(), workloads={one.ref.uid: one for one in (fresh, waits, runs)})
    placed = admitted(NOW, yes=True, reason=Reason.PLACED)
    refused = admitted(NOW, yes=False, reason=Reason.NO_CAPACITY)
    outcomes.look(snapshot, [told(fresh, refused), told(waits, refused)], 0.1)
    outcomes.look(snapshot, [told(job, placed) for job in (fresh, waits, runs)], 0.1)
    found = {
        (sample.labels["tenant"], sample.labels["reason"]): sample.value
        for family in outcomes.wait_seconds.collect()
        for sample in family.samples
        if sample.name.endswith("_sum")
    }
    assert found == {
        ("default", "Placed"): max(0.0, NOW - fresh.created),
        ("team", "NoCapacity"): 500.0,
    }


def test_a_gang_of_adopted_pods_counts_once() -> None:
    outcomes = Outcomes()
    gang = replace(a_job("gang").record, tenant="team")
    placed = admitted(NOW, yes=True, reason=Reason.PLACED)
    tells = [
        TellPod(
            owner=replace(gang.ref, kind="Pod", uid=f"pod-{at}"), unit=gang.ref.uid,
            resource_version="", status=placed, epoch=1, reason=Reason.PLACED, text="",
        )
        for at in range(3)
    ]  # fmt: skip
    outcomes.look(replace(a_snapshot(), workloads={gang.ref.uid: gang}), tells, 0.1)
    counts = [
        sample.value
        for family in outcomes.wait_seconds.collect()
        for sample in family.samples
        if sample.name.endswith("_count")
    ]
    assert counts == [1.0]


def test_trials_cost_the_time_that_they_stand() -> None:
    outcomes = Outcomes()
    outcomes.look(node(0, NOW, trial=True), [], 0.0)
    outcomes.look(node(1, NOW + 10, trial=True), [], 0.0)
    outcomes.look(node(1, NOW + 15), [], 0.0)
    outcomes.look(node(1, NOW + 50), [], 0.0)
    assert outcomes.probation_seconds == pytest.approx(15.0)
    assert dict(outcomes.violations) == {"probation": 1}
    outcomes.look(node(1, NOW - 500), [], 0.0)  # the clock was set back
    assert outcomes.probation_seconds == pytest.approx(15.0)
