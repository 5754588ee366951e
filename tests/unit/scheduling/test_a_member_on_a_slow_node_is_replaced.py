# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A rank that its node makes slow for long gets another node; a status says why where it does not.

A gang in place of three members on four nodes, of one device each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from builders import a_job
from fakes.toy_elastic import JOINS_S, UID, cluster, events, here, member, taken_away, told
from fakes.toy_rounds import Turns
from ullage.api.interruptions import Interruption, InterruptionKind
from ullage.api.reasons import Reason
from ullage.cli.tables import why
from ullage.cluster.records.status import Replacement, WorkloadStatus
from ullage.cluster.records.straggler import StragglerRecord
from ullage.engines.stragglers.detector import SlowCause
from ullage.scheduling.lifecycle.slow_members import NO_ROOM

AFTER_S = 600.0


def gang(
    nodes: int = 4, least: int = 1, most: int = 3, *, in_place: bool = True, elsewhere: bool = False
) -> Turns:
    """Members that have run for a while."""
    turns = cluster(devices=1, nodes=nodes)
    job = a_job("train").elastic(least, most, in_place=in_place, meets_elsewhere=elsewhere)
    turns.add(job.with_(replace_after_s=AFTER_S))
    turns.run(60)
    assert told(turns) == most
    turns.events.clear()
    turns.counts.clear()
    return turns


def slow(
    turns: Turns, rank: int, cause: SlowCause = SlowCause.COMPUTE, *, after_s: float = AFTER_S
) -> str:
    """A rank is slow from now on, and time passes; returns the node of its pod."""
    pod = member(turns, rank)
    turns.toy.stragglers = {
        UID: StragglerRecord(
            rank=rank,
            pod=pod.name,
            pod_uid=pod.uid,
            node=pod.node,
            cause=cause,
            ratio_percent=190,
            since=turns.toy.now,
        )
    }
    turns.run(after_s)
    return pod.node


def status_of(turns: Turns) -> WorkloadStatus:
    return turns.job("train").status


def shown(turns: Turns) -> str:
    condition = status_of(turns).condition("StragglerPresent")
    return condition.message if condition is not None else ""


def replacements(turns: Turns) -> tuple[Replacement, ...]:
    return status_of(turns).scheduling.replacements


def test_it_leaves_for_another_node_and_the_others_run_on() -> None:
    turns = gang()
    before = here(turns)
    node = slow(turns, 1)
    turns.toy.stragglers = {}  # its ranks are gone
    turns.run(JOINS_S)
    after = here(turns)
    assert {rank: after[rank] for rank in (0, 2)} == {rank: before[rank] for rank in (0, 2)}
    assert after[1] != before[1]
    assert member(turns, 1).node != node
    assert taken_away(turns) == 1
    assert status_of(turns).restarts == 0
    (replacement,) = replacements(turns)
    assert (replacement.rank, replacement.pod, replacement.node) == (1, "train-1", node)
    assert replacement.reason is Reason.RANK_COMPUTES_LONGER
    assert replacement.message == (
        f"train-1 leaves: rank 1 on {node} took 1.9 times as long as the others for 10m"
        " (RankComputesLonger), so it starts on another node"
    )
    assert events(turns).count("StragglerReplaced") == 2  # it leaves, and is there again
    assert "StragglerKept" not in events(turns)


def test_people_read_from_where_to_where() -> None:
    turns = gang()
    node = slow(turns, 1)
    turns.toy.stragglers = {}
    turns.run(JOINS_S)
    page = StringIO()
    Console(file=page, width=300).print(why(turns.job("train")))
    rows = [line.split()[:3] for line in page.getvalue().splitlines()]
    assert ["train-1", node, member(turns, 1).node] in rows


def test_not_before_its_time() -> None:
    turns = gang()
    slow(turns, 1, after_s=AFTER_S - 1)
    assert taken_away(turns) == 0
    assert shown(turns) == f"rank 1 in train-1 on {member(turns, 1).node}"
    turns.run(2)
    assert taken_away(turns) == 1


def test_the_node_is_left_out_for_this_job_alone() -> None:
    turns = gang(nodes=4)
    node = slow(turns, 1)
    turns.toy.stragglers = {}
    turns.run(JOINS_S)
    turns.add(a_job("other").exclusive())
    turns.run(30)
    assert [pod.node for pod in turns.toy.members("uid-default-other")] == [node]
    assert not turns.toy.nodes[node].unschedulable
    exclusion = status_of(turns).scheduling.exclusions[-1]
    assert (exclusion.reason, exclusion.node) == (Reason.STRAGGLER_REPLACED, node)
    assert exclusion.is_of_node
    assert exclusion.until - exclusion.since == 3600


@pytest.mark.parametrize(
    ("turns", "rank", "cause", "why"),
    [
        (gang, 1, SlowCause.NEIGHBOUR, "the cause is a neighbour on its device, not the node"),
        (gang, 1, SlowCause.DATA, "the cause is its input, not the node"),
        (gang, 0, SlowCause.COMPUTE, "the members meet at it, so all would start again"),
        (lambda: gang(nodes=3), 1, SlowCause.COMPUTE, NO_ROOM),
        (lambda: gang(least=3), 1, SlowCause.COMPUTE, "the gang trains with 3 members at least"),
        (
            lambda: gang(in_place=False),
            1,
            SlowCause.COMPUTE,
            "all members would start again, because spec.elasticity.membership is not InPlace;"
            " delete its pod where that is worth it",
        ),
    ],
)
def test_where_it_stays_the_status_says_why(
    turns: Callable[[], Turns], rank: int, cause: SlowCause, why: str
) -> None:
    toy = turns()
    node = slow(toy, rank, cause)
    assert shown(toy) == f"rank {rank} in train-{rank} on {node}; not replaced: {why}"
    toy.run(3600)
    assert taken_away(toy) == 0
    assert events(toy).count("StragglerKept") == 1
    assert "StragglerReplaced" not in events(toy)
    writes = toy.counts["SetStatus"]
    toy.run(3600)
    assert toy.counts["SetStatus"] == writes


