# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A provider takes a machine back: nothing new goes there, and what is there leaves in time."""

from __future__ import annotations

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
    pinned,
    reported,
)
from fakes.deciding import Decided, decided, told
from fakes.pool_watch import a_pool
from ullage.api.interruptions import Interruption, InterruptionKind
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.projection.notice import NOTICE_TAINTS, TAINT_KEY
from ullage.cluster.records.node import GPUNodeRecord, NodeRecord
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.pod_shape import Taint
from ullage.scheduling.model.plan import ApplyDeployment, Emit, EvictPod, SetStatus, TaintNode
from ullage.scheduling.times import DRAIN_LAST_CALL_S, DRAIN_MARGIN_S

TERMINATE = Interruption(kind=InterruptionKind.TERMINATE, deadline_s=NOW + 120, source="EC2")
OPEN_ENDED = Interruption(kind=InterruptionKind.TERMINATE, source="karpenter.sh/disrupted")
REBALANCE = Interruption(kind=InterruptionKind.REBALANCE, source="EC2")
OURS = Taint(key=TAINT_KEY, value="Terminate", effect="NoSchedule")


def holding(
    name: str,
    pods: Sequence[PodRecord] = (),
    notice: Interruption | None = None,
    *,
    percent: int = 100,
    phase: SlicePhase = SlicePhase.ATTACHED,
) -> GPUNodeRecord:
    """A node whose devices these pods hold, one each."""
    memory_mib = 16_384 if percent == 100 else 1000
    held = [
        a_slice(pod, device=gpu(name, at), percent=percent, memory_mib=memory_mib)
        for at, pod in enumerate(pods)
    ]
    seen = [reported(one, phase) for one in held]
    return replace(a_gpu_node(name, desired=held, observed=seen), interruption=notice)


def evicted(found: Decided) -> list[str]:
    return [one.pod.name for one in found.all(EvictPod)]


def running(job: WorkloadBuilder, *nodes: str) -> list[PodRecord]:
    """Its members, one on each node."""
    pods = job.pods(PodStage.RUNNING)
    return [replace(pod, node=node) for pod, node in zip(pods, nodes, strict=True)]


def a_spread_gang(notice: Interruption | None, *parts: Part, job: WorkloadBuilder) -> Decided:
    """A gang with one member on node-1 and one on node-2, which is under notice."""
    one, two = running(job, "node-1", "node-2")
    return decided(
        job,
        one,
        two,
        holding("node-1", [one]),
        holding("node-2", [two], notice),
        a_kube_service(job.build(), "train-workers"),
        *parts,
    )


GANG = a_job().gang(2).exclusive().checkpointed().status(phase="Running", restarts=1)


@pytest.mark.parametrize("notice", [TERMINATE, OPEN_ENDED, REBALANCE])
def test_nothing_new_goes_to_a_node_under_notice(notice: Interruption) -> None:
    job = a_job()
    pod = a_pod()
    placed = decided(job, pod, holding("node-1", notice=notice), holding("node-2"))
    assert placed.places() == {"train-0": [gpu("node-2", 0)]}
    nowhere = decided(job, pod, holding("node-1", notice=notice))
    assert nowhere.places() == {}
    assert notice.source in nowhere.condition(job, "Admitted").message


@pytest.mark.parametrize("key", sorted(NOTICE_TAINTS))
def test_the_taints_of_others_keep_new_work_away_and_can_pass(key: str) -> None:
    taint = Taint(key=key, value="", effect="NoSchedule")
    notice = Interruption(kind=NOTICE_TAINTS[key], source=key)
    node = replace(a_node("node-1", taints=[taint]), interruption=notice)
    job = a_job()
    found = decided(job, a_pod(), holding("node-1"), node)
    assert found.places() == {}
    assert key in found.condition(job, "Admitted").message
    assert found.condition(job, "Admitted").reason == Reason.NODE_LEAVES


def test_a_whole_gang_is_asked_to_checkpoint_and_starts_again_uncounted() -> None:
    found = a_spread_gang(TERMINATE, job=GANG)
    assert evicted(found) == ["train-0", "train-1"]
    status = found.status(GANG)
    assert (status.phase, status.restarts) == ("Restarting", 1)
    assert {one.reason for one in found.all(EvictPod)} == {Reason.SPOT_INTERRUPTED}
    said = found.condition(GANG, "Admitted")
    assert said.reason == Reason.SPOT_INTERRUPTED
    assert "node-2: the machine is taken away at 1970-01-12T13:48:40Z (notice of EC2)" in (
        said.message
    )


