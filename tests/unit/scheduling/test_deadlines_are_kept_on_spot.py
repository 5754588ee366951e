# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A deadline is kept: spot while there is room for it, on-demand in time, through every loss."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from builders import WorkloadBuilder, a_job
from fakes.toy_pools import PoolPlay, a_pool, aim, spells
from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.pool import PoolRecord

HOUR = 3600.0
SPOT, BACKUP = "spot-a", "od"


def due(hours: float = 12, work_h: float = 6, **cost: object) -> WorkloadBuilder:
    """A job whose steps take ten seconds each."""
    said = aim("Deadline", deadline_s=hours * HOUR, estimated_work_s=work_h * HOUR, **cost)
    return a_job().exclusive(1).checkpointed().with_(cost=said, work_steps=int(work_h * 360))


def play(*more: PoolRecord, spot: int = 0, backup: int = 1) -> PoolPlay:
    pools = [a_pool(SPOT, 1.0), a_pool(BACKUP, 3.0, spot=False), *more]
    toy = PoolPlay({one.name: one for one in pools})
    toy.give(SPOT, spot)
    toy.give(BACKUP, backup)
    toy.settle()
    return toy


def reason(toy: PoolPlay) -> Reason:
    spend = toy.job().status.spend
    assert spend is not None
    assert spend.decision is not None
    return spend.decision.reason


def test_spot_runs_while_the_deadline_leaves_room() -> None:
    toy = play(spot=1)
    toy.add(due())
    toy.settle()
    assert (toy.on(), toy.mode()) == ({SPOT}, "Spot")
    safe = toy.job().status.condition(ConditionType.DEADLINE_SAFE)
    assert safe is not None
    assert (safe.status, safe.reason) == ("True", Reason.DEADLINE_KEPT)


@pytest.mark.slow
def test_ahead_of_the_line_it_waits_and_behind_it_takes_on_demand() -> None:
    toy = play(spot=1)
    toy.add(due())
    toy.run(2 * HOUR)
    toy.take(SPOT)
    toy.settle()
    assert (toy.mode(), reason(toy)) == ("Idle", Reason.WAITING_FOR_SPOT)
    toy.run(2.5 * HOUR)
    assert toy.mode() == "OnDemand"
    assert toy.on() == {BACKUP}
    assert ("train", "FallbackToOnDemand") in toy.events
    assert toy.job().status.restarts == 0, "what was taken away is no failure"


@pytest.mark.slow
def test_caught_up_it_goes_back_to_spot() -> None:
    toy = play()
    toy.add(due())
    toy.run(60)
    assert toy.mode() == "OnDemand"
    toy.run(2 * HOUR)
    toy.give(SPOT)
    toy.run(600)
    assert (toy.mode(), toy.on()) == ("Spot", {SPOT})


@pytest.mark.slow
def test_the_books_tell_how_long_it_was_on_demand() -> None:
    toy = play()
    toy.add(due())
    toy.run(2 * HOUR)
    toy.give(SPOT)
    toy.run(6 * HOUR)
    assert toy.job().status.phase == "Succeeded"
    spend = toy.job().status.spend
    assert spend is not None
    assert spend.account is not None
    assert toy.on_demand_s["train"] > HOUR
    assert spend.account.on_demand_seconds == pytest.approx(toy.on_demand_s["train"], abs=180)


def test_progress_says_where_the_line_to_the_deadline_was() -> None:
    toy = play(spot=1)
    toy.add(due(hours=12, work_h=6))
    toy.run(3 * HOUR)
    progress = toy.job().status.progress
    assert progress is not None
    # it runs twice as fast as the line
    assert progress.percent == pytest.approx(50, abs=3)
    assert progress.expected_percent == pytest.approx(25, abs=2)


@pytest.mark.slow
def test_the_safety_net_is_for_good_and_outlives_the_leader() -> None:
    toy = play(backup=0)
    toy.add(due())
    toy.run(6 * HOUR)
    spend = toy.job().status.spend
    assert spend is not None
    assert spend.decision is not None
    assert spend.decision.committed
    assert spend.decision.reason is Reason.ON_DEMAND_MISSING
    assert toy.job().status.condition(ConditionType.DEADLINE_SAFE).status == "False"  # type: ignore[union-attr]
    toy.give(BACKUP)
    toy.settle()
    assert toy.on() == {BACKUP}
    job = toy.job()
    toy.toy.workloads[job.ref.uid] = replace(job, status=as_stored(job.kind, job.status))
    toy.give(SPOT)
    toy.run(3 * HOUR)
    assert toy.on() == {BACKUP}


