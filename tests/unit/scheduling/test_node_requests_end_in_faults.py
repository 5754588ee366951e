# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Provisioners that buy the wrong thing, too much, nothing, or take it back: what becomes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    EPOCH,
    NOW,
    Part,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_node,
    a_pod,
    a_slice,
    a_snapshot,
    gpu,
)
from fakes.deciding import Decided, decided_on
from fakes.toy_pools import a_pool, aim
from ullage.api.interruptions import Interruption, InterruptionKind
from ullage.api.labels import LABEL_REGISTERED
from ullage.api.reasons import Reason
from ullage.cluster.records.node import GPUNodeRecord, NodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Condition
from ullage.scheduling.inventory.instances import Watch, look
from ullage.scheduling.model.plan import CreatePod, DecideSettings, DeletePod, RegisterNode
from ullage.scheduling.times import NODE_AGENT_S, NODE_COMES_S, NODE_MEMBERS_S, NODE_READY_S

SETTINGS = DecideSettings(epoch=EPOCH, orders=True)
POOL = a_pool("spot-a", most=None)
LATE = NOW - NODE_COMES_S - 120
COUNTED = {LABEL_REGISTERED: "true"}


def job(replicas: int = 1, name: str = "train") -> WorkloadBuilder:
    built = a_job(name).exclusive(2).gang(replicas)
    return built.checkpointed().with_(cost=aim(), work_steps=9000)


def waiting(replicas: int = 1) -> list[Part]:
    built = job(replicas)
    return [built, *built.pods()]


def a_request(number: int = 0, node: str = "", created: float = LATE) -> PodRecord:
    pod = a_pod(f"train-order-{number}", owner=job().build(), rank=-1)
    stage = PodStage.RUNNING if node else PodStage.UNSCHEDULED
    return replace(pod, stage=stage, created=created, gates=(), order="spot-a", node=node)


def bought(name: str = "new", *, created: float = LATE + 60, **fields: object) -> NodeRecord:
    node = a_node(name, labels={"pool": "spot-a"})
    return replace(node, created=created, ready_since=created + 90, **fields)  # type: ignore[arg-type]


def speaks(name: str = "new", *, since: float = 0.0, model: str = "emulated") -> GPUNodeRecord:
    said = Condition(type="LateBinding", status="True", reason="Ready", since=since)
    return replace(a_gpu_node(name, model=model), conditions=(said,))


def world(*parts: Part, pool: PoolRecord = POOL) -> Snapshot:
    return replace(a_snapshot(*parts), pools={pool.name: pool})


def plan(*parts: Part, pool: PoolRecord = POOL) -> Decided:
    return decided_on(world(*parts, pool=pool), at=NOW, settings=SETTINGS)


def taken_back(found: Decided) -> dict[str, Reason]:
    return {one.pod.name: one.reason for one in found.all(DeletePod)}


def requested(found: Decided) -> list[str]:
    return [one.name for one in found.all(CreatePod) if one.order is not None]


def failed_launches(*parts: Part) -> int:
    """Launches that the pool's watch counts, looking twice as it does."""
    snapshot = world(*parts)
    watch, seen = look(Watch(pools=frozenset({POOL.uid})), snapshot, [POOL], NOW)
    _, again = look(watch, snapshot, [POOL], NOW + 5)
    assert again[POOL.uid].failed == 0, "each is counted once"
    return seen[POOL.uid].failed


def launching(*parts: Part) -> int:
    """Instances that are on their way, as the pool's watch counts them."""
    return look(Watch(), world(*parts), [POOL], NOW)[1][POOL.uid].launching


