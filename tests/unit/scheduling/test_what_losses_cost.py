# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What losses take of the work that was paid for: since the last checkpoint, nothing twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import NOW, a_gpu_node, a_job, a_slice, gpu, reported
from fakes.toy_books import HOUR, Days, on, one_spot_node
from ullage.api.reasons import ConditionType, Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Condition, Progress
from ullage.scheduling.accounting import cost_records

RUNNING = Condition(type=ConditionType.READY, status="True", reason="Running", since=NOW)


def restarting(reason: Reason) -> dict[str, object]:
    admitted = Condition(type=ConditionType.ADMITTED, status="False", reason=reason)
    return {"phase": "Restarting", "conditions": (admitted,), "placement": ()}


def working(snapshot: Snapshot, *, steps: int, age_s: int, resumed_at: int = 0) -> Snapshot:
    seen = reported(a_slice(device=gpu("n1"), percent=100), SlicePhase.ATTACHED, steps=steps)
    node = a_gpu_node("n1", observed=[replace(seen, checkpoint_age_s=age_s, resumed_at=resumed_at)])
    return replace(snapshot, gpu_nodes={"n1": node})


def test_a_loss_takes_what_was_done_since_the_last_checkpoint() -> None:
    days = Days(one_spot_node())
    progress = Progress(steps=7200, steps_per_second="2")
    days.cycle(phase="Running", placement=(on("n1"),), conditions=(RUNNING,), progress=progress)
    days.snapshot = working(days.snapshot, steps=7200, age_s=300)
    days.cycle(HOUR, **restarting(Reason.MEMBER_LOST))
    lost = days.known
    assert (lost.lost_seconds, lost.lost_steps, lost.evictions) == (300, 600, 1)
    # 1 $ for 6600 steps that count
    assert lost.per_thousand_steps == "0.151515"
    days.cycle(60.0, phase="Running", placement=(on("n1"),), conditions=(RUNNING,))
    days.cycle(60.0, progress=Progress(steps=10, steps_per_second="2"))
    assert days.known.earlier_steps == 7200
    again = days.known
    days.cycle(1.0)
    assert days.known == again


def running(steps: int, resumed_at: int = 0) -> dict[str, object]:
    progress = Progress(steps=steps, resumed_at=resumed_at, steps_per_second="2")
    return {
        "phase": "Running",
        "placement": (on("n1"),),
        "conditions": (RUNNING,),
        "progress": progress,
    }


def test_where_a_job_resumes_says_exactly_what_a_loss_took() -> None:
    days = Days(one_spot_node())
    days.cycle(**running(7000))
    days.snapshot = working(days.snapshot, steps=7200, age_s=1200)
    days.cycle(HOUR, **restarting(Reason.MEMBER_LOST))
    assumed = days.known
    assert (assumed.lost_steps, assumed.assumed_steps, assumed.assumed_seconds) == (
        2400,
        2400,
        1200,
    )
    assert assumed.reached_steps == 7200
    days.cycle(60.0, phase="Running", placement=(on("n1"),), conditions=(RUNNING,))
    assert days.known.reached_steps == 7200
    # it says so late, and has caught up by then
    days.cycle(600.0, **running(7500, 6600))
    exact = days.known
    assert (exact.lost_steps, exact.lost_seconds) == (600, 300)
    assert (exact.reached_steps, exact.assumed_steps, exact.assumed_seconds) == (0, 0, 0)
    assert (exact.earlier_steps, exact.first_step) == (7200, 0)
    days.cycle(2 * HOUR, **running(9000, 6600))
    # 7200 steps of the first start and 2400 of the second are 9000 that count: 4 $ for 9
    assert float(days.known.per_thousand_steps) == pytest.approx(float(days.known.total) / 9)
    again = days.known
    days.cycle(1.0)
    assert days.known == again


def test_what_is_not_assumed_of_lost_work_never_shrinks() -> None:
    days = Days(one_spot_node())
    settled = [0]

    def note() -> None:
        settled.append(days.known.lost_seconds - days.known.assumed_seconds)

    days.cycle(**running(7000))
    for steps, resumed_at in ((7200, 0), (900, 7200), (300, 7900), (50, 8200)):
        days.snapshot = working(days.snapshot, steps=steps, age_s=900, resumed_at=resumed_at)
        days.cycle(HOUR, **restarting(Reason.MEMBER_LOST))
        note()
        days.cycle(90.0, phase="Starting", placement=(on("n1"),), conditions=())
        note()
        reached = steps + resumed_at
        days.cycle(60.0, **running(reached + 10, reached - 40))
        note()
    assert settled == sorted(settled)
    # four times 40 steps at two in a second
    assert settled[-1] == 4 * 20


