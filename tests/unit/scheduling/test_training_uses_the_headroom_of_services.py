# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Training beside a scaled service: admitted at the forecast load, and gone before the peak."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import (
    EPOCH,
    NOW,
    Part,
    WorkloadBuilder,
    a_deployment,
    a_gpu_node,
    a_job,
    a_kube_service,
    a_pod,
    a_policy,
    a_profile,
    a_service,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided
from ullage.api.loads import ObservedLoad
from ullage.api.observations import LatencyObjective
from ullage.api.reasons import Reason
from ullage.api.sharing import OfferedLoad, SharingRules
from ullage.api.slices import DesiredSlice, ObservedSlice, SlicePhase
from ullage.api.trainingjob import CostAim
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.profile import SoloEntry
from ullage.cluster.records.spec_fields import ReplicaBounds
from ullage.cluster.records.status import ReplicaChoice, ScalingHistory, ScalingRecord
from ullage.cluster.records.workload import WorkloadKind
from ullage.scheduling.model.plan import EvictPod
from ullage.scheduling.prediction.latency import STEP, PlannedLoad, planned_load

ROW = SoloEntry(device="emulated", share=100, steps_per_second=100.0, latency=((0.99, 0.012),))
PROFILE = a_profile("p", ROW)
"""10 ms a request alone: one whole device serves 100 a second."""
ROOMY = a_policy(max_percent_sum=200)
"""A whole share and others fit on a device."""
BOUNDS = ReplicaBounds(min_replicas=1, max_replicas=8)
OLD = NOW - 3000
CALM, PEAK = 20.0, 75.0


def planned(forecast: float, replicas: int = 1) -> ScalingRecord:
    """What the autoscaler decided a moment ago."""
    return ScalingRecord(
        load="20",
        forecast=f"{forecast:g}",
        chosen=ReplicaChoice(replicas=replicas, percent=50),
        reason=Reason.STEADY,
        launch_seconds=30,
        history=ScalingHistory(as_of=NOW - 1, service_micros=10_000),
    )


def serving(forecast: float | None = CALM, *, replicas: int = 1) -> WorkloadBuilder:
    service = a_service().fractional(100).replicas(replicas).profile("p").aged(4000)
    service = service.with_(
        slo=LatencyObjective(latency_ms=100),
        load=OfferedLoad(requests_per_s=CALM),
        scaling=BOUNDS,
    )
    scaling = planned(forecast, replicas) if forecast is not None else None
    return service.status(phase="Ready", scaling=scaling)


def training(name: str = "train", namespace: str = "default", **fields: object) -> WorkloadBuilder:
    """Best-effort training that runs."""
    job = a_job(name, namespace).fractional(25, 50).checkpointed()
    return job.status(phase="Running").with_(**fields)


def on_device(
    workload: WorkloadBuilder, name: str, percent: int, device: int = 0, **pod: object
) -> tuple[PodRecord, DesiredSlice, ObservedSlice]:
    """A pod that runs on a device, its slice, and what its node says of it."""
    said: dict[str, object] = {"stage": PodStage.RUNNING, "node": "node-1", "since": OLD}
    made = a_pod(name, owner=workload.build(), created=OLD, **(said | pod))  # type: ignore[arg-type]
    held = a_slice(
        made, device=gpu("node-1", device), percent=percent, memory_mib=1000, epoch=EPOCH - 1
    )
    return made, held, reported(held, SlicePhase.ATTACHED)


def beside(
    service: WorkloadBuilder,
    job: WorkloadBuilder,
    *,
    devices: int = 1,
    priority: int = 0,
    percent: int = 100,
) -> Decided:
    """A replica with so much of a device, and a job with half of it."""
    mine, *held = on_device(service, "serve-a", percent)
    theirs, *more = on_device(job, "train-0", 50, priority=priority)
    node = a_gpu_node(
        devices=devices,
        desired=[held[0], more[0]],
        observed=[held[1], more[1]],
        desired_since=OLD,
    )
    record = service.build()
    parts: list[Part] = [service, mine, job, theirs, node, PROFILE, ROOMY]
    return decided(*parts, a_deployment(record, ready=1), a_kube_service(record))


def leaves(found: Decided, job: WorkloadBuilder) -> bool:
    return found.status(job).phase == "Restarting"


# -- at the load that is planned for ---------------------------------------------------------------


def joins(service: WorkloadBuilder) -> bool:
    """Whether a job that waits is given a place beside the only replica."""
    mine, held, seen = on_device(service, "serve-a", 100)
    node = a_gpu_node(devices=1, desired=[held], observed=[seen])
    job = a_job().fractional(25, 25).checkpointed()
    return "train-0" in decided(service, mine, node, PROFILE, ROOMY, job, *job.pods()).places()


def test_a_job_is_admitted_at_the_forecast_and_not_at_the_load_of_now() -> None:
    assert joins(serving(CALM))
    assert not joins(serving(PEAK))


