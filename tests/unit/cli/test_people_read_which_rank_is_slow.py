# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The ranks of a job, with the parts of their steps, and the one that the others wait for."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from builders import a_job, a_pod
from ullage.api.slices import DesiredSlice, ObservedRank, ObservedSlice, SliceKey, SlicePhase
from ullage.cli.ranks import MOST_RANKS, gpu_nodes_of, ranks_of, table
from ullage.cluster.records.pod import PodStage
from ullage.engines.stragglers.detector import find_stragglers
from ullage.ports import Forbidden, JsonObject, Kind, NotFound
from ullage.scheduling.observation.stragglers import RankOfPod, remarks


class Nodes:
    """An API server that knows these GPUNodes."""

    def __init__(self, **nodes: JsonObject) -> None:
        self.nodes = nodes
        self.forbidden = False

    async def get(self, kind: Kind, name: str, namespace: str = "") -> JsonObject:
        assert kind.kind == "GPUNode"
        if self.forbidden:
            raise Forbidden(403, "no rights")
        if name not in self.nodes:
            raise NotFound(404, name)
        return self.nodes[name]


def figures(rank: int, compute_ms: int, data_ms: int = 1, wait_ms: int = 0) -> ObservedRank:
    return ObservedRank(
        rank=rank,
        steps=1200 + rank,
        step_micros=(compute_ms + data_ms + wait_ms) * 1000,
        compute_micros=compute_ms * 1000,
        wait_micros=wait_ms * 1000,
        data_wait_micros=data_ms * 1000,
    )


def a_node(**ranks: tuple[ObservedRank, ...]) -> JsonObject:
    slices = [
        ObservedSlice(
            key=SliceKey(pod_uid=uid, container="main"),
            phase=SlicePhase.ATTACHED,
            gpu="GPU-0",
            percent=100,
            memory_mib=1,
            epoch=1,
            ranks=told,
        ).to_wire()
        for uid, told in ranks.items()
    ]
    return {"status": {"slices": slices}}


def shown(*ranks: ObservedRank) -> str:
    out = StringIO()
    rows = [
        RankOfPod(pod=f"digits-{rank.rank}", node=f"node-{rank.rank % 2}", figures=rank)
        for rank in ranks
    ]
    Console(file=out, width=200, color_system=None).print(table(rows))
    return out.getvalue()


async def test_ranks_come_from_the_nodes_of_the_jobs_pods() -> None:
    job = a_job("digits").record
    pods = [
        a_pod(name, owner=job, rank=rank, node=node, stage=PodStage.RUNNING)
        for rank, (name, node) in enumerate([("a", "node-1"), ("b", "node-2"), ("c", "gone")])
    ]
    uids = {pod.name: pod.uid for pod in pods}
    cluster: Any = Nodes(
        **{
            "node-1": a_node(**{uids["a"]: (figures(2, 10),), "uid-of-others": (figures(9, 9),)}),
            "node-2": a_node(**{uids["b"]: (figures(0, 10), figures(1, 10))}),
        }
    )
    found = ranks_of(await gpu_nodes_of(cluster, pods), pods)
    assert [(rank.figures.rank, rank.pod, rank.node) for rank in found] == [
        (0, "b", "node-2"),
        (1, "b", "node-2"),
        (2, "a", "node-1"),
    ]
    cluster.forbidden = True
    assert ranks_of(await gpu_nodes_of(cluster, pods), pods) == ()


async def test_a_slice_that_cannot_be_read_hides_no_other() -> None:
    pod = a_pod("a", owner=a_job("digits").record, node="node-1", stage=PodStage.RUNNING)
    node: dict[str, Any] = dict(a_node(**{pod.uid: (figures(0, 10),)}))
    node["status"]["slices"].insert(0, {"phase": "Dreaming"})
    cluster: Any = Nodes(**{"node-1": node})
    assert len(ranks_of(await gpu_nodes_of(cluster, [pod]), [pod])) == 1


def test_the_slow_one_is_named_with_what_it_does() -> None:
    text = shown(figures(0, 50, wait_ms=52), figures(1, 100, wait_ms=2))
    assert "2.0x slow" in text
    assert "rank 1 on node-1 takes 2.0 times as long as the others, mostly to compute" in text
    assert "50.0 ms" in text
    text = shown(figures(0, 50, 1), figures(1, 50, 60), figures(2, 50, 1))
    assert "rank 1 on node-1 takes 2.2 times as long as the others, mostly for its data" in text


@pytest.mark.parametrize(
    "ranks", [(figures(0, 50),), (figures(0, 50), figures(1, 55)), (figures(0, 0, 0),) * 2]
)
def test_nobody_is_blamed_without_a_difference(ranks: tuple[ObservedRank, ...]) -> None:
    assert "slow" not in shown(*ranks)
    assert "wait for it" not in shown(*ranks)


def test_of_many_ranks_the_slowest_are_shown() -> None:
    text = shown(*(figures(rank, 50 + 50 * (rank == 99)) for rank in range(MOST_RANKS + 68)))
    assert "and 68 faster ones" in text
    assert "digits-99" in text


def test_a_rank_with_a_smaller_batch_is_still_slow() -> None:
    fast = replace(figures(0, 52), batch=37, even_batch=32, even_step_micros=100_000)
    slow = replace(figures(1, 50), batch=16, even_batch=32, even_step_micros=100_000)
    slow = replace(slow, throttled_percent=60)
    text = shown(fast, slow)
    assert "16 of 32" in text
    assert "takes 2.2 times as long as the others, stopped at its CPU limit 60 % of the" in text
    assert "raise the CPU limit of pod digits-1" in text
    assert "is given 16 of 32 samples" in text
    assert "step 100.0 ms -> 51.0 ms" in text


def test_a_neighbour_is_named_with_what_to_do() -> None:
    rows = [
        RankOfPod(pod="digits-0", node="a", figures=figures(0, 50)),
        RankOfPod(pod="digits-1", node="b", figures=figures(1, 99), neighbours=("other/etl-0",)),
    ]
    stragglers = find_stragglers([row.times for row in rows]).stragglers
    slowness, advice = remarks(rows, stragglers)
    assert "mostly to compute beside other/etl-0" in slowness
    assert "suspend or move other/etl-0" in advice


async def test_neighbours_are_pods_on_the_same_device() -> None:
    pod = a_pod("a", owner=a_job("digits").record, node="node-1", stage=PodStage.RUNNING)
    node: dict[str, Any] = dict(a_node(**{pod.uid: (figures(0, 10),), "uid-b": ()}))
    wanted = DesiredSlice(
        key=SliceKey(pod_uid="uid-b", container="main"),
        pod_namespace="other",
        pod_name="etl-0",
        gpu="GPU-0",
        percent=10,
        memory_mib=1,
        epoch=1,
    )
    node["spec"] = {"slices": [wanted.to_wire(), {"key": 3}]}
    cluster: Any = Nodes(**{"node-1": node})
    (rank,) = ranks_of(await gpu_nodes_of(cluster, [pod]), [pod])
    assert rank.neighbours == ("other/etl-0",)


def test_a_program_that_keeps_even_batches_says_why() -> None:
    text = shown(replace(figures(0, 50), even_reason="BatchNorm"), figures(1, 50))
    assert "batches stay even: BatchNorm: the model has BatchNorm" in text
    assert "batches" not in shown(replace(figures(0, 50), even_reason="OfALaterVersion"))