def test_two_losses_from_one_checkpoint_are_two_losses() -> None:
    days = Days(one_spot_node())
    days.cycle(**running(6000, 5000))
    for reached, caught_up in ((6000, 6100), (6500, 6900)):
        own = reached - 5000
        days.snapshot = working(days.snapshot, steps=own, age_s=0, resumed_at=5000)
        days.cycle(HOUR, **restarting(Reason.MEMBER_LOST))
        days.cycle(90.0, **running(caught_up, 5000))
    assert days.known.lost_steps == 1000 + 1500
    assert days.known.lost_seconds == 500 + 750
    assert cost_records.useful_steps(days.known, days.workload, days.workload.status) == 1900


def test_steps_of_another_job_are_not_paid_for_twice() -> None:
    days = Days(one_spot_node())
    days.cycle(phase="Running", placement=(on("n1"),), conditions=(RUNNING,))
    days.cycle(60.0, **running(100_050, 100_000))
    days.cycle(HOUR, **running(107_200, 100_000))
    assert days.known.first_step == 100_000
    assert cost_records.useful_steps(days.known, days.workload, days.workload.status) == 7200


def test_a_checkpoint_that_failed_is_a_loss_though_it_was_asked_for() -> None:
    days = Days(one_spot_node())
    days.workload = a_job().checkpointed().build()
    days.cycle(**running(7000, 6000))
    days.snapshot = working(days.snapshot, steps=1000, age_s=500, resumed_at=6000)
    days.cycle(HOUR, **restarting(Reason.PREEMPTED))
    assert days.known.lost_steps == 0
    days.cycle(60.0, **running(6010, 6000))
    assert (days.known.lost_steps, days.known.lost_seconds) == (1000, 500)


def test_a_program_that_goes_back_as_it_runs_loses_that() -> None:
    days = Days(one_spot_node())
    days.cycle(**running(7000, 6000))
    begun = days.known.first_step
    days.cycle(60.0, **running(6950, 6900))
    assert days.known.first_step == begun
    assert (days.known.lost_steps, days.known.lost_seconds) == (100, 50)
    days.cycle(60.0, **running(7100, 6900))
    assert days.known.lost_steps == 100


def test_a_report_without_a_new_step_is_no_new_start() -> None:
    days = Days(one_spot_node())
    days.cycle(**running(7000))
    days.cycle(60.0, progress=Progress(steps=7000, steps_per_second="1"))
    days.cycle(HOUR, **running(7400))
    assert days.known.earlier_steps == 0
    assert float(days.known.per_thousand_steps) == pytest.approx(
        float(days.known.total) / 7.4, rel=1e-4
    )


def test_the_first_step_has_a_price() -> None:
    days = Days(one_spot_node())
    days.cycle(**running(0))
    days.cycle(HOUR, **running(0))
    assert days.known.per_thousand_steps == ""
    days.cycle(HOUR, **running(1))
    assert float(days.known.per_thousand_steps) == 1000 * float(days.known.total)


def test_a_job_that_starts_afresh_has_lost_all_of_it() -> None:
    days = Days(one_spot_node())
    days.cycle(**running(7000, 6000))
    days.cycle(HOUR, **restarting(Reason.MEMBER_LOST))
    days.cycle(60.0, **running(40))
    assert days.known.lost_steps == 7000
    assert cost_records.useful_steps(days.known, days.workload, days.workload.status) <= 40


def test_without_any_checkpoint_a_loss_takes_the_whole_start() -> None:
    days = Days(one_spot_node())
    days.cycle(phase="Running", placement=(on("n1"),), conditions=(RUNNING,))
    days.snapshot = working(days.snapshot, steps=5, age_s=0)
    days.cycle(HOUR, **restarting(Reason.DEVICE_LOST))
    assert (days.known.lost_seconds, days.known.lost_steps) == (3600, 0)


def test_who_is_asked_to_save_its_work_loses_none() -> None:
    days = Days(one_spot_node())
    days.workload = a_job().checkpointed().build()
    days.cycle(phase="Running", placement=(on("n1"),), conditions=(RUNNING,))
    days.snapshot = working(days.snapshot, steps=5, age_s=900)
    days.cycle(HOUR, **restarting(Reason.PREEMPTED))
    assert (days.known.lost_seconds, days.known.evictions) == (0, 1)


def test_a_job_that_fails_by_itself_was_not_evicted() -> None:
    days = Days(one_spot_node())
    days.cycle(phase="Running", placement=(on("n1"),), conditions=(RUNNING,))
    days.cycle(HOUR, **restarting(Reason.EXIT_CODE))
    assert days.known.evictions == 0
