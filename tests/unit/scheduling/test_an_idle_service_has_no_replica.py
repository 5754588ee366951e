# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``minReplicas: 0``: routers say that nothing comes, and it sleeps; one waits, and it wakes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    NOW,
    Part,
    WorkloadBuilder,
    a_deployment,
    a_gpu_node,
    a_kube_service,
    a_pod,
    a_service,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import SETTINGS, Decided, decided
from ullage.api.batching import Batching
from ullage.api.loads import ObservedLoad
from ullage.api.observations import LatencyObjective
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.router import RouterLoad
from ullage.cluster.records.spec_fields import ReplicaBounds
from ullage.cluster.records.status import ScalingHistory, ScalingRecord
from ullage.cluster.records.workload import WorkloadKind
from ullage.scheduling.model.plan import ScaleWorkload
from ullage.scheduling.times import LOAD_BIN_S, REPLICA_STARTS_S, REPLICAS_SETTLE_S

IDLE_S = 60
WITH_IMAGE = replace(SETTINGS, router_image="ullage-operator:1")
LAUNCH_S = 30.0


def sleeper(replicas: int = 1, least: int = 0, hold_s: int = 120) -> WorkloadBuilder:
    return (
        a_service()
        .replicas(replicas)
        .with_(
            slo=LatencyObjective(latency_ms=500),
            batching=Batching(hold_s=hold_s),
            scaling=ReplicaBounds(min_replicas=least, max_replicas=4, idle_s=IDLE_S),
        )
    )


def quiet(now: float, idle_s: float = 2.0 * IDLE_S, **more: object) -> RouterLoad:
    found = RouterLoad(heard=1, heard_at=now, idle_s=idle_s, asked_s=idle_s)
    return replace(found, **more)  # type: ignore[arg-type]


def world(
    service: WorkloadBuilder,
    *,
    ready: bool = True,
    routers: int = 1,
    launch_s: float = LAUNCH_S,
) -> list[Part]:
    record = service.build()
    pods = [
        replace(
            a_pod(
                f"serve-{at}",
                owner=record,
                rank=-1,
                stage=PodStage.RUNNING,
                node="node-1",
                created=NOW - 900,
            ),
            ready=ready,
            ready_since=NOW - 900 + launch_s,
        )
        for at in range(record.replicas)
    ]
    held = [a_slice(pod, device=gpu("node-1", at), percent=100) for at, pod in enumerate(pods)]
    load = ObservedLoad(seconds=15)
    seen = [replace(reported(one, SlicePhase.ATTACHED), load=load) for one in held]
    node = replace(a_gpu_node(devices=8, desired=held, observed=seen), heartbeat=NOW)
    router = replace(a_deployment(record, replicas=1, ready=routers), name="serve-router")
    return [
        node,
        *pods,
        a_deployment(record, surge=1, unavailable=0, ready=record.replicas),
        replace(router, uid="uid-router"),
        replace(a_kube_service(record), routed=True),
    ]


def cycle(
    service: WorkloadBuilder,
    load: RouterLoad | None,
    now: float = NOW,
    *,
    ready: bool = True,
    routers: int = 1,
    launch_s: float = LAUNCH_S,
) -> Decided:
    told = {} if load is None else {service.build().ref.uid: load}
    parts = world(service, ready=ready, routers=routers, launch_s=launch_s)
    return decided(service, *parts, at=now, settings=WITH_IMAGE, routers=told)


def scaling(found: Decided, service: WorkloadBuilder) -> ScalingRecord:
    record = found.status(service).scaling
    assert record is not None
    return record


def stored(service: WorkloadBuilder, found: Decided) -> WorkloadBuilder:
    """The service with the status as the API gives it back."""
    kept = as_stored(WorkloadKind.INFERENCE_DEPLOYMENT, found.status(service))
    return service.with_(status=kept)


def asleep(since: float = NOW) -> WorkloadBuilder:
    """A service that fell asleep, and whose replica went."""
    service = sleeper()
    return stored(service, cycle(service, quiet(since), since)).replicas(0)


def test_it_falls_asleep_through_the_status() -> None:
    service = sleeper()
    found = cycle(service, quiet(NOW))
    record = scaling(found, service)
    assert (record.reason, record.chosen.replicas) == (Reason.SCALED_TO_ZERO, 0)
    assert "no request for 120 s" in record.message
    assert "about 30 s" in record.message
    assert [reason for reason, _ in found.events()].count("ScaledToZero") == 1
    assert not found.all(ScaleWorkload), "first the status says so"
    known = stored(service, found)
    after = cycle(known, quiet(NOW + REPLICAS_SETTLE_S), NOW + REPLICAS_SETTLE_S)
    assert after.one(ScaleWorkload).replicas == 0
    assert "ScaledToZero" not in [reason for reason, _ in after.events()], "told once"
    assert after.condition(known, "ScalingActive").status == "True"


