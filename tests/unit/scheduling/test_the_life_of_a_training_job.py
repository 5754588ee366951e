# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A TrainingJob from its first pod to its end, and every way back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    NOW,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_kube_service,
    a_pod,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided, told
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.snapshot import RefusedWrite
from ullage.cluster.records.status import Condition, Exclusion, SchedulingState
from ullage.scheduling.assignment import nominate
from ullage.scheduling.model.plan import (
    ApplyService,
    CreatePod,
    DeletePod,
    DeleteWorkload,
    EvictPod,
    SetStatus,
    UngatePod,
)
from ullage.scheduling.status.workload_status import is_passing

WORKERS = "train-workers"


def _names(found: Decided, kind: type[DeletePod] | type[EvictPod]) -> list[str]:
    return sorted(one.pod.name for one in found.all(kind))


def _held(*pods: PodRecord, phase: SlicePhase = SlicePhase.ATTACHED) -> GPUNodeRecord:
    held = [
        a_slice(pod, device=gpu("node-1", at), percent=100, memory_mib=16_384)
        for at, pod in enumerate(pods)
    ]
    return a_gpu_node(desired=held, observed=[reported(one, phase) for one in held])


def _started(job: WorkloadBuilder, **pod: object) -> tuple[tuple[PodRecord, ...], GPUNodeRecord]:
    pods = job.pods(PodStage.RUNNING, node="node-1", **pod)
    return pods, _held(*pods)


def _refused(reason: Reason) -> WorkloadBuilder:
    """A job that was told in its first generation why the API takes no pod of it."""
    shown = Condition(
        type="Admitted",
        status="False",
        reason=reason,
        message="quota",
        since=NOW - 60,
        observed_generation=1,
    )
    return a_job().with_(generation=1).status(conditions=(shown,))


def _failed(job: WorkloadBuilder, code: int | None = 1, **pod: object) -> Decided:
    pods, node = _started(job)
    over = replace(
        pods[0], stage=PodStage.FAILED, exit_code=code, stage_since=NOW - 1, ready=False, **pod
    )
    return decided(job, over, *pods[1:], node, a_kube_service(job.build(), WORKERS))


def test_pods_are_created_by_rank_and_a_gang_gets_a_service() -> None:
    found = decided(a_gpu_node(), a_job().gang(2))
    assert [(one.name, one.rank, one.template_hash) for one in found.all(CreatePod)] == [
        ("train-0", 0, "0123456789ab"),
        ("train-1", 1, "0123456789ab"),
    ]
    service = found.one(ApplyService)
    assert (service.name, service.headless) == (WORKERS, True)
    assert not decided(a_gpu_node(), a_job()).all(ApplyService)


@pytest.mark.parametrize(
    ("others", "first"),
    [
        ([a_job("low").aged(900), a_job("high").priority(5)], "high-0"),
        ([a_job("young").aged(10), a_job("old").aged(20)], "old-0"),
        ([a_job("b").aged(10), a_job("a").aged(10)], "a-0"),
    ],
)
def test_who_is_first_in_line_gets_its_pods_first(
    others: list[WorkloadBuilder], first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nominate, "MOST_SEATED", 1)
    assert [one.name for one in decided(a_gpu_node(), *others).all(CreatePod)] == [first]


def test_pods_on_their_way_are_not_created_twice() -> None:
    job = a_job().gang(2)
    found = decided(a_gpu_node(), job, creating=[("default", "train-0")])
    assert [one.name for one in found.all(CreatePod)] == ["train-1"]


def test_a_gated_pod_that_was_deleted_is_created_again_without_a_restart() -> None:
    job = a_job().gang(2)
    found = decided(a_gpu_node(), job, job.pods()[1])
    assert [one.name for one in found.all(CreatePod)] == ["train-0"]
    assert found.status(job).restarts == 0


def test_a_name_held_by_someone_else_is_a_conflict() -> None:
    thief = a_pod("train-0", owner=a_job("other").build())
    found = decided(a_gpu_node(), a_job(), a_job("other"), thief)
    assert "train-0" not in [one.name for one in found.all(CreatePod)]
    assert found.condition("train", "Admitted").reason == Reason.NAME_CONFLICT


