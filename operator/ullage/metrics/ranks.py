# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of the imbalance between ranks of jobs, by namespace; no label names a rank."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ullage.cluster.records.snapshot import Snapshot
from ullage.process.metric_families import gauge


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFigures:
    """Figures of ranks whose steps the hook times."""

    timed: int = gauge("ullage_ranks_timed", "Ranks whose steps are timed.")
    compute_s: Mapping[tuple[str, str], float] = gauge(
        "ullage_job_rank_compute_seconds",
        "Time of a step that ranks compute themselves, in the job of a namespace whose ranks differ"
        " most; of is median or max.",
        "workload_namespace",
        "of",
    )


def rank_figures(snapshot: Snapshot) -> RankFigures:
    """The current figures."""
    timed = 0
    by_job: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for node in snapshot.gpu_nodes.values():
        for seen in node.observed:
            if not seen.ranks:
                continue
            timed += len(seen.ranks)
            pod = snapshot.pods.get(seen.key.pod_uid)
            if pod is not None:
                job = (pod.namespace, pod.owner.uid)
                by_job[job] += [rank.compute_micros for rank in seen.ranks if rank.compute_micros]
    widest: dict[str, tuple[float, float]] = {}
    for (namespace, _), micros in by_job.items():
        if len(micros) < 2:
            continue
        middle, most = statistics.median(micros) / 1e6, max(micros) / 1e6
        known = widest.get(namespace)
        if known is None or most * known[0] > known[1] * middle:
            widest[namespace] = (middle, most)
    return RankFigures(
        timed=timed,
        compute_s={
            (namespace, of): value
            for namespace, (middle, most) in widest.items()
            for of, value in (("median", middle), ("max", most))
        },
    )