def test_a_removal_that_someone_chose_is_not_told_as_the_providers() -> None:
    found = a_spread_gang(OPEN_ENDED, job=GANG)
    assert evicted(found) == ["train-0", "train-1"]
    said = found.condition(GANG, "Admitted").message
    assert "node-2: the node is being removed (taint karpenter.sh/disrupted)" in said
    planned = replace(OPEN_ENDED, kind=InterruptionKind.REBALANCE)
    found = a_spread_gang(planned, job=GANG)
    assert evicted(found) == []
    assert found.status(GANG).phase == "Running"


def test_a_gang_elsewhere_is_left_alone() -> None:
    one, two = running(GANG, "node-1", "node-1")
    found = decided(
        GANG,
        one,
        two,
        holding("node-1", [one, two]),
        holding("node-2", notice=TERMINATE),
        a_kube_service(GANG.build(), "train-workers"),
    )
    assert evicted(found) == []
    assert found.status(GANG).phase == "Running"


def test_a_recommendation_evicts_no_one_and_taints_nothing() -> None:
    found = a_spread_gang(REBALANCE, job=GANG)
    assert evicted(found) == []
    assert found.all(TaintNode) == []
    assert found.status(GANG).phase == "Running"


def test_after_the_notice_the_gang_starts_where_no_notice_is() -> None:
    job = told(
        GANG,
        *running(GANG, "node-1", "node-2"),
        holding("node-1", running(GANG, "node-1", "node-2")[:1]),
        holding("node-2", running(GANG, "node-1", "node-2")[1:], TERMINATE),
        a_kube_service(GANG.build(), "train-workers"),
    )
    assert job.build().status.phase == "Restarting"
    service = a_kube_service(job.build(), "train-workers")
    waiting = told(job, holding("node-1"), holding("node-2", notice=TERMINATE), service)
    pods = waiting.pods()
    found = decided(waiting, *pods, holding("node-1"), holding("node-2", notice=TERMINATE), service)
    assert found.places() == {"train-0": [gpu("node-1", 0)], "train-1": [gpu("node-1", 1)]}


def test_grace_ends_before_the_machine_does() -> None:
    soon = replace(TERMINATE, deadline_s=NOW + 25)
    assert [one.grace_s for one in a_spread_gang(TERMINATE, job=GANG).all(EvictPod)] == [None] * 2
    found = {one.pod.name: one.grace_s for one in a_spread_gang(soon, job=GANG).all(EvictPod)}
    assert found == {"train-0": None, "train-1": 25 - int(DRAIN_MARGIN_S)}
    over = replace(TERMINATE, deadline_s=NOW - 100)
    late = {one.pod.name: one.grace_s for one in a_spread_gang(over, job=GANG).all(EvictPod)}
    assert late == {"train-0": None, "train-1": 1}


def test_a_notice_that_does_not_say_when_leaves_what_its_pool_usually_does() -> None:
    label = {"kubernetes.io/hostname": "node-2"}
    short = a_pool(node_selector=label, notice_s=25.0)
    found = a_spread_gang(OPEN_ENDED, short, job=GANG).all(EvictPod)
    graces = {one.pod.name: one.grace_s for one in found}
    assert graces == {"train-0": None, "train-1": 25 - int(DRAIN_MARGIN_S)}
    silent = a_spread_gang(OPEN_ENDED, a_pool(node_selector=label), job=GANG).all(EvictPod)
    assert [one.grace_s for one in silent] == [None] * 2


def test_a_member_that_fails_on_a_machine_that_goes_is_not_counted() -> None:
    one, two = running(GANG, "node-1", "node-2")
    died = replace(one, stage=PodStage.FAILED, exit_code=1, ready=False)
    found = decided(
        GANG,
        died,
        two,
        holding("node-1", [died]),
        holding("node-2", [two], TERMINATE),
        a_kube_service(GANG.build(), "train-workers"),
    )
    assert found.status(GANG).restarts == 1
    assert found.condition(GANG, "Admitted").reason == Reason.SPOT_INTERRUPTED