def test_a_service_of_that_name_held_by_someone_else_is_a_conflict() -> None:
    taken = replace(a_kube_service(a_job().build(), WORKERS), owner_uid="uid-stranger")
    job = a_job().gang(2)
    found = decided(a_gpu_node(), job, taken)
    assert not found.all(CreatePod)
    assert not found.all(ApplyService)
    assert found.condition(job, "Admitted").reason == Reason.NAME_CONFLICT


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (Reason.CREATE_REFUSED, "exceeded quota: pods"),
        (Reason.NAME_CONFLICT, "it exists"),
        (Reason.CREATE_REFUSED, "NameConflict: a webhook may say what it likes"),
    ],
)
def test_what_the_api_refuses_is_shown_in_its_own_words(reason: Reason, message: str) -> None:
    job = a_job()
    refused = {("Pod", "default", "train-0"): RefusedWrite(reason=reason, message=message)}
    found = decided(a_gpu_node(), job, refused_writes=refused)
    assert not found.all(CreatePod)
    admitted = found.condition(job, "Admitted")
    assert (admitted.reason, admitted.message) == (reason, message)


def test_an_object_that_cannot_be_read_gets_no_pods_and_says_so() -> None:
    empty = replace(a_job().build().shape, device_container="")
    job = a_job().shaped(empty).with_(invalid="spec.template: missing")
    found = decided(a_gpu_node(), job)
    assert not found.all(CreatePod)
    assert found.condition(job, "Invalid").message == "spec.template: missing"
    assert found.condition(job, "Admitted").reason == Reason.INVALID_OBJECT


def test_the_last_good_version_goes_on_while_the_newest_cannot_be_read() -> None:
    job = a_job().with_(invalid="spec.replicas: expected a whole number")
    found = decided(a_gpu_node(), job, *job.pods())
    assert found.places() == {"train-0": [gpu()]}
    assert found.condition(job, "Invalid").status == "True"


def test_a_job_that_runs_is_told_so_in_every_condition() -> None:
    job = a_job().gang(2)
    pods, node = _started(job)
    found = decided(job, *pods, node, a_kube_service(job.build(), WORKERS))
    status = found.status(job)
    assert (status.phase, status.start_time, status.nodes, status.gpus) == (
        "Running",
        NOW,
        "node-1",
        2,
    )
    assert [(one.type, one.status) for one in status.conditions] == [
        ("Admitted", "True"),
        ("Placed", "True"),
        ("Ready", "True"),
        ("Enforced", "True"),
    ]
    assert found.events() == []  # it had not been told to wait


def test_success_is_every_member_ending_well() -> None:
    job = a_job().gang(2)
    pods, node = _started(job)
    ended = [replace(one, stage=PodStage.SUCCEEDED, exit_code=0, ready=False) for one in pods]
    service = a_kube_service(job.build(), WORKERS)
    half = decided(job.status(phase="Running"), ended[0], pods[1], node, service)
    assert half.status(job).phase == "Running"
    assert list(half.places()) == ["train-1"], "who ended gives its slice back"
    found = decided(job.status(phase="Running"), *ended, node, service)
    status = found.status(job)
    assert (status.phase, status.completion_time) == ("Succeeded", NOW)
    assert found.condition(job, "Finished").reason == Reason.COMPLETED
    assert found.condition(job, "Complete").status == "True"
    assert status.condition("Failed") is None
    assert not found.all(DeletePod), "finished pods stay for their logs"
    assert not found.slices()


def test_a_failure_restarts_the_whole_gang_status_first() -> None:
    job = a_job().gang(2).status(phase="Running")
    found = _failed(job)
    status = found.status(job)
    assert (status.phase, status.restarts, status.retry_at) == ("Restarting", 1, NOW - 1 + 10)
    assert not found.all(DeletePod)
    admitted = found.condition(job, "Admitted")
    assert admitted.reason == Reason.EXIT_CODE
    assert "train-0 failed with exit code 1; restart 1 of 3 in 10 s" in admitted.message
    again = job.with_(status=status)
    assert _names(_failed(again), DeletePod) == ["train-0", "train-1"]
    assert _failed(again).status(again).restarts == 1


def test_pods_of_the_next_start_wait_for_the_last_to_go_and_for_the_back_off() -> None:
    job = a_job().status(phase="Running")
    job = job.with_(status=_failed(job).status(job))
    node = a_gpu_node()
    leaving = a_pod("train-0", owner=job.build(), stage=PodStage.FAILED, deleting=True)
    assert decided(job, leaving, node).status(job).phase == "Restarting"
    assert not decided(job, leaving, node).all(CreatePod)
    gone = decided(job, node)
    assert gone.status(job).phase == "Pending"
    assert not gone.all(CreatePod), "the phase comes first"
    job = job.with_(status=gone.status(job))
    early = decided(job, node, at=NOW + 5)
    assert not early.all(CreatePod)
    assert early.plan.wake_at == NOW + 9
    assert [one.name for one in decided(job, node, at=NOW + 9).all(CreatePod)] == ["train-0"]


