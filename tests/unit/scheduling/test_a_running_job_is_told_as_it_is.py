# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The status of a job that runs stays as it is while nothing changes, and follows what does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import NOW, Part, WorkloadBuilder, a_gpu_node, a_job, a_pod, a_slice, gpu, reported
from fakes.deciding import decided
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import WorkloadStatus
from ullage.scheduling.status import unchanged


def on_device(
    job: WorkloadBuilder, device: int = 0, phase: SlicePhase = SlicePhase.ATTACHED
) -> list[Part]:
    pod = a_pod("train-0", owner=job.build(), stage=PodStage.RUNNING, node="node-1")
    wanted = a_slice(pod, device=gpu("node-1", device), percent=100)
    node = a_gpu_node("node-1", devices=2, desired=[wanted], observed=[reported(wanted, phase)])
    return [job, pod, node]


@pytest.fixture
def told() -> WorkloadStatus:
    """The status of a job that runs on the first device, once it has settled."""
    job = a_job().exclusive().aged(600).status(phase="Running", start_time=NOW - 300)
    for _ in range(3):
        job = job.with_(status=decided(*on_device(job)).status(job))
    return job.build().status


def now_of(status: WorkloadStatus, **changes: object) -> WorkloadStatus:
    job = a_job().exclusive().aged(600).with_(status=status)
    return decided(*on_device(job, **changes)).status(job)  # type: ignore[arg-type]


def test_nothing_new_is_told_and_nothing_is_worked_out_again(
    told: WorkloadStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[bool] = []
    original = unchanged.still_runs

    def still_runs(*given: object) -> bool:
        answers.append(original(*given))  # type: ignore[arg-type]
        return answers[-1]

    monkeypatch.setattr(unchanged, "still_runs", still_runs)
    assert now_of(told) is told
    assert answers == [True]


def test_another_device_is_told(told: WorkloadStatus) -> None:
    before = told.placement[0].gpu
    after = now_of(told, device=1).placement[0].gpu
    assert before != after


def test_a_slice_that_is_not_enforced_is_told(told: WorkloadStatus) -> None:
    status = now_of(told, phase=SlicePhase.FAILED)
    assert status != told


@pytest.mark.parametrize("number", range(4))
def test_a_condition_that_does_not_hold_is_set_right(told: WorkloadStatus, number: int) -> None:
    spoilt = list(told.conditions)
    spoilt[number] = replace(spoilt[number], status="False")
    status = now_of(replace(told, conditions=tuple(spoilt)))
    assert [one.status for one in status.conditions] == ["True"] * len(told.conditions)


def test_a_condition_too_few_comes_back(told: WorkloadStatus) -> None:
    status = now_of(replace(told, conditions=told.conditions[:-1]))
    assert [one.type for one in status.conditions] == [one.type for one in told.conditions]


def test_what_was_read_of_an_older_spec_is_told_anew(told: WorkloadStatus) -> None:
    status = now_of(replace(told, observed_generation=told.observed_generation - 1))
    assert status.observed_generation == told.observed_generation