def test_without_a_forecast_the_declared_load_counts() -> None:
    assert joins(serving(None))
    others = serving(PEAK).with_(scaling=None)
    assert joins(others), "another autoscaler's service is judged as before"


def test_a_job_joins_only_where_it_could_have_stayed_for_a_while() -> None:
    """The load peaked a quarter of an hour ago: who is there stays, no one comes."""
    record = planned(CALM)
    assert record.history is not None
    rates = (round(PEAK * 1e3), *[round(CALM * 1e3)] * 60)
    lately = serving().status(
        scaling=replace(record, history=replace(record.history, rates_milli=rates))
    )
    job = training()
    assert not joins(lately)
    assert not leaves(beside(lately, job), job)


def test_replicas_that_are_asked_for_share_the_forecast() -> None:
    assert joins(serving(PEAK).status(scaling=planned(PEAK, replicas=4)))


def test_a_load_too_high_for_the_replicas_of_now_bars_no_replica() -> None:
    service = serving(500.0).fractional(50, 50)
    pods = [a_pod("serve-a", owner=service.build())]
    found = decided(service, *pods, a_gpu_node(devices=1), PROFILE)
    assert found.places() == {"serve-a": [gpu()]}


@given(st.floats(0, 1e12), st.integers(1, 50))
def test_a_load_is_rounded_up_by_less_than_a_step(total: float, replicas: int) -> None:
    each = (
        PlannedLoad(requests_per_s=total, recent_per_s=total, replicas=replicas)
        .of_each(replicas)
        .requests_per_s
    )
    exact = total / replicas
    assert each >= exact * (1 - 1e-6)
    assert each <= max(exact, 1e-3) * STEP * (1 + 1e-6)


@pytest.mark.parametrize("said", ["nan", "inf", "-3", ""])
def test_a_forged_forecast_is_none(said: str) -> None:
    service = serving(CALM).status(scaling=replace(planned(CALM), forecast=said))
    assert planned_load(service.build()) is None


# -- before the peak -------------------------------------------------------------------------------


def test_training_leaves_the_device_before_the_load_peaks() -> None:
    job = training()
    assert not leaves(beside(serving(CALM), job), job)
    found = beside(serving(PEAK), job)
    assert leaves(found, job)
    condition = found.condition(job, "Admitted")
    assert condition.reason == Reason.PEAK_AHEAD
    assert "default/serve plans for 75 requests/s" in condition.message
    (exclusion,) = found.status(job).scheduling.exclusions
    assert exclusion.until == NOW + 300.0


def test_it_gets_its_signal_and_its_grace_and_the_status_is_kept_by_the_api() -> None:
    job = training()
    first = beside(serving(PEAK), job).status(job)
    kept = as_stored(WorkloadKind.TRAINING_JOB, first)
    assert kept.scheduling.exclusions == first.scheduling.exclusions
    found = beside(serving(PEAK), job.with_(status=kept))
    step = found.one(EvictPod)
    assert (step.pod.name, step.reason) == ("train-0", Reason.PEAK_AHEAD)


def test_who_does_not_make_the_replica_slow_stays() -> None:
    """At half a device the replica is too slow alone: nothing is gained by a restart."""
    job = training()
    assert not leaves(beside(serving(PEAK).fractional(50, 50), job, percent=50), job)


def test_a_smaller_share_is_enough_where_it_may_be_given() -> None:
    job = training(sharing=SharingRules(resizable=True))
    found = beside(serving(30.0), job)
    small = found.status(job).made_room
    assert leaves(found, job)
    assert small is not None
    assert 25 <= small.percent < 50
    assert small.beneficiary == "default/serve"
    assert not found.status(job).scheduling.exclusions, "it comes back to its device"


@pytest.mark.parametrize(
    "job",
    [
        training(checkpoint=False),
        training(max_slowdown=3.0),
        training(cost=CostAim(deadline_s=3600.0)),
        training(namespace="theirs"),
    ],
    ids=["unsaved", "promised", "due", "stranger"],
)
def test_who_was_promised_something_or_belongs_to_others_is_left_to_the_guard(
    job: WorkloadBuilder,
) -> None:
    assert not leaves(beside(serving(PEAK), job), job)


def test_a_stranger_of_lower_priority_leaves_and_an_own_one_of_higher_stays() -> None:
    theirs, mine = training(namespace="theirs", trust_domain="namespace/default"), training()
    assert leaves(beside(serving(PEAK), theirs, priority=-10), theirs)
    assert not leaves(beside(serving(PEAK), mine, priority=10), mine)


# -- devices for more replicas ---------------------------------------------------------------------


def surge(
    *jobs: WorkloadBuilder, service: WorkloadBuilder | None = None, **policy: object
) -> Decided:
    """One replica more waits; jobs have the devices beside that of the first one."""
    service = service or serving(CALM, replicas=2).exclusive()
    mine, *held = on_device(service, "serve-a", 100)
    parts: list[Part] = [service, mine, a_pod("serve-b", owner=service.build()), PROFILE]
    desired, observed = [held[0]], [held[1]]
    for at, job in enumerate(jobs, start=1):
        pod, wanted, seen = on_device(job, f"{job.build().ref.name}-0", 100, at)
        parts += [job, pod]
        desired.append(wanted)
        observed.append(seen)
    node = a_gpu_node(
        devices=1 + len(jobs),
        desired=desired,
        observed=observed,
        desired_since=OLD,
    )
    return decided(*parts, replace(node, heartbeat=NOW), a_policy(**policy))


