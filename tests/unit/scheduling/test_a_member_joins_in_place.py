# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Members of a gang in place join one by one: those that run well are never touched."""

from __future__ import annotations

from dataclasses import replace

from builders import a_job
from fakes.toy_elastic import (
    JOINS_S,
    UID,
    cluster,
    events,
    here,
    in_place,
    member,
    size_of,
    taken_away,
    told,
)
from fakes.toy_rounds import Turns, a_turn_policy
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.scheduling.times import JOIN_RETRY_S


def test_when_the_machine_is_back_the_next_free_rank_joins() -> None:
    turns = in_place()
    before = here(turns)
    node = member(turns, 1).node
    turns.toy.lose_node(node)
    turns.run(60)
    turns.toy.return_node(node)
    turns.run(JOINS_S + 10)
    assert told(turns) == 3
    assert {rank: uid for rank, uid in here(turns).items() if rank != 1} == {
        rank: uid for rank, uid in before.items() if rank != 1
    }
    assert taken_away(turns) == 0
    assert events(turns) == ["Shrunk", "Grown"]
    assert size_of(turns).message == "train-1 joined; it has 3 of 3 members"


def test_while_a_pod_hangs_on_a_silent_machine_another_rank_joins() -> None:
    turns = in_place(nodes=4)
    turns.toy.lose_node(member(turns, 1).node)
    turns.run(JOINS_S)
    assert list(here(turns)) == [0, 2, 3]
    assert told(turns) == 3


def test_a_deleted_pod_is_replaced_alone() -> None:
    turns = in_place()
    before = here(turns)
    turns.toy.delete_pod(member(turns, 2))
    turns.run(JOINS_S + 10)
    now = here(turns)
    assert list(now) == [0, 1, 2]
    assert (now[0], now[1]) == (before[0], before[1])
    assert now[2] != before[2]
    assert events(turns) == ["Shrunk", "Grown"]


def test_it_starts_with_the_fewest_and_the_rest_joins_as_room_comes() -> None:
    turns = cluster(devices=1, nodes=3)
    turns.add(a_job("other"))
    turns.run(5)
    turns.add(a_job("train").elastic(2, 3, in_place=True))
    turns.run(20)
    first = here(turns)
    assert list(first) == [0, 1]
    assert "Grown" not in events(turns)
    turns.toy.delete_workload("uid-default-other")
    turns.run(JOINS_S)
    assert list(here(turns)) == [0, 1, 2]
    assert first.items() <= here(turns).items()
    assert taken_away(turns) == 0
    assert events(turns).count("Grown") == 1


def test_fewer_than_the_fewest_do_not_start() -> None:
    turns = cluster(devices=1, nodes=2)
    turns.add(a_job("other"))
    turns.run(5)
    turns.add(a_job("train").elastic(2, 3, in_place=True))
    turns.run(60)
    assert here(turns) == {}
    assert told(turns) == 2


def test_no_one_joins_once_a_member_is_done() -> None:
    turns = in_place()
    turns.toy.delete_pod(member(turns, 2))
    turns.run(2)
    turns.toy.finish(member(turns, 0), 0)
    turns.run(200)
    assert turns.counts["CreatePod"] == 0
    assert list(here(turns)) == [1]


def test_members_do_not_join_where_someone_waits() -> None:
    turns = in_place(devices=1, nodes=3)
    turns.toy.lose_node(member(turns, 2).node)
    lost = next(name for name, node in turns.toy.nodes.items() if not node.ready)
    turns.run(20)
    turns.add(a_job("big").gang(2))
    turns.run(20)
    turns.toy.return_node(lost)  # one device: of no use to big alone, which waits for two
    turns.run(3 * JOINS_S)
    assert told(turns) == 2
    assert here(turns, "big") == {}


def test_a_member_joins_on_the_type_that_the_others_have() -> None:
    turns = Turns.of({"n0": "fast", "n1": "fast", "n2": "slow"}, policy=a_turn_policy("FIFO"))
    turns.add(a_job("train").on("fast").elastic(1, 3, in_place=True))
    turns.run(20)
    assert list(here(turns)) == [0, 1]
    job = turns.job("train")
    turns.toy.workloads[UID] = replace(job, accelerators=())
    turns.run(3 * JOINS_S)
    assert list(here(turns)) == [0, 1]


def test_under_turns_a_lost_member_goes_alone_and_comes_back() -> None:
    turns = Turns.of({f"n{at}": "fast" for at in range(3)}, policy=a_turn_policy())
    turns.add(a_job("train").elastic(1, 3, in_place=True))
    turns.run(60)
    before = here(turns)
    assert list(before) == [0, 1, 2]
    turns.counts.clear()
    turns.toy.delete_pod(member(turns, 1))
    turns.run(JOINS_S + 10)
    now = here(turns)
    assert list(now) == [0, 1, 2]
    assert (now[0], now[2]) == (before[0], before[2])
    assert taken_away(turns) == 0


def joining(turns: Turns) -> PodRecord:
    """Run until a third member is created; its pod has its place, which no node confirmed yet."""
    turns.toy.delete_pod(member(turns, 2))
    for _ in range(round(JOINS_S)):
        turns.run(1)
        gated = [one for one in turns.toy.members(UID) if one.stage is PodStage.GATED]
        if gated:
            return gated[0]
    raise AssertionError("no one joins")


def test_who_joins_waits_for_its_node_and_the_status_says_nothing_new() -> None:
    turns = in_place()
    newcomer = joining(turns)
    assert newcomer.rank == 2
    status = turns.job("train").status
    assert (status.phase, status.replicas) == ("Running", 2)
    ready = status.condition("Ready")
    assert ready is not None
    assert ready.status == "True"
    turns.run(5)
    assert list(here(turns)) == [0, 1, 2]
    assert told(turns) == 3


def test_who_finds_no_place_goes_again_and_no_one_else_is_touched() -> None:
    turns = in_place()
    node = member(turns, 2).node
    before = here(turns)
    joining(turns)
    turns.toy.lose_node(node)
    turns.run(30)
    assert here(turns) == {rank: before[rank] for rank in (0, 1)}
    assert not [one for one in turns.toy.members(UID) if one.stage is PodStage.GATED]
    assert told(turns) == 2
    assert turns.counts["EvictPod"] == 0
    made = turns.counts["CreatePod"]
    turns.toy.return_node(node)
    turns.run(JOIN_RETRY_S - 50)
    assert turns.counts["CreatePod"] == made  # a try that failed is not repeated at once
    turns.run(JOINS_S + 50)
    assert told(turns) == 3


def test_who_never_starts_goes_alone_and_is_not_counted() -> None:
    turns = in_place()
    before = here(turns)
    newcomer = joining(turns)
    turns.toy.agents[member(turns, 0).node].up = True
    for _ in range(20):
        turns.cycle()
        pod = turns.toy.pods.get(newcomer.uid)
        if pod is not None and pod.stage is PodStage.BOUND:
            turns.toy.lose_race(pod)
            break
        turns.toy.now += 1
    turns.run(3)
    assert {rank: before[rank] for rank in (0, 1)}.items() <= here(turns).items()
    assert turns.job("train").status.restarts == 0


def test_the_service_that_names_members_is_there_though_one_starts_alone() -> None:
    turns = cluster(devices=1, nodes=1)
    turns.add(a_job("train").elastic(1, 2, in_place=True))
    turns.run(20)
    assert list(here(turns)) == [0]
    assert ("default", "train-workers") in turns.toy.services
