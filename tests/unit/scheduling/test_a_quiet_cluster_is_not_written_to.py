# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Nothing happened, nothing is said; figures move in steps worth a write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    NOW,
    Part,
    WorkloadBuilder,
    a_device_profile,
    a_gpu_node,
    a_job,
    a_pod,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import decided, told
from ullage.api.slices import SlicePhase
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.pod import PodStage
from ullage.scheduling.model.plan import Emit, SetStatus

STEP_US = 100_000


def _parts(
    job: WorkloadBuilder, *, steps: int = 0, step_us: int = 0, solo_us: int = 0, percent: int = 50
) -> list[Part]:
    pod = a_pod("train-0", owner=job.build(), stage=PodStage.RUNNING, node="node-1")
    held = a_slice(pod, device=gpu(), percent=percent)
    seen = reported(
        held,
        SlicePhase.ATTACHED,
        steps=steps,
        step_micros=step_us,
        solo_step_micros=solo_us,
    )
    return [pod, a_gpu_node(devices=1, desired=[held], observed=[seen])]


def _after(job: WorkloadBuilder, *parts: Part, at: float = NOW) -> WorkloadBuilder:
    """The job as it reads back from the API once told."""
    status = told(job, *parts, at=at).build().status
    return job.with_(status=as_stored(job.build().kind, status))


JOB = a_job().fractional(50, 50).with_(work_steps=10_000)


def test_a_job_that_runs_on_is_not_written_to() -> None:
    job = _after(JOB, *_parts(JOB), at=NOW + 0.7)
    assert not decided(job, *_parts(job), at=NOW + 100.3).actions


def test_a_job_that_waits_on_is_not_written_to() -> None:
    runs = _after(JOB, *_parts(JOB))
    waits = a_job("waits").fractional(60)
    parts = [*_parts(JOB), runs, *waits.pods()]
    waits = _after(waits, *parts)
    assert waits.build().status.conditions[0].reason == "PercentLimit"
    assert not decided(waits, *parts, at=NOW + 50).actions


def test_since_moves_with_the_status_alone() -> None:
    job = _after(a_job().gang(3), a_gpu_node())
    assert job.build().status.conditions[0].since == NOW
    other = decided(job, at=NOW + 9)
    admitted = other.condition(job, "Admitted")
    assert (admitted.status, admitted.since) == ("False", NOW)
    assert admitted.reason == "NoNodeMatches"
    fits = decided(job, a_gpu_node(devices=3), *job.pods(), at=NOW + 9)
    assert fits.condition(job, "Admitted").since == NOW + 9


def test_progress_is_that_of_the_slowest_member() -> None:
    job = a_job().gang(2).with_(work_steps=100)
    pods = job.pods(PodStage.RUNNING, node="node-1")
    held = [a_slice(pod, device=gpu("node-1", at), percent=100) for at, pod in enumerate(pods)]
    seen = [
        reported(one, SlicePhase.ATTACHED, steps=steps, step_micros=STEP_US)
        for one, steps in zip(held, (60, 40), strict=True)
    ]
    found = decided(job, *pods, a_gpu_node(desired=held, observed=seen))
    progress = found.status(job).progress
    assert progress is not None
    assert (progress.steps, progress.total, progress.percent) == (40, 100, 40)
    assert (progress.steps_per_second, progress.eta) == ("10", NOW + 6)


def test_an_end_that_no_calendar_holds_is_not_told() -> None:
    job = a_job().with_(work_steps=10**12)
    found = decided(job, *_parts(job, steps=5, step_us=400_000))
    progress = found.status(job).progress
    assert progress is not None
    assert (progress.total, progress.steps_per_second, progress.eta) == (10**12, "2.5", 0.0)


@pytest.mark.parametrize(
    ("steps", "written"),
    [
        (1000 + 599, False),  # most of a minute at ten steps a second
        (1000 + 600, True),
        (1000 + 50, False),  # less than a percent
        (10, True),  # started again from a checkpoint
    ],
)
def test_progress_is_written_once_a_minute_and_by_the_percent(steps: int, written: bool) -> None:
    job = _after(JOB, *_parts(JOB, steps=1000, step_us=STEP_US))
    found = decided(job, *_parts(job, steps=steps, step_us=STEP_US), at=NOW + 90)
    assert bool(found.all(SetStatus)) is written
    progress = found.status(job).progress
    assert progress is not None
    assert progress.steps == (steps if written else 1000)
    assert not found.all(Emit)


def test_a_minute_without_a_whole_percent_is_no_news() -> None:
    job = _after(JOB.with_(work_steps=1_000_000), *_parts(JOB, steps=1000, step_us=STEP_US))
    found = decided(job, *_parts(job, steps=9000, step_us=STEP_US), at=NOW + 900)
    assert not found.all(SetStatus)


