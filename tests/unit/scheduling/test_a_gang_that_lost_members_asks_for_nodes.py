# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An elastic gang that runs on after a loss gets nodes for what it lost, once it may grow again."""

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
    a_kube_service,
    a_node,
    a_pod,
    a_slice,
    a_snapshot,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided_on
from fakes.toy_pools import a_pool, aim
from ullage.api.labels import LABEL_REGISTERED
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.api.trainingjob import TierTerms
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.status import Offer, PoolShare, SizeRecord, SpendDecision, SpendRecord
from ullage.scheduling.model.plan import CreatePod, DecideSettings, DeletePod
from ullage.scheduling.times import GANG_HOLD_IN_PLACE_S, GANG_HOLD_S, NODE_AGENT_S

SETTINGS = DecideSettings(epoch=EPOCH, orders=True)
LONG_AGO = NOW - 3 * GANG_HOLD_S
MOST = 4
LEFT = 2


def a_gang(
    reason: Reason = Reason.SHRUNK,
    since: float = LONG_AGO,
    *,
    in_place: bool = True,
    budget: float | None = None,
) -> WorkloadBuilder:
    """Two of four members are left and run."""
    return (
        a_job()
        .exclusive(2)
        .elastic(1, MOST, in_place=in_place)
        .gang(LEFT)
        .with_(cost=aim(budget_per_hour=budget), work_steps=10**9)
        .status(
            phase="Running",
            replicas=LEFT,
            observed_generation=1,
            start_time=LONG_AGO,
            size=SizeRecord(since=since, reason=reason, message="two machines were lost"),
        )
    )


def running(gang: WorkloadBuilder) -> list[Part]:
    """Its members, each on a node of the pool that it fills."""
    job, parts = gang.build(), list[Part]()
    for rank in range(LEFT):
        node = f"node-{rank + 1}"
        pod = a_pod(f"train-{rank}", owner=job, stage=PodStage.RUNNING, node=node, rank=rank)
        slices = [a_slice(pod, device=gpu(node, at), percent=100, index=at) for at in range(2)]
        seen = [reported(one, SlicePhase.ATTACHED) for one in slices]
        parts += [pod, a_node(node, labels={"pool": "spot-a", LABEL_REGISTERED: "true"})]
        parts.append(a_gpu_node(node, devices=2, desired=slices, observed=seen))
    return [gang, *parts]


def plan(*parts: object, pool: PoolRecord | None = None) -> Decided:
    pool = pool or a_pool("spot-a", most=None)
    snapshot = replace(a_snapshot(*parts), pools={pool.name: pool})  # type: ignore[arg-type]
    return decided_on(snapshot, at=NOW, settings=SETTINGS)


def orders(found: Decided) -> list[str]:
    return [one.name for one in found.all(CreatePod) if one.order is not None]


def an_order(number: int, gang: WorkloadBuilder) -> PodRecord:
    pod = a_pod(f"train-order-{number}", owner=gang.build(), rank=-1)
    return replace(pod, stage=PodStage.UNSCHEDULED, created=NOW - 60, gates=(), order="spot-a")


@pytest.mark.parametrize("in_place", [True, False])
def test_what_was_lost_is_requested_once(in_place: bool) -> None:
    gang = a_gang(in_place=in_place)
    assert orders(plan(*running(gang))) == ["train-order-0", "train-order-1"]
    out = [an_order(0, gang), an_order(1, gang)]
    again = plan(*running(gang), *out)
    assert (orders(again), again.all(DeletePod)) == ([], [])


def test_nothing_is_requested_soon_after_a_change() -> None:
    assert orders(plan(*running(a_gang(since=NOW - GANG_HOLD_IN_PLACE_S + 1)))) == []


def test_no_more_is_requested_than_the_budget_pays_for() -> None:
    assert orders(plan(*running(a_gang(budget=3.0)))) == ["train-order-0"]
    assert orders(plan(*running(a_gang(budget=2.0)))) == []