def test_what_is_on_its_way_is_counted_once_and_what_failed_is_not() -> None:
    young, booting = NOW - 30, replace(bought(created=NOW - 20), ready=False, ready_since=NOW - 20)
    waits, second = a_request(created=young), a_request(1, created=young)
    assert launching(*waiting(2), waits, second) == 2
    assert launching(*waiting(2), waits, second, booting) == 2
    assert launching(*waiting(), booting) == 1
    served = bought(created=NOW - 20)
    assert launching(*waiting(), served, a_request(node="new", created=young)) == 1
    assert launching(*waiting(), served) == 0
    assert launching(*waiting(), a_request()) == 0
    assert (
        launching(replace(booting, created=NOW - NODE_READY_S, ready_since=NOW - NODE_READY_S)) == 0
    )


def test_a_machine_of_another_type_is_a_failed_launch_that_says_what_came() -> None:
    node = bought(unschedulable=True)
    parts = [*waiting(), node, speaks(model="tesla-t4"), a_request(node="new")]
    (gone,) = plan(*parts).all(DeletePod)
    assert gone.reason is Reason.LAUNCH_FAILED
    assert "it has 2 x tesla-t4, spot-a is of 2 x emulated" in gone.text
    assert failed_launches(*parts) == 1


def test_a_pool_that_gives_nothing_is_left_for_the_next() -> None:
    away = replace(POOL, status=replace(POOL.status, available=False))
    dear = a_pool("dear", 9.0, spot=False, most=None)
    snapshot = replace(world(*waiting()), pools={away.name: away, dear.name: dear})
    found = decided_on(snapshot, at=NOW, settings=SETTINGS)
    (order,) = [one.order for one in found.all(CreatePod) if one.order is not None]
    assert order.pool == "dear"


@pytest.mark.parametrize("copies", [2, 3])
def test_machines_that_no_one_asked_for_are_used_and_nothing_more_is_bought(copies: int) -> None:
    extra = [bought(f"new-{at}", created=NOW - 60) for at in range(copies)]
    second = a_job("second").exclusive(2).checkpointed().with_(cost=aim(), work_steps=9000)
    request = a_request(node="new-0", created=NOW - 120)
    found = plan(
        *waiting(), request, *extra, *map(speaks, ("new-0", "new-1")), second, *second.pods()
    )
    assert requested(found) == []
    assert {node for node, _ in found.slices()} == {"new-0", "new-1"}


def test_two_provisioners_for_one_request_buy_no_third() -> None:
    pair = [bought("karpenters", created=NOW - 60), bought("autoscalers", created=NOW - 60)]
    found = plan(*waiting(), *pair, a_request(node="karpenters", created=NOW - 120))
    assert (requested(found), taken_back(found)) == ([], {})


@pytest.mark.parametrize(
    ("fields", "reason", "failed"),
    [
        ({"deleting": True}, Reason.LAUNCH_FAILED, 1),
        ({"source": "ToBeDeletedByClusterAutoscaler"}, Reason.LAUNCH_FAILED, 1),
        ({"source": "aws-node-termination-handler/spot-itn"}, Reason.POOL_RELEASED, 0),
    ],
    ids=["deleted", "chosen", "spot"],
)
def test_a_node_that_goes_while_its_agent_starts_frees_its_request_at_once(
    fields: dict[str, object], reason: Reason, failed: int
) -> None:
    source = fields.pop("source", "")
    if source:
        fields["interruption"] = Interruption(kind=InterruptionKind.TERMINATE, source=str(source))
    node = bought(created=NOW - 60, **fields)
    parts = [*waiting(), node, a_request(node="new", created=NOW - 120)]
    assert taken_back(plan(*parts)) == {"train-order-0": reason}
    assert failed_launches(*parts) == failed


def test_a_request_whose_node_pool_was_deleted_ends_and_the_pool_is_left() -> None:
    parts = [*waiting(2), a_request(0), a_request(1)]
    assert set(taken_back(plan(*parts)).values()) == {Reason.LAUNCH_FAILED}
    assert failed_launches(*parts) == 2


