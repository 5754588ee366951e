# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who says what the choice is for gets the recommended of the allowed types, where it is free.

It is no limit: no one waits for it, and of shares the size comes first.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import (
    Part,
    WorkloadBuilder,
    a_gpu_node,
    a_job,
    a_pod,
    a_policy,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import decided
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.api.trainingjob import CostAim
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import Recommended


def a_node_of(name: str, kind: str, *busy: int) -> list[Part]:
    """A node whose devices of one type carry a tenant of this percent each (0 = none)."""
    parts: list[Part] = []
    held = []
    for index, percent in enumerate(busy):
        if percent:
            job = a_job(f"busy-{name}-{index}").fractional(percent)
            pod_name = f"busy-{name}-{index}-0"
            pod = a_pod(pod_name, owner=job.build(), stage=PodStage.RUNNING, node=name)
            parts += [job, pod]
            held.append(
                a_slice(pod, device=gpu(name, index), percent=percent, memory_mib=percent * 100)
            )
    seen = [reported(one, SlicePhase.ATTACHED) for one in held]
    made = a_gpu_node(name, devices=len(busy), desired=held, observed=seen)
    assert isinstance(made, GPUNodeRecord)
    devices = tuple(replace(one, model=kind) for one in made.devices)
    return [*parts, replace(made, devices=devices)]


def choosing(
    objective: str = "CostPerWork", reason: Reason = Reason.RECOMMENDED, kind: str = "b-type"
) -> WorkloadBuilder:
    """A job to which a type was recommended."""
    row = Recommended(accelerator=kind, devices=1, reason=reason)
    aim = CostAim(objective=objective)
    return a_job().with_(cost=aim).status(phase="Pending", recommendation=(row,))


def place(job: WorkloadBuilder, *parts: Part) -> str:
    """Node that the job gets a device on."""
    found = decided(*parts, job, *job.pods()).places().get("train-0", [])
    return found[0].removeprefix("GPU-")[:6] if found else ""


TWO = (*a_node_of("node-1", "a-type", 0), *a_node_of("node-2", "b-type", 0))


@pytest.mark.parametrize("objective", ["CostPerWork", "Makespan"])
def test_the_recommended_type_is_taken_where_it_is_free(objective: str) -> None:
    assert place(choosing(objective), *TWO) == "node-2"
    assert place(choosing(objective, kind="a-type"), *TWO) == "node-1"


def test_no_one_waits_for_it() -> None:
    taken = (*a_node_of("node-1", "a-type", 0), *a_node_of("node-2", "b-type", 100))
    assert place(choosing(), *taken) == "node-1"
    assert place(choosing(kind="gone"), *TWO) == "node-1"


@pytest.mark.parametrize(
    "job",
    [
        a_job(),
        choosing(objective=""),
        choosing(objective="Deadline"),
        choosing(reason=Reason.NOT_ANCHORED),
    ],
    ids=["no cost", "no objective", "capacity decides", "advice only"],
)
def test_without_an_open_choice_all_types_are_alike(job: WorkloadBuilder) -> None:
    assert place(job, *TWO) == "node-1"


def test_a_list_of_types_is_a_choice_among_them() -> None:
    assert place(choosing().with_(accelerators=("a-type", "b-type")), *TWO) == "node-2"
    assert place(choosing().with_(accelerators=("a-type",)), *TWO) == "node-1"


def test_of_shares_the_size_comes_first_and_the_type_before_what_is_left_over() -> None:
    job = choosing().fractional(20, 60)
    larger = (*a_node_of("node-1", "a-type", 40), *a_node_of("node-2", "b-type", 60))
    assert place(job, *larger) == "node-1", "60 % beside 40 %"
    equal = (*a_node_of("node-1", "a-type", 40), *a_node_of("node-2", "b-type", 0))
    assert place(job, *equal) == "node-2", "60 % on both, though node-1 would be full"
    assert place(a_job().fractional(20, 60), *equal) == "node-1"


def test_by_worth_a_place_without_a_trial_comes_before_the_type() -> None:
    policy = a_policy(learned=True)
    job = choosing().fractional(30, 60).slowdown(2.5).with_(workload_class="known")
    both = (*a_node_of("node-1", "a-type", 0), *a_node_of("node-2", "b-type", 0))
    assert place(job, policy, *both) == "node-2"
    beside = (*a_node_of("node-1", "a-type", 0), *a_node_of("node-2", "b-type", 40))
    assert place(job, policy, *beside) == "node-1"


def test_members_of_a_mixed_gang_are_on_both_types_when_there_is_not_enough() -> None:
    job = choosing().gang(3).with_(mixed_accelerators=True)
    parts = (*a_node_of("node-1", "a-type", 0, 0), *a_node_of("node-2", "b-type", 0, 0))
    found = decided(*parts, job, *job.pods()).places()
    taken = sorted(uuid for (uuid,) in found.values())
    assert len(taken) == 3
    assert {gpu("node-2", 0), gpu("node-2", 1)} < set(taken)
