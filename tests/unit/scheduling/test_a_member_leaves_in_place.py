# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Members of a gang in place leave alone: those that run well are never touched."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
from fakes.toy_pools import PoolPlay, a_pool, aim
from fakes.toy_rounds import Turns
from ullage.api.interruptions import Interruption, InterruptionKind
from ullage.api.reasons import Reason
from ullage.cluster.records.pod import PodStage


def warned(turns: Turns, node: str) -> None:
    """The provider says that it takes a machine back."""
    notice = Interruption(
        kind=InterruptionKind.TERMINATE, deadline_s=turns.toy.now + 120, source="EC2"
    )
    turns.toy.gpu_nodes[node] = replace(turns.toy.gpu_nodes[node], interruption=notice)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_lost_node_takes_its_own_member_and_no_other(rank: int) -> None:
    turns = in_place()
    before = here(turns)
    turns.toy.lose_node(member(turns, rank).node)
    turns.run(90)
    left = {one: uid for one, uid in before.items() if one != rank}
    assert here(turns) == left
    assert told(turns) == 2
    assert taken_away(turns) == 0
    assert size_of(turns).reason is Reason.SHRUNK
    assert f"train-{rank}" in size_of(turns).message
    assert size_of(turns).message.endswith("goes on in place with 2 of 3 members")
    assert events(turns) == ["Shrunk"]
    status = turns.job("train").status
    assert (status.phase, status.restarts) == ("Running", 0)
    assert {one.pod for one in status.placement} == {f"train-{one}" for one in left}
    admitted = status.condition("Admitted")
    assert admitted is not None
    assert status.decision is not None
    assert admitted.message == status.decision.chosen
    assert all(one.node in admitted.message for one in status.placement)
    assert admitted.message.count("GPU") == 2


def test_with_the_machine_of_the_first_member_all_start_again() -> None:
    turns = in_place(least=2)  # nothing tells the others: their connections to it stay open
    before = here(turns)
    turns.toy.lose_node(member(turns, 0).node)
    turns.run(5)
    admitted = turns.job("train").status.condition("Admitted")
    assert admitted is not None
    assert "train-0, where the members meet, was lost with n" in admitted.message
    turns.run(60)
    status = turns.job("train").status
    assert list(here(turns)) == [0, 1]
    assert not set(here(turns).values()) & set(before.values())
    assert (status.phase, status.restarts, told(turns)) == ("Running", 0, 2)


def test_one_that_may_train_on_alone_is_given_up_with_its_node_only() -> None:
    turns = in_place(least=1)
    before = here(turns)
    first = member(turns, 0)
    turns.toy.lose_node(first.node)
    turns.run(30)
    assert here(turns) == {rank: before[rank] for rank in (1, 2)}
    del turns.toy.nodes[first.node], turns.toy.gpu_nodes[first.node]
    turns.run(5)
    assert here(turns) == {}
    turns.toy.forget(turns.toy.pods[first.uid])  # as pods of a node that is no more
    turns.run(30)
    assert list(here(turns)) == [0, 1]


def test_where_members_meet_elsewhere_the_first_is_as_any_other() -> None:
    turns = in_place(least=2, elsewhere=True)
    before = here(turns)
    turns.toy.lose_node(member(turns, 0).node)
    turns.run(90)
    assert here(turns) == {rank: before[rank] for rank in (1, 2)}
    assert taken_away(turns) == 0


def test_the_first_member_alone_is_lost_while_its_machine_answers() -> None:
    turns = in_place(least=2)
    before = here(turns)
    turns.toy.forget(member(turns, 0))  # killed: who needs it fails by itself
    turns.run(3)
    assert here(turns) == {rank: before[rank] for rank in (1, 2)}
    assert events(turns) == ["Shrunk"]


def test_a_notice_takes_the_member_on_that_machine_at_once() -> None:
    turns = in_place()
    before = here(turns)
    warned(turns, member(turns, 1).node)
    turns.cycle()
    assert turns.counts["EvictPod"] == 1
    assert told(turns) == 2
    turns.run(100)
    assert here(turns) == {rank: uid for rank, uid in before.items() if rank != 1}
    assert taken_away(turns) == 1
    assert "the machine is taken away" in size_of(turns).message
    assert events(turns).count("Shrunk") == 1
    assert "Grown" not in events(turns)  # nothing comes to a machine that goes


