# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A chosen pool without room gets orders: bounded, once, taken back, and counted when they fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import builders
from builders import (
    EPOCH,
    NOW,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_node,
    a_pod,
    a_policy,
    a_slice,
    a_snapshot,
    gpu,
)
from builders_children import member_body
from fakes.cluster_autoscaler_rules import ClusterAutoscaler
from fakes.deciding import Decided, decided_on
from fakes.karpenter_rules import Karpenter
from fakes.node_affinity import REQUIRED, expressions, required_terms
from fakes.provisioner import unschedulable
from fakes.toy_pools import a_pool, aim
from ullage.api.labels import (
    ANNOTATION_KARPENTER_KEEP,
    ANNOTATION_SAFE_TO_EVICT,
    GATE,
    LABEL_ORDER,
    LABEL_REGISTERED,
    LABEL_TEMPLATE_NODE,
)
from ullage.api.reasons import Reason
from ullage.api.schedulingpolicy import Quota, Tenant
from ullage.cluster.records.node import NodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.pod_shape import Resources
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.pool import PoolRecord
from ullage.kube.manifests.node_requests import order_body
from ullage.scheduling.inventory.instances import Watch, look
from ullage.scheduling.model.plan import (
    CreatePod,
    DecideSettings,
    DeletePod,
    Emit,
    Order,
    RegisterNode,
)
from ullage.scheduling.times import NODE_AGENT_S, NODE_COMES_S

SETTINGS = DecideSettings(epoch=EPOCH, orders=True)
POOL = a_pool("spot-a", most=None)


def job(replicas: int = 1) -> WorkloadBuilder:
    return a_job().exclusive(2).gang(replicas).checkpointed().with_(cost=aim(), work_steps=9000)


def plan(
    *parts: object,
    pool: PoolRecord = POOL,
    settings: DecideSettings = SETTINGS,
    at: float = NOW,
) -> Decided:
    snapshot = replace(a_snapshot(*parts, now=at), pools={pool.name: pool})  # type: ignore[arg-type]
    return decided_on(snapshot, at=at, settings=settings)


def waiting(replicas: int = 1) -> tuple[object, ...]:
    built = job(replicas)
    return (built, *built.pods())


def an_order(number: int = 0, *, pool: str = "spot-a", **fields: object) -> PodRecord:
    pod = a_pod(f"train-order-{number}", owner=job().build(), rank=-1)
    said: dict[str, object] = {
        "stage": PodStage.UNSCHEDULED,
        "created": NOW - 60,
        "gates": (),
        "order": pool,
    }
    return replace(pod, **(said | fields))  # type: ignore[arg-type]


def orders(found: Decided) -> list[CreatePod]:
    return [one for one in found.all(CreatePod) if one.order is not None]


def test_every_node_that_is_missing_is_ordered_once() -> None:
    found = plan(*waiting(3))
    assert [one.name for one in orders(found)] == [f"train-order-{at}" for at in range(3)]
    assert {one.order.pool for one in orders(found) if one.order} == {"spot-a"}
    again = plan(*waiting(3), *(an_order(at) for at in range(3)))
    assert orders(again) == []
    assert again.all(DeletePod) == []


def test_a_job_that_another_gate_holds_back_orders_nothing() -> None:
    built = job(2)
    first, second = built.pods()
    found = plan(built, replace(first, gates=("kueue.x-k8s.io/admission", GATE)), second)
    assert orders(found) == []
    assert found.condition("train", "Admitted").reason == Reason.WAITING_FOR_GATE


def test_what_has_room_is_not_ordered() -> None:
    node = a_node("node-1", labels={"pool": "spot-a"})
    found = plan(*waiting(), node, a_gpu_node())
    assert orders(found) == []
    assert found.slices() != []


def full(**labels: str) -> NodeRecord:
    """A node of the pool without room, older than any order."""
    return replace(
        a_node("node-1", labels={"pool": "spot-a", **labels}, unschedulable=True), created=NOW - 900
    )


def test_nodes_that_are_there_are_counted_before_the_first_order() -> None:
    found = plan(*waiting(), full(), a_gpu_node())
    assert orders(found) == []
    assert found.one(RegisterNode).node.name == "node-1"
    counted = plan(*waiting(), full(**{LABEL_REGISTERED: "true"}), a_gpu_node())
    assert len(orders(counted)) == 1
    assert counted.all(RegisterNode) == []


def test_nodes_of_the_pool_without_an_agent_are_counted_as_well() -> None:
    unmanaged = replace(full(), managed=False)
    found = plan(*waiting(), unmanaged)
    assert (orders(found), found.one(RegisterNode).node.name) == ([], "node-1")


def test_a_node_that_comes_for_an_order_is_counted_when_the_order_is_on_it() -> None:
    young = replace(full(), created=NOW - 30)
    assert plan(*waiting(), young, a_gpu_node(), an_order()).all(RegisterNode) == []
    bound = an_order(node="node-1", stage=PodStage.RUNNING)
    found = plan(*waiting(), young, a_gpu_node(), bound)
    assert found.one(RegisterNode).node.name == "node-1"


