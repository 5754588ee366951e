# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Someone deletes a CapacityPool: orders go, waiting work looks elsewhere, running work stays."""

from __future__ import annotations

from dataclasses import replace

from builders import EPOCH, NOW, WorkloadBuilder, a_job, a_pod, a_snapshot
from fakes.deciding import decided_on
from fakes.pool_watch import PoolWatch, a_member
from fakes.toy_pools import PoolPlay, a_pool, aim
from ullage.api.reasons import Reason
from ullage.api.trainingjob import CostAim
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import SpendDecision
from ullage.scheduling.inventory.instances import Watch, look
from ullage.scheduling.model.plan import DecideSettings, DeletePod


def job(cost: CostAim | None = None) -> WorkloadBuilder:
    return a_job().exclusive(1).checkpointed().with_(work_steps=36_000, cost=cost or aim())


def play(*names: str, nodes: int = 1) -> PoolPlay:
    """Pools with nodes, the first one the cheapest."""
    found = PoolPlay({name: a_pool(name, 1.0 + at) for at, name in enumerate(names)})
    for name in names:
        found.give(name, nodes)
    found.settle()
    return found


def decision_of(toy: PoolPlay) -> SpendDecision:
    spend = toy.job().status.spend
    assert spend is not None
    assert spend.decision is not None
    return spend.decision


def test_running_work_stays_and_says_that_its_pool_is_gone() -> None:
    toy = play("spot-a", "spot-b")
    toy.add(job())
    toy.settle()
    assert toy.on() == {"spot-a"}
    del toy.pools["spot-a"]
    toy.run(7200, step_s=600)
    assert toy.on() == {"spot-a"}
    assert toy.counts["EvictPod"] == 0
    said = decision_of(toy)
    assert (said.reason, said.chosen.pools) == (Reason.NO_POOL, ())
    assert "spot-a was deleted: it goes on where it is" in said.message
    assert ("train", "NoPool") in toy.events


def test_a_pool_that_is_gone_is_told_once() -> None:
    toy = play("spot-a", "spot-b")
    toy.add(job())
    toy.settle()
    del toy.pools["spot-a"]
    toy.settle()
    told = decision_of(toy)
    toy.run(3600, step_s=600)
    assert decision_of(toy) == told
    assert toy.events.count(("train", "NoPool")) == 1


def test_what_starts_again_looks_for_another_pool() -> None:
    toy = play("spot-a", "spot-b")
    toy.add(job())
    toy.settle()
    del toy.pools["spot-a"]
    toy.settle()
    toy.take("spot-a")
    toy.run(120)
    assert toy.on() == {"spot-b"}
    assert toy.chosen() == ("spot-b",)


def test_what_waits_for_the_pool_is_sent_elsewhere() -> None:
    toy = PoolPlay({"spot-a": a_pool("spot-a", 1.0), "spot-b": a_pool("spot-b", 2.0)})
    toy.give("spot-a")
    toy.add(*(a_job(f"other{at}").exclusive(1).with_(cost=aim(), work_steps=9) for at in range(2)))
    toy.settle()
    toy.add(job())
    toy.settle()
    assert toy.on() == set()
    del toy.pools["spot-a"]
    toy.give("spot-b")
    toy.run(120)
    assert toy.on() == {"spot-b"}


def test_without_any_pool_work_is_placed_wherever_there_is_room_and_says_so() -> None:
    toy = play("spot-a")
    toy.add(job(aim(objective="Deadline", deadline_s=NOW + 90_000, estimated_work_s=3600)))
    toy.settle()
    assert toy.on() == {"spot-a"}
    del toy.pools["spot-a"]
    toy.settle()
    assert toy.on() == {"spot-a"}
    said = decision_of(toy)
    assert said.reason is Reason.NO_POOL
    assert "no CapacityPool any more" in said.message
    assert "no one watches over its deadline" in said.message
    toy.run(1800, step_s=600)
    assert decision_of(toy) == said


def test_the_pool_comes_back_and_is_chosen_again() -> None:
    toy = play("spot-a")
    toy.add(job())
    toy.settle()
    kept = toy.pools.pop("spot-a")
    toy.settle()
    toy.pools["spot-a"] = replace(kept, uid="uid-again")
    toy.run(120)
    assert toy.on() == {"spot-a"}
    assert toy.chosen() == ("spot-a",)
    assert toy.counts["EvictPod"] == 0


def test_orders_of_the_pool_are_taken_back_at_once() -> None:
    owner = job().build()
    order = replace(
        a_pod("train-order-0", owner=owner, rank=-1),
        stage=PodStage.UNSCHEDULED,
        created=NOW - 60,
        gates=(),
        order="spot-a",
    )
    for left in ({}, {"spot-b": a_pool("spot-b", most=None)}):
        snapshot = replace(a_snapshot(job(), *job().pods(), order), pools=left)
        found = decided_on(snapshot, settings=DecideSettings(epoch=EPOCH, orders=True))
        (gone,) = (one for one in found.all(DeletePod) if one.pod.name == "train-order-0")
        assert gone.reason is Reason.POOL_RELEASED
        assert gone.text == "the pool spot-a was deleted"


def test_the_nodes_of_the_pool_are_no_losses_of_another() -> None:
    watch = PoolWatch()
    nodes = [a_member(name) for name in "ab"]
    watch.look(*nodes)
    snapshot = a_snapshot(*nodes)
    memory, sightings = look(Watch(), snapshot, [watch.pool], NOW)
    assert sightings[watch.pool.uid].nodes == 2
    memory, sightings = look(memory, replace(snapshot, nodes={}), [], NOW + 5)
    assert (dict(memory.instances), sightings) == ({}, {})