def test_a_pod_that_is_simply_gone_is_missed() -> None:
    turns = in_place()
    turns.toy.forget(member(turns, 1))
    turns.cycle()
    assert told(turns) == 2
    assert size_of(turns).message == "train-1 is gone; goes on in place with 2 of 3 members"


def test_below_the_fewest_all_start_again() -> None:
    turns = in_place(nodes=2, least=2, most=3, devices=2)
    gone = list(here(turns).values())[1:]
    for uid in gone:
        turns.toy.forget(turns.toy.pods[uid])
    turns.cycle()
    job = turns.job("train")
    assert job.status.phase == "Restarting"
    admitted = job.status.condition("Admitted")
    assert admitted is not None
    assert admitted.message == (
        "train-1 is gone; train-2 is gone; 1 of them is left and it trains with 2 at least, so all"
        " start again; goes on with 3 of 3 members from its checkpoint"
    )
    turns.run(60)
    assert list(here(turns)) == [0, 1, 2]
    assert turns.job("train").status.restarts == 0


def test_below_the_fewest_without_room_it_waits_for_that_many() -> None:
    turns = in_place(nodes=2, least=2, most=2)
    turns.toy.remove_node(member(turns, 1).node)
    turns.toy.nodes["n1"] = replace(turns.toy.nodes["n1"], unschedulable=True)
    turns.toy.nodes["n0"] = replace(turns.toy.nodes["n0"], unschedulable=True)
    turns.run(60)
    assert here(turns) == {}
    assert turns.job("train").status.phase == "Pending"
    for name in ("n0", "n1"):
        turns.toy.nodes[name] = replace(turns.toy.nodes[name], unschedulable=False)
    turns.run(30)
    assert list(here(turns)) == [0, 1]


def test_a_failure_of_its_own_counts_once_and_replaces_one_member() -> None:
    turns = in_place()
    before = here(turns)
    turns.toy.finish(member(turns, 1), 1)
    turns.run(3)
    status = turns.job("train").status
    assert (status.restarts, status.phase, told(turns)) == (1, "Running", 2)
    assert "train-1 failed with exit code 1; restart 1 of 3 in 10 s" in size_of(turns).message
    turns.run(JOINS_S + 10)
    now = here(turns)
    assert list(now) == [0, 1, 2]
    assert (now[0], now[2]) == (before[0], before[2])
    assert turns.job("train").status.restarts == 1
    assert turns.counts["EvictPod"] == 0
    assert turns.counts["DeletePod"] == 1


def test_too_many_failures_end_the_job() -> None:
    turns = cluster(1, 2)
    turns.add(a_job("train").elastic(1, 2, in_place=True).failure(0))
    turns.run(60)
    turns.toy.finish(member(turns, 1), 1)
    turns.run(10)
    assert turns.job("train").status.phase == "Failed"
    assert "RestartLimit" in events(turns)
    assert here(turns) == {}


def test_an_exit_code_that_is_not_retried_ends_the_job() -> None:
    turns = cluster(1, 2)
    turns.add(a_job("train").elastic(1, 2, in_place=True).failure(3, 7))
    turns.run(60)
    turns.toy.finish(member(turns, 1), 1)
    turns.run(10)
    assert turns.job("train").status.phase == "Failed"


def test_who_fails_when_the_first_member_is_gone_is_not_to_blame() -> None:
    turns = in_place()
    turns.toy.forget(member(turns, 0))
    turns.run(2)
    turns.toy.finish(member(turns, 1), 1)
    turns.run(5)
    assert turns.job("train").status.restarts == 0
    assert told(turns) == 1


def test_who_fails_while_the_first_member_has_not_started_is_not_to_blame() -> None:
    turns = in_place()
    first = member(turns, 0)
    turns.toy.agents[first.node].up = False
    turns.toy.stage(first, PodStage.BOUND, ready=False)  # its image comes slowly
    turns.toy.finish(member(turns, 1), 1)
    turns.run(3)
    assert turns.toy.pods[first.uid].stage is PodStage.BOUND
    assert turns.job("train").status.restarts == 0
    assert told(turns) == 2


def test_when_all_fail_because_the_first_member_is_gone_all_start_again_uncounted() -> None:
    turns = in_place(nodes=3, least=1, most=3)
    before = here(turns)
    turns.toy.forget(member(turns, 0))
    turns.run(2)
    for rank in (2, 1):  # as quickly as their connections break
        turns.toy.finish(member(turns, rank), 1)
        turns.run(1)
    turns.run(JOINS_S)
    now = here(turns)
    assert list(now) == [0, 1, 2]
    assert not set(now.values()) & set(before.values())
    assert turns.job("train").status.restarts == 0


