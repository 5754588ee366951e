# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads everything that ``kubectl ullage why`` prints over one connection to the API server.

What depends on the workload (ranks, the last trace, predecessors) is read at the same time, after
the workload itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.text import Text

from ullage.api.words import TracedKind
from ullage.cli import owners, ranks, trace_requests, volumes
from ullage.cli.look import as_allowed, inside, workloads
from ullage.cli.seen import with_pods
from ullage.cli.tables import is_placed
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.trace import ProfileRequestRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.streams import PODS, WORKLOAD_PROFILES, Stream
from ullage.ports import ClusterPort
from ullage.scheduling.observation.stragglers import RankOfPod

MOST_SHOWN: Final = 10
"""Workloads that are explained; of more, the first ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Workloads of one name, or pods of one owner, and what is known about them.

    Attributes:
        seen: The snapshot that they are in.
        records: The workloads; pods that wait come first.
        ranks: Timed ranks by uid of their workload; workloads without any are left out.
        volumes: Lines on data loaders and unfair use of volumes, by uid of the workload.
        last_trace: The newest finished trace; ``None`` without one, or where it may not be read.
        predecessors: Names of running pods that the first pod waits for.
        refused: The API server's error, by kind that the user may not list.
    """

    seen: Snapshot
    records: Sequence[WorkloadRecord]
    ranks: Mapping[str, Sequence[RankOfPod]] = field(default_factory=dict)
    volumes: Mapping[str, Sequence[Text]] = field(default_factory=dict)
    last_trace: ProfileRequestRecord | None = None
    predecessors: Sequence[str] = ()
    refused: Mapping[str, str] = field(default_factory=dict)


async def of_workloads(
    cluster: ClusterPort, streams: Sequence[Stream], namespace: str, name: str, *, details: bool
) -> Explanation:
    """Workloads of one name.

    Args:
        cluster: Cluster with the user's own credentials.
        streams: Kinds of workloads to look for.
        namespace: Their namespace.
        name: Their name.
        details: Read ranks and the last trace, too.

    Raises:
        ApiError: the API server refused or did not answer.
    """
    optional = inside((PODS, WORKLOAD_PROFILES), namespace)
    wanted = [*inside(streams, namespace, name), *optional]
    seen, refused = await as_allowed(cluster, wanted, optional)
    kinds = {stream.kind.kind for stream in streams}
    records = [record for record in workloads(seen) if record.kind in kinds]
    if not (details and records):
        return Explanation(seen=seen, records=records, refused=refused)
    first = records[0]
    (timed, lines), last = await asyncio.gather(
        _on_nodes(cluster, seen, records),
        _last_trace(cluster, first.ref.namespace, first.ref.kind, first.ref.name),
    )
    return Explanation(
        seen=seen, records=records, ranks=timed, volumes=lines, last_trace=last, refused=refused
    )


async def of_owner(
    cluster: ClusterPort, kind: str, namespace: str, name: str, *, details: bool
) -> Explanation:
    """Pods that share devices by a label, of one owner; arguments as of :func:`of_workloads`.

    Raises:
        ApiError: the API server refused or did not answer.
    """
    seen = with_pods(await owners.pods_of(cluster, kind, namespace, name))
    records = sorted(workloads(seen), key=is_placed)
    if not (details and records):
        return Explanation(seen=seen, records=records)
    (timed, lines), last, before = await asyncio.gather(
        _on_nodes(cluster, seen, records),
        _last_trace(cluster, namespace, kind, name),
        _predecessors(cluster, records[0]),
    )
    return Explanation(
        seen=seen,
        records=records,
        ranks=timed,
        volumes=lines,
        last_trace=last,
        predecessors=before,
    )


async def _on_nodes(
    cluster: ClusterPort, seen: Snapshot, records: Sequence[WorkloadRecord]
) -> tuple[dict[str, Sequence[RankOfPod]], dict[str, Sequence[Text]]]:
    """Ranks, and lines on volumes, by uid of the workload."""
    timed: dict[str, Sequence[RankOfPod]] = {}
    lines: dict[str, Sequence[Text]] = {}
    for uid in (record.ref.uid for record in records[:MOST_SHOWN]):
        pods = [pod for pod in seen.pods.values() if pod.owner.uid == uid]
        nodes = await ranks.gpu_nodes_of(cluster, pods)
        if of_workload := ranks.ranks_of(nodes, pods):
            timed[uid] = of_workload
        if of_volumes := (*volumes.loaders(nodes, pods), *volumes.unfair_use(nodes, pods)):
            lines[uid] = of_volumes
    return timed, lines


async def _last_trace(
    cluster: ClusterPort, namespace: str, kind: str, name: str
) -> ProfileRequestRecord | None:
    if kind not in tuple(TracedKind):
        return None
    return await trace_requests.last_of(cluster, namespace, kind, name)


async def _predecessors(cluster: ClusterPort, first: WorkloadRecord) -> Sequence[str]:
    if is_placed(first):
        return ()
    return await owners.predecessors(cluster, first.ref.namespace, first.ref.name)
