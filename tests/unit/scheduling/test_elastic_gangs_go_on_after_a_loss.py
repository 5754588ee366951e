# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A lost member or node never tears down a gang that can shrink: it goes on with what is left."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import a_job
from fakes.toy_elastic import cluster, events, size_of, sizes
from fakes.toy_rounds import Turns
from ullage.api.interruptions import Interruption, InterruptionKind
from ullage.api.reasons import Reason
from ullage.api.words import OnNotice
from ullage.cluster.records.pod import PodStage
from ullage.scheduling.times import POD_WRITTEN_OFF_S


def member(turns: Turns, rank: int, name: str = "train") -> str:
    """uid of a member."""
    return next(one.uid for one in turns.toy.members(f"uid-default-{name}") if one.rank == rank)


def running(devices: int = 1, nodes: int = 2, least: int = 1, most: int = 2) -> Turns:
    """A gang that has had all its members for a while."""
    turns = cluster(devices, nodes)
    turns.add(a_job("train").elastic(least, most))
    turns.run(60)
    assert sizes(turns) == (most, most)
    turns.events.clear()
    return turns


@pytest.mark.parametrize("lost", ["n0", "n1"])
def test_a_lost_node_shrinks_the_gang_to_what_is_left(lost: str) -> None:
    turns = running()
    turns.toy.lose_node(lost)
    turns.run(POD_WRITTEN_OFF_S + 20)
    assert sizes(turns) == (1, 1)
    (one,) = turns.toy.members("uid-default-train")
    assert one.node != lost
    assert one.name == "train-0"
    assert size_of(turns).reason is Reason.SHRUNK
    assert "is being deleted; goes on with 1 of 2 members" in size_of(turns).message or (
        "disrupted" in size_of(turns).message
    )
    assert events(turns).count("Shrunk") == 1
    assert "MemberLost" not in events(turns)  # one Event says both
    assert turns.job("train").status.restarts == 0


def warned(turns: Turns, node: str) -> None:
    """The provider says that it takes a machine back."""
    notice = Interruption(
        kind=InterruptionKind.TERMINATE, deadline_s=turns.toy.now + 120, source="EC2"
    )
    turns.toy.gpu_nodes[node] = replace(turns.toy.gpu_nodes[node], interruption=notice)


def test_a_notice_shrinks_the_gang_before_the_machine_is_gone() -> None:
    turns = running()
    warned(turns, "n1")
    turns.cycle()
    assert turns.counts["EvictPod"] == 2  # in this very cycle, while there is time to save
    turns.run(20)
    assert sizes(turns) == (1, 1)
    assert {one.node for one in turns.toy.members("uid-default-train")} == {"n0"}
    assert "goes on with 1 of 2 members from its checkpoint" in size_of(turns).message
    assert events(turns).count("Shrunk") == 1
    turns.run(300)
    assert sizes(turns) == (1, 1)  # the machine is still there, and nothing grows onto it


def test_a_gang_that_ignores_notices_runs_on() -> None:
    turns = cluster(1)
    turns.add(a_job("train").elastic(1, 2, on_notice=OnNotice.IGNORE))
    turns.run(60)
    warned(turns, "n1")
    turns.run(60)
    assert turns.counts["EvictPod"] == 0
    assert sizes(turns) == (2, 2)


def test_the_checkpoint_signal_reaches_those_who_are_left_before_they_start_again() -> None:
    turns = running()
    turns.toy.lose_node("n1")
    turns.cycle()
    assert turns.job("train").status.phase == "Restarting"
    turns.cycle()
    assert all(one.deleting for one in turns.toy.members("uid-default-train"))
    assert turns.counts["DeletePod"] >= 1  # with the pod's own grace, in which it saves its state


def test_a_member_alone_is_not_written_off_while_it_may_still_train() -> None:
    turns = running(nodes=1, most=1)
    turns.toy.lose_node("n0")
    turns.run(POD_WRITTEN_OFF_S + 30)
    (one,) = turns.toy.members("uid-default-train")
    assert one.deleting
    assert turns.toy.nodes["n0"].ready is False