def test_an_order_asks_for_what_its_members_ask_for() -> None:
    shape = replace(job().build().shape, requests=Resources(cpu_milli=1500, memory_bytes=2**30))
    two_each = replace(POOL, gpus_per_instance=4)
    built = job(3).with_(shape=shape)
    first, second = orders(plan(built, *built.pods(), pool=two_each))
    assert first.order == Order(
        pool="spot-a",
        node_selector=(("pool", "spot-a"),),
        cpu_milli=3000,
        memory_bytes=2**31,
    )
    assert second.order == first.order


def test_an_order_goes_when_members_hold_slices_on_its_node() -> None:
    built = job()
    (pod,) = built.pods()
    wanted = a_slice(pod, device=gpu("node-1", 0), percent=100)
    node = full(**{LABEL_REGISTERED: "true"})
    bound = an_order(node="node-1", stage=PodStage.RUNNING)
    held = plan(built, pod, node, a_gpu_node(desired=[wanted]), bound)
    assert [one.reason for one in held.all(DeletePod)] == [Reason.PLACED]
    assert plan(built, pod, node, a_gpu_node(), bound).all(DeletePod) == []


def test_a_node_whose_agent_still_starts_is_no_failed_launch() -> None:
    node = full(**{LABEL_REGISTERED: "true"})
    silent = replace(a_gpu_node(), heartbeat=0.0, devices=())
    slow = an_order(created=NOW - NODE_COMES_S - 120, node="node-1", stage=PodStage.RUNNING)
    snapshot = replace(a_snapshot(*waiting(), node, silent, slow), pools={"spot-a": POOL})
    assert plan(*waiting(), node, silent, slow).all(DeletePod) == []
    assert look(Watch(), snapshot, [POOL], NOW)[1][POOL.uid].failed == 0
    late = replace(slow, created=NOW - NODE_AGENT_S - 120)
    (gone,) = plan(*waiting(), node, silent, late).all(DeletePod)
    assert gone.reason is Reason.LAUNCH_FAILED


def test_a_node_that_does_not_take_the_members_is_a_failed_launch() -> None:
    node = full(**{LABEL_REGISTERED: "true"})
    late = an_order(created=NOW - NODE_COMES_S - 120, node="node-1", stage=PodStage.RUNNING)
    (gone,) = plan(*waiting(), node, a_gpu_node(), late).all(DeletePod)
    assert gone.reason is Reason.LAUNCH_FAILED
    assert "node-1 came and does not take the members" in gone.text


@pytest.mark.parametrize(("most", "expected"), [(0, 0), (2, 2), (None, 3)])
def test_a_pool_never_gets_more_than_it_may_have(most: int | None, expected: int) -> None:
    found = plan(*waiting(3), pool=a_pool("spot-a", most=most))
    assert len(orders(found)) <= expected
    if most == 2:
        assert orders(found) == [], "half a gang is worth nothing, so nothing is bought for it"
    if most is None:
        assert len(orders(found)) == expected


def test_without_an_image_for_orders_none_is_given() -> None:
    found = plan(*waiting(), settings=DecideSettings(epoch=EPOCH))
    assert orders(found) == []
    assert found.decision("train").reason is Reason.NO_CAPACITY


def test_a_pool_that_cannot_launch_gets_no_order() -> None:
    away = replace(POOL, status=replace(POOL.status, available=False))
    assert orders(plan(*waiting(), pool=away)) == []


def test_a_job_in_a_domain_that_is_not_granted_orders_nothing() -> None:
    built = job().trusting("vision")
    for parts in ((built, *built.pods()), (built,)):
        found = plan(*parts)
        assert not orders(found)
        assert found.decision(built).reason is Reason.TRUST_DOMAIN_NOT_GRANTED


def test_an_order_is_no_member() -> None:
    built = job()
    found = plan(built, *built.pods(), an_order())
    assert [one.pod.name for one in found.all(DeletePod)] == []
    assert found.status("train").phase == "Pending"


def test_an_order_goes_when_the_members_run_or_the_plan_changes() -> None:
    running = job().status(phase="Running", observed_generation=1)
    (gone,) = plan(running, an_order()).all(DeletePod)
    assert (gone.pod.name, gone.reason) == ("train-order-0", Reason.PLACED)
    (gone,) = plan(*waiting(), an_order(pool="another")).all(DeletePod)
    assert gone.reason is Reason.POOL_RELEASED


def test_an_order_that_no_one_serves_fails_and_is_told() -> None:
    late = an_order(created=NOW - NODE_COMES_S - 61, scheduling_message="0/3 nodes are available")
    found = plan(*waiting(), late)
    (gone,) = found.all(DeletePod)
    assert gone.reason is Reason.LAUNCH_FAILED
    assert "no usable node of spot-a within 10 min: 0/3 nodes are available" in gone.text
    assert Reason.LAUNCH_FAILED in [one.reason for one in found.all(Emit)]


