# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Members of a gang in place come and go alone: those that run well are never touched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import a_job
from fakes.toy_elastic import cluster, events, size_of
from fakes.toy_pools import PoolPlay, a_pool, aim
from fakes.toy_rounds import Turns, a_turn_policy
from ullage.api.contract import Interruption, InterruptionKind, Reason
from ullage.decide.elastic.members import HOLD_IN_PLACE_S, ROOM_LASTS_IN_PLACE_S
from ullage.decide.lives.in_place import JOIN_AGAIN_S
from ullage.state.records import PodRecord, PodStage

UID = "uid-default-train"
JOINS_S = HOLD_IN_PLACE_S + ROOM_LASTS_IN_PLACE_S + 10


def here(turns: Turns, name: str = "train") -> dict[int, str]:
    """uids of the members that run, by rank."""
    return {
        one.rank: one.uid
        for one in sorted(turns.toy.members(f"uid-default-{name}"), key=lambda one: one.rank)
        if one.stage is PodStage.RUNNING and not one.deleting
    }


def member(turns: Turns, rank: int) -> PodRecord:
    return turns.toy.pods[here(turns)[rank]]


def told(turns: Turns) -> int:
    return turns.job("train").status.replicas


def taken_away(turns: Turns) -> int:
    return turns.counts["EvictPod"] + turns.counts["DeletePod"]


def running(devices: int = 1, nodes: int = 3, least: int = 1, most: int = 3) -> Turns:
    """A gang in place that has had all its members for a while."""
    turns = cluster(devices, nodes)
    turns.add(a_job("train").elastic(least, most, in_place=True))
    turns.run(60)
    assert list(here(turns)) == list(range(most))
    assert told(turns) == most
    turns.events.clear()
    turns.counts.clear()
    return turns


def warned(turns: Turns, node: str) -> None:
    """The provider says that it takes a machine back."""
    notice = Interruption(
        kind=InterruptionKind.TERMINATE, deadline_s=turns.toy.now + 120, source="EC2"
    )
    turns.toy.gpu_nodes[node] = replace(turns.toy.gpu_nodes[node], interruption=notice)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_a_lost_node_takes_its_own_member_and_no_other(rank: int) -> None:
    turns = running()
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


def test_when_the_machine_is_back_the_next_free_rank_joins() -> None:
    turns = running()
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
    turns = running(nodes=4)
    turns.toy.lose_node(member(turns, 1).node)
    turns.run(JOINS_S)
    assert list(here(turns)) == [0, 2, 3]
    assert told(turns) == 3


def test_a_notice_takes_the_member_on_that_machine_at_once() -> None:
    turns = running()
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


def test_a_deleted_pod_is_replaced_alone() -> None:
    turns = running()
    before = here(turns)
    turns.toy.delete_pod(member(turns, 2))
    turns.run(JOINS_S + 10)
    now = here(turns)
    assert list(now) == [0, 1, 2]
    assert (now[0], now[1]) == (before[0], before[1])
    assert now[2] != before[2]
    assert events(turns) == ["Shrunk", "Grown"]


def test_a_pod_that_is_simply_gone_is_missed() -> None:
    turns = running()
    turns.toy.forget(member(turns, 1))
    turns.cycle()
    assert told(turns) == 2
    assert size_of(turns).message == "train-1 is gone; goes on in place with 2 of 3 members"


def test_below_the_fewest_all_start_again() -> None:
    turns = running(nodes=2, least=2, most=3, devices=2)
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
    turns = running(nodes=2, least=2, most=2)
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


def test_a_failure_of_its_own_counts_once_and_replaces_one_member() -> None:
    turns = running()
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
    turns = running()
    turns.toy.forget(member(turns, 0))
    turns.run(2)
    turns.toy.finish(member(turns, 1), 1)
    turns.run(5)
    assert turns.job("train").status.restarts == 0
    assert told(turns) == 1


def test_it_completes_when_those_who_are_left_do() -> None:
    turns = running()
    turns.toy.lose_node(member(turns, 2).node)
    turns.run(20)
    turns.toy.finish(member(turns, 0), 0)
    turns.run(20)
    assert turns.job("train").status.phase == "Running"
    turns.toy.finish(member(turns, 1), 0)
    turns.run(5)
    assert turns.job("train").status.phase == "Succeeded"


def test_nobody_joins_once_a_member_is_done() -> None:
    turns = running()
    turns.toy.delete_pod(member(turns, 2))
    turns.run(2)
    turns.toy.finish(member(turns, 0), 0)
    turns.run(200)
    assert turns.counts["CreatePod"] == 0
    assert list(here(turns)) == [1]


def test_higher_priority_takes_only_what_is_given_up() -> None:
    turns = running()
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


def test_members_do_not_join_where_somebody_waits() -> None:
    turns = running(devices=1, nodes=3)
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


def test_a_status_that_was_lost_stops_no_work() -> None:
    turns = running()
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
    turns = running()
    turns.toy.lose_node(member(turns, 1).node)
    turns.run(120)
    before = turns.writes()
    turns.run(1800)
    assert turns.writes() == before


def test_suspending_stops_all_and_resuming_starts_anew() -> None:
    turns = running()
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


def test_a_price_that_rises_takes_members_and_stops_nobody_else() -> None:
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


def joining(turns: Turns) -> PodRecord:
    """Run until a third member is created; its pod has its place, which no node confirmed yet."""
    turns.toy.delete_pod(member(turns, 2))
    for _ in range(round(JOINS_S)):
        turns.run(1)
        gated = [one for one in turns.toy.members(UID) if one.stage is PodStage.GATED]
        if gated:
            return gated[0]
    raise AssertionError("nobody joins")


def test_who_joins_waits_for_its_node_and_the_status_says_nothing_new() -> None:
    turns = running()
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


def test_who_finds_no_place_goes_again_and_nobody_else_is_touched() -> None:
    turns = running()
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
    turns.run(JOIN_AGAIN_S - 50)
    assert turns.counts["CreatePod"] == made  # a try that failed is not repeated at once
    turns.run(JOINS_S + 50)
    assert told(turns) == 3


def test_who_never_starts_goes_alone_and_is_not_counted() -> None:
    turns = running()
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


def test_a_leader_that_dies_between_status_and_pods_counts_nothing_twice() -> None:
    turns = running()
    turns.toy.finish(member(turns, 1), 1)
    turns.cycle()  # the status counts it; its pod goes in the next cycle
    assert turns.job("train").status.restarts == 1
    assert any(one.stage is PodStage.FAILED for one in turns.toy.members(UID))
    turns.toy.epoch += 1
    turns.cycle()
    assert not any(one.stage is PodStage.FAILED for one in turns.toy.members(UID))
    assert turns.job("train").status.restarts == 1


def test_the_service_that_names_members_is_there_though_one_starts_alone() -> None:
    turns = cluster(devices=1, nodes=1)
    turns.add(a_job("train").elastic(1, 2, in_place=True))
    turns.run(20)
    assert list(here(turns)) == [0]
    assert ("default", "train-workers") in turns.toy.services