@pytest.mark.parametrize(("restarts", "wait"), [(0, 10), (1, 20), (3, 80), (5, 300), (40, 300)])
def test_the_back_off_doubles_up_to_five_minutes(restarts: int, wait: int) -> None:
    job = a_job().failure(99).status(phase="Running", restarts=restarts)
    assert _failed(job).status(job).retry_at == NOW - 1 + wait


def test_above_the_limit_the_job_has_failed() -> None:
    job = a_job().gang(2).failure(2).status(phase="Running", restarts=2)
    found = _failed(job)
    assert found.status(job).phase == "Failed"
    finished = found.condition(job, "Finished")
    assert finished.reason == Reason.RESTART_LIMIT
    assert found.condition(job, "Failed").status == "True"
    assert found.status(job).condition("Complete") is None
    assert "after 2 of 2 restarts" in finished.message
    job = job.with_(status=found.status(job))
    assert _names(_failed(job), DeletePod) == ["train-1"], "the failed pod stays for its logs"


def test_only_listed_exit_codes_are_tried_again() -> None:
    job = a_job().failure(3, 42, 43).status(phase="Running")
    assert _failed(job, 42).status(job).phase == "Restarting"
    found = _failed(job, 1)
    assert found.status(job).phase == "Failed"
    assert "retries only 42, 43" in found.condition(job, "Finished").message
    assert _failed(job, None).status(job).phase == "Failed"


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        ({"disrupted": True}, Reason.MEMBER_LOST),
        ({"disrupted": True, "lost_race": True}, Reason.LOST_RACE),
    ],
)
def test_what_comes_from_outside_is_not_counted(pod: dict[str, object], reason: Reason) -> None:
    job = a_job().gang(2).failure(0).status(phase="Running")
    found = _failed(job, 137, **pod)
    assert (found.status(job).phase, found.status(job).restarts) == ("Restarting", 0)
    assert found.status(job).retry_at == 0.0
    assert found.condition(job, "Admitted").reason == reason


def test_a_peer_that_fails_because_a_member_was_taken_is_not_counted() -> None:
    job = a_job().gang(2).failure(0).status(phase="Running")
    pods, node = _started(job)
    failed = replace(pods[1], stage=PodStage.FAILED, exit_code=1)
    taken = replace(pods[0], deleting=True)
    service = a_kube_service(job.build(), WORKERS)
    for others in ((taken,), ()):
        found = decided(job, *others, failed, node, service)
        assert (found.status(job).phase, found.status(job).restarts) == ("Restarting", 0)
        assert found.condition(job, "Admitted").reason == Reason.MEMBER_LOST


def test_suspending_evicts_who_runs_and_deletes_who_waits() -> None:
    job = a_job().gang(2).suspended()
    pods, node = _started(job)
    found = decided(job, *pods, node)
    assert _names(found, EvictPod) == ["train-0", "train-1"]
    assert found.status(job).phase == "Suspending"
    gated = job.pods()
    found = decided(job, *gated, _held(*gated, phase=SlicePhase.RESERVED))
    assert _names(found, DeletePod) == ["train-0", "train-1"]
    assert not found.slices()


def test_a_suspended_job_is_quiet_and_starts_again_when_let() -> None:
    job = told(a_job().suspended(), a_gpu_node())
    assert job.build().status.phase == "Suspended"
    assert job.build().status.conditions[0].reason == Reason.SUSPENDED
    assert not decided(job, a_gpu_node()).actions
    again = decided(job.with_(suspend=False, generation=2), a_gpu_node())
    assert [one.name for one in again.all(CreatePod)] == ["train-0"]


def test_a_changed_template_takes_effect_at_the_next_start() -> None:
    job = a_job().with_(template_hash="new", generation=2)
    gated = a_job().pods()
    found = decided(job, *gated, a_gpu_node())
    assert _names(found, DeletePod) == ["train-0"]
    pods, node = _started(a_job())
    running = told(a_job(), *pods, node).with_(template_hash="new", generation=2)
    found = decided(running, *pods, node)
    assert not found.all(DeletePod)
    assert found.status(running).phase == "Running"


