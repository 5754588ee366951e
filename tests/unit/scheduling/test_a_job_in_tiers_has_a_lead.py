# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A pod leads a job in tiers: there before anyone starts, mourned when lost, gone at the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    EPOCH,
    NOW,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_kube_service,
    a_node,
    a_pod,
    a_slice,
    a_snapshot,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided, decided_on
from fakes.toy_pools import a_pool
from ullage.api.labels import LABEL_POOL
from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, SlicePhase
from ullage.api.trainingjob import TierTerms
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.snapshot import ServiceRecord
from ullage.cluster.records.tier import CoordinatorReport
from ullage.scheduling.model.plan import ApplyService, CreatePod, DeletePod, EvictPod, UngatePod
from ullage.scheduling.times import COORDINATOR_ENDS_S

TERMS = TierTerms(reliable=1, state_bytes=1 << 30)


def job(**status: object) -> WorkloadBuilder:
    built = a_job().elastic(2, 3, in_place=True, tiers=TERMS).gang(2)
    return built.status(replicas=2, **status)


def a_coordinator(stage: PodStage = PodStage.RUNNING, **fields: object) -> PodRecord:
    said: dict[str, object] = {"gates": (), "lead": True, "node": "node-9", "address": "10.0.0.9"}
    pod = a_pod("train-lead", owner=job().build(), rank=-1, stage=stage)
    return replace(pod, **(said | fields))  # type: ignore[arg-type]


def named() -> ServiceRecord:
    return a_kube_service(job().build(), "train-lead")


def _slices(pods: tuple[PodRecord, ...]) -> list[DesiredSlice]:
    return [
        a_slice(pod, device=gpu(f"node-{at}"), percent=100, memory_mib=16_384)
        for at, pod in enumerate(pods)
    ]


def _nodes(held: list[DesiredSlice], phase: SlicePhase) -> list[GPUNodeRecord]:
    return [
        a_gpu_node(f"node-{at}", devices=1, desired=[one], observed=[reported(one, phase)])
        for at, one in enumerate(held)
    ]


def starting(*parts: object, built: WorkloadBuilder | None = None) -> Decided:
    """Every member has its place and waits to be let go."""
    built = built or job()
    pods = built.pods()
    nodes = _nodes(_slices(pods), SlicePhase.RESERVED)
    return decided(built, *pods, *nodes, *parts)  # type: ignore[arg-type]


def running(*parts: object, built: WorkloadBuilder | None = None) -> Decided:
    """Every member runs."""
    built = built or job(phase="Running", start_time=NOW - 100)
    held = _slices(built.pods())
    pods = tuple(
        replace(pod, node=f"node-{at}")
        for at, pod in enumerate(built.pods(PodStage.RUNNING, since=NOW - 50))
    )
    return decided(built, *pods, *_nodes(held, SlicePhase.ATTACHED), *parts)  # type: ignore[arg-type]


def ran() -> WorkloadBuilder:
    """A job whose members ran, as its status tells."""
    return job().with_(status=running(a_coordinator(), named()).status(job()))


def coordinators(found: Decided) -> list[CreatePod]:
    return [one for one in found.all(CreatePod) if one.lead is not None]


def test_the_lead_comes_before_anyone_is_let_go() -> None:
    found = starting()
    (made,) = coordinators(found)
    assert (made.name, made.rank, made.lead.members if made.lead else 0) == ("train-lead", -1, 2)
    assert [one.name for one in found.all(ApplyService) if one.lead] == ["train-lead"]
    assert found.all(UngatePod) == []
    status = found.status(job())
    assert status.phase == "Reserving"
    decision = found.decision(job())
    assert decision.reason is Reason.WAITS_FOR_LEAD
    assert "train-lead" in decision.message


def test_it_is_made_once() -> None:
    again = starting(a_coordinator(PodStage.UNSCHEDULED, scheduling_message="0/3 nodes"), named())
    assert coordinators(again) == []
    assert [one for one in again.all(ApplyService) if one.lead] == []
    assert again.all(UngatePod) == []
    assert "0/3 nodes" in again.decision(job()).message


def test_members_are_let_go_when_it_runs() -> None:
    found = starting(a_coordinator(), named())
    assert {one.pod.name for one in found.all(UngatePod)} == {"train-0", "train-1"}
    assert found.status(job()).phase == "Starting"


def test_who_waits_for_room_has_no_lead_yet() -> None:
    found = decided(job(), *job().pods())
    assert coordinators(found) == []


def test_work_in_no_tiers_has_none() -> None:
    plain = a_job().elastic(2, 3, in_place=True).gang(2).status(replicas=2)
    found = starting(built=plain)
    assert coordinators(found) == []
    assert len(found.all(UngatePod)) == 2


