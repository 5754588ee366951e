# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every guard of placement: after its time, and not before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import NOW, a_deployment, a_gpu_node, a_job, a_pod, a_service, a_slice, reported
from fakes.deciding import SETTINGS, Decided, decided, decided_on
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import SchedulingState
from ullage.scheduling.model.plan import CreatePod, DecideSettings, DeletePod, EvictPod

UNSCHEDULED = PodStage.UNSCHEDULED
BOUND = PodStage.BOUND


def _job(
    stage: PodStage,
    *,
    phase: SlicePhase = SlicePhase.RESERVED,
    said: tuple[str, str] = ("", ""),
    settings: DecideSettings = SETTINGS,
    **pod: object,
) -> Decided:
    job = a_job().status(phase="Starting")
    where = "" if stage is UNSCHEDULED else "node-1"
    one = a_pod("train-0", owner=job.build(), stage=stage, node=where, **pod)  # type: ignore[arg-type]
    held = a_slice(one, percent=100)
    seen = reported(held, phase, reason=said[0], message=said[1])
    node = a_gpu_node(devices=1, desired=[held], observed=[seen])
    return decided(job, one, node, settings=settings)


def _service(stage: PodStage, phase: SlicePhase = SlicePhase.RESERVED, **pod: object) -> Decided:
    service = a_service()
    record = service.build()
    one = a_pod("serve-1", owner=record, stage=stage, node="node-1", **pod)  # type: ignore[arg-type]
    held = a_slice(one, percent=100)
    node = a_gpu_node(devices=1, desired=[held], observed=[reported(held, phase)])
    return decided(service, one, node, a_deployment(record, surge=1, unavailable=0))


def _restarts(found: Decided, reason: Reason) -> str:
    status = found.status("train")
    assert (status.phase, status.restarts) == ("Restarting", 0)
    admitted = found.condition("train", "Admitted")
    assert admitted.reason == reason
    return admitted.message


def test_a_pod_that_is_not_scheduled_for_a_minute_starts_again() -> None:
    said = "0/3 nodes are available: 3 Insufficient cpu"
    early = _job(UNSCHEDULED, since=NOW - 59, scheduling_message=said)
    assert early.status("train").phase == "Starting"
    assert early.plan.wake_at == NOW + 1
    late = _job(UNSCHEDULED, since=NOW - 60, scheduling_message=said)
    assert said in _restarts(late, Reason.STUCK_UNSCHEDULED)


def test_a_pod_that_does_not_start_for_a_minute_starts_again() -> None:
    waiting = ("CreateContainerConfigError", "PodUnknown: retrying")
    early = _job(BOUND, since=NOW - 59, waiting=waiting)
    assert early.status("train").phase == "Starting"
    late = _job(BOUND, since=NOW - 60, waiting=waiting)
    assert "PodUnknown: retrying" in _restarts(late, Reason.STUCK_NOT_STARTED)


def test_what_the_node_says_is_said_first() -> None:
    late = _job(
        BOUND,
        since=NOW - 60,
        waiting=("CreateContainerConfigError", "x"),
        said=("Draining", "slot-03 has clients"),
    )
    assert "Draining: slot-03 has clients" in _restarts(late, Reason.STUCK_NOT_STARTED)


@pytest.mark.parametrize("why", ["ContainerCreating", "PodInitializing"])
def test_a_slow_image_is_not_stuck(why: str) -> None:
    found = _job(BOUND, since=NOW - 6000, waiting=(why, ""))
    assert found.status("train").phase == "Starting"


NOT_PULLED = (
    *("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"),
    *("ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"),
)


@pytest.mark.parametrize("why", NOT_PULLED)
def test_a_share_goes_back_after_a_minute_without_its_image(why: str) -> None:
    waiting = (why, "registry.example/train:typo: not found")
    early = _job(BOUND, since=NOW - 59, waiting=waiting)
    assert early.status("train").phase == "Starting"
    late = _job(BOUND, since=NOW - 60, waiting=waiting)
    message = _restarts(late, Reason.IMAGE_PULL_FAILED)
    assert f"train-0 did not get its image on node-1: {why}: registry.example/train:typo" in message
    assert Reason.IMAGE_PULL_FAILED in [reason for reason, _ in late.events()]
    told = late.status("train")
    assert told.retry_at == told.scheduling.pull_again_at == NOW + 60
    assert told.scheduling.pull_failures == 1