@pytest.mark.parametrize(
    "load",
    [
        None,
        quiet(NOW, IDLE_S - 1.0),
        quiet(NOW, waiting=1),
        quiet(NOW, missing=1),
        quiet(NOW, heard=0),
        quiet(NOW, silent=True, missing=1),
        quiet(NOW - 61.0),
    ],
)
def test_without_the_word_of_all_routers_that_nothing_comes_it_stays(
    load: RouterLoad | None,
) -> None:
    service = sleeper()
    found = cycle(service, load)
    record = scaling(found, service)
    assert record.reason is not Reason.SCALED_TO_ZERO
    assert record.chosen.replicas == 1


def test_it_stays_while_a_router_that_is_ready_was_not_heard() -> None:
    service = sleeper()
    found = cycle(service, quiet(NOW), routers=2)
    assert scaling(found, service).chosen.replicas == 1
    assert "not all of its routers report" in scaling(found, service).message


def test_it_stays_while_clients_reach_replicas_past_the_router() -> None:
    service = sleeper()
    parts = [
        replace(part, routed=False) if getattr(part, "routed", False) else part
        for part in world(service)
    ]
    told = {service.build().ref.uid: quiet(NOW)}
    found = decided(service, *parts, at=NOW, settings=replace(WITH_IMAGE), routers=told)
    assert scaling(found, service).chosen.replicas == 1


def test_while_its_replica_starts_it_is_not_idle() -> None:
    """A new service is ready once before it sleeps, however long its image takes to come."""
    service = sleeper()
    since = NOW - 900 + LAUNCH_S
    almost = since + IDLE_S - 1
    assert scaling(cycle(service, quiet(almost), almost), service).chosen.replicas == 1
    now = since + IDLE_S
    record = scaling(cycle(service, quiet(now, 10 * IDLE_S), now), service)
    assert record.reason is Reason.SCALED_TO_ZERO
    assert f"no request for {IDLE_S} s" in record.message, "counted from the first answer"


def test_a_replica_that_never_answers_keeps_its_device_for_a_time_only() -> None:
    service = sleeper()
    most = NOW - 900 + REPLICA_STARTS_S + IDLE_S
    found = cycle(service, quiet(most - 1), most - 1, ready=False)
    assert scaling(found, service).chosen.replicas == 1
    found = cycle(service, quiet(most), most, ready=False)
    assert scaling(found, service).reason is Reason.SCALED_TO_ZERO


def test_without_a_pod_it_has_not_begun_to_be_idle() -> None:
    service = sleeper()
    parts = [part for part in world(service) if not isinstance(part, PodRecord | GPUNodeRecord)]
    told = {service.build().ref.uid: quiet(NOW)}
    found = decided(service, *parts, at=NOW, settings=WITH_IMAGE, routers=told)
    assert scaling(found, service).chosen.replicas == 1


def test_a_service_that_wakes_slower_than_requests_wait_keeps_its_replica_and_says_so() -> None:
    service = sleeper(hold_s=29)
    record = scaling(cycle(service, quiet(NOW)), service)
    assert record.chosen.replicas == 1
    assert "raise batching.holdSeconds" in record.message
    service = sleeper()
    record = scaling(cycle(service, quiet(NOW, wake_s=121.0)), service)
    assert record.chosen.replicas == 1
    assert "takes 121 s to start and requests wait 120 s" in record.message


def test_with_at_least_one_replica_it_never_sleeps() -> None:
    service = sleeper(least=1)
    assert scaling(cycle(service, quiet(NOW)), service).chosen.replicas == 1


def test_one_that_sleeps_goes_on_and_writes_nothing() -> None:
    service = asleep()
    for after_s in (1.0, LOAD_BIN_S, 3600.0):
        now = NOW + after_s
        found = cycle(service, quiet(now, 120.0 + after_s), now)
        assert found.status(service).scaling == service.build().status.scaling
        assert not found.all(ScaleWorkload)