def test_a_node_that_boots_long_is_waited_for_and_counted_once_when_it_never_is_ready() -> None:
    def parts(age_s: float) -> list[Part]:
        node = bought(created=NOW - age_s, ready=False)
        return [*waiting(), replace(node, ready_since=NOW - age_s), a_request(created=LATE)]

    boots = parts(NODE_COMES_S)
    assert (taken_back(plan(*boots)), failed_launches(*boots)) == ({}, 0)
    never = parts(NODE_READY_S + 60)
    never[-1] = a_request(created=NOW - NODE_READY_S - 120)
    assert failed_launches(*never) == 1
    assert taken_back(plan(*never)) == {"train-order-0": Reason.LAUNCH_FAILED}


@pytest.mark.parametrize(
    ("spoke", "failed"), [(NOW - 5, 0), (NOW - NODE_MEMBERS_S - 120, 1)], ids=["just", "long ago"]
)
def test_an_agent_that_speaks_after_a_long_pull_has_time_to_get_its_members(
    spoke: float, failed: int
) -> None:
    old = NOW - NODE_AGENT_S / 2
    node = bought(created=old + 60)
    parts = [*waiting(), node, speaks(since=spoke), a_request(node="new", created=old)]
    assert failed_launches(*parts) == failed
    assert len(taken_back(plan(*parts))) == failed


def test_a_gang_that_lacks_one_node_blames_no_other() -> None:
    came = bought()
    parts = [*waiting(2), came, speaks(), a_request(0, "new"), a_request(1)]
    assert taken_back(plan(*parts)) == {
        "train-order-0": Reason.POOL_RELEASED,
        "train-order-1": Reason.LAUNCH_FAILED,
    }
    assert failed_launches(*parts) == 1


def test_a_request_on_a_node_whose_label_was_removed_moves_on_at_once() -> None:
    other = a_job("other").exclusive(2)
    (pod,) = other.pods(PodStage.RUNNING, node="old")
    held = [a_slice(pod, device=gpu("old", at), percent=100, index=at) for at in range(2)]
    old = bought("old", created=NOW - 9000)
    request = a_request(node="old", created=NOW - 30)
    parts = [*waiting(), other, pod, old, a_gpu_node("old", desired=held), request]
    found = plan(*parts)
    assert taken_back(found) == {"train-order-0": Reason.POOL_RELEASED}
    assert found.one(RegisterNode).node.name == "old"
    assert failed_launches(*parts) == 0
    counted = replace(old, labels=old.labels | COUNTED)
    again = plan(*waiting(), other, pod, counted, a_gpu_node("old", desired=held))
    assert requested(again) == ["train-order-0"]


def test_a_label_forged_on_a_new_node_keeps_no_member_from_it() -> None:
    forged = bought(created=NOW - 60)
    forged = replace(forged, labels=forged.labels | COUNTED)
    found = plan(*waiting(), forged, speaks(), a_request(created=NOW - 120))
    assert {node for node, _ in found.slices()} == {"new"}
    assert (requested(found), taken_back(found)) == ([], {})


def test_another_controllers_gate_on_the_members_blames_no_pool() -> None:
    held = job()
    pods = [replace(pod, gates=(*pod.gates, "kueue.x-k8s.io/admission")) for pod in held.pods()]
    long_ago = NOW - NODE_READY_S - NODE_AGENT_S
    node = replace(bought(created=long_ago + 60), labels={"pool": "spot-a", **COUNTED})
    parts = [
        held,
        *pods,
        node,
        speaks(since=long_ago + 90),
        a_request(node="new", created=long_ago),
    ]
    assert failed_launches(*parts) == 0
    assert Reason.LAUNCH_FAILED not in taken_back(plan(*parts)).values()


def test_another_controllers_gate_on_the_request_blames_no_pool() -> None:
    long_ago = NOW - NODE_READY_S - NODE_AGENT_S
    request = replace(a_request(created=long_ago), gates=("kueue.x-k8s.io/admission",))
    parts = [*waiting(), request]
    assert failed_launches(*parts) == 0
    assert taken_back(plan(*parts)).get("train-order-0") is not Reason.LAUNCH_FAILED