@pytest.mark.parametrize(("before", "wait_s"), [(0, 60), (1, 120), (2, 240), (3, 300), (99, 300)])
def test_each_pull_in_a_row_that_fails_doubles_the_wait(before: int, wait_s: float) -> None:
    scheduling = SchedulingState(pull_failures=before)
    job = a_job().status(phase="Starting", scheduling=scheduling)
    waiting = ("ImagePullBackOff", "not found")
    pod = a_pod(
        "train-0", owner=job.build(), stage=BOUND, node="node-1", since=NOW - 60, waiting=waiting
    )
    held = a_slice(pod, percent=100)
    node = a_gpu_node(devices=1, desired=[held], observed=[reported(held, SlicePhase.RESERVED)])
    told = decided(job, pod, node).status("train")
    assert told.retry_at == NOW + wait_s
    assert told.scheduling.pull_failures == before + 1


def test_a_start_that_got_its_image_ends_the_row() -> None:
    scheduling = SchedulingState(pull_failures=2, pull_again_at=NOW - 5)
    job = a_job().status(phase="Starting", scheduling=scheduling)
    pod = a_pod("train-0", owner=job.build(), stage=PodStage.RUNNING, node="node-1")
    held = a_slice(pod, percent=100)
    node = a_gpu_node(devices=1, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    told = decided(job, pod, node).status("train")
    assert (told.phase, told.scheduling.pull_failures) == ("Running", 0)


def test_a_replica_without_its_image_goes_and_the_next_one_waits() -> None:
    waiting = ("ImagePullBackOff", "not found")
    found = _service(BOUND, since=NOW - 60, waiting=waiting)
    assert [one.reason for one in found.all(DeletePod)] == [Reason.IMAGE_PULL_FAILED]
    told = found.status("serve")
    assert "did not get its image" in found.condition("serve", "Degraded").message
    assert told.scheduling.pull_again_at == NOW + 60

    service = a_service().status(
        phase="Pending", scheduling=told.scheduling, template_hash=told.template_hash
    )
    record = service.build()
    fresh = a_pod("serve-2", owner=record, stage=PodStage.GATED)
    fresh = replace(fresh, template_hash=told.template_hash)
    world = (service, fresh, a_gpu_node(devices=1), a_deployment(record, surge=1, unavailable=0))
    held = decided(*world)
    assert not held.slices()
    assert held.condition("serve", "Admitted").reason == Reason.IMAGE_PULL_FAILED
    assert decided(*world, at=NOW + 60).slices()
    mended = replace(fresh, template_hash="another")
    assert decided(*(mended if one is fresh else one for one in world)).slices()


def test_a_refusal_for_good_before_the_start_is_acted_on_at_once() -> None:
    found = _job(BOUND, phase=SlicePhase.REFUSED, said=("PredictionRefused", "46 ms > 40 ms"))
    message = _restarts(found, Reason.RESERVATION_REFUSED)
    assert "PredictionRefused: 46 ms > 40 ms" in message
    assert not found.slices(), "what is refused leaves the spec at once"


@pytest.mark.parametrize(("times", "wait_s"), [(1, 0), (2, 10), (3, 20), (4, 40), (8, 300)])
def test_each_refusal_in_a_row_doubles_the_wait_for_the_next_start(
    times: int, wait_s: float
) -> None:
    found = _job(BOUND, phase=SlicePhase.REFUSED, said=("CapacityExceeded", "too small"))
    remembered = {("default", "train-0"): tuple(NOW - 100 + at for at in range(times))}
    again = decided_on(replace(found.snapshot, refused_starts=remembered))
    message = _restarts(again, Reason.RESERVATION_REFUSED)
    assert (f"in {wait_s:g} s" in message) is bool(wait_s)
    assert again.status("train").retry_at == (NOW + wait_s if wait_s else 0.0)


def test_no_pod_is_created_before_that_wait_is_over() -> None:
    job = a_job().status(phase="Pending", retry_at=NOW + 20)
    assert not decided(job, a_gpu_node()).all(CreatePod)
    assert decided(job, a_gpu_node(), at=NOW + 20).all(CreatePod)


def test_a_pod_let_go_without_a_slice_starts_again() -> None:
    job = a_job().status(phase="Starting")
    pod = a_pod("train-0", owner=job.build(), stage=BOUND, node="node-1")
    found = decided(job, pod, a_gpu_node())
    _restarts(found, Reason.PLACEMENT_MISSING)


@pytest.mark.parametrize(
    ("word", "reason"), [("DeviceLost", Reason.DEVICE_LOST), ("Odd", Reason.UNENFORCED)]
)
def test_a_slice_that_failed_under_a_running_pod_moves_it(word: str, reason: Reason) -> None:
    found = _job(PodStage.RUNNING, phase=SlicePhase.FAILED, said=(word, "gone"))
    _restarts(found, reason)
    assert found.slices(), "it holds its room until the pod is gone"


def test_pods_of_a_service_are_replaced_one_by_one() -> None:
    stuck = _service(BOUND, since=NOW - 60, waiting=("CreateContainerError", ""))
    assert [one.reason for one in stuck.all(DeletePod)] == [Reason.STUCK_NOT_STARTED]
    failed = _service(PodStage.RUNNING, SlicePhase.FAILED)
    assert [one.pod.name for one in failed.all(EvictPod)] == ["serve-1"]
    raced = _service(PodStage.FAILED, lost_race=True, disrupted=True)
    assert [one.reason for one in raced.all(DeletePod)] == [Reason.LOST_RACE]


def test_a_pod_of_a_service_whose_reservation_fails_is_placed_elsewhere() -> None:
    service = a_service()
    pod = a_pod("serve-1", owner=service.build())
    held = a_slice(pod, percent=100)
    refused = a_gpu_node(devices=1, desired=[held], observed=[reported(held, SlicePhase.REFUSED)])
    spare = a_gpu_node("node-2", devices=1)
    deployment = a_deployment(service.build(), surge=1, unavailable=0)
    found = decided(service, pod, refused, spare, deployment)
    assert found.places() == {"serve-1": ["GPU-node-2-0"]}
    late = replace(
        a_gpu_node(devices=1, desired=[held], desired_since=NOW - 30), heartbeat=NOW - 40
    )
    expired = decided(service, pod, late, spare, deployment)
    assert not expired.places()
    assert expired.decision(service).reason is Reason.RESERVATION_EXPIRED


def test_a_pod_that_is_being_deleted_is_left_alone() -> None:
    found = _service(BOUND, since=NOW - 600, deleting=True)
    assert not found.all(DeletePod)


LAGS = replace(SETTINGS, backpressure_ended_at=NOW - 10)
"""The API server keeps up again since ten seconds ago."""


@pytest.mark.parametrize("stage", [UNSCHEDULED, BOUND])
def test_time_in_which_the_api_server_lagged_does_not_count(stage: PodStage) -> None:
    slow = _job(stage, settings=LAGS, since=NOW - 500)
    assert slow.status("train").phase == "Starting"
    assert slow.plan.wake_at == NOW + 50
    stuck = _job(stage, settings=replace(SETTINGS, backpressure_ended_at=NOW - 60), since=NOW - 500)
    assert stuck.status("train").phase == "Restarting"
    always = _job(stage, settings=LAGS, since=NOW - 660)
    assert always.status("train").phase == "Restarting", "no server is slow for ever"


def test_a_node_is_not_blamed_for_silence_while_the_api_server_lagged() -> None:
    job = a_job().status(phase="Reserving")
    (pod,) = job.pods()
    held = a_slice(pod, percent=100)
    node = a_gpu_node(devices=1, desired=[held], desired_since=NOW - 500)
    assert decided(job, pod, node).status(job).phase == "Pending"
    patient = decided(job, pod, node, settings=LAGS)
    assert patient.status(job).phase == "Reserving"
    assert patient.plan.wake_at == NOW + 20


def test_many_pods_that_start_at_once_get_more_time() -> None:
    def crowd(size: int, since: float) -> Decided:
        job = a_job("crowd").gang(size).status(phase="Starting")
        pods = [
            a_pod(f"crowd-{rank}", owner=job.build(), rank=rank, stage=BOUND, node="node-1")
            for rank in range(size)
        ]
        pods = [replace(one, stage_since=since) for one in pods]
        held = [a_slice(one, percent=2) for one in pods]
        seen = [reported(one, SlicePhase.RESERVED) for one in held]
        return decided(job, *pods, a_gpu_node(devices=1, desired=held, observed=seen))

    assert crowd(41, NOW - 61).status("crowd").phase == "Starting"
    assert crowd(41, NOW - 62).status("crowd").phase == "Restarting"
    assert crowd(20, NOW - 60).status("crowd").phase == "Restarting"
