# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where spot is chosen for a job in tiers, its reliable members run on machines that stay."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from builders import (
    EPOCH,
    NOW,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_node,
    a_pod,
    a_slice,
    a_snapshot,
    gpu,
)
from fakes.deciding import decided_on
from fakes.toy_pools import PoolPlay, a_pool, aim
from ullage.api.trainingjob import TierTerms
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.capacity.separate_pools import apart_pools, bound, cheapest
from ullage.scheduling.inventory.reliable_machines import held_to
from ullage.scheduling.model.plan import CreatePod, DecideSettings, DeletePod
from ullage.scheduling.model.view import Held, Member

POOLS = (
    a_pool("steady", 8.0, spot=False),
    a_pool("steady-b", 6.0, spot=False),
    a_pool("spot-a", 1.0),
    a_pool("spot-b", 2.0),
)


def job(reliable: int = 1, least: int = 2, most: int = 4, **cost: object) -> WorkloadBuilder:
    terms = TierTerms(reliable=reliable, state_bytes=1 << 20)
    built = a_job().exclusive().elastic(least, most, in_place=True, tiers=terms)
    return built.with_(cost=aim(**cost), checkpoint=True)


def play(**nodes: int) -> PoolPlay:
    """So many nodes of each pool, with two devices each."""
    found = PoolPlay(pools={one.name: one for one in POOLS})
    for name, count in nodes.items():
        found.give(name.replace("_", "-"), count)
    return found


def test_a_choice_is_about_all_but_reliable_members_on_machines_that_stay() -> None:
    tiers = job(reliable=2).build()
    places = ("steady", "spot-a", "steady", "spot-a", "")
    members = []
    for rank, pool in enumerate(places):
        pod = a_pod(f"train-{rank}", owner=tiers, rank=rank)
        wanted = a_slice(pod, device=gpu(f"node-of-{pool}"), percent=100)
        held = Held(node=f"node-of-{pool}", slice=wanted, seen=None, since=NOW)
        members.append(Member(pod=pod, held=(held,) if pool else ()))
    market: Any = SimpleNamespace(
        view=SimpleNamespace(snapshot=SimpleNamespace(pools={one.name: one for one in POOLS})),
        pool_of={f"node-of-{pool}": pool for pool in places if pool},
    )

    def ranks(*chosen: str, of: WorkloadRecord = tiers) -> list[int]:
        return [one.pod.rank for one in bound(of, members, chosen, market)]

    assert ranks("spot-b") == [1, 2, 3, 4]  # the first is reliable and stays
    assert ranks("spot-b", "steady-b") == [0, 1, 2, 3, 4]  # all go where the others go
    assert ranks() == [0, 1, 2, 3, 4]
    assert ranks("spot-b", of=a_job().exclusive().gang(5).build()) == [0, 1, 2, 3, 4]


def test_spot_is_chosen_and_reliable_members_are_on_machines_that_stay() -> None:
    found = play(steady=1, spot_a=2)
    found.add(job())
    found.run(120)
    assert found.chosen() == ("spot-a",)
    assert found.here() == {0: "steady", 1: "spot-a", 2: "spot-a", 3: "spot-a"}


def test_they_are_not_moved_for_it() -> None:
    found = play(steady=1, spot_a=2)
    found.add(job())
    found.run(120)
    uids = {one.rank: one.uid for one in found.toy.members(found.job().ref.uid)}
    found.counts.clear()
    found.run(7200)
    assert found.counts["EvictPod"] == 0
    assert found.counts["DeletePod"] == 0
    assert {one.rank: one.uid for one in found.toy.members(found.job().ref.uid)} == uids


