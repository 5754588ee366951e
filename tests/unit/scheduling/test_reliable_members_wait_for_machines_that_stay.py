# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Members that count on their machine wait for one that stays; the others come and go meanwhile."""

from __future__ import annotations

import random

import pytest

from builders import WorkloadBuilder, a_job
from fakes.toy_pools import PoolPlay, a_pool, aim
from ullage.api.reasons import Reason
from ullage.api.trainingjob import TierTerms
from ullage.cluster.projection.pod_shape import node_affinity
from ullage.cluster.records.pod_shape import PodShape
from ullage.kube.manifests.tiers import narrowed
from ullage.scheduling.inventory.reliable_machines import held_to
from ullage.scheduling.times import GANG_HOLD_IN_PLACE_S, GANG_ROOM_LASTS_IN_PLACE_S

JOINS_S = GANG_HOLD_IN_PLACE_S + GANG_ROOM_LASTS_IN_PLACE_S + 30


def job(reliable: int = 1, least: int = 2, most: int = 4) -> WorkloadBuilder:
    terms = TierTerms(reliable=reliable, state_bytes=1 << 20)
    return a_job().exclusive().elastic(least, most, in_place=True, tiers=terms)


def play(steady: int = 1, spot: int = 1) -> PoolPlay:
    """So many nodes with two devices each."""
    pools = (a_pool("steady", spot=False), a_pool("spot-a"))
    found = PoolPlay(pools={one.name: one for one in pools})
    found.give("steady", steady)
    found.give("spot-a", spot)
    return found


def running(steady: int = 1, spot: int = 1, **said: int) -> PoolPlay:
    found = play(steady, spot)
    found.add(job(**said))
    found.run(60)
    return found


def made(found: PoolPlay) -> int:
    return found.counts["CreatePod"]


def size(found: PoolPlay) -> str:
    known = found.job().status.size
    assert known is not None
    return known.message


def test_they_begin_on_machines_that_stay() -> None:
    found = running()
    assert found.here()[0] == "steady"
    assert len(found.here()) == 4


def test_a_gang_begins_as_large_as_there_is_room_beside_its_reliable_members() -> None:
    found = running(steady=0, spot=2)
    assert found.here() == {}
    assert found.job().status.phase == "Pending"
    decision = found.job().status.decision
    assert decision is not None
    assert "not taken away" in decision.message
    found.give("steady")
    found.run(120)
    assert found.here()[0] == "steady"


def test_a_lost_one_waits_without_a_pod_while_only_transient_room_is_free() -> None:
    found = running(spot=2)
    found.take("steady")
    found.run(60)
    assert set(found.here()) == {1, 2, 3}
    count = made(found)
    found.run(900)
    assert made(found) == count, "no pod is made and dropped again and again"
    assert "train-0 waits for room on a machine that is not taken away" in size(found)
    assert found.events.count(("train", Reason.SHRUNK.value)) <= 3


def test_it_comes_back_when_such_a_machine_has_room() -> None:
    found = running()
    found.take("steady")
    found.run(300)
    assert 0 not in found.here()
    found.give("steady")
    found.run(JOINS_S)
    assert found.here()[0] == "steady"
    assert "joined" in size(found)


def test_others_join_beside_one_that_waits_and_never_take_its_part() -> None:
    found = running(spot=1, most=4)
    found.take("steady")
    found.run(60)
    before = set(found.here())
    found.give("spot-a", 2)
    found.run(300)
    assert before < set(found.here())
    assert len(found.here()) == 3, "one part of four is kept for the reliable member"
    assert 0 not in found.here()
    found.give("steady")
    found.run(JOINS_S)
    assert len(found.here()) == 4
    assert found.here()[0] == "steady"


def test_without_pools_that_stay_they_come_back_anywhere() -> None:
    found = PoolPlay(pools={"spot-a": a_pool("spot-a")})
    found.give("spot-a", 3)
    found.add(job())
    found.run(60)
    lost = next(one for one in found.toy.members(found.job().ref.uid) if one.rank == 0)
    found.toy.forget(lost)
    found.run(JOINS_S)
    assert 0 in found.here()


def test_a_quiet_wait_writes_nothing() -> None:
    waits, whole = running(spot=2), running(spot=2)
    waits.take("steady")
    for found in (waits, whole):
        found.run(300)
        found.counts.clear()
        found.run(600)
    assert waits.counts["SetStatus"] <= whole.counts["SetStatus"], "what it costs is told anyway"
    assert waits.counts["CreatePod"] == 0


@pytest.mark.parametrize(
    "affinity",
    [
        {},
        {"podAffinity": {}},
        {"nodeAffinity": {}},
        {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                        {"matchFields": [{"key": "b", "operator": "In", "values": ["c"]}]},
                    ]
                }
            }
        },
    ],
)
def test_room_is_counted_by_what_is_written_into_the_pod(affinity: dict[str, object]) -> None:
    on = ((("pool", "steady"), ("zone", "a")), (("pool", "od"),))
    shape = PodShape(device_container="main", affinity=node_affinity({"affinity": affinity}))
    written = narrowed(affinity, on)
    assert held_to(shape, on).affinity == node_affinity({"affinity": written})
    assert held_to(shape, ()) is shape


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("priced", [False, True])
def test_whatever_comes_and_goes_they_are_never_elsewhere_and_come_back(
    seed: int, priced: bool
) -> None:
    source, found = random.Random(seed), play(spot=2)
    built = job(reliable=source.randint(1, 2), least=2, most=5)
    found.add(built.with_(cost=aim()) if priced else built)
    reliable = range(found.job().elasticity.tiers.reliable)  # type: ignore[union-attr]
    for _ in range(12):
        name = source.choice(["steady", "spot-a"])
        (found.give if source.random() < 0.6 else found.take)(name)
        found.run(source.choice([20, 90, 400]))
        where = found.here()
        assert {where[one] for one in reliable if one in where} <= {"steady"}
    found.counts.clear()
    found.give("steady", 2)
    found.give("spot-a", 3)
    found.run(1200)
    assert set(reliable) <= found.here().keys()
    # a choice that was made for want of spot stands for a day
    assert len(found.here()) >= (2 if priced else 5)
    assert found.counts["CreatePod"] <= 2 * 5 + 1, "no one is made again and again"
