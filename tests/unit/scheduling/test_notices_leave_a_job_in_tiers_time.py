# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whether a notice leaves time to hand over is told, and judged before a job in tiers starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import NOW, WorkloadBuilder, a_gpu_node, a_job, a_pod, a_slice, gpu, reported
from fakes.deciding import Decided, decided
from fakes.toy_pools import a_pool, aim
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.api.trainingjob import TierTerms
from ullage.api.words import OnNotice
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.pool import PoolRecord
from ullage.engines.tiers.flush import BYTES_PER_SECOND
from ullage.scheduling.lifecycle.notice_periods import shortest_notice_s, verdict
from ullage.scheduling.model.plan import CreatePod, Emit, SetStatus, UngatePod

SECONDS_40 = TierTerms(reliable=1, state_bytes=40 * BYTES_PER_SECOND, max_lag_steps=1)
"""Handing over the whole state takes 40 s, which is half of 80."""
SHORT, LONG = a_pool("spot-a", notice_s=30.0), a_pool("spot-b", notice_s=80.0)


def job(
    terms: TierTerms = SECONDS_40, on_notice: OnNotice = OnNotice.FLUSH, **status: object
) -> WorkloadBuilder:
    built = a_job().elastic(2, 4, in_place=True, tiers=terms, on_notice=on_notice).gang(2)
    return built.status(replicas=2, **status)


def new(*pools: PoolRecord, built: WorkloadBuilder | None = None) -> Decided:
    """The job is applied where there is room."""
    return decided(built or job(), *pools, *(a_gpu_node(f"node-{at}") for at in range(3)))


def by_name(*pools: PoolRecord) -> dict[str, PoolRecord]:
    return {one.name: one for one in pools}


def running(*pools: PoolRecord, built: WorkloadBuilder) -> Decided:
    """Every member runs beside its coordinator."""
    pods = tuple(
        replace(pod, node=f"node-{at}")
        for at, pod in enumerate(built.pods(PodStage.RUNNING, since=NOW - 50))
    )
    nodes = []
    for at, pod in enumerate(pods):
        held = a_slice(pod, device=gpu(f"node-{at}"), percent=100, memory_mib=16_384)
        seen = [reported(held, SlicePhase.ATTACHED)]
        nodes.append(a_gpu_node(f"node-{at}", devices=1, desired=[held], observed=seen))
    coordinator = a_pod("train-lead", owner=built.build(), rank=-1, stage=PodStage.RUNNING)
    return decided(built, *pods, *nodes, replace(coordinator, lead=True, node="node-9"), *pools)


def test_the_shortest_notice_of_the_pools_that_it_may_use_counts() -> None:
    pools = by_name(SHORT, LONG, a_pool("steady", spot=False))
    assert shortest_notice_s(pools, job().build()) == 30.0
    elsewhere = by_name(replace(SHORT, accelerator="other"), LONG)
    picky = replace(job().build(), accelerators=(LONG.accelerator,))
    assert shortest_notice_s(elsewhere, picky) == 80.0
    steady = replace(job().build(), cost=aim(allow_spot=False))
    assert shortest_notice_s(pools, steady) is None


def test_a_flush_that_fits_into_half_of_it_is_told() -> None:
    found = new(LONG).condition("train", "NoticeFeasible")
    assert (found.status, found.reason) == ("True", "NoticeLongEnough")
    assert "40.0 s" in found.message
    assert "1 Gbit/s" in found.message
    assert new(LONG).all(CreatePod), "it is started"


@pytest.mark.parametrize("pools", [(), (a_pool("spot-a"),)])
def test_where_no_one_states_a_notice_nothing_is_said(pools: tuple[PoolRecord, ...]) -> None:
    found = new(*pools)
    assert found.status("train").condition("NoticeFeasible") is None
    assert found.all(CreatePod), "it is started"