def test_no_more_is_requested_than_the_pool_may_have() -> None:
    assert orders(plan(*running(a_gang()), pool=a_pool("spot-a", most=3))) == ["train-order-0"]


def test_requests_go_when_the_gang_is_whole_again() -> None:
    gang = a_gang(Reason.GROWN).elastic(1, LEFT, in_place=True)
    (gone,) = plan(*running(gang), an_order(0, gang)).all(DeletePod)
    assert gone.reason is Reason.PLACED


@pytest.mark.parametrize(("age_s", "keeps"), [(60.0, True), (2 * NODE_AGENT_S, False)])
def test_bought_nodes_whose_agents_still_start_count_as_room(age_s: float, keeps: bool) -> None:
    gang = a_job("train").gang(3).exclusive(2).with_(cost=aim(), work_steps=10**9)
    new = [
        replace(a_node(f"new-{n}", labels={"pool": "spot-a"}), created=NOW - age_s)
        for n in range(3)
    ]
    pool = a_pool("spot-a", most=4)
    snapshot = replace(a_snapshot(gang, *new), pools={pool.name: pool})
    chosen = decided_on(snapshot, at=NOW, settings=SETTINGS)
    spend = chosen.status(gang).spend
    assert spend is not None
    assert spend.decision is not None
    assert bool(spend.decision.chosen.pools) is keeps


@pytest.mark.parametrize(("left", "pool"), [((1, 2), "steady"), ((0, 1), "spot-a")])
def test_a_job_in_tiers_requests_a_machine_that_stays_for_a_reliable_member_first(
    left: tuple[int, ...], pool: str
) -> None:
    terms = TierTerms(reliable=1, state_bytes=1 << 20)
    size = SizeRecord(since=LONG_AGO, reason=Reason.SHRUNK, message="a machine was lost")
    chosen = Offer(pools=(PoolShare(pool="spot-a", replicas=3),), per_hour="3")
    decision = SpendDecision(
        time=NOW,
        epoch=EPOCH,
        inputs_hash="",
        mode="Spot",
        reason=Reason.POOL_ACQUIRED,
        message="",
        chosen=chosen,
    )
    gang = (
        a_job()
        .exclusive(2)
        .elastic(1, 3, in_place=True, tiers=terms)
        .gang(len(left))
        .with_(cost=aim(), work_steps=10**9)
        .status(
            phase="Running",
            replicas=len(left),
            observed_generation=1,
            start_time=LONG_AGO,
            size=size,
            spend=SpendRecord(decision=decision, next_decision=NOW + 3600),
        )
    )
    lead = a_pod("train-lead", owner=gang.build(), rank=-1, stage=PodStage.RUNNING, node="node-9")
    lead = replace(lead, gates=(), lead=True, address="10.0.0.9")
    parts: list[Part] = [gang, lead, a_kube_service(gang.build(), "train-lead")]
    for rank in left:
        node, name = f"node-{rank}", "spot-a" if rank else "steady"
        pod = a_pod(
            f"train-{rank}", owner=gang.build(), stage=PodStage.RUNNING, node=node, rank=rank
        )
        slices = [a_slice(pod, device=gpu(node, at), percent=100, index=at) for at in range(2)]
        seen = [reported(one, SlicePhase.ATTACHED) for one in slices]
        parts += [pod, a_node(node, labels={"pool": name, LABEL_REGISTERED: "true"})]
        parts.append(a_gpu_node(node, devices=2, desired=slices, observed=seen))
    pools = [a_pool("spot-a", most=None), a_pool("steady", 8.0, spot=False, most=None)]
    snapshot = replace(a_snapshot(*parts), pools={one.name: one for one in pools})
    found = decided_on(snapshot, at=NOW, settings=SETTINGS)
    asked = [one.order.pool for one in found.all(CreatePod) if one.order is not None]
    assert asked == [pool]
