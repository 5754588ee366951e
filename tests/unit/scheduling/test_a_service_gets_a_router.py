# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A router comes before the Service leads to it, and goes after it leads to it no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import Part, WorkloadBuilder, a_deployment, a_gpu_node, a_kube_service, a_service
from fakes.deciding import SETTINGS, Decided, decided
from ullage.api.batching import Batching, Generative, RouterPods
from ullage.api.observations import LatencyObjective
from ullage.api.reasons import Reason
from ullage.api.words import BatchingPolicy
from ullage.cluster.records.snapshot import DeploymentRecord, RefusedWrite, ServiceRecord
from ullage.cluster.records.status import Condition
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.batching.chooser import BatchPolicy
from ullage.scheduling.model.plan import (
    ApplyDeployment,
    ApplyRoutedService,
    ApplyRouter,
    ApplyService,
    DeleteChild,
)

WITH_IMAGE = replace(SETTINGS, router_image="ullage-operator:1")


def batched(**changes: object) -> WorkloadBuilder:
    return a_service().with_(
        slo=LatencyObjective(latency_ms=50),
        batching=Batching(**changes),  # type: ignore[arg-type]
    )


def decide(*parts: Part, image: bool = True) -> Decided:
    return decided(a_gpu_node(), *parts, settings=WITH_IMAGE if image else SETTINGS)


def router_of(
    record: WorkloadRecord, *, ready: int = 0, version: str = "", replicas: int = 1
) -> DeploymentRecord:
    made = a_deployment(record, replicas=replicas, ready=ready, template_hash=version)
    return replace(made, name=f"{record.ref.name}-router", uid="uid-router")


def front(record: WorkloadRecord, *, routed: bool) -> ServiceRecord:
    return replace(a_kube_service(record), routed=routed)


def replicas_of(record: WorkloadRecord) -> ServiceRecord:
    return a_kube_service(record, f"{record.ref.name}-replicas")


def version_of(service: WorkloadBuilder) -> str:
    return decide(service).one(ApplyRouter).version


def services(found: Decided) -> dict[str, ApplyService]:
    return {one.name: one for one in found.all(ApplyService)}


def leads_to_router(service: ApplyService) -> bool:
    return isinstance(service, ApplyRoutedService)


def test_a_new_service_gets_a_router_and_leads_to_it_at_once() -> None:
    found = decide(batched())
    router = found.one(ApplyRouter)
    assert (router.name, router.image, router.objective_ms) == (
        "serve-router",
        "ullage-operator:1",
        50,
    )
    named = services(found)
    assert set(named) == {"serve", "serve-replicas"}
    assert (leads_to_router(named["serve"]), named["serve"].headless) == (True, False)
    assert (leads_to_router(named["serve-replicas"]), named["serve-replicas"].headless) == (
        False,
        True,
    )
    assert found.one(ApplyDeployment).name == "serve"


@pytest.mark.parametrize(
    ("slo", "generative", "first_ms", "between_ms"),
    [
        (LatencyObjective(latency_ms=2000, metric="ttft"), Generative(), 2000, 0),
        (LatencyObjective(latency_ms=2000), Generative(inter_token_ms=40), 2000, 40),
        (LatencyObjective(latency_ms=50, metric="itl"), Generative(first_token_ms=900), 900, 50),
        (
            LatencyObjective(latency_ms=50, metric="itl"),
            Generative(first_token_ms=900, inter_token_ms=40),
            900,
            40,
        ),
        (LatencyObjective(latency_ms=50, metric="itl"), None, 50, 0),
    ],
)
def test_objectives_of_tokens_are_kept_apart(
    slo: LatencyObjective, generative: Generative | None, first_ms: int, between_ms: int
) -> None:
    found = decide(a_service().with_(slo=slo, batching=Batching(generative=generative)))
    router = found.one(ApplyRouter)
    assert (router.objective_ms, router.inter_token_ms) == (first_ms, between_ms)


