# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reports of nodes on the pods of a job: the parts of each rank's steps, and the slowest rank.

Read from the GPUNodes of its pods, where the hook times steps (``runtime.inject``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from ullage import ports
from ullage.api.readers import WireError, objects, section
from ullage.api.slices import DesiredSlice, ObservedSlice
from ullage.cli.tables import BAD, table_of
from ullage.cluster.records.pod import PodRecord
from ullage.engines.stragglers.detector import find_stragglers
from ullage.ports import ClusterPort, Forbidden, NotFound
from ullage.scheduling.observation.stragglers import RankOfPod, millis, pods_by_device, remarks

MOST_NODES: Final = 64
"""Nodes that are read for one answer."""
MOST_RANKS: Final = 32
"""Ranks that are shown; of more, the slowest ones."""


async def gpu_nodes_of(
    cluster: ClusterPort, pods: Iterable[PodRecord]
) -> dict[str, ports.JsonObject]:
    """GPUNodes of the nodes of these pods; none where the user may not read them."""
    nodes: dict[str, ports.JsonObject] = {}
    for node in sorted({pod.node for pod in pods if pod.node and not pod.stage.finished})[
        :MOST_NODES
    ]:
        try:
            nodes[node] = await cluster.get(ports.GPU_NODE, node)
        except NotFound:
            continue
        except Forbidden:
            return {}
    return nodes


def ranks_of(
    nodes: Mapping[str, ports.JsonObject], pods: Iterable[PodRecord]
) -> tuple[RankOfPod, ...]:
    """Ranks of these pods that are timed, by number."""
    by_uid = {pod.uid: pod for pod in pods if pod.node and not pod.stage.finished}
    ranks = [rank for node, body in nodes.items() for rank in _on(node, body, by_uid)]
    return tuple(sorted(ranks, key=lambda rank: (rank.figures.rank, rank.pod)))


def _on(node: str, body: ports.JsonObject, by_uid: Mapping[str, PodRecord]) -> Iterable[RankOfPod]:
    slices: list[ObservedSlice] = []
    for raw in objects(section(body, "status"), "slices"):
        try:
            slices.append(ObservedSlice.from_wire(raw))
        except WireError:  # of another version; the operator reports it
            continue
    residents = pods_by_device(slices)
    names = _names(body)
    for seen in slices:
        pod = by_uid.get(seen.key.pod_uid)
        if pod is not None:
            others = residents[seen.gpu] - {pod.uid}
            neighbours = tuple(sorted(names.get(uid, "another pod") for uid in others))
            for figures in seen.ranks:
                yield RankOfPod(pod=pod.name, node=node, figures=figures, neighbours=neighbours)


def _names(body: ports.JsonObject) -> dict[str, str]:
    """Pods with a slice on a node, by uid, as its spec names them."""
    names: dict[str, str] = {}
    for raw in objects(section(body, "spec"), "slices"):
        try:
            wanted = DesiredSlice.from_wire(raw)
        except WireError:
            continue
        names[wanted.key.pod_uid] = f"{wanted.pod_namespace}/{wanted.pod_name}"
    return names


def table(ranks: Sequence[RankOfPod]) -> RenderableType:
    """Ranks with the parts of their steps, and what is to be said of the slow ones."""
    stragglers = find_stragglers([rank.times for rank in ranks]).stragglers
    slow = {straggler.at: straggler for straggler in stragglers}
    divided = any(rank.divided for rank in ranks)
    order = sorted(range(len(ranks)), key=lambda at: (at not in slow, -ranks[at].times.own))
    columns = ("STEP", "STEP TIME", "COMPUTE", "DATA WAIT", "WAIT")
    rows = table_of(
        "RANK", "POD", "NODE", numbers=columns, more=("BATCH", "") if divided else ("",)
    )
    for at in sorted(order[:MOST_RANKS]):
        rank = ranks[at].figures
        rows.add_row(
            str(rank.rank),
            ranks[at].pod,
            ranks[at].node,
            str(rank.steps),
            *map(
                millis,
                (rank.step_micros, rank.compute_micros, rank.data_wait_micros, rank.wait_micros),
            ),
            *((f"{rank.batch} of {rank.even_batch}",) if divided else ()),
            Text(f"{slow[at].ratio:.1f}x slow", BAD) if at in slow else Text(""),
        )
    parts: list[RenderableType] = [rows]
    if len(ranks) > MOST_RANKS:
        parts.append(Text(f"and {len(ranks) - MOST_RANKS} faster ones"))
    return Group(*parts, *map(Text, remarks(ranks, stragglers)))