def evicted(found: Decided) -> list[str]:
    return [one.pod.name for one in found.all(EvictPod)]


def whole(name: str = "train", namespace: str = "default", **fields: object) -> WorkloadBuilder:
    return training(name, namespace, **fields).exclusive()


def test_a_replica_takes_a_device_back_from_training_of_its_namespace() -> None:
    found = surge(whole())
    assert evicted(found) == ["train-0"]
    text = found.condition("train", "Admitted").message
    assert "preempted by default/serve, whose load needs the devices back" in text


@pytest.mark.parametrize(
    "job",
    [
        whole(checkpoint=False),
        whole(max_slowdown=3.0),
        whole(cost=CostAim(max_time_s=3600.0)),
        whole(namespace="theirs"),
    ],
    ids=["unsaved", "promised", "due", "stranger"],
)
def test_nothing_is_taken_from_others(job: WorkloadBuilder) -> None:
    assert evicted(surge(job)) == []


def test_a_service_that_others_scale_takes_nothing_of_equal_priority() -> None:
    plain = serving(CALM, replicas=2).exclusive().with_(scaling=None)
    assert evicted(surge(whole(), service=plain)) == []


def test_only_as_many_leave_as_replicas_come_the_youngest_first() -> None:
    jobs = [whole("old").aged(3000), whole("young").aged(200), whole("older").aged(3500)]
    assert evicted(surge(*jobs)) == ["young-0"]


def test_an_elastic_gang_gives_up_a_member() -> None:
    gang = a_job("train").elastic(1, 2).status(phase="Running")
    gang = gang.with_(replicas=2).status(replicas=2)
    service = serving(CALM, replicas=2).exclusive()
    mine, *held = on_device(service, "serve-a", 100)
    desired, observed, pods = [held[0]], [held[1]], [mine]
    for at in range(2):
        pod, wanted, seen = on_device(gang, f"train-{at}", 100, at + 1)
        pods.append(pod)
        desired.append(wanted)
        observed.append(seen)
    node = a_gpu_node(devices=3, desired=desired, observed=observed)
    found = decided(
        service, gang, *pods, a_pod("serve-b", owner=service.build()), PROFILE, node,
        a_kube_service(gang.build(), "train-workers"),
    )  # fmt: skip
    size = found.status(gang).size
    assert size is not None
    assert size.reason is Reason.SHRUNK


def test_what_is_given_back_goes_to_the_replica_and_to_no_stranger_in_between() -> None:
    """The job that left was in the queue before the stranger, the service after it."""
    service = serving(CALM, replicas=2).exclusive().aged(100)
    left = whole().aged(900).status(phase="Restarting", retry_at=NOW + 60)
    stranger = a_job("other", "theirs").aged(500)
    mine, held, seen = on_device(service, "serve-a", 100)
    node = a_gpu_node(devices=2, desired=[held], observed=[seen])
    new = a_pod("serve-b", owner=service.build())
    found = decided(service, mine, new, left, stranger, *stranger.pods(), node, PROFILE)
    assert set(found.places()) == {"serve-a", "serve-b"}
    without = decided(service, mine, new, stranger, *stranger.pods(), node, PROFILE)
    assert set(without.places()) == {"serve-a", "other-0"}


def test_the_forecast_looks_further_ahead_where_training_has_to_leave_first() -> None:
    def message(*jobs: WorkloadBuilder) -> str:
        old = planned(CALM)
        stale = replace(old, history=ScalingHistory(as_of=NOW - 15, service_micros=10_000))
        service = serving(CALM).exclusive().status(scaling=stale)
        mine, *held = on_device(service, "serve-a", 100)
        load = ObservedLoad(
            seconds=15, requests_milli=20_000, request_micros=11_000, latency_micros=20_000
        )
        desired, observed = [held[0]], [replace(held[1], load=load)]
        parts: list[Part] = [service, mine, PROFILE]
        for at, job in enumerate(jobs, start=1):
            pod, wanted, seen = on_device(job, f"{job.build().ref.name}-0", 100, at)
            parts += [job, pod]
            desired.append(wanted)
            observed.append(seen)
        node = a_gpu_node(
            devices=1 + len(jobs),
            desired=desired,
            observed=observed,
        )
        record = service.build()
        found = decided(*parts, node, a_deployment(record, ready=1), a_kube_service(record))
        scaling = found.status(service).scaling
        assert scaling is not None
        return scaling.message

    assert "training makes way for a replica, which may take 30 s" in message(whole())
    assert "training" not in message()
    assert "training" not in message(whole(namespace="theirs"))