def test_another_device_of_the_slow_node_is_no_place() -> None:
    turns = cluster(devices=2, nodes=2)
    job = a_job("train").elastic(1, 3, in_place=True, meets_elsewhere=True)
    turns.add(job.with_(replace_after_s=AFTER_S))
    turns.run(60)
    nodes = [member(turns, rank).node for rank in range(3)]
    alone = next(rank for rank in range(3) if nodes.count(nodes[rank]) == 1)
    slow(turns, alone)
    assert shown(turns).endswith(f"; not replaced: {NO_ROOM}")
    assert taken_away(turns) == 0


def test_a_gang_of_a_fixed_size_stays() -> None:
    turns = cluster(devices=1, nodes=3)
    turns.add(a_job("train").gang(2).with_(replace_after_s=AFTER_S))
    turns.run(60)
    slow(turns, 1)
    assert "all members would start again" in shown(turns)
    turns.run(600)
    assert taken_away(turns) == 0


def test_where_members_meet_elsewhere_the_first_leaves_like_any_other() -> None:
    turns = gang(elsewhere=True)
    slow(turns, 0)
    assert taken_away(turns) == 1


@pytest.mark.parametrize("cause", [SlowCause.THROTTLED, SlowCause.LINK])
def test_a_limit_and_a_link_are_of_the_node(cause: SlowCause) -> None:
    turns = gang()
    slow(turns, 1, cause)
    assert taken_away(turns) == 1


def test_without_the_field_nothing_is_replaced() -> None:
    turns = gang()
    job = turns.job("train")
    turns.toy.workloads[UID] = replace(job, replace_after_s=None)
    slow(turns, 1)
    turns.run(7200)
    assert taken_away(turns) == 0
    assert "not replaced" not in shown(turns)


def test_a_rank_that_is_slow_on_two_nodes_is_slow_by_its_program() -> None:
    turns = gang(nodes=6)
    first = slow(turns, 1)
    turns.toy.stragglers = {}
    turns.run(JOINS_S)
    slow(turns, 1)
    assert taken_away(turns) == 1
    why = f"the rank was slow on {first}, too, so its program is the cause"
    assert shown(turns).endswith(f"not replaced: {why}")
    turns.toy.now += 86_400
    turns.run(5)  # a day later it may be the node
    assert len(replacements(turns)) == 2


def test_one_leaves_at_a_time() -> None:
    turns = gang(nodes=6)
    warned = member(turns, 2).node
    notice = Interruption(
        kind=InterruptionKind.TERMINATE, deadline_s=turns.toy.now + AFTER_S + 120, source="EC2"
    )
    slow(turns, 1, after_s=AFTER_S - 1)
    turns.toy.gpu_nodes[warned] = replace(turns.toy.gpu_nodes[warned], interruption=notice)
    fewest = 3
    for _ in range(120):
        turns.run(1)
        fewest = min(fewest, len(here(turns)))
    assert fewest == 2
    assert [replacement.pod for replacement in replacements(turns)] == ["train-1"]


def test_two_jobs_do_not_leave_for_one_place() -> None:
    turns = gang(nodes=5, most=2, elsewhere=True)
    other = a_job("other").elastic(1, 2, in_place=True, meets_elsewhere=True)
    turns.add(other.with_(replace_after_s=AFTER_S))
    turns.run(60)
    second = next(pod for pod in turns.toy.members("uid-default-other") if pod.rank == 1)
    slow(turns, 1, after_s=0)
    assert turns.toy.stragglers is not None
    record = replace(
        turns.toy.stragglers[UID], pod=second.name, pod_uid=second.uid, node=second.node
    )
    turns.toy.stragglers = {**turns.toy.stragglers, "uid-default-other": record}
    turns.run(AFTER_S)
    assert taken_away(turns) == 1
    turns.run(30)
    assert taken_away(turns) == 1


def test_a_suspended_job_keeps_its_members_until_it_stops() -> None:
    turns = gang()
    slow(turns, 1, after_s=AFTER_S - 1)
    turns.toy.workloads[UID] = replace(turns.job("train"), suspend=True)
    turns.run(60)
    assert replacements(turns) == ()


def test_replacements_in_a_day_are_bounded() -> None:
    turns = gang(nodes=9, most=5)
    for rank in (1, 2, 3):
        slow(turns, rank)
        turns.toy.stragglers = {}
        turns.run(JOINS_S)
    assert [replacement.rank for replacement in replacements(turns)] == [1, 2, 3]
    slow(turns, 4)
    assert taken_away(turns) == 3
    assert shown(turns).endswith("3 members were replaced in 24 hours, which is the most")


def test_an_eviction_that_is_refused_is_one_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = gang(nodes=6)
    applied = turns.toy.apply
    monkeypatch.setattr(
        turns.toy,
        "apply",
        lambda actions, may: applied(
            [action for action in actions if type(action).__name__ != "EvictPod"], may
        ),
    )
    slow(turns, 1)
    turns.run(300)
    assert len(replacements(turns)) == 1
    assert turns.counts["EvictPod"] > 1
    monkeypatch.undo()
    turns.run(5)
    turns.toy.stragglers = {}
    turns.run(JOINS_S)
    assert len(replacements(turns)) == 1
    assert told(turns) == 3
