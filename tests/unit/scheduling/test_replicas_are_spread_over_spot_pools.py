# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One interruption takes as few replicas of a service as can be, and its load is served on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from builders import (
    NOW,
    Part,
    WorkloadBuilder,
    a_deployment,
    a_gpu_node,
    a_job,
    a_kube_service,
    a_node,
    a_pod,
    a_service,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided
from ullage.api.interruptions import Interruption, InterruptionKind
from ullage.api.loads import ObservedLoad
from ullage.api.observations import LatencyObjective
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.pool import CapacityType, PoolRecord, PoolStatus
from ullage.cluster.records.spec_fields import ReplicaBounds
from ullage.scheduling.model.plan import ApplyDeployment, EvictPod

ZONE = "topology.kubernetes.io/zone"


def a_pool(name: str, **fields: object) -> PoolRecord:
    said: dict[str, object] = {
        "name": name,
        "instance_type": "g5.xlarge",
        "zone": name,
        "capacity_type": CapacityType.SPOT,
        "accelerator": "emulated",
        "node_selector": {ZONE: name},
    }
    return PoolRecord(**(said | fields))  # type: ignore[arg-type]


def nodes(*zones: str, devices: int = 4) -> list[Part]:
    """A node in each zone, named like it."""
    parts: list[Part] = []
    for zone in zones:
        parts += [a_node(zone, labels={ZONE: zone}), a_gpu_node(zone, devices=devices)]
    return parts


def waiting(service: WorkloadBuilder) -> list[PodRecord]:
    record = service.build()
    return [a_pod(f"serve-{at}", owner=record) for at in range(record.replicas)]


def zones_of(found: Decided) -> Counter[str]:
    return Counter(node for node, _ in found.slices())


def service(replicas: int = 4) -> WorkloadBuilder:
    return a_service().replicas(replicas)


def test_replicas_are_divided_among_pools() -> None:
    four = service()
    found = decided(four, *waiting(four), *nodes("a", "b"), a_pool("a"), a_pool("b"))
    assert zones_of(found) == {"a": 2, "b": 2}


def test_without_pools_nothing_is_spread() -> None:
    four = service()
    plain = decided(four, *waiting(four), *nodes("a", "b"))
    assert max(zones_of(plain).values()) == 4


def test_a_pool_that_loses_little_at_once_takes_more() -> None:
    seen = PoolStatus(mean_lost_fraction=0.25)
    five = service(5)
    found = decided(
        five, *waiting(five), *nodes("a", "b", devices=8), a_pool("a", status=seen), a_pool("b")
    )
    assert zones_of(found) == {"a": 4, "b": 1}


def test_machines_that_stay_are_filled_first_and_full_ones_are_passed_over() -> None:
    stays = a_pool("s", capacity_type=CapacityType.ON_DEMAND)
    six = service(6)
    found = decided(
        six,
        *waiting(six),
        *nodes("a", "b"),
        *nodes("s", devices=2),
        a_pool("a"),
        a_pool("b"),
        stays,
    )
    assert zones_of(found) == {"s": 2, "a": 2, "b": 2}


def test_where_only_one_pool_has_room_all_go_there() -> None:
    four = service()
    found = decided(
        four, *waiting(four), *nodes("a"), *nodes("b", devices=1), a_pool("a"), a_pool("b")
    )
    assert zones_of(found) == {"a": 3, "b": 1}


def test_what_runs_already_counts_and_what_is_about_to_go_does_not() -> None:
    three = service(3)
    record = three.build()
    here = [a_pod(f"serve-{at}", owner=record, stage=PodStage.RUNNING, node="a") for at in range(2)]
    held = [a_slice(pod, device=gpu("a", at), percent=100) for at, pod in enumerate(here)]
    node = a_gpu_node(
        "a",
        devices=4,
        desired=held,
        observed=[reported(one, SlicePhase.ATTACHED) for one in held],
    )
    new = a_pod("serve-2", owner=record)
    rest = [a_node("a", labels={ZONE: "a"}), *nodes("b")]
    found = decided(three, *here, new, node, *rest, a_pool("a"), a_pool("b"))
    assert [one for one, part in found.slices() if part.pod_name == "serve-2"] == ["b"]


# -- sooner than a replica starts ------------------------------------------------------------------


def scaled(
    replicas: int, places: Sequence[str], *pools: PoolRecord, per_s: float = 4.0
) -> tuple[WorkloadBuilder, list[Part]]:
    """A scaled service with a ready replica in each of these zones, at so many requests each."""
    slo = LatencyObjective(latency_ms=500)
    bounds = ReplicaBounds(min_replicas=1, max_replicas=12)
    one = service(replicas).with_(slo=slo, scaling=bounds)
    record = one.build()
    pods = [
        replace(
            a_pod(
                f"serve-{at}", owner=record, stage=PodStage.RUNNING, node=zone, created=NOW - 900
            ),
            ready_since=NOW - 840,
        )
        for at, zone in enumerate(places)
    ]
    load = ObservedLoad(
        seconds=15,
        requests_milli=round(per_s * 1e3),
        request_micros=130_000,
        latency_micros=250_000,
    )
    parts: list[Part] = [*pods, *pools]
    for zone in {pool.name for pool in pools}:
        mine = [
            a_slice(pod, device=gpu(zone, at), percent=100)
            for at, pod in enumerate(pods)
            if pod.node == zone
        ]
        seen = [replace(reported(held, SlicePhase.ATTACHED), load=load) for held in mine]
        parts += [
            a_node(zone, labels={ZONE: zone}),
            a_gpu_node(zone, devices=12, desired=mine, observed=seen),
        ]
    deployment = a_deployment(record, surge=1, unavailable=0, ready=replicas)
    return one, [*parts, deployment, a_kube_service(record)]


