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

from ullage.api.words import TracedKind
from ullage.cli import owners, trace_requests
from ullage.cli.look import as_allowed, inside, workloads
from ullage.cli.ranks import RankOfPod, ranks_of
from ullage.cli.seen import with_pods
from ullage.cli.tables import is_placed
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.trace import ProfileRequestRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.streams import PODS, WORKLOAD_PROFILES, Stream
from ullage.ports import ClusterPort

MOST_SHOWN: Final = 10
"""Workloads that are explained; of more, the first ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Workloads of one name, or pods of one owner, and what is known about them.

    Attributes:
        seen: The snapshot that they are in.
        records: The workloads; pods that wait come first.
        ranks: Timed ranks by uid of their workload; workloads without any are left out.
        last_trace: The newest finished trace; ``None`` without one, or where it may not be read.
        predecessors: Names of running pods that the first pod waits for.
        refused: The API server's error, by kind that the user may not list.
    """

    seen: Snapshot
    records: Sequence[WorkloadRecord]
    ranks: Mapping[str, Sequence[RankOfPod]] = field(default_factory=dict)
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
    timed, last = await asyncio.gather(
        _ranks(cluster, seen, records),
        _last_trace(cluster, first.ref.namespace, first.ref.kind, first.ref.name),
    )
    return Explanation(seen=seen, records=records, ranks=timed, last_trace=last, refused=refused)


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
    timed, last, before = await asyncio.gather(
        _ranks(cluster, seen, records),
        _last_trace(cluster, namespace, kind, name),
        _predecessors(cluster, records[0]),
    )
    return Explanation(
        seen=seen, records=records, ranks=timed, last_trace=last, predecessors=before
    )


async def _ranks(
    cluster: ClusterPort, seen: Snapshot, records: Sequence[WorkloadRecord]
) -> dict[str, Sequence[RankOfPod]]:
    timed: dict[str, Sequence[RankOfPod]] = {}
    for uid in (record.ref.uid for record in records[:MOST_SHOWN]):
        pods = [pod for pod in seen.pods.values() if pod.owner.uid == uid]
        if of_workload := await ranks_of(cluster, pods):
            timed[uid] = of_workload
    return timed


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
