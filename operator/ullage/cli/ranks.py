# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reports of nodes on the pods of a job: the parts of each rank's steps, and the slowest rank.

Read from the GPUNodes of its pods, where the hook times steps (``runtime.inject``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from ullage import ports
from ullage.api.readers import WireError, objects, section
from ullage.api.slices import ObservedRank, ObservedSlice
from ullage.cli.tables import BAD, table_of
from ullage.cluster.records.pod import PodRecord
from ullage.engines.stragglers.detector import SLOW, relative_to_others
from ullage.ports import ClusterPort, Forbidden, NotFound

MOST_NODES: Final = 64
"""Nodes that are read for one answer."""
MOST_RANKS: Final = 32
"""Ranks that are shown; of more, the slowest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOfPod:
    """A rank, and the pod that it runs in."""

    pod: str
    node: str
    figures: ObservedRank

    @property
    def own_micros(self) -> int:
        """Its own part of a step: data and compute."""
        return self.figures.compute_micros + self.figures.data_wait_micros


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
    for raw in objects(section(body, "status"), "slices"):
        try:
            seen = ObservedSlice.from_wire(raw)
        except WireError:  # of another version; the operator reports it
            continue
        pod = by_uid.get(seen.key.pod_uid)
        if pod is not None:
            for figures in seen.ranks:
                yield RankOfPod(pod=pod.name, node=node, figures=figures)


def table(ranks: Sequence[RankOfPod]) -> RenderableType:
    """Ranks with the parts of their steps, and a line on the slowest one."""
    ratios = relative_to_others([rank.own_micros for rank in ranks])
    shown = sorted(range(len(ranks)), key=lambda at: -ratios[at])[:MOST_RANKS]
    columns = ("STEP", "STEP TIME", "COMPUTE", "DATA WAIT", "WAIT")
    rows = table_of("RANK", "POD", "NODE", numbers=columns, more=("",))
    for at in sorted(shown):
        rank = ranks[at].figures
        slow = Text(f"{ratios[at]:.1f}x slow", BAD) if ratios[at] >= SLOW else Text("")
        rows.add_row(
            str(rank.rank),
            ranks[at].pod,
            ranks[at].node,
            str(rank.steps),
            *map(
                _millis,
                (rank.step_micros, rank.compute_micros, rank.data_wait_micros, rank.wait_micros),
            ),
            slow,
        )
    parts: list[RenderableType] = [rows]
    if len(ranks) > MOST_RANKS:
        parts.append(Text(f"and {len(ranks) - MOST_RANKS} faster ones"))
    slowest = max(range(len(ranks)), key=lambda at: ratios[at])
    if ratios[slowest] >= SLOW:
        parts.append(_slowest_line(ranks, slowest, ratios[slowest]))
    return Group(*parts)


def _slowest_line(ranks: Sequence[RankOfPod], slowest: int, ratio: float) -> Text:
    """A line on the slowest rank and the longer part of its steps."""
    slow = ranks[slowest].figures
    others = [rank.figures for at, rank in enumerate(ranks) if at != slowest]
    compute = slow.compute_micros - min(rank.compute_micros for rank in others)
    data = slow.data_wait_micros - min(rank.data_wait_micros for rank in others)
    what = "for its data" if data > compute else "to compute"
    return Text(
        f"rank {slow.rank} on {ranks[slowest].node} takes {ratio:.1f} times as long as the others,"
        f" mostly {what}; they wait for it in each step"
    )


def _millis(micros: int) -> str:
    return f"{micros / 1000:.1f} ms" if micros else "-"