def chosen(found: Decided, one: WorkloadBuilder) -> tuple[int, str]:
    record = found.status(one).scaling
    assert record is not None
    return record.chosen.replicas, record.message


def test_a_notice_that_is_too_short_asks_for_spares() -> None:
    quick = [a_pool(zone, notice_s=30.0) for zone in "ab"]
    one, parts = scaled(4, "aabb", *quick)
    more, said = chosen(decided(one, *parts), one)
    calm = [a_pool(zone, notice_s=120.0) for zone in "ab"]
    same, parts = scaled(4, "aabb", *calm)
    enough, unsaid = chosen(decided(same, *parts), same)
    needed = int(said.partition("needs ")[2].split()[0])
    assert enough >= needed
    assert more - 2 >= needed, "a loss of either pool leaves what the load needs"
    assert "sooner than a replica starts" in said
    assert "sooner" not in unsaid


def test_spares_do_not_ask_for_spares_of_their_own() -> None:
    quick = [a_pool(zone, notice_s=30.0) for zone in "ab"]
    one, parts = scaled(8, "aaaabbbb", *quick, per_s=2.0)
    asked, said = chosen(decided(one, *parts), one)
    needed = int(said.partition("needs ")[2].split()[0])
    assert asked == max(8, min(2 * needed, needed + 4))


def test_spares_are_for_what_is_at_risk_alone() -> None:
    quick = a_pool("a", notice_s=30.0, status=PoolStatus(mean_lost_fraction=0.25))
    stays = a_pool("s", capacity_type=CapacityType.ON_DEMAND)
    one, parts = scaled(5, "assss", quick, stays)
    asked, said = chosen(decided(one, *parts), one)
    assert "; 1 spare, because spot machines may go sooner" in said
    safe, parts = scaled(4, "ssss", quick, stays)
    assert "sooner" not in chosen(decided(safe, *parts), safe)[1]
    assert asked >= 5


@pytest.mark.parametrize("notice", [None, 30.0])
def test_one_pool_alone_has_no_spares(notice: float | None) -> None:
    one, parts = scaled(2, "aa", a_pool("a", notice_s=notice))
    _, said = chosen(decided(one, *parts), one)
    assert "sooner" not in said


# -- before the loss -------------------------------------------------------------------------------

TERMINATE = Interruption(kind=InterruptionKind.TERMINATE, source="EC2", deadline_s=NOW + 115)


def noticed(
    priority: int, *, checkpoint: bool = True, waiting_pod: bool = False, follows: bool = False
) -> Decided:
    """A replica on a machine that goes; training has the only other device."""
    one = service(1)
    if follows:
        bounds = ReplicaBounds(min_replicas=1, max_replicas=3)
        one = one.with_(slo=LatencyObjective(latency_ms=500), scaling=bounds)
    record = one.build()
    pod = a_pod("serve-0", owner=record, stage=PodStage.RUNNING, node="a", priority=100)
    mine = a_slice(pod, device=gpu("a"), percent=100)
    job = a_job().with_(checkpoint=checkpoint).status(phase="Running")
    (train,) = job.pods(PodStage.RUNNING, node="b", priority=priority)
    theirs = a_slice(train, device=gpu("b"), percent=100)
    doomed = a_gpu_node(
        "a", devices=1, desired=[mine], observed=[reported(mine, SlicePhase.ATTACHED)]
    )
    safe = a_gpu_node(
        "b", devices=1, desired=[theirs], observed=[reported(theirs, SlicePhase.ATTACHED)]
    )
    more = [a_pod("serve-1", owner=record, priority=100)] if waiting_pod else []
    return decided(
        one,
        pod,
        *more,
        job,
        train,
        replace(doomed, interruption=TERMINATE),
        safe,
        a_deployment(record, replicas=2 if waiting_pod else 1, surge=1, unavailable=0, ready=1),
        a_kube_service(record),
    )


def test_a_replacement_is_asked_for_where_training_makes_way() -> None:
    found = noticed(priority=0)
    assert found.one(ApplyDeployment).replicas == 2
    assert not found.all(EvictPod)


def test_then_the_training_goes_and_the_replica_serves_on() -> None:
    found = noticed(priority=0, waiting_pod=True)
    assert [one.pod.name for one in found.all(EvictPod)] == ["train-0"]
    assert not found.all(ApplyDeployment), "the one that was asked for is not taken back"


def test_training_in_the_headroom_of_the_service_makes_way_at_equal_priority() -> None:
    assert noticed(priority=100, follows=True).one(ApplyDeployment).replicas == 2
    then = noticed(priority=100, follows=True, waiting_pod=True)
    assert [one.pod.name for one in then.all(EvictPod)] == ["train-0"]


@pytest.mark.parametrize(("priority", "checkpoint"), [(100, True), (0, False)])
def test_where_no_one_makes_way_nothing_is_asked(priority: int, checkpoint: bool) -> None:
    assert not noticed(priority=priority, checkpoint=checkpoint).all(ApplyDeployment)