def test_without_batching_nothing_is_different() -> None:
    found = decide(a_service())
    assert not found.all(ApplyRouter)
    assert not found.all(DeleteChild)
    assert [one.name for one in found.all(ApplyService)] == ["serve"]
    assert not leads_to_router(found.one(ApplyService))
    assert found.status("serve").condition("RouterReady") is None


def test_a_service_that_serves_leads_to_its_replicas_until_the_router_is_ready() -> None:
    service = batched()
    record = service.build()
    direct = [a_deployment(record), front(record, routed=False), replicas_of(record)]
    before = decide(service, *direct)
    assert not [one for one in before.all(ApplyService) if one.name == "serve"]
    starting = router_of(record, version=version_of(service))
    assert not decide(service, *direct, starting).all(ApplyService)
    assert not decide(service, *direct, starting).all(ApplyRouter)
    ready = router_of(record, version=version_of(service), ready=1)
    assert leads_to_router(decide(service, *direct, ready).one(ApplyService))


def test_a_service_leads_to_its_router_though_that_is_not_ready_for_a_while() -> None:
    service = batched()
    record = service.build()
    kept = [a_deployment(record), front(record, routed=True), replicas_of(record)]
    away = router_of(record, version=version_of(service), ready=0)
    found = decide(service, *kept, away)
    assert not found.all(ApplyService)
    shown = found.condition(service, "RouterReady")
    assert (shown.status, shown.reason) == ("False", Reason.ROUTER_STARTING)
    assert "serve-router" in shown.message


def test_a_router_that_serves_says_so_and_is_left_alone() -> None:
    service = batched()
    record = service.build()
    kept = [
        a_deployment(record, ready=1, surge=1, unavailable=0),
        front(record, routed=True),
        replicas_of(record),
        router_of(record, version=version_of(service), ready=1),
    ]
    found = decide(service, *kept)
    assert not found.all(ApplyRouter) + found.all(ApplyService) + found.all(DeleteChild)
    shown = found.condition(service, "RouterReady")
    assert (shown.status, shown.reason) == ("True", Reason.ROUTER_SERVES)


@pytest.mark.parametrize(
    "changed",
    [
        batched(sizes=(1, 2)),
        batched(policy=BatchingPolicy.FIFO),
        batched(router=RouterPods(memory_bytes=2**31)),
        batched().with_(slo=LatencyObjective(latency_ms=60)),
    ],
)
def test_a_router_rolls_when_its_settings_change(changed: WorkloadBuilder) -> None:
    record = changed.build()
    kept = [
        a_deployment(record),
        front(record, routed=True),
        replicas_of(record),
        router_of(record, version=version_of(batched()), ready=1),
    ]
    assert decide(changed, *kept).one(ApplyRouter).version != version_of(batched())


def test_a_router_rolls_with_the_operators_image() -> None:
    service = batched()
    record = service.build()
    router = router_of(record, version=version_of(service), ready=1)
    kept = [a_deployment(record), front(record, routed=True), replicas_of(record), router]
    newer = replace(SETTINGS, router_image="ullage-operator:2")
    found = decided(a_gpu_node(), service, *kept, settings=newer)
    assert found.one(ApplyRouter).image == "ullage-operator:2"


def test_more_routers_need_no_new_pods() -> None:
    one, two = batched(), batched(router=RouterPods(replicas=2))
    record = two.build()
    kept = [
        a_deployment(record),
        front(record, routed=True),
        replicas_of(record),
        router_of(record, version=version_of(one), ready=1),
    ]
    assert decide(two, *kept).one(ApplyRouter).batching.router.replicas == 2