def test_what_runs_is_left_alone() -> None:
    found = running(a_coordinator(), named())
    assert found.all(CreatePod) == []
    assert found.all(DeletePod) == []
    assert found.status(job()).phase == "Running"


def test_a_name_that_vanished_is_made_again() -> None:
    found = running(a_coordinator())
    assert [one.name for one in found.all(ApplyService) if one.lead] == ["train-lead"]


@pytest.mark.parametrize(
    ("coordinator", "counted", "says"),
    [
        (None, 0, "is gone"),
        (a_coordinator(PodStage.FAILED, exit_code=75), 0, "more members were lost"),
        (a_coordinator(deleting=True), 0, "is gone"),
        (a_coordinator(PodStage.FAILED, exit_code=3), 1, "ullage_run.group"),
        (
            a_coordinator(PodStage.FAILED, exit_code=4),
            1,
            "larger than elasticity.backup.stateBytes",
        ),
        (a_coordinator(PodStage.FAILED, exit_code=137), 1, "stateBytes"),
        (a_coordinator(PodStage.FAILED, exit_code=1, disrupted=True), 0, "is gone"),
        (a_coordinator(PodStage.STOPPED, exit_code=0, deleting=True), 0, "is gone"),
        (a_coordinator(PodStage.STOPPED, exit_code=0, disrupted=True), 0, "is gone"),
    ],
)
def test_a_lost_lead_means_another_start(
    coordinator: PodRecord | None, counted: int, says: str
) -> None:
    found = running(*([coordinator] if coordinator else []), named())
    status = found.status(job())
    assert status.phase == "Restarting"
    assert status.restarts == counted
    assert says in found.decision(job()).message
    assert coordinators(found) == []


@pytest.mark.parametrize("seen", [True, False])
def test_members_that_say_that_the_state_is_lost_are_not_to_blame(seen: bool) -> None:
    """They end seconds before it does; the coordinator had led, or their word is a failure."""
    built = ran()
    held = _slices(built.pods())
    pods = [
        replace(pod, node=f"node-{at}", exit_code=75)
        for at, pod in enumerate(built.pods(PodStage.FAILED, since=NOW - 5))
    ]
    parts = [built, *pods, *_nodes(held, SlicePhase.ATTACHED), a_coordinator(), named()]
    snapshot = a_snapshot(*parts)  # type: ignore[arg-type]
    report = CoordinatorReport(stage=2, epoch=3, step=9)
    reports = {built.build().ref.uid: report} if seen else {}
    found = decided_on(replace(snapshot, leads=reports))
    status = found.status(built)
    assert status.phase == "Restarting"
    assert status.restarts == (0 if seen else 1)
    if seen:
        assert found.decision(built).reason is Reason.LEAD_LOST


def test_members_that_fail_with_their_lead_are_not_to_blame() -> None:
    built = ran().failure(0)
    held = _slices(built.pods())
    pods = [
        replace(pod, node=f"node-{at}", exit_code=1)
        for at, pod in enumerate(built.pods(PodStage.FAILED, since=NOW - 5))
    ]
    gone = a_coordinator(PodStage.FAILED, disrupted=True)
    found = decided(built, *pods, *_nodes(held, SlicePhase.ATTACHED), gone, named())
    status = found.status(built)
    assert (status.phase, status.restarts) == ("Restarting", 0)


def test_a_lead_that_finished_is_no_loss() -> None:
    found = running(a_coordinator(PodStage.SUCCEEDED), named())
    assert found.status(job()).phase == "Running"


def ending(last: PodStage, **fields: object) -> Decided:
    """All steps are done and the first member has ended; the last one came afterwards."""
    built = ran()
    done, late = built.pods(PodStage.SUCCEEDED, since=NOW - 5)
    pods = [
        replace(done, node="node-0", exit_code=0),
        replace(late, node="node-1", stage=last, **fields),  # type: ignore[arg-type]
    ]
    nodes = _nodes(_slices(built.pods()), SlicePhase.ATTACHED)
    return decided(built, *pods, *nodes, a_coordinator(PodStage.SUCCEEDED, exit_code=0), named())


def test_a_member_that_fails_when_all_steps_are_done_is_not_to_blame() -> None:
    status = ending(PodStage.FAILED, exit_code=1).status(job())
    assert (status.phase, status.restarts) == ("Succeeded", 0)


@pytest.mark.parametrize("stage", [PodStage.UNSCHEDULED, PodStage.BOUND])
def test_a_member_that_has_not_started_when_all_steps_are_done_goes(stage: PodStage) -> None:
    found = ending(stage)
    assert [one.pod.name for one in found.all(DeletePod)] == ["train-1"]
    assert (found.status(job()).phase, found.status(job()).restarts) == ("Succeeded", 0)


