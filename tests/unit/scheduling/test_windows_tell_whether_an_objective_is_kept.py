# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Windows of the guard become condition, attainment and latency, in steps worth a write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import a_job, a_pod, a_slice, gpu, reported
from ullage.api.observations import LatencyObjective
from ullage.api.slices import ObservedSlice, SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import Sharing
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.placement import predicted_figures
from ullage.scheduling.placement.predicted_figures import Part

SLO = LatencyObjective(latency_ms=40)
JOB = a_job().fractional(50, 50)


class _no_one(predicted_figures.Predictions):
    def of(self, node: str, gpu: str, pod_uid: str) -> float:
        return 1.5


def part(phase: SlicePhase = SlicePhase.ATTACHED, **seen: int) -> Part:
    pod = a_pod("train-0", owner=JOB.build(), stage=PodStage.RUNNING, node="node-1")
    held = a_slice(pod, device=gpu(), percent=50)
    told: ObservedSlice = replace(reported(held, phase), **seen)  # type: ignore[arg-type]
    return Part(pod.uid, pod.name, "node-1", held, told)


def serving(before: Sharing | None = None) -> WorkloadRecord:
    return JOB.with_(slo=SLO).status(sharing=before).build()


def shown(before: Sharing | None, *parts: Part) -> Sharing:
    predictions = object.__new__(_no_one)
    predictions.admissions = {}
    found = predicted_figures.sharing(serving(before), parts, predictions)
    assert found is not None
    return found


def test_two_of_three_windows_decide_and_not_a_single_one() -> None:
    loose = part(windows=100, violations=1, latency_micros=90_000)
    assert predicted_figures.objective_met(serving(), [loose]) == (
        True,
        "kept in 99 of 100 windows since the start",
    )
    broken = part(SlicePhase.VIOLATING, windows=103, violations=3)
    judged = predicted_figures.objective_met(serving(), [loose, broken])
    assert judged == (False, "kept in 199 of 203 windows since the start")


def test_without_a_window_the_observed_slowdown_decides() -> None:
    job = JOB.slowdown(1.5).build()
    assert predicted_figures.objective_met(job, [part(step_micros=160, solo_step_micros=100)]) == (
        False,
        "observed 1.60 times slower than alone, allowed 1.5",
    )
    assert predicted_figures.objective_met(job, [part()]) is None
    assert (
        predicted_figures.objective_met(serving(), [part(step_micros=160, solo_step_micros=100)])
        is None
    )


def test_steps_shorter_than_alone_are_no_gain() -> None:
    assert predicted_figures.observed_slowdown([part(step_micros=66, solo_step_micros=100)]) == 1.0
    assert predicted_figures.observed_slowdown([part(step_micros=66)]) == 0.0


def test_who_has_no_objective_cannot_miss_it() -> None:
    assert (
        predicted_figures.objective_met(JOB.build(), [part(SlicePhase.VIOLATING, windows=9)])
        is None
    )


def test_attainment_is_of_all_members_and_latency_of_the_slowest() -> None:
    told = shown(
        None,
        part(windows=60, violations=0, latency_micros=12_001),
        part(windows=40, violations=2, latency_micros=38_500),
    )
    assert (told.attainment, told.latency_ms) == ("0.980", 39)


@pytest.mark.parametrize(
    ("latency_micros", "violations", "written"),
    [
        (37_000, 20, False),
        (41_000, 20, True),  # crosses the objective
        (30_000, 20, True),
        (37_000, 24, False),
        (37_000, 26, True),
    ],
)
def test_figures_move_in_steps_worth_a_write(
    latency_micros: int, violations: int, written: bool
) -> None:
    before = shown(None, part(windows=1000, violations=20, latency_micros=38_000))
    now = part(windows=1000, violations=violations, latency_micros=latency_micros)
    assert (shown(before, now) is not before) is written


def test_what_the_admission_said_stands_while_the_share_does() -> None:
    before = replace(
        shown(None, part()), group="G1", z="1.9", threshold="1.4", predicted_upper="1.7"
    )
    assert shown(before, part(windows=10)).group == "G1"
    other = replace(before, percent=60)
    assert shown(other, part(windows=10)).group == ""
