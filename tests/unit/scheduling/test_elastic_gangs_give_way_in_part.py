# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Work of higher priority takes what elastic gangs can spare before anyone is stopped wholly."""

from __future__ import annotations

from builders import a_job
from fakes.toy_elastic import cluster, events, size_of, sizes
from fakes.toy_rounds import Turns
from ullage.api.reasons import Reason
from ullage.cluster.records.pod import PodStage


def runs(turns: Turns, name: str) -> int:
    """Members of a job that run."""
    members = turns.toy.members(f"uid-default-{name}")
    return sum(one.stage is PodStage.RUNNING and not one.deleting for one in members)


def full() -> Turns:
    """Four devices: an elastic gang of three that can do with one, and a job of its priority."""
    turns = cluster(devices=2)
    turns.add(a_job("plain").checkpointed())
    turns.run(5)
    turns.add(a_job("train").elastic(1, 4))
    turns.run(30)
    assert sizes(turns) == (3, 3)
    turns.events.clear()
    return turns


def test_it_gives_up_as_few_members_as_are_needed() -> None:
    turns = full()
    turns.add(a_job("urgent").priority(5))
    turns.run(30)
    assert runs(turns, "urgent") == 1
    assert sizes(turns) == (2, 2)
    size = size_of(turns)
    assert size.reason is Reason.SHRUNK
    assert size.message == (
        "makes room for default/urgent, which has a higher priority; goes on with 2 of 4 members"
        " from its checkpoint"
    )
    assert events(turns) == ["Shrunk"]  # it says that the job goes on
    assert runs(turns, "plain") == 1
    assert turns.counts["evicted plain"] == 0
    assert turns.job("train").status.restarts == 0


def test_what_it_can_spare_goes_before_anyone_goes_wholly() -> None:
    turns = full()
    turns.add(a_job("urgent").gang(3).priority(5))
    turns.run(30)
    # two spare members, and only then the youngest of the rest
    assert runs(turns, "urgent") == 3
    assert runs(turns, "plain") + runs(turns, "train") == 1


def test_the_waiting_one_is_told_who_is_made_smaller() -> None:
    turns = full()
    turns.add(a_job("urgent").priority(5))
    turns.cycle()  # its pod is created
    turns.cycle()
    decision = turns.job("urgent").status.decision
    assert decision is not None
    assert "room is made by making smaller default/train" in decision.message


def test_no_one_of_its_own_priority_makes_it_smaller() -> None:
    turns = full()
    turns.add(a_job("equal"))
    turns.run(60)
    assert runs(turns, "equal") == 0
    assert sizes(turns) == (3, 3)


def test_it_grows_back_when_the_urgent_one_is_done() -> None:
    turns = full()
    turns.add(a_job("urgent").priority(5))
    turns.run(30)
    assert sizes(turns) == (2, 2)
    turns.run(300)
    turns.toy.delete_workload("uid-default-urgent")
    turns.run(60)
    assert sizes(turns) == (3, 3)
    assert turns.counts["evicted plain"] == 0


def test_a_gang_at_its_fewest_is_preempted_as_ever() -> None:
    turns = cluster(devices=1)
    turns.add(a_job("train").elastic(2, 2))
    turns.run(30)
    turns.add(a_job("urgent").priority(5))
    turns.run(30)
    assert runs(turns, "urgent") == 1
    assert sizes(turns) == (2, 0)
    assert "Preempted" in events(turns)
