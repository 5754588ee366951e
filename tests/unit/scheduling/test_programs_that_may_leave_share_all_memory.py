# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``switching: Checkpoint``: what stays between steps may leave the device, so it counts once."""

from __future__ import annotations

from dataclasses import replace

import pytest

import builders
from builders import WorkloadBuilder, a_gpu_node, a_job, a_node
from fakes.deciding import Decided, decided
from ullage.api.reasons import Reason
from ullage.cluster.records.pod import PodStage

GIB = 1024


def notebook(number: int, *, keeps: int = 8, leaves: bool = True) -> WorkloadBuilder:
    """Half of the device's 16 GiB stay, a step takes 2 more."""
    job = a_job(f"notebook-{number:02d}").fractional(50, 50)
    return job.in_lanes(keeps * GIB, 2 * GIB, leaves=leaves)


def placed(*jobs: WorkloadBuilder, suspends: bool = True) -> Decided:
    pods = [pod for job in jobs for pod in job.pods()]
    device = replace(builders.a_device("GPU-node-1-0"), suspends=suspends)
    return decided(a_node(slots=64), a_gpu_node("node-1", devices=[device]), *jobs, *pods)


def test_more_notebooks_than_fit_share_one_device() -> None:
    found = [one for _, one in placed(*map(notebook, range(5))).slices()]
    assert len(found) == 5
    assert {(one.lane, one.suspendable) for one in found} == {(1, True)}
    assert {(one.persistent_mib, one.ephemeral_mib) for one in found} == {(8 * GIB, 2 * GIB)}
    assert {one.memory_mib for one in found} == {10 * GIB}, "each may have all of it in its turn"


def test_without_it_the_device_holds_one() -> None:
    jobs = [notebook(number, leaves=False) for number in range(5)]
    assert len(placed(*jobs).slices()) == 1


def test_one_that_stays_counts_beside_the_largest_of_those_that_leave() -> None:
    stays = notebook(9, keeps=5, leaves=False).priority(1)
    found = [one for _, one in placed(stays, *map(notebook, range(3))).slices()]
    assert len(found) == 4, "5 stay, and in turns 10"
    too_much = placed(notebook(9, keeps=7, leaves=False), *map(notebook, range(3)))
    assert too_much.decision("notebook-09").reason is Reason.MEMORY_WOULD_OVERFLOW


def test_a_device_whose_node_suspends_nothing_is_refused_with_the_reason() -> None:
    found = placed(notebook(0), suspends=False)
    assert not found.slices()
    decision = found.decision("notebook-00")
    assert decision.reason is Reason.CHECKPOINT_UNAVAILABLE
    assert "suspend" in decision.message


def test_a_device_that_suspends_nothing_any_more_takes_no_second_one() -> None:
    first, second = notebook(0), notebook(1)
    (slice_,) = [one for _, one in placed(first).slices()]
    device = replace(builders.a_device("GPU-node-1-0"), suspends=False)
    node = a_gpu_node("node-1", devices=[device], desired=[slice_])
    pods = [*first.pods(PodStage.RUNNING, node="node-1"), *second.pods()]
    found = decided(a_node(slots=64), node, first, second, *pods)
    assert found.decision("notebook-01").reason is Reason.CHECKPOINT_UNAVAILABLE


@pytest.mark.parametrize("kind", ["objective", "gang"])
def test_who_has_a_lane_of_its_own_never_leaves(kind: str) -> None:
    job = notebook(0).slowdown(2.0) if kind == "objective" else notebook(0).gang(2)
    record = job.build()
    assert record.gpu.lane is not None
    found = [one for _, one in placed(job, suspends=False).slices()]
    assert all((one.lane, one.suspendable) == (0, False) for one in found)