@pytest.mark.parametrize(
    ("load", "says"),
    [
        (quiet(NOW + 5, waiting=1), "a request waits in the router"),
        (quiet(NOW + 5, waiting=1, missing=1), "a request waits in the router"),
        (quiet(NOW + 5, 0.5), "a request came"),
        (RouterLoad(heard=0, heard_at=0, missing=1, silent=True), "does not report whether"),
    ],
)
def test_the_first_request_wakes_it_at_once(load: RouterLoad, says: str) -> None:
    service = asleep()
    found = cycle(service, load, NOW + 5)
    record = scaling(found, service)
    assert (record.reason, record.chosen.replicas) == (Reason.WOKEN, 1)
    assert says in record.message
    assert [reason for reason, _ in found.events()].count("Woken") == 1
    known = stored(service, found)
    after = cycle(known, load, NOW + 5 + REPLICAS_SETTLE_S)
    assert after.one(ScaleWorkload).replicas == 1
    again = cycle(known.replicas(1), load, NOW + 7 + REPLICAS_SETTLE_S, ready=False)
    assert scaling(again, known) == record, "until a replica is ready it says what it waits for"
    assert not again.all(ScaleWorkload)


def test_it_sleeps_on_while_no_router_was_asked_yet_and_after_one_began_again() -> None:
    service = asleep()
    assert scaling(cycle(service, None, NOW + 5), service).chosen.replicas == 0
    began = quiet(NOW + 50, 3.0, asked_s=None)
    assert scaling(cycle(service, began, NOW + 50), service).chosen.replicas == 0


def test_a_request_before_the_replica_went_keeps_it() -> None:
    service = asleep().replicas(1)
    found = cycle(service, quiet(NOW + 1, 0.0), NOW + 1)
    assert scaling(found, service).chosen.replicas == 1
    assert not found.all(ScaleWorkload)


def test_a_wake_soon_after_doubles_the_time_without_requests() -> None:
    service = asleep()
    woken = stored(service, cycle(service, quiet(NOW + 5, waiting=1), NOW + 5)).replicas(1)
    history = woken.build().status.scaling.history  # type: ignore[union-attr]
    assert history is not None
    assert (history.asleep_since, history.idle_doublings) == (0.0, 1)
    later = NOW + 5 + IDLE_S + 1
    assert scaling(cycle(woken, quiet(later, IDLE_S + 1.0), later), woken).chosen.replicas == 1
    later += IDLE_S
    found = cycle(woken, quiet(later, 2.0 * IDLE_S), later)
    assert scaling(found, woken).reason is Reason.SCALED_TO_ZERO


def test_the_time_to_wake_counts_where_it_was_seen() -> None:
    service = sleeper()
    record = scaling(cycle(service, quiet(NOW, 1.0, wake_s=50.0)), service)
    assert record.launch_seconds == 50
    record = scaling(cycle(service, quiet(NOW, 1.0, wake_s=2.0)), service)
    assert record.launch_seconds == 30, "a replica that was away for a moment is no wake"


def test_a_container_that_was_started_again_did_not_take_so_long_to_start() -> None:
    service = sleeper()
    known = stored(service, cycle(service, quiet(NOW, 1.0)))
    later = NOW + 2 * IDLE_S
    found = cycle(known, quiet(later), later, launch_s=890.0)
    assert scaling(found, known).reason is Reason.SCALED_TO_ZERO
    assert scaling(found, known).launch_seconds == LAUNCH_S


def test_a_service_that_others_set_to_zero_wakes_at_a_request_only() -> None:
    service = sleeper(0)
    found = cycle(service, quiet(NOW, 1.0))
    assert scaling(found, service).chosen.replicas == 0
    assert "ScaledToZero" not in [reason for reason, _ in found.events()]
    known = stored(service, found)
    found = cycle(known, quiet(NOW + 1, 0.0, waiting=1), NOW + 1)
    assert (scaling(found, known).reason, scaling(found, known).chosen.replicas) == (
        Reason.WOKEN,
        1,
    )


def test_bounds_that_forbid_sleep_later_end_it_for_good() -> None:
    """A sleep that was noted before must not take away a replica of later."""
    service = asleep().replicas(1)
    kept_awake = service.with_(scaling=replace(sleeper(least=1).build().scaling))  # type: ignore[type-var]
    awake = stored(kept_awake, cycle(kept_awake, quiet(NOW + 20, 1.0), NOW + 20))
    history = awake.build().status.scaling.history  # type: ignore[union-attr]
    assert isinstance(history, ScalingHistory)
    assert history.asleep_since == 0.0
    again = awake.with_(scaling=sleeper().build().scaling)
    found = cycle(again, quiet(NOW + 40, 1.0), NOW + 40)
    assert scaling(found, again).chosen.replicas == 1
