# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Steps count over all starts where a job says which step it goes on from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from builders import NOW, WorkloadBuilder, a_gpu_node, a_job, a_slice, gpu, reported
from fakes.deciding import Decided, decided
from ullage.api.slices import ObservedSlice, SlicePhase
from ullage.cluster.codecs.status import as_stored
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import Progress
from ullage.scheduling.model.gang_speed import left_s
from ullage.scheduling.model.plan import SetStatus
from ullage.scheduling.model.progress import gang_progress

STEP_US = 100_000
JOB = a_job().gang(2).with_(work_steps=10_000)


def says(steps: int, resumed_at: int = 0) -> ObservedSlice:
    seen = reported(a_slice(), SlicePhase.ATTACHED, steps=steps, step_micros=STEP_US)
    return replace(seen, resumed_at=resumed_at)


def at(*members: ObservedSlice | None, before: Progress | None = None) -> tuple[int, int] | None:
    """Steps done, and the step that the start went on from."""
    found = gang_progress(((f"pod-{n}", one) for n, one in enumerate(members)), before)
    return (found.steps, found.resumed_at) if found is not None else None


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ([says(60), says(40)], (40, 0)),
        ([says(60, 5000), says(40, 5000)], (5040, 5000)),
        ([says(60, 5000), says(40)], (5040, 5000)),  # one program of a gang says it for all
        ([says(60), says(40, 5000)], (5040, 5000)),
        ([says(90, 4000), says(40, 5000)], (4090, 4000)),
        ([says(0, 5000), says(1, 5000)], (5000, 5000)),
        ([says(60, 5000), None], None),
        ([says(60, 5000), says(0)], None),
        ([], None),
    ],
)
def test_a_gang_stands_where_its_slowest_member_does(
    members: list[ObservedSlice | None], found: tuple[int, int] | None
) -> None:
    assert at(*members) == found


def test_a_single_step_before_the_checkpoint_is_loaded_undoes_nothing() -> None:
    before = Progress(steps=6000, resumed_at=5000)
    assert at(says(1), before=before) is None
    assert at(says(2), before=before) == (2, 0)
    assert at(says(1, 5500), before=before) == (5501, 5500)
    assert at(says(1)) == (1, 0)


def restarted(job: WorkloadBuilder, seen: Iterable[tuple[int, int]], moment: float) -> Decided:
    pods = job.pods(PodStage.RUNNING, node="node-1")
    held = [a_slice(pod, device=gpu("node-1", n), percent=100) for n, pod in enumerate(pods)]
    observed = [
        replace(
            reported(one, SlicePhase.ATTACHED, steps=steps, step_micros=STEP_US), resumed_at=base
        )
        for one, (steps, base) in zip(held, seen, strict=True)
    ]
    return decided(job, *pods, a_gpu_node(desired=held, observed=observed), at=moment)


def after(job: WorkloadBuilder, found: Decided) -> WorkloadBuilder:
    return job.with_(status=as_stored(job.build().kind, found.status(job)))


def test_a_restart_at_a_checkpoint_goes_on_from_there() -> None:
    first = after(JOB, restarted(JOB, [(6000, 0), (6010, 0)], NOW))
    found = restarted(first, [(100, 5900), (102, 5900)], NOW + 700)
    progress = found.status(first).progress
    assert progress == Progress(
        steps=6000,
        resumed_at=5900,
        total=10_000,
        percent=60,
        steps_per_second="10",
        eta=NOW + 700 + 400,
    )
    # what decides whether a greater gang is worth a restart counts from there too
    assert left_s(after(first, found).build(), NOW + 700) == 400
    silent = restarted(first, [(100, 0), (102, 0)], NOW + 700).status(first).progress
    assert silent is not None
    assert (silent.steps, silent.percent) == (100, 1)


def test_another_start_is_told_though_it_went_less_than_a_percent_further() -> None:
    first = after(JOB, restarted(JOB, [(6000, 0), (6000, 0)], NOW))
    found = restarted(first, [(20, 5990), (20, 5990)], NOW + 30)
    progress = found.status(first).progress
    assert progress is not None
    assert (progress.steps, progress.resumed_at) == (6010, 5990)
    second = after(first, found)
    assert not restarted(second, [(40, 5990), (40, 5990)], NOW + 32).all(SetStatus)


def test_the_end_keeps_where_the_last_start_resumed() -> None:
    first = after(JOB, restarted(JOB, [(20, 5990), (20, 5990)], NOW))
    pods = first.pods(PodStage.SUCCEEDED, node="node-1")
    found = decided(first, *pods, a_gpu_node(), at=NOW + 60)
    assert found.status(first).progress == Progress(
        steps=10_000, resumed_at=5990, total=10_000, percent=100
    )
