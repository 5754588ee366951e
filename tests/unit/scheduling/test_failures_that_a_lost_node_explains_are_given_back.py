# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Members fail when a peer's machine dies, before anyone knows of that: it is no fault of theirs.

The count is given back once the loss is seen, by whoever leads then, and not once more.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import WorkloadBuilder, a_job
from fakes.toy_elastic import cluster, events, size_of
from fakes.toy_rounds import Turns
from ullage.api.interruptions import Interruption, InterruptionKind
from ullage.api.readers import WireError
from ullage.api.reasons import Reason
from ullage.cluster.codecs.status import as_stored, status_from_wire
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.pod_shape import Taint
from ullage.cluster.records.workload import WorkloadKind
from ullage.scheduling.times import LOSS_EXPLAINS_S, POD_WRITTEN_OFF_S

UID = "uid-default-train"
FIXED = a_job("train").gang(3)
ELASTIC = a_job("train").elastic(1, 3)
IN_PLACE = a_job("train").elastic(1, 3, in_place=True)


def running(job: WorkloadBuilder, nodes: int = 3) -> Turns:
    """A gang of three, each on a machine of its own."""
    turns = cluster(devices=1, nodes=nodes)
    turns.add(job)
    turns.run(60)
    assert len(turns.toy.members(UID)) == 3
    turns.events.clear()
    return turns


def member(turns: Turns, rank: int) -> PodRecord:
    return next(one for one in turns.toy.members(UID) if one.rank == rank)


def restarts(turns: Turns) -> int:
    """What the status counts; a new leader reads the same."""
    status = turns.job("train").status
    assert as_stored(WorkloadKind.TRAINING_JOB, status) == status
    return status.restarts


def cut_off(turns: Turns, *failing: int) -> str:
    """The machine of member 0 goes silent, and its peers fail. Says which machine it is."""
    silent = member(turns, 0).node
    turns.toy.silent.add(silent)
    for rank in failing:
        turns.toy.finish(member(turns, rank), 1)
        turns.run(3)
    return silent


def unready(turns: Turns, node: str) -> None:
    turns.toy.nodes[node] = replace(turns.toy.nodes[node], ready=False, ready_since=turns.toy.now)


@pytest.mark.parametrize("job", [FIXED, ELASTIC], ids=["fixed", "elastic"])
def test_the_count_is_given_back_when_the_loss_is_seen(job: WorkloadBuilder) -> None:
    turns = running(job)
    silent = cut_off(turns, 1)
    assert restarts(turns) == 1
    turns.run(40)
    unready(turns, silent)
    turns.run(5)
    status = turns.job("train").status
    assert restarts(turns) == 0
    assert (status.last_failure, status.retry_at) == (None, 0.0)
    admitted = status.condition("Admitted")
    assert admitted is not None
    assert admitted.reason == Reason.MEMBER_LOST
    assert f"{silent}, where a member was, does not answer; the failure shortly before is not" in (
        admitted.message
    )


def test_an_elastic_gang_goes_on_with_what_is_left() -> None:
    turns = running(ELASTIC)
    silent = cut_off(turns, 1)
    turns.run(40)
    unready(turns, silent)
    turns.run(POD_WRITTEN_OFF_S + 20)
    assert {one.node for one in turns.toy.members(UID)} == {"n0", "n1", "n2"} - {silent}
    assert all(one.stage is PodStage.RUNNING for one in turns.toy.members(UID))
    assert size_of(turns).reason is Reason.SHRUNK
    assert "goes on with 2 of 3 members" in size_of(turns).message
    assert restarts(turns) == 0
    assert events(turns).count("Shrunk") == 1


def test_failures_that_follow_each_other_are_all_given_back() -> None:
    turns = running(IN_PLACE)
    silent = cut_off(turns, 1)
    turns.run(20)
    turns.toy.finish(member(turns, 2), 1)
    turns.run(3)
    assert restarts(turns) == 2
    turns.run(30)
    unready(turns, silent)
    turns.run(10)
    assert restarts(turns) == 0
    assert turns.job("train").status.phase == "Running"


def test_members_that_fail_one_after_the_other_for_one_cause_are_one_failure() -> None:
    job = a_job("train").elastic(1, 6, in_place=True)
    turns = cluster(devices=1, nodes=6)
    turns.add(job)
    turns.run(60)
    silent = cut_off(turns, 5, 4, 3)
    assert restarts(turns) == 1
    turns.run(40)
    unready(turns, silent)
    turns.run(10)
    assert restarts(turns) == 0