def test_a_gang_on_its_way_is_placed_again() -> None:
    job = a_job().exclusive()
    pod = job.pods()[0]
    reserved = holding("node-1", [pod], TERMINATE, phase=SlicePhase.RESERVED)
    found = decided(job, pod, reserved, holding("node-2"))
    assert found.places() == {"train-0": [gpu("node-2", 0)]}
    assert evicted(found) == []


def test_what_would_lose_most_leaves_first() -> None:
    plain = a_job("plain").exclusive().status(phase="Running")
    bound = a_job("bound").exclusive().slowdown(1.5).status(phase="Running")
    saves = a_job("saves").exclusive().checkpointed().status(phase="Running")
    pods = [running(job, "node-1")[0] for job in (plain, bound, saves)]
    held = [a_slice(pod, device=gpu("node-1", at)) for at, pod in enumerate(pods)]
    seen = [reported(one, SlicePhase.ATTACHED) for one in held]
    node = a_gpu_node(devices=3, desired=held, observed=seen)
    found = decided(plain, bound, saves, *pods, replace(node, interruption=TERMINATE))
    assert evicted(found) == ["saves-0", "bound-0", "plain-0"]


# -- the Node ------------------------------------------------------------------------------------


def a_doomed_node(notice: Interruption | None, *taints: Taint) -> Decided:
    return decided(a_node("node-1", taints=taints), holding("node-1", notice=notice))


def test_the_node_is_tainted_while_a_notice_to_terminate_stands() -> None:
    step = a_doomed_node(TERMINATE).one(TaintNode)
    assert (step.node.name, step.node.uid, step.value) == ("node-1", "uid-node-1", "Terminate")
    assert a_doomed_node(TERMINATE, OURS).all(TaintNode) == []
    assert a_doomed_node(None, OURS).one(TaintNode).value == ""
    assert a_doomed_node(REBALANCE, OURS).one(TaintNode).value == ""
    assert a_doomed_node(None).actions == ()


def test_a_taint_stays_while_no_one_knows_what_the_agent_would_say() -> None:
    node = a_node("node-1", taints=[OURS])
    assert decided(node).all(TaintNode) == []
    released: NodeRecord = replace(node, managed=False)
    assert decided(released).one(TaintNode).value == ""


def test_whoever_is_on_the_node_is_told_once() -> None:
    found = a_spread_gang(TERMINATE, job=GANG)
    (news,) = (one for one in found.all(Emit) if one.reason is Reason.EVICTION_NOTICE)
    assert news.target == GANG.build().ref
    assert news.warning
    assert news.text.startswith("node-2, the node of train-1: the machine is taken away at ")
    assert Reason.SPOT_INTERRUPTED in [one.reason for one in found.all(Emit)]
    tainted = a_spread_gang(TERMINATE, a_node("node-2", taints=[OURS]), job=GANG)
    assert Reason.EVICTION_NOTICE not in [one.reason for one in tainted.all(Emit)]


# -- replicas ------------------------------------------------------------------------------------

SERVICE = a_service().fractional(50, 50)


def a_replica(name: str, node: str = "node-1", *, ready: bool = True) -> PodRecord:
    record = SERVICE.build()
    pod = a_pod(f"serve-{name}", owner=record, stage=PodStage.RUNNING, node=node, ready=ready)
    return replace(pod, shape=pinned(pod, node))  # as every pod that we let go


def serving(
    service: WorkloadBuilder,
    pods: Sequence[PodRecord],
    *,
    deployed: int,
    notice: Interruption | None = TERMINATE,
    room: bool = True,
    at: float = NOW,
) -> Decided:
    """Replicas on node-1, which goes, and on node-2, which does not."""
    record = service.build()
    here = [pod for pod in pods if pod.node == "node-1"]
    there = [pod for pod in pods if pod.node == "node-2"]
    parts: list[Part] = [
        service,
        *pods,
        holding("node-1", here, notice, percent=50),
        a_deployment(record, replicas=deployed, surge=1, unavailable=0, ready=len(pods)),
        a_kube_service(record),
    ]
    if room or there:
        parts.append(holding("node-2", there, percent=50))
    return decided(*parts, at=at)