def test_a_failed_order_counts_as_one_failed_launch_of_its_pool() -> None:
    late = an_order(created=NOW - NODE_COMES_S - 1)
    snapshot = replace(a_snapshot(*waiting(), late), pools={"spot-a": POOL})  # type: ignore[arg-type]
    watch, seen = look(Watch(), snapshot, [POOL], NOW)
    assert seen[POOL.uid].failed == 1
    watch, seen = look(watch, snapshot, [POOL], NOW + 5)
    assert seen[POOL.uid].failed == 0
    gone = replace(snapshot, pods={})
    watch, seen = look(watch, gone, [POOL], NOW + 10)
    assert (seen[POOL.uid].failed, seen[POOL.uid].lost) == (0, 0)


def test_members_of_jobs_that_choose_pools_keep_their_nodes() -> None:
    (member,) = [one for one in plan(job()).all(CreatePod) if one.order is None]
    assert member.hold
    ref = job().build().ref
    template = {"spec": {"containers": [{"name": "main"}]}}
    plain = member_body(template, owner=ref, name="train-0")["metadata"]["annotations"]
    held = member_body(template, owner=ref, name="train-0", hold=True)["metadata"]["annotations"]
    assert held == plain | {ANNOTATION_KARPENTER_KEEP: "true", ANNOTATION_SAFE_TO_EVICT: "false"}


def body_for(selector: dict[str, str], template: dict[str, object]) -> dict[str, Any]:
    order = Order(
        pool="spot-a",
        node_selector=tuple(sorted(selector.items())),
        cpu_milli=500,
        memory_bytes=1024,
    )
    create = CreatePod(
        owner=job().build().ref,
        name="train-order-0",
        rank=-1,
        template_hash="x",
        order=order,
        epoch=1,
        reason=Reason.POOL_ORDERED,
        text="",
    )
    return order_body(create, order, template, "image:1")


def required(body: dict[str, Any]) -> list[list[tuple[str, str]]]:
    """Keys and operators of the terms that a pod requires one of."""
    return [
        [(one["key"], one["operator"]) for one in expressions(term)]
        for term in required_terms(body)
    ]


def test_the_body_of_an_order_asks_for_a_new_node_of_the_pool_alone() -> None:
    template: dict[str, object] = {
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
                        ]
                    }
                }
            },
            "containers": [{"name": "main", "resources": {"limits": {"memory": "64Gi"}}}],
        }
    }
    body = body_for({"pool": "spot-a"}, template)
    metadata, spec = body["metadata"], body["spec"]
    assert metadata["labels"][LABEL_ORDER] == "spot-a"
    assert metadata["ownerReferences"][0]["name"] == "train"
    assert spec["nodeSelector"] == {"disk": "ssd", "pool": "spot-a"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert required(body) == [
        [("a", "Exists"), (LABEL_REGISTERED, "DoesNotExist")],
        [("a", "Exists"), (LABEL_TEMPLATE_NODE, "Exists")],
    ]
    for rules in (Karpenter(), ClusterAutoscaler()):
        assert rules.refusal(unschedulable(body)) == ""
    assert "podAntiAffinity" in spec["affinity"]
    assert "schedulingGates" not in spec
    (container,) = spec["containers"]
    assert container["resources"] == {"requests": {"cpu": "500m", "memory": "1024"}}
    assert GATE not in str(body)


def test_karpenter_is_asked_for_nothing_that_only_another_autoscaler_knows() -> None:
    body = body_for({"karpenter.sh/nodepool": "a100-spot"}, {"spec": {}})
    assert required(body) == [[(LABEL_REGISTERED, "DoesNotExist")]]


def limited(nominal: int) -> PolicyRecord:
    quota = Quota(accelerator=builders.MODEL, nominal_quota=nominal)
    return a_policy(tenants=(Tenant(name="t", namespaces=frozenset({"default"}), quota=(quota,)),))


@pytest.mark.parametrize(("nominal", "orders"), [(0, 0), (199, 0), (200, 1), (1000, 1)])
def test_no_node_is_ordered_beyond_the_quota(nominal: int, orders: int) -> None:
    found = plan(*waiting(), limited(nominal))
    assert len(found.all(CreatePod)) == orders


def test_two_jobs_order_no_more_than_their_tenants_quota() -> None:
    one, two = job(), job().with_(ref=a_job("other").build().ref)
    found = plan(one, *one.pods(), two, *two.pods(), limited(300))
    assert len(found.all(CreatePod)) == 1
    assert len(plan(one, *one.pods(), two, *two.pods(), limited(400)).all(CreatePod)) == 2


def test_a_gang_orders_only_if_its_quota_takes_all_of_it() -> None:
    assert not plan(*waiting(3), limited(500)).all(CreatePod)
    assert len(plan(*waiting(3), limited(600)).all(CreatePod)) == 3
