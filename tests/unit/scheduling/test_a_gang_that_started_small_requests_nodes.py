# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An elastic gang requests nodes up to its target, whether it waits, started small or lost some."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    EPOCH,
    NOW,
    Part,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_node,
    a_pod,
    a_slice,
    a_snapshot,
    gpu,
    reported,
)
from fakes.deciding import Decided, decided_on
from fakes.toy_pools import a_pool, aim
from ullage.api.labels import LABEL_REGISTERED
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.pool import PoolRecord
from ullage.cluster.records.status import Progress, SizeRecord
from ullage.scheduling.model.plan import CreatePod, DecideSettings, DeletePod
from ullage.scheduling.times import GANG_HOLD_IN_PLACE_S, GANG_HOLD_S, NODE_AGENT_S, NODE_COMES_S

SETTINGS = DecideSettings(epoch=EPOCH, orders=True)
LONG_AGO = NOW - 3 * GANG_HOLD_S
LEAST, MOST = 2, 4


def waiting(budget: float | None = None, most: int = MOST) -> list[Part]:
    gang = a_job().exclusive(2).elastic(LEAST, most)
    gang = gang.with_(cost=aim(budget_per_hour=budget), work_steps=10**9)
    size = SizeRecord(since=NOW - 60, reason=Reason.SIZED, message="two of four")
    gang = gang.status(phase="Pending", replicas=LEAST, observed_generation=1, size=size)
    return [gang, *gang.pods()]


def a_gang(
    *,
    in_place: bool = True,
    since: float = LONG_AGO,
    budget: float | None = None,
    eta: float = 0.0,
    priority: int = 0,
) -> WorkloadBuilder:
    """It runs with as few members as it may have, and never had more."""
    return (
        a_job()
        .exclusive(2)
        .elastic(LEAST, MOST, in_place=in_place)
        .priority(priority)
        .with_(cost=aim(budget_per_hour=budget), work_steps=10**9)
        .status(
            phase="Running",
            replicas=LEAST,
            observed_generation=1,
            start_time=LONG_AGO,
            size=SizeRecord(since=since, reason=Reason.SIZED, message="two of four"),
            progress=Progress(steps=1, eta=eta) if eta else None,
        )
    )


def running(gang: WorkloadBuilder) -> list[Part]:
    """Its members, each on a node of the pool that it fills."""
    job, parts = gang.build(), list[Part]()
    for rank in range(LEAST):
        node = f"node-{rank + 1}"
        pod = a_pod(f"train-{rank}", owner=job, stage=PodStage.RUNNING, node=node, rank=rank)
        slices = [a_slice(pod, device=gpu(node, at), percent=100, index=at) for at in range(2)]
        seen = [reported(one, SlicePhase.ATTACHED) for one in slices]
        parts += [pod, a_node(node, labels={"pool": "spot-a", LABEL_REGISTERED: "true"})]
        parts.append(a_gpu_node(node, devices=2, desired=slices, observed=seen))
    return [gang, *parts]


def plan(*parts: Part, pool: PoolRecord | None = None) -> Decided:
    pool = pool or a_pool("spot-a", most=None)
    snapshot = replace(a_snapshot(*parts), pools={pool.name: pool})
    return decided_on(snapshot, at=NOW, settings=SETTINGS)


def requests(found: Decided) -> list[str]:
    return [one.name for one in found.all(CreatePod) if one.order is not None]


def taken_back(found: Decided) -> dict[str, Reason]:
    return {one.pod.name: one.reason for one in found.all(DeletePod)}


def a_request(number: int, node: str = "", age_s: float = 60.0) -> PodRecord:
    pod = a_pod(f"train-order-{number}", owner=a_gang().build(), rank=-1)
    stage = PodStage.RUNNING if node else PodStage.UNSCHEDULED
    return replace(pod, stage=stage, created=NOW - age_s, gates=(), order="spot-a", node=node)


def test_a_gang_that_waits_requests_its_greatest_size_at_once() -> None:
    assert len(requests(plan(*waiting()))) == MOST
    assert len(requests(plan(*waiting(most=LEAST + 1)))) == LEAST + 1
    out = [a_request(at) for at in range(LEAST)]
    assert len(requests(plan(*waiting(), *out))) == MOST - LEAST


@pytest.mark.parametrize(("most", "expected"), [(3, 3), (2, 2), (1, 0)])
def test_the_first_members_of_others_come_before_its_last(most: int, expected: int) -> None:
    assert len(requests(plan(*waiting(), pool=a_pool("spot-a", most=most)))) == expected


def test_who_waits_gets_nodes_before_a_running_gang_of_higher_priority_grows() -> None:
    other = a_job("other").exclusive(2).checkpointed().with_(cost=aim(), work_steps=9000)
    parts = [*running(a_gang(priority=100)), other, *other.pods()]
    found = plan(*parts, pool=a_pool("spot-a", most=LEAST + 1))
    assert requests(found) == ["other-order-0"]
    found = plan(*parts)
    assert requests(found) == ["other-order-0", "train-order-0", "train-order-1"]


@pytest.mark.parametrize("in_place", [True, False])
def test_a_gang_that_started_small_requests_the_rest_once(in_place: bool) -> None:
    parts = running(a_gang(in_place=in_place))
    assert requests(plan(*parts)) == ["train-order-0", "train-order-1"]
    again = plan(*parts, a_request(0), a_request(1))
    assert (requests(again), taken_back(again)) == ([], {})


def test_nothing_is_requested_soon_after_a_change_or_beyond_the_budget() -> None:
    assert requests(plan(*running(a_gang(since=NOW - GANG_HOLD_IN_PLACE_S + 1)))) == []
    assert requests(plan(*running(a_gang(in_place=False, since=NOW - GANG_HOLD_S + 1)))) == []
    assert requests(plan(*running(a_gang(budget=3.0)))) == ["train-order-0"]
    assert requests(plan(*running(a_gang(budget=2.0)))) == []
    assert len(requests(plan(*waiting(budget=3.0)))) == 3


def test_a_gang_that_is_nearly_done_requests_nothing_for_a_restart_and_frees_what_is_out() -> None:
    parts = running(a_gang(in_place=False, eta=NOW + 40))
    assert requests(plan(*parts)) == []
    assert taken_back(plan(*parts, a_request(0))) == {"train-order-0": Reason.PLACED}


@pytest.mark.parametrize(
    ("age_s", "kept"), [(NODE_COMES_S + 120, True), (NODE_AGENT_S + 120, False)]
)
def test_a_node_that_a_running_gang_has_not_grown_onto_yet_is_no_failed_launch(
    age_s: float, kept: bool
) -> None:
    new = a_node("new", labels={"pool": "spot-a", LABEL_REGISTERED: "true"})
    new = replace(new, created=NOW - age_s + 60, unschedulable=True)
    request = a_request(0, "new", age_s)
    found = plan(*running(a_gang()), new, a_gpu_node("new"), request)
    assert taken_back(found) == ({} if kept else {"train-order-0": Reason.POOL_RELEASED})