def test_the_observed_slowdown_moves_by_tenths() -> None:
    job = _after(JOB, *_parts(JOB, step_us=200, solo_us=100))
    sharing = job.build().status.sharing
    assert sharing is not None
    assert (sharing.percent, sharing.predicted, sharing.observed) == (50, "2.00", "2.00")
    assert not decided(job, *_parts(job, step_us=219, solo_us=100)).actions
    moved = decided(job, *_parts(job, step_us=221, solo_us=100)).status(job).sharing
    assert moved is not None
    assert moved.observed == "2.21"


def test_crossing_the_objective_is_always_news() -> None:
    job = JOB.slowdown(2.1)
    job = _after(job, *_parts(job, step_us=205, solo_us=100))
    assert job.build().status.conditions[4].status == "True"
    found = decided(job, *_parts(job, step_us=215, solo_us=100))
    met = found.condition(job, "SLOMet")
    assert (met.status, met.reason) == ("False", "AboveObjective")
    sharing = found.status(job).sharing
    assert sharing is not None
    assert sharing.observed == "2.15"


def test_an_objective_no_one_can_observe_yet_has_no_condition() -> None:
    job = JOB.slowdown(2.1)
    assert decided(job, *_parts(job)).status(job).condition("SLOMet") is None


def test_a_new_neighbour_changes_what_is_predicted() -> None:
    roomy = a_job().fractional(50, 50)
    job = _after(roomy, *_parts(roomy))
    other = a_job("other").fractional(50, 50)
    found = decided(job, *_parts(job), other, *other.pods())
    assert len(found.places()) == 2
    sharing = found.status(job).sharing
    assert sharing is not None
    assert sharing.predicted == "2.00"


def test_the_decision_keeps_its_time_while_it_stands() -> None:
    job = _after(JOB, *_parts(JOB))
    before = job.build().status.decision
    assert before is not None
    found = decided(job.with_(generation=2), *_parts(job), at=NOW + 500)
    assert found.all(SetStatus), "the new generation is acknowledged"
    assert found.decision(job) == before


def test_a_placement_is_explained_with_what_came_second() -> None:
    job = a_job().fractional(20, 40)
    found = decided(a_gpu_node(), job, *job.pods())
    decision = found.decision(job)
    assert decision.chosen == "node-1/GPU-node-1-0 40 %"
    assert decision.runner_up == "node-1/GPU-node-1-1 40 %"
    assert len(decision.inputs_hash) == 64
    assert found.events() == []


def test_the_place_of_a_job_that_was_told_to_wait_is_an_event() -> None:
    waits = a_job("waits").fractional(60)
    waits = _after(waits, *_parts(JOB), _after(JOB, *_parts(JOB)), *waits.pods())
    assert waits.build().status.conditions[0].reason == "PercentLimit"
    found = decided(waits, a_gpu_node(devices=1), *waits.pods())
    assert found.events() == [("Placed", "node-1/GPU-node-1-0 100 %")]


def test_what_is_told_reads_back_the_same() -> None:
    ended = JOB.slowdown(3).status(phase="Running")
    pod, node = _parts(ended, steps=500, step_us=210, solo_us=100)
    over = replace(pod, stage=PodStage.SUCCEEDED, exit_code=0)  # type: ignore[type-var]
    invalid = JOB.with_(invalid="spec.replicas: expected a whole number")
    for job, parts in (
        (JOB, [a_gpu_node()]),
        (JOB, [*JOB.pods(), a_gpu_node()]),
        (JOB.gang(9), [*JOB.gang(9).pods(), a_gpu_node()]),
        (ended, [pod, node]),
        (ended, [over, node]),
        (invalid, [pod, node]),
    ):
        status = decided(job, *parts).status(job)
        assert as_stored(job.build().kind, status) == status


def test_what_it_costs_is_entered_when_it_moved_and_not_sooner() -> None:
    priced = replace(a_device_profile(), price_per_hour=2.0)
    job = _after(JOB, *_parts(JOB), priced)
    spend = job.build().status.spend
    assert spend is not None
    assert spend.account is not None
    assert (spend.account.per_hour, spend.account.total) == ("1", "")
    assert not decided(job, *_parts(job), priced, at=NOW + 50).actions
    (wrote,) = decided(job, *_parts(job), priced, at=NOW + 72).actions
    assert isinstance(wrote, SetStatus)
    later = job.with_(status=as_stored(job.build().kind, wrote.status))
    spend = later.build().status.spend
    assert spend is not None
    assert spend.account is not None
    assert (spend.account.total, spend.account.as_of) == ("0.02", NOW + 72)
    assert not decided(later, *_parts(later), priced, at=NOW + 130).actions