def test_who_asks_for_a_router_no_more_loses_it_after_the_service_left_it() -> None:
    service = a_service()
    record = service.build()
    kept = [
        a_deployment(record, surge=1, unavailable=0),
        replicas_of(record),
        router_of(record, version="x", ready=1),
    ]
    first = decide(service, *kept, front(record, routed=True))
    assert not leads_to_router(first.one(ApplyService))
    assert not first.all(DeleteChild), "requests still come to it"
    then = decide(service, *kept, front(record, routed=False))
    gone = {(one.child.kind, one.child.name, one.child.uid) for one in then.all(DeleteChild)}
    assert gone == {
        ("Deployment", "serve-router", "uid-router"),
        ("Service", "serve-replicas", "uid-service-serve-replicas"),
    }


def test_what_belongs_to_others_is_neither_taken_over_nor_deleted() -> None:
    service, plain = batched(), a_service()
    record = service.build()
    foreign = replace(router_of(record, ready=1), owner_uid="another")
    found = decide(service, foreign)
    assert not found.all(ApplyRouter)
    assert not leads_to_router(services(found)["serve"])
    shown = found.condition(service, "RouterReady")
    assert (shown.status, shown.reason) == ("False", Reason.NAME_CONFLICT)
    assert not decide(plain, front(plain.build(), routed=False), foreign).all(DeleteChild)


def test_a_refused_write_is_told() -> None:
    service = batched()
    refused = RefusedWrite(reason=Reason.CREATE_REFUSED, message="quota")
    found = decide(service)
    snapshot = replace(
        found.snapshot, refused_writes={("Deployment", "default", "serve-router"): refused}
    )
    from ullage.scheduling.cycle.decide import decide as plan_of

    plan = plan_of(snapshot, snapshot.taken_at, WITH_IMAGE)
    shown = plan.statuses[service.build().ref.uid].condition("RouterReady")
    assert shown is not None
    assert (shown.reason, shown.message) == (Reason.CREATE_REFUSED, "quota")


def test_without_an_image_requests_go_to_the_replicas_and_the_status_says_why() -> None:
    found = decide(batched(), image=False)
    assert not found.all(ApplyRouter)
    assert not leads_to_router(services(found)["serve"])
    shown = found.condition("serve", "RouterReady")
    assert (shown.status, shown.reason) == ("False", Reason.NO_ROUTER_IMAGE)


def test_words_of_policies_are_those_of_the_engine() -> None:
    assert {word.value for word in BatchingPolicy} == {word.value for word in BatchPolicy}


def test_a_port_for_grpc_comes_and_goes_with_the_field() -> None:
    service = batched(grpc_port=9000)
    record = service.build()
    version = version_of(service)
    ready = router_of(record, version=version, ready=1)
    rest = [a_deployment(record), replicas_of(record), ready]
    without = replace(front(record, routed=True), ports=(8080,))
    (applied,) = decide(service, *rest, without).all(ApplyRoutedService)
    assert applied.grpc_port == 9000
    there = replace(without, ports=(8080, 9000))
    assert not decide(service, *rest, there).all(ApplyService)
    plain = batched()
    rest[2] = router_of(record, version=version_of(plain), ready=1)
    (taken,) = decide(plain, *rest, there).all(ApplyRoutedService)
    assert taken.grpc_port == 0


def test_a_router_that_ends_says_why() -> None:
    service = batched()
    record = service.build()
    parts = [a_deployment(record), front(record, routed=True), replicas_of(record)]
    router = router_of(record, version=version_of(service))
    why = {(record.ref.namespace, record.ref.name): "exit 2: needs 11256 open files, allowed: 4096"}

    def told(*more: Part) -> Condition:
        found = decided(
            service, a_gpu_node(), *parts, *more, settings=WITH_IMAGE, router_faults=why
        )
        return found.condition(service, "RouterReady")

    assert (told(router).reason, told(router).message) == (
        Reason.ROUTER_FAILS,
        "exit 2: needs 11256 open files, allowed: 4096",
    )
    ready = router_of(record, version=version_of(service), ready=1)
    assert told(ready).status == "True", "one of several that ends is no outage"
