# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Largest share, least left over, nodes the gang already uses, uuid: in this order."""

from __future__ import annotations

from builders import (
    Part,
    a_device,
    a_gpu_node,
    a_job,
    a_node,
    a_pod,
    a_policy,
    a_slice,
    gpu,
    reported,
)
from fakes.deciding import decided
from ullage.api.slices import SlicePhase
from ullage.cluster.records.pod import PodStage


def _busy(node: str, *percents: int) -> list[Part]:
    """A node whose devices carry one tenant of this percent each (0 = none)."""
    parts: list[Part] = []
    held = []
    for index, percent in enumerate(percents):
        if percent:
            job = a_job(f"busy-{node}-{index}").fractional(percent)
            pod = a_pod(
                f"busy-{node}-{index}-0", owner=job.build(), stage=PodStage.RUNNING, node=node
            )
            parts += [job, pod]
            held.append(
                a_slice(pod, device=gpu(node, index), percent=percent, memory_mib=percent * 100)
            )
    seen = [reported(one, SlicePhase.ATTACHED) for one in held]
    return [*parts, a_gpu_node(node, devices=len(percents), desired=held, observed=seen)]


def test_the_device_that_grants_the_largest_share_wins() -> None:
    job = a_job().fractional(20, 80)
    found = decided(*_busy("node-1", 50, 30, 40), job, *job.pods())
    assert found.places()["train-0"] == [gpu("node-1", 1)]
    assert {one.percent for _, one in found.slices() if one.pod_name == "train-0"} == {70}


def test_of_equal_shares_the_fullest_device_wins() -> None:
    job = a_job().fractional(30, 30)
    found = decided(*_busy("node-1", 0, 60, 20), job, *job.pods())
    assert found.places()["train-0"] == [gpu("node-1", 1)]


def test_of_equal_devices_the_lowest_uuid_wins() -> None:
    job = a_job()
    found = decided(a_gpu_node("node-2"), a_gpu_node("node-1"), job, *job.pods())
    assert found.places() == {"train-0": [gpu("node-1", 0)]}
    assert found.decision(job).chosen == "node-1/GPU-node-1-0 100 %"
    assert found.decision(job).runner_up == "node-2/GPU-node-2-0 100 %"


def test_whole_devices_are_taken_from_the_node_that_has_least_to_spare() -> None:
    job = a_job()
    found = decided(*_busy("node-1", 0, 0, 0), *_busy("node-2", 0, 50, 50), job, *job.pods())
    assert found.places()["train-0"] == [gpu("node-2", 0)]


def test_several_devices_come_from_one_node_in_order_of_their_index() -> None:
    job = a_job().exclusive(3)
    found = decided(*_busy("node-1", 0, 10, 0), *_busy("node-2", 0, 0, 0, 0), job, *job.pods())
    assert found.places()["train-0"] == [gpu("node-2", at) for at in range(3)]
    mine = [one for _, one in found.slices() if one.pod_name == "train-0"]
    assert [one.key.index for one in mine] == [0, 1, 2]
    assert all(one.percent == 100 for one in mine)


def test_members_of_a_gang_stay_together_where_all_else_is_equal() -> None:
    devices = [a_device(f"GPU-{at}") for at in (0, 3)], [a_device(f"GPU-{at}") for at in (1, 2)]
    job = a_job().gang(2).fractional(100, 100)
    found = decided(
        a_gpu_node("node-1", devices=devices[0]),
        a_gpu_node("node-2", devices=devices[1]),
        job,
        *job.pods(),
    )
    assert found.places() == {"train-0": ["GPU-0"], "train-1": ["GPU-3"]}


def test_members_that_crowd_one_another_out_share_equally() -> None:
    job = a_job().gang(3).fractional(25, 100)
    found = decided(a_gpu_node(devices=2), job, *job.pods())
    assert sorted(one.percent for _, one in found.slices()) == [50, 50, 50]


def test_a_share_never_exceeds_what_its_memory_leaves() -> None:
    job, pod, _ = _busy("node-1", 10)
    memory = 12_000
    held = a_slice(pod, device=gpu(), percent=10, memory_mib=memory)  # type: ignore[arg-type]
    place = a_gpu_node(devices=1, desired=[held], observed=[reported(held, SlicePhase.ATTACHED)])
    asked = a_job().fractional(10, 100)
    found = decided(job, pod, place, asked, *asked.pods())
    mine = next(one for _, one in found.slices() if one.pod_name == "train-0")
    assert mine.percent == 26
    assert memory + mine.memory_mib <= 16_384


def test_shares_may_sum_to_what_the_policy_says() -> None:
    job = a_job().fractional(50, 70)
    policy = a_policy(max_percent_sum=120)
    found = decided(*_busy("node-1", 60), policy, job, *job.pods())
    assert {one.percent for _, one in found.slices() if one.pod_name == "train-0"} == {60}


def test_a_node_without_free_slots_is_passed_over() -> None:
    job = a_job()
    found = decided(
        a_node("node-1", slots=0), a_gpu_node("node-1"), a_gpu_node("node-2"), job, *job.pods()
    )
    assert found.places() == {"train-0": [gpu("node-2", 0)]}