@pytest.mark.slow
@pytest.mark.parametrize(("resumes", "mode"), [(True, "Spot"), (False, "OnDemand")])
def test_a_restart_at_two_thirds_is_not_undone_where_the_job_says_so(
    resumes: bool, mode: str
) -> None:
    toy = play(spot=1)
    toy.resumes = resumes
    toy.add(due(hours=8, work_h=6))
    toy.run(4 * HOUR)
    toy.take(SPOT)
    toy.run(60)
    toy.give(SPOT)
    toy.run(900)
    assert toy.mode() == mode
    spend, progress = toy.job().status.spend, toy.job().status.progress
    assert spend is not None
    assert spend.decision is not None
    assert spend.decision.committed is not resumes
    assert progress is not None
    assert (progress.percent >= 60, bool(progress.resumed_at)) == (resumes, resumes)


def test_a_deadline_that_cannot_be_kept_is_refused() -> None:
    toy = play(spot=1)
    toy.add(due(hours=6.2, work_h=6))
    toy.settle()
    assert toy.toy.members(toy.job().ref.uid) == []
    status = toy.job().status
    refused = status.condition(ConditionType.DEADLINE_INFEASIBLE)
    assert refused is not None
    assert "is 0.20 h too early" in refused.message
    assert status.decision is not None
    assert status.decision.reason is Reason.DEADLINE_INFEASIBLE
    assert ("train", "DeadlineInfeasible") in toy.events
    job = toy.job()
    cost = replace(job.cost, deadline_s=9 * HOUR)  # type: ignore[type-var]
    toy.toy.workloads[job.ref.uid] = replace(job, cost=cost, generation=job.generation + 1)
    toy.settle()
    assert toy.on() == {SPOT}
    assert toy.job().status.condition(ConditionType.DEADLINE_INFEASIBLE) is None


def test_work_that_no_one_can_tell_is_asked_for() -> None:
    toy = play(spot=1)
    job = due()
    toy.add(job.with_(cost=replace(job.build().cost, estimated_work_s=None)))  # type: ignore[type-var]
    toy.settle()
    assert reason(toy) is Reason.WORK_UNKNOWN
    assert toy.toy.members(toy.job().ref.uid) == []
    assert "set spec.cost.estimatedWork" in toy.job().status.decision.message  # type: ignore[union-attr]


def test_without_a_checkpoint_only_on_demand_will_do() -> None:
    toy = play(spot=1)
    toy.add(due().with_(checkpoint=False))
    toy.settle()
    assert toy.on() == {BACKUP}


@pytest.mark.slow
def test_the_last_steps_are_run_though_the_estimate_is_used_up() -> None:
    toy = play(spot=1)
    toy.add(due(hours=12, work_h=6).with_(work_steps=2400))
    toy.run(6.5 * HOUR)
    assert toy.on() == {SPOT}
    toy.take(SPOT)
    toy.settle()
    toy.give(SPOT)
    toy.run(HOUR)
    assert toy.job().status.phase == "Succeeded"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_deadline_is_missed_on_generated_traces(seed: int) -> None:
    toy = play()
    toy.start_s, toy.save_s = 240.0, 420.0
    toy.add(due(hours=15, work_h=12))
    start, there = toy.toy.now, False
    trace = [*spells(seed, up_h=1.5, down_h=1.0, hours=15), (15 * HOUR, False)]
    for (_, up), (until, _) in pairwise(trace):
        if up and not there:
            toy.give(SPOT)
        elif there and not up:
            toy.take(SPOT)
        there = up
        toy.run(min(until, 15 * HOUR) - (toy.toy.now - start), step_s=120)
        if toy.job().status.phase == "Succeeded":
            break
    status = toy.job().status
    assert status.phase == "Succeeded"
    assert status.completion_time - start <= 15 * HOUR
    assert toy.on_demand_s["train"] < 12 * HOUR, "spot did some of it"