@pytest.mark.slow
def test_another_choice_of_spot_leaves_them_alone() -> None:
    found = play(steady=1, spot_a=2, spot_b=2)
    found.add(job(least=1))
    found.run(3600)
    reliable = next(one.uid for one in found.toy.members(found.job().ref.uid) if one.rank == 0)
    found.price("spot-a", 7.0)
    found.run(2 * 86_400, step_s=900)
    assert found.chosen() == ("spot-b",)
    assert {rank: pool for rank, pool in found.here().items() if rank} == {
        1: "spot-b",
        2: "spot-b",
        3: "spot-b",
    }
    assert reliable in found.toy.pods
    assert found.here()[0] == "steady"


def test_they_wait_for_such_a_machine_not_for_spot() -> None:
    found = play(spot_a=3)
    found.add(job())
    found.run(300)
    assert found.here() == {}
    decision = found.job().status.decision
    assert decision is not None
    assert "machines that are not taken away" in decision.message
    found.give("steady")
    found.run(300)
    assert found.here()[0] == "steady"
    assert set(found.here().values()) == {"steady", "spot-a"}


def test_where_the_choice_stays_all_go_there() -> None:
    found = play(steady=1, steady_b=2)
    found.add(job(allow_spot=False))
    found.run(120)
    assert found.chosen() == ("steady-b",)
    assert set(found.here().values()) == {"steady-b"}


def ordered(*pods: object, nodes: tuple[object, ...] = ()) -> Counter[str]:
    """Pools of which nodes are ordered, for a job whose members wait."""
    built = job()
    snapshot = a_snapshot(built, *pods, *nodes)  # type: ignore[arg-type]
    growing = {one.name: replace(one, most=None) for one in POOLS}
    settings = DecideSettings(epoch=EPOCH, orders=True)
    found = decided_on(replace(snapshot, pools=growing), settings=settings)
    return Counter(one.order.pool for one in found.all(CreatePod) if one.order is not None)


def members() -> tuple[PodRecord, ...]:
    """Two that wait; the first is held to machines that stay, as its pod says."""
    first, second = job().status(replicas=2).pods()[:2]
    on = ((("pool", "steady"),), (("pool", "steady-b"),))
    return replace(first, shape=held_to(first.shape, on)), second


def test_machines_are_ordered_first_for_them_then_for_the_others() -> None:
    assert ordered(*members()) == {"steady-b": 1}
    steady = (a_node("node-1", labels={"pool": "steady"}), a_gpu_node("node-1", devices=1))
    assert ordered(*members(), nodes=steady) == {"spot-a": 1}


def test_their_order_stands_until_its_machine_comes() -> None:
    order = a_pod("train-order-0", owner=job().build(), rank=-1)
    order = replace(order, stage=PodStage.UNSCHEDULED, created=NOW - 60, gates=(), order="steady-b")
    built = job()
    growing = {one.name: replace(one, most=None) for one in POOLS}
    snapshot = replace(a_snapshot(built, *members(), order), pools=growing)
    found = decided_on(snapshot, settings=DecideSettings(epoch=EPOCH, orders=True))
    assert found.all(DeletePod) == []
    assert [one for one in found.all(CreatePod) if one.order is not None] == []


def test_work_in_no_tiers_is_bound_by_the_choice_as_before() -> None:
    pools = {one.name: one for one in POOLS}
    plain = a_job().elastic(2, 4, in_place=True).build()
    assert apart_pools(plain, ["spot-a"], pools) == frozenset()
    tiers = job().build()
    assert apart_pools(tiers, ["spot-a"], pools) == {"steady", "steady-b"}
    assert apart_pools(tiers, ["spot-a", "steady"], pools) == frozenset()
    assert apart_pools(tiers, [], pools) == frozenset()


def test_a_machine_is_ordered_for_them_where_it_is_cheapest() -> None:
    pools = {one.name: one for one in POOLS}
    assert cheapest(job().build(), ["steady", "steady-b"], pools) == pools["steady-b"]
    broken = replace(pools["steady-b"], status=replace(pools["steady-b"].status, available=False))
    other = pools | {"steady-b": broken}
    assert cheapest(job().build(), ["steady", "steady-b"], other) == pools["steady"]
    assert cheapest(job().on("other").build(), ["steady"], pools) is None