def test_a_member_that_fails_again_and_again_in_place_ends_the_job_as_ever() -> None:
    turns = running(IN_PLACE)
    for _ in range(40):
        for one in turns.toy.members(UID):
            if one.rank > 0 and one.stage is PodStage.RUNNING and not one.deleting:
                turns.toy.finish(one, 1)
        turns.run(20)
    status = turns.job("train").status
    assert (status.phase, status.restarts) == ("Failed", 3)


def test_the_loss_may_be_told_by_a_notice_of_the_provider() -> None:
    turns = running(FIXED)
    silent = cut_off(turns, 1)
    assert restarts(turns) == 1
    notice = Interruption(kind=InterruptionKind.TERMINATE, source="EC2")
    turns.toy.gpu_nodes[silent] = replace(turns.toy.gpu_nodes[silent], interruption=notice)
    turns.run(5)
    assert restarts(turns) == 0


def test_a_machine_that_is_gone_with_its_member_tells_it_too() -> None:
    turns = running(FIXED)
    silent = cut_off(turns, 1)
    assert restarts(turns) == 1
    assert member(turns, 0).deleting
    for store in (turns.toy.nodes, turns.toy.gpu_nodes, turns.toy.agents):
        store.pop(silent)  # type: ignore[attr-defined]
    turns.run(2)
    assert restarts(turns) == 0


def test_it_is_given_back_once() -> None:
    turns = running(ELASTIC)
    turns.toy.finish(member(turns, 2), 1)
    turns.run(LOSS_EXPLAINS_S + 30)
    assert restarts(turns) == 1
    silent = cut_off(turns, 1)
    assert restarts(turns) == 2
    unready(turns, silent)
    turns.run(60)
    assert restarts(turns) == 1
    turns.run(300)
    assert restarts(turns) == 1


def test_a_loss_long_after_gives_nothing_back() -> None:
    turns = running(FIXED)
    silent = cut_off(turns, 1)
    turns.run(LOSS_EXPLAINS_S + 5)
    unready(turns, silent)
    turns.run(30)
    assert restarts(turns) == 1


def test_a_machine_that_stands_gives_nothing_back() -> None:
    turns = running(FIXED)
    turns.toy.finish(member(turns, 1), 1)
    turns.run(30)
    assert restarts(turns) == 1
    assert turns.job("train").status.phase == "Running"


def test_a_machine_that_the_autoscaler_takes_because_it_is_empty_gives_nothing_back() -> None:
    turns = running(FIXED)
    turns.toy.finish(member(turns, 1), 1)
    turns.cycle()
    node = member(turns, 0).node
    taint = Taint(key="ToBeDeletedByClusterAutoscaler", value="", effect="NoSchedule")
    notice = Interruption(kind=InterruptionKind.TERMINATE, source=taint.key)
    turns.toy.nodes[node] = replace(turns.toy.nodes[node], taints=(taint,), interruption=notice)
    turns.run(10)
    unready(turns, node)
    turns.run(30)
    assert restarts(turns) == 1


def test_a_job_that_fails_by_itself_runs_out_of_restarts_as_ever() -> None:
    turns = running(FIXED)
    for _ in range(4):
        turns.toy.finish(member(turns, 1), 1)
        turns.run(200)
    status = turns.job("train").status
    assert (status.phase, status.restarts) == ("Failed", 3)


def test_a_record_that_cannot_be_read_says_where() -> None:
    with pytest.raises(WireError, match=r"lastFailure\.nodes"):
        status_from_wire(
            WorkloadKind.TRAINING_JOB,
            {"lastFailure": {"time": "2026-03-01T10:00:00Z", "count": 1, "nodes": "n0"}},
        )


def test_a_member_alone_has_no_one_who_explains_its_failure() -> None:
    turns = cluster(devices=1, nodes=1)
    turns.add(a_job("train"))
    turns.run(30)
    turns.toy.finish(member(turns, 0), 1)
    turns.run(3)
    assert restarts(turns) == 1
    assert turns.job("train").status.last_failure is None


def test_members_of_a_fixed_gang_that_fail_after_the_loss_was_seen_are_not_counted() -> None:
    turns = running(FIXED)
    unready(turns, member(turns, 0).node)
    turns.toy.finish(member(turns, 1), 1)
    turns.run(5)
    assert restarts(turns) == 0