def test_a_job_that_counts_on_notices_that_are_too_short_is_not_started() -> None:
    found = new(SHORT, LONG)
    assert found.all(CreatePod) == []
    status = found.status("train")
    assert status.phase == "Pending"
    admitted = found.condition("train", "Admitted")
    assert (admitted.status, admitted.reason) == ("False", "NoticeTooShort")
    decision = found.decision("train")
    assert decision.reason is Reason.NOTICE_TOO_SHORT
    assert "a flush takes 40.0 s, half of the notice is 15.0 s" in decision.message
    assert "onNotice: Checkpoint" in decision.message
    assert found.condition("train", "NoticeFeasible").status == "False"
    events = [(one.reason, one.warning) for one in found.all(Emit)]
    assert (Reason.NOTICE_TOO_SHORT, True) in events


def test_it_is_told_once() -> None:
    first = new(SHORT)
    again = new(SHORT, built=job().with_(status=first.status("train")))
    assert again.all(SetStatus) == []
    assert again.all(Emit) == []


def test_it_starts_when_the_pools_or_its_owner_say_otherwise() -> None:
    waits = job().with_(status=new(SHORT).status("train"))
    assert new(LONG, built=waits).all(CreatePod)
    less = replace(SECONDS_40, dirty_bytes=15 * BYTES_PER_SECOND)
    assert new(SHORT, built=job(less)).all(CreatePod)
    assert "maxLagSteps 1" in new(
        SHORT, built=job(replace(less, max_lag_steps=3))
    ).decision("train").message  # fmt: skip


@pytest.mark.parametrize("on_notice", [OnNotice.CHECKPOINT, OnNotice.IGNORE])
def test_who_does_not_count_on_notices_starts_and_is_told(on_notice: OnNotice) -> None:
    found = new(SHORT, built=job(on_notice=on_notice))
    assert found.all(CreatePod)
    assert found.condition("train", "NoticeFeasible").reason == "NoticeTooShort"


def test_pools_that_give_no_notice_are_none_to_count_on() -> None:
    found = new(a_pool("spot-a", notice_s=0.0))
    assert found.all(CreatePod) == []
    assert "no notice" in found.decision("train").message


def test_what_is_wrong_with_the_job_itself_is_told_first() -> None:
    built = job()
    shape = replace(built.build().shape, device_container="")
    found = new(SHORT, built=built.with_(shape=shape, invalid="no container asks for a device"))
    assert found.decision("train").reason is Reason.INVALID_OBJECT


def test_members_that_wait_give_back_what_they_hold() -> None:
    built = job()
    pods = built.pods()
    held = [a_slice(one, device=gpu(f"node-{at}")) for at, one in enumerate(pods)]
    nodes = [
        a_gpu_node(f"node-{at}", desired=[one], observed=[reported(one, SlicePhase.RESERVED)])
        for at, one in enumerate(held)
    ]
    found = decided(built, *pods, *nodes, SHORT)
    assert found.all(UngatePod) == []
    assert found.all(CreatePod) == [], "no coordinator either"
    assert found.slices() == []


def test_what_has_started_runs_on() -> None:
    built = job(phase="Running", start_time=NOW - 100)
    found = running(SHORT, built=built)
    status = found.status("train")
    assert status.phase == "Running"
    assert found.condition("train", "NoticeFeasible").status == "False"
    assert found.condition("train", "Admitted").status == "True"
    told = built.with_(status=status)
    assert running(SHORT, built=told).all(SetStatus) == []


@pytest.mark.parametrize(
    ("terms", "most", "owned"),
    [
        (replace(SECONDS_40, stage=1), 9, False),
        (replace(SECONDS_40, stage=2), 2, True),
        (SECONDS_40, 2, False),
        (SECONDS_40, 3, True),
        (replace(SECONDS_40, reliable=2), 4, False),
    ],
)
def test_where_reliable_members_own_the_state_nothing_is_handed_over(
    terms: TierTerms, most: int, owned: bool
) -> None:
    built = a_job().elastic(2, most, in_place=True, tiers=terms, on_notice=OnNotice.FLUSH)
    found = verdict(by_name(SHORT), built.build())
    assert found is not None
    assert found.feasible is not owned


def test_work_in_no_tiers_is_told_nothing() -> None:
    plain = a_job().elastic(2, 4, in_place=True).gang(2).status(replicas=2)
    found = new(SHORT, built=plain)
    assert found.status("train").condition("NoticeFeasible") is None
    assert found.all(CreatePod)