def test_a_deleted_pod_costs_a_restart_and_no_member_where_its_device_is_still_there() -> None:
    turns = running()
    turns.toy.delete_pod(turns.toy.pods[member(turns, 1)])
    turns.run(15)
    assert sizes(turns) == (2, 2)
    assert size_of(turns).reason is Reason.SIZED
    assert events(turns) == ["MemberLost"]
    assert turns.job("train").status.restarts == 0


def test_a_spare_device_replaces_the_lost_one() -> None:
    turns = running(nodes=3)
    turns.toy.lose_node(turns.toy.pods[member(turns, 0)].node)
    turns.run(POD_WRITTEN_OFF_S + 20)
    assert sizes(turns) == (2, 2)
    assert "Shrunk" not in events(turns)


def test_with_less_left_than_the_fewest_it_waits_for_these() -> None:
    turns = running(least=2)
    turns.toy.lose_node("n1")
    turns.run(POD_WRITTEN_OFF_S + 20)
    assert sizes(turns) == (2, 0)
    turns.toy.remove_node("n1")
    turns.run(20)
    assert sizes(turns) == (2, 2)


def test_members_that_fail_because_a_node_went_silent_are_not_to_blame() -> None:
    turns = running()
    gone, left = (turns.toy.pods[member(turns, rank)] for rank in (0, 1))
    turns.toy.nodes[gone.node] = replace(turns.toy.nodes[gone.node], ready=False)
    turns.toy.finish(left, 1)  # its collective broke
    turns.run(5)
    assert turns.job("train").status.restarts == 0
    assert size_of(turns).reason is Reason.SHRUNK
    assert "does not answer; goes on with 1 of 2 members" in size_of(turns).message
    turns.run(POD_WRITTEN_OFF_S + 20)
    assert sizes(turns) == (1, 1)


def test_an_exit_code_of_its_own_counts_and_keeps_the_size() -> None:
    turns = running()
    turns.toy.finish(turns.toy.pods[member(turns, 1)], 1)
    turns.run(30)
    assert sizes(turns) == (2, 2)
    assert turns.job("train").status.restarts == 1


def test_no_one_older_takes_the_places_of_those_who_start_again() -> None:
    turns = cluster(devices=1, nodes=3)
    turns.add(a_job("big").gang(2).aged(0))
    turns.toy.workloads["uid-default-big"] = replace(
        turns.toy.workloads["uid-default-big"], suspend=True
    )
    turns.add(a_job("train").elastic(1, 3))
    turns.run(30)
    assert sizes(turns) == (3, 3)
    turns.toy.workloads["uid-default-big"] = replace(
        turns.toy.workloads["uid-default-big"], suspend=False
    )
    turns.run(30)
    assert sizes(turns) == (3, 3)
    turns.toy.lose_node(turns.toy.pods[member(turns, 2)].node)
    turns.run(POD_WRITTEN_OFF_S + 30)
    # two devices are left; big, which is older, could have had both while no one held them
    assert sizes(turns) == (2, 2)
    assert not [
        one for one in turns.toy.members("uid-default-big") if one.stage is not PodStage.GATED
    ]


def test_a_status_that_was_lost_stops_no_work() -> None:
    turns = running()
    before = turns.counts["DeletePod"] + turns.counts["EvictPod"]
    job = turns.job("train")
    turns.toy.workloads[job.ref.uid] = replace(
        job, replicas=1, status=replace(job.status, replicas=0, size=None, phase="")
    )
    turns.run(30)
    assert sizes(turns) == (2, 2)
    assert turns.counts["DeletePod"] + turns.counts["EvictPod"] == before
    assert size_of(turns).message == "2 members, as its pods were made"


def test_a_gang_at_rest_is_not_written_to() -> None:
    turns = running()
    turns.run(60)
    before = turns.writes()
    turns.run(1800)
    assert turns.writes() == before


def test_success_of_all_members_ends_it_in_whatever_size() -> None:
    turns = running()
    turns.toy.lose_node("n1")
    turns.run(POD_WRITTEN_OFF_S + 20)
    assert sizes(turns) == (1, 1)
    turns.toy.finish(turns.toy.pods[member(turns, 0)], 0)
    turns.run(5)
    assert turns.job("train").status.phase == "Succeeded"
