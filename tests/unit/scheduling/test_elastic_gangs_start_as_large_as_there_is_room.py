# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An elastic gang starts with as many members as fit, at least the fewest, all of them or none."""

from __future__ import annotations

from dataclasses import replace

from builders import a_job
from fakes.toy_elastic import cluster, events, size_of, sizes
from ullage.api.reasons import Reason
from ullage.scheduling.times import GANG_ROOM_LASTS_S


def test_it_takes_all_the_room_that_it_may_have() -> None:
    turns = cluster(devices=2)
    turns.add(a_job("train").elastic(1, 3))
    turns.run(10)
    assert sizes(turns) == (3, 3)
    size = size_of(turns)
    assert size.reason is Reason.SIZED
    assert size.message == "3 members, the most that it may have"


def test_it_is_content_with_what_there_is() -> None:
    turns = cluster(devices=1)
    turns.add(a_job("other"))
    turns.run(5)
    turns.add(a_job("train").elastic(1, 8))
    turns.run(10)
    assert sizes(turns) == (1, 1)
    assert size_of(turns).message == "1 of 8 members: there is room for 1"


def test_below_the_fewest_nothing_starts() -> None:
    turns = cluster(devices=1)
    turns.add(a_job("other"))
    turns.run(5)
    turns.add(a_job("train").elastic(2, 4))
    turns.run(60)
    assert sizes(turns) == (2, 0)
    decision = turns.job("train").status.decision
    assert decision is not None
    assert decision.reason is Reason.NO_CAPACITY
    turns.toy.delete_workload("uid-default-other")
    turns.run(10)
    assert sizes(turns) == (2, 2)


def test_more_than_the_cluster_has_is_no_reason_to_refuse() -> None:
    turns = cluster(devices=1)
    turns.add(a_job("train").elastic(2, 4096))
    turns.run(10)
    assert sizes(turns) == (2, 2)


def test_fewer_than_the_fewest_is_said_to_be_impossible() -> None:
    turns = cluster(devices=1)
    turns.add(a_job("train").elastic(3, 8))
    turns.run(10)
    decision = turns.job("train").status.decision
    assert decision is not None
    assert decision.reason is Reason.GANG_TOO_LARGE
    assert turns.toy.members("uid-default-train") == []


def test_a_gang_that_waited_starts_with_all_that_became_free() -> None:
    turns = cluster(devices=2)
    turns.add(*(a_job(f"other-{at}") for at in range(4)))
    turns.run(5)
    turns.add(a_job("train").elastic(1, 4))
    turns.run(GANG_ROOM_LASTS_S + 10)
    assert sizes(turns) == (1, 0)
    for at in range(3):
        turns.toy.delete_workload(f"uid-default-other-{at}")
    turns.run(15)
    assert sizes(turns) == (3, 3)
    assert turns.counts["evicted train"] == 0


def test_room_that_went_while_it_waited_makes_it_smaller_not_stuck() -> None:
    turns = cluster(devices=2)
    turns.add(a_job("train").elastic(1, 4))
    turns.cycle()  # sized for 4
    assert turns.job("train").status.replicas == 4
    turns.toy.nodes["n1"] = replace(turns.toy.nodes["n1"], unschedulable=True)
    turns.run(20)
    assert sizes(turns) == (2, 2)
    assert "Shrunk" not in events(turns)  # nothing had started


def test_above_its_fewest_no_one_is_stopped_for_it() -> None:
    turns = cluster(devices=2)
    turns.add(*(a_job(f"low-{at}").checkpointed() for at in range(3)))
    turns.run(5)
    turns.add(a_job("train").elastic(2, 4).priority(5))
    turns.run(30)
    # the fewest are worth a preemption, more are not
    assert sizes(turns) == (2, 2)
    assert turns.counts["EvictPod"] == 1