def test_a_finished_job_goes_when_its_time_to_live_is_over() -> None:
    job = a_job().with_(ttl_seconds_after_finished=60)
    job = job.status(phase="Succeeded", completion_time=NOW - 59)
    assert not decided(job).all(DeleteWorkload)
    assert decided(job).plan.wake_at == NOW + 1
    job = job.status(completion_time=NOW - 60)
    assert decided(job).one(DeleteWorkload).owner.name == "train"
    assert not decided(job.deleting()).all(DeleteWorkload)


def test_a_job_that_is_deleted_while_it_is_placed_gives_its_slices_back_at_once() -> None:
    job = a_job().gang(2).deleting()
    gated = job.pods()
    found = decided(job, *gated, _held(*gated, phase=SlicePhase.RESERVED))
    assert not found.slices()
    assert not found.all(UngatePod)
    assert job.build().ref.uid not in found.plan.statuses


def test_a_job_that_is_deleted_keeps_its_slices_while_it_ends() -> None:
    job = a_job().deleting()
    pods, node = _started(job, deleting=True)
    assert decided(job, *pods, node).places() == {"train-0": [gpu()]}


def test_a_member_that_is_lost_takes_the_gang_with_it_but_not_a_finished_one() -> None:
    job = a_job().gang(2).status(phase="Running")
    pods, node = _started(job)
    service = a_kube_service(job.build(), WORKERS)
    found = decided(job, pods[0], node, service)
    assert found.status(job).phase == "Restarting"
    assert "train-1 is gone" in found.condition(job, "Admitted").message
    done = replace(pods[1], stage=PodStage.SUCCEEDED, exit_code=0, deleting=True)
    assert decided(job, pods[0], done, node, service).status(job).phase == "Running"


@pytest.mark.parametrize("reason", [Reason.CREATE_REFUSED, Reason.NAME_CONFLICT])
def test_a_refusal_stays_shown_while_the_create_is_tried_again(reason: Reason) -> None:
    job = _refused(reason)
    retried = decided(a_gpu_node(), job)
    assert retried.all(CreatePod)
    admitted = retried.condition(job, "Admitted")
    assert (admitted.reason, admitted.message) == (reason, "quota")
    under_way = decided(a_gpu_node(), job, creating=[("default", "train-0")])
    assert under_way.condition(job, "Admitted").reason == reason


def test_a_changed_job_is_not_told_what_became_of_the_last_version() -> None:
    job = _refused(Reason.CREATE_REFUSED).with_(generation=2)
    found = decided(a_gpu_node(), job)
    assert found.condition(job, "Admitted").reason == Reason.WAITING_FOR_DECISION


def test_what_only_moves_may_be_overtaken_and_what_waits_may_not() -> None:
    def passing(found: Decided) -> bool:
        return found.one(SetStatus).passing

    job = a_job()
    assert passing(decided(a_gpu_node(), job)), "its pods are being created"
    assert passing(decided(a_gpu_node(), job, *job.pods())), "reserving"
    assert not passing(decided(a_gpu_node(devices=0), job)), "a refusal"
    why = RefusedWrite(reason=Reason.CREATE_REFUSED, message="quota")
    quota = {("Pod", "default", "train-0"): why}
    assert not passing(decided(a_gpu_node(), job, refused_writes=quota))
    pods, node = _started(gang := a_job().gang(2))
    runs = decided(gang, *pods, node, a_kube_service(gang.build(), WORKERS))
    assert runs.status(gang).phase == "Running"
    assert not passing(runs)
    again = a_job().status(phase="Restarting", restarts=1, retry_at=NOW + 10)
    assert not passing(decided(a_gpu_node(), again)), "a restart must be remembered"


def test_what_the_next_leader_must_know_is_never_in_passing() -> None:
    moves = (Condition(type="Ready", status="False", reason=Reason.RESERVING, since=NOW),)
    before = replace(a_job().build().status, phase="Reserving", conditions=moves)
    after = replace(before, phase="Starting")
    assert is_passing(before, after)
    exclusion = Exclusion(
        reason=Reason.RESERVATION_REFUSED,
        node="node-1",
        gpu="GPU-0",
        since=NOW,
        until=NOW + 60,
        message="the node refused it",
    )
    for kept in (
        {"scheduling": SchedulingState(exclusions=(exclusion,))},
        {"scheduling": SchedulingState(preemptions=1, preempted_at=NOW)},
        {"restarts": 1},
    ):
        assert not is_passing(before, replace(after, **kept))  # type: ignore[arg-type]