def deployed_to(found: Decided) -> int | None:
    applied = found.all(ApplyDeployment)
    return applied[0].replicas if applied else None


def test_replicas_are_replaced_before_they_go() -> None:
    two = SERVICE.with_(replicas=2)
    asked = serving(two, [a_replica("a"), a_replica("b")], deployed=2)
    assert (evicted(asked), deployed_to(asked)) == ([], 4)
    half = [a_replica("a"), a_replica("b"), a_replica("c", "node-2")]
    found = serving(two, half, deployed=4)
    assert (evicted(found), deployed_to(found)) == (["serve-a"], None)
    whole = [*half, a_replica("d", "node-2")]
    assert evicted(serving(two, whole, deployed=4)) == ["serve-a", "serve-b"]
    after = serving(two, [a_replica("c", "node-2"), a_replica("d", "node-2")], deployed=4)
    assert (evicted(after), deployed_to(after)) == ([], 2)


def test_the_replacement_may_take_the_only_place() -> None:
    large = SERVICE.fractional(60, 60)
    record = large.build()
    goes, asks = a_replica("a"), a_pod("serve-b", owner=record, stage=PodStage.GATED)
    found = decided(
        large,
        goes,
        asks,
        holding("node-1", [goes], TERMINATE, percent=60),
        a_gpu_node("node-2", devices=1),
        a_deployment(record, replicas=2, surge=1, unavailable=0, ready=1),
        a_kube_service(record),
    )
    assert "serve-b" in found.places()
    assert (evicted(found), deployed_to(found)) == ([], None)


def test_without_room_a_replica_serves_until_the_last_call() -> None:
    alone = [a_replica("a")]
    early = serving(SERVICE, alone, deployed=1, room=False)
    assert (evicted(early), deployed_to(early)) == ([], None)
    last_call = TERMINATE.deadline_s - DRAIN_LAST_CALL_S if TERMINATE.deadline_s else 0.0
    assert early.plan.wake_at <= last_call
    late = serving(SERVICE, alone, deployed=1, room=False, at=last_call)
    assert evicted(late) == ["serve-a"]
    assert [one.grace_s for one in late.all(EvictPod)] == [int(DRAIN_LAST_CALL_S - DRAIN_MARGIN_S)]


def test_without_a_known_end_a_replica_waits_for_its_replacement() -> None:
    found = serving(SERVICE, [a_replica("a")], deployed=1, notice=OPEN_ENDED, room=False)
    assert (evicted(found), deployed_to(found)) == ([], None)
    ready = [a_replica("a"), a_replica("b", "node-2")]
    assert evicted(serving(SERVICE, ready, deployed=2, notice=OPEN_ENDED)) == ["serve-a"]


def test_a_replica_that_does_not_serve_goes_at_once() -> None:
    idle = [a_replica("a", ready=False)]
    assert evicted(serving(SERVICE, idle, deployed=1)) == ["serve-a"]


def test_a_recommendation_leaves_replicas_where_they_are() -> None:
    found = serving(SERVICE, [a_replica("a")], deployed=1, notice=REBALANCE)
    assert (evicted(found), deployed_to(found)) == ([], None)


# -- without notice ------------------------------------------------------------------------------


def test_a_node_that_vanishes_without_notice_costs_no_restart() -> None:
    one, _ = running(GANG, "node-1", "node-2")
    found = decided(
        GANG, one, holding("node-1", [one]), a_kube_service(GANG.build(), "train-workers")
    )
    status = found.status(GANG)
    assert (status.phase, status.restarts) == ("Restarting", 1)
    assert found.condition(GANG, "Admitted").reason == Reason.MEMBER_LOST


def test_a_steady_state_under_notice_writes_nothing() -> None:
    job = a_job().exclusive()
    pod = running(job, "node-2")[0]
    parts: list[Part] = [
        pod,
        holding("node-2", [pod]),
        replace(holding("node-1", notice=TERMINATE)),
        a_node("node-1", taints=[OURS]),
    ]
    settled = told(job, *parts)
    found = decided(settled, *parts, at=NOW + 1)
    assert not found.all(SetStatus)
    assert found.actions == ()