def test_a_member_that_still_saves_its_work_is_left_alone() -> None:
    found = ending(PodStage.RUNNING)
    assert found.all(DeletePod) == []
    assert (found.status(job()).phase, found.status(job()).restarts) == ("Running", 0)


def test_what_is_left_of_a_lost_lead_goes_before_the_next_start() -> None:
    built = job(phase="Restarting")
    pods = built.pods()
    found = decided(built, *pods, a_coordinator(PodStage.FAILED, exit_code=75), named())
    assert "train-lead" in {one.pod.name for one in found.all(DeletePod)}
    assert coordinators(found) == []


def test_a_lead_outlives_a_restart_of_its_members() -> None:
    built = job(phase="Restarting")
    found = decided(built, *built.pods(), a_coordinator(), named())
    assert "train-lead" not in {one.pod.name for one in found.all(DeletePod)}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_it_goes_when_the_job_ends(phase: str) -> None:
    ended = job(phase=phase, completion_time=NOW - COORDINATOR_ENDS_S)
    assert [one.pod.name for one in decided(ended, a_coordinator()).all(DeletePod)] == [
        "train-lead"
    ]
    left = a_coordinator(PodStage.SUCCEEDED)
    assert decided(ended, left).all(DeletePod) == [], "its log stays readable"


def test_it_has_a_moment_to_end_by_itself_when_its_members_have_ended() -> None:
    """Deleted in that moment, its log would be gone with it."""
    done = ran()
    members = [replace(pod, exit_code=0) for pod in done.pods(PodStage.SUCCEEDED, since=NOW)]
    just_now = decided(done, *members, a_coordinator(), named())
    assert just_now.status(done).phase == "Succeeded"
    assert just_now.all(DeletePod) == []
    assert just_now.plan.wake_at == NOW + COORDINATOR_ENDS_S
    soon = job(phase="Succeeded", completion_time=NOW - COORDINATOR_ENDS_S + 1)
    assert decided(soon, a_coordinator()).all(DeletePod) == []


def test_it_goes_when_the_job_is_suspended() -> None:
    paused = job(phase="Suspended").suspended()
    assert [one.pod.name for one in decided(paused, a_coordinator()).all(DeletePod)] == [
        "train-lead"
    ]


def test_members_of_a_job_that_is_suspended_end_before_their_lead() -> None:
    paused = job(phase="Running", start_time=NOW - 100).suspended()
    found = running(a_coordinator(), named(), built=paused)
    gone = {one.pod.name for one in (*found.all(DeletePod), *found.all(EvictPod))}
    assert gone == {"train-0", "train-1"}
    assert found.status(paused).phase == "Suspending"


def test_a_lead_on_a_silent_node_is_not_waited_for() -> None:
    built = job(phase="Restarting")
    gone = a_coordinator(deleting=True)
    found = decided(built, *built.pods(), gone, named(), a_node("node-9", ready=False))
    (step,) = [one for one in found.all(DeletePod) if one.pod.name == "train-lead"]
    assert step.at_once


def test_a_lead_is_no_member_and_counts_on_its_node() -> None:
    found = running(a_coordinator(), named())
    assert {one.pod for one in found.status(job()).placement} == {"train-0", "train-1"}


def test_reliable_members_and_the_lead_run_where_no_one_takes_machines_away() -> None:
    stays, goes = a_pool("steady", spot=False), a_pool("spot-a")
    found = starting(stays, goes)
    (made,) = coordinators(found)
    assert made.on == ((("pool", "steady"),),)
    fresh = decided(job(), stays, goes, *_nodes_free())
    members = {one.name: one.on for one in fresh.all(CreatePod)}
    assert members["train-0"] == ((("pool", "steady"),),)
    assert all(on == () for name, on in members.items() if name != "train-0")


def test_without_such_pools_they_may_run_anywhere() -> None:
    fresh = decided(job(), a_pool("spot-a"), *_nodes_free())
    assert {one.on for one in fresh.all(CreatePod)} == {()}


def test_members_are_told_their_pool() -> None:
    found = starting(
        a_coordinator(),
        named(),
        a_pool("spot-a"),
        a_node("node-0", labels={"pool": "spot-a"}),
        a_node("node-1"),
    )
    told = {one.pod.name: one.labels for one in found.all(UngatePod)}
    assert told == {"train-0": ((LABEL_POOL, "spot-a"),), "train-1": ()}


def _nodes_free() -> list[GPUNodeRecord]:
    return [a_gpu_node(f"node-{at}", devices=1) for at in range(3)]


def test_epochs_stand_in_every_step() -> None:
    assert {one.epoch for one in coordinators(starting())} == {EPOCH}
