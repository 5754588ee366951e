# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Of each namespace the job whose ranks differ most; no label names a job or a rank."""

from __future__ import annotations

from dataclasses import replace

from builders import a_gpu_node, a_job, a_pod, a_snapshot
from ullage.api.slices import ObservedRank, ObservedSlice, SliceKey, SlicePhase
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.pod import PodRecord
from ullage.metrics.ranks import rank_figures


def a_member(name: str, job: str, namespace: str = "team") -> PodRecord:
    return a_pod(name, owner=a_job(job, namespace).record, node="node-1")


def told(*of: tuple[PodRecord, tuple[int, ...]]) -> GPUNodeRecord:
    """A node that reports ranks with these times of their own, in ms."""
    observed = tuple(
        ObservedSlice(
            key=SliceKey(pod_uid=pod.uid, container="main"),
            phase=SlicePhase.ATTACHED,
            gpu="GPU-0",
            percent=50,
            memory_mib=1,
            epoch=1,
            ranks=tuple(
                ObservedRank(rank=rank, steps=9, compute_micros=millis * 1000)
                for rank, millis in enumerate(times)
            ),
        )
        for pod, times in of
    )
    return replace(a_gpu_node("node-1"), observed=observed)


def test_the_widest_job_of_a_namespace_counts_over_all_its_pods() -> None:
    even, first, second = a_member("e", "even"), a_member("a", "odd"), a_member("b", "odd")
    single = a_member("s", "single", "lab")
    pods = {pod.uid: pod for pod in (even, first, second, single)}
    node = told((even, (90, 91, 92)), (first, (10, 10)), (second, (30,)), (single, (7,)))
    found = rank_figures(replace(a_snapshot(node), pods=pods))
    assert found.timed == 7
    assert found.compute_s == {("team", "median"): 0.01, ("team", "max"): 0.03}


def test_ranks_without_times_or_of_unknown_pods_compare_nothing() -> None:
    pod, gone = a_member("a", "odd"), a_member("b", "odd")
    node = told((pod, (0, 0)), (gone, (5, 9)))
    found = rank_figures(replace(a_snapshot(node), pods={pod.uid: pod}))
    assert (found.timed, found.compute_s) == (4, {})