def test_it_completes_when_those_who_are_left_do() -> None:
    turns = in_place()
    turns.toy.lose_node(member(turns, 2).node)
    turns.run(20)
    turns.toy.finish(member(turns, 0), 0)
    turns.run(20)
    assert turns.job("train").status.phase == "Running"
    turns.toy.finish(member(turns, 1), 0)
    turns.run(5)
    assert turns.job("train").status.phase == "Succeeded"


def test_higher_priority_takes_only_what_is_given_up() -> None:
    turns = in_place()
    before = here(turns)
    turns.add(a_job("urgent").priority(5))
    turns.run(20)
    assert here(turns) == {rank: before[rank] for rank in (0, 1)}
    assert len(here(turns, "urgent")) == 1
    assert turns.counts["EvictPod"] == 1
    assert size_of(turns).message == (
        "makes room for default/urgent, which has a higher priority; goes on in place with 2 of 3"
        " members"
    )
    assert events(turns) == ["Shrunk"]
    turns.toy.delete_workload("uid-default-urgent")
    turns.run(JOINS_S + 10)
    assert list(here(turns)) == [0, 1, 2]


def test_a_status_that_was_lost_stops_no_work() -> None:
    turns = in_place()
    before = here(turns)
    job = turns.job("train")
    turns.toy.workloads[UID] = replace(
        job,
        replicas=1,
        status=replace(job.status, replicas=0, size=None, phase="", placement=()),
    )
    turns.run(30)
    assert here(turns) == before
    assert told(turns) == 3
    assert taken_away(turns) == 0


def test_a_gang_in_place_at_rest_is_not_written_to() -> None:
    turns = in_place()
    turns.toy.lose_node(member(turns, 1).node)
    turns.run(120)
    before = turns.writes()
    turns.run(1800)
    assert turns.writes() == before


def test_suspending_stops_all_and_resuming_starts_again() -> None:
    turns = in_place()
    turns.toy.lose_node(member(turns, 0).node)
    turns.run(30)
    turns.toy.workloads[UID] = replace(turns.job("train"), suspend=True)
    turns.run(20)
    assert turns.job("train").status.phase in ("Suspended", "Suspending")
    assert here(turns) == {}
    for name in list(turns.toy.nodes):
        turns.toy.return_node(name)
    turns.run(5)
    turns.toy.workloads[UID] = replace(turns.job("train"), suspend=False)
    turns.run(30)
    assert sorted(here(turns)) == list(range(len(here(turns))))
    assert len(here(turns)) >= 1


def test_a_price_that_rises_takes_members_and_stops_no_one_else() -> None:
    play = PoolPlay({"cheap": a_pool("cheap", 2.0)})
    play.give("cheap", 3)
    play.settle()
    job = a_job().elastic(1, 6, in_place=True)
    play.add(job.with_(cost=aim(budget_per_hour=4.0), work_steps=1_000_000))
    play.run(60)
    pods = {one.uid: one for one in play.toy.members(UID) if one.stage is PodStage.RUNNING}
    assert sorted(one.rank for one in pods.values()) == [0, 1, 2, 3]
    play.price("cheap", 3.0)
    play.run(120)
    left = [one for one in play.toy.members(UID) if one.stage is PodStage.RUNNING]
    assert sorted(one.rank for one in left) == [0, 1]
    assert {one.uid for one in left} <= pods.keys()
    size = play.job().status.size
    assert size is not None
    assert size.message == (
        "spec.cost.budgetPerHour pays for 2 members at the present price; goes on in place with 2"
        " of 6 members"
    )


def test_a_leader_that_dies_between_status_and_pods_counts_nothing_twice() -> None:
    turns = in_place()
    turns.toy.finish(member(turns, 1), 1)
    turns.cycle()  # the status counts it; its pod goes in the next cycle
    assert turns.job("train").status.restarts == 1
    assert any(one.stage is PodStage.FAILED for one in turns.toy.members(UID))
    turns.toy.epoch += 1
    turns.cycle()
    assert not any(one.stage is PodStage.FAILED for one in turns.toy.members(UID))
    assert turns.job("train").status.restarts == 1
