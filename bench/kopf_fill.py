# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs a second and memory of the operator, beside an earlier version of it on the same machine.

``python -m bench.kopf --before DIR``: DIR is a checkout of the earlier version. Each fill has a
KWOK cluster of its own; services with routers and searches come when all jobs run.
"""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.fill import Beside, fill_ours
from bench.kwok import kwok_cluster
from bench.limits import template
from bench.progress import Progress
from bench.report import ROOT
from ullage.api.labels import API_VERSION
from ullage.kube.client import K8sCluster
from ullage.kube.credentials import find_credentials
from ullage.kube.transport import TransportLimits
from ullage.ports import INFERENCE_DEPLOYMENT, TUNING_JOB, JsonObject, Kind

SERVICES: Final = 100
SEARCHES: Final = 50
SHARE: Final = {"mode": "Fractional", "share": {"minPercent": 20, "maxPercent": 20}}
ROUNDS: Final = 2
"""Fills of each version, in the order before, now, now, before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One fill: jobs a second, and the peak memory with services and searches."""

    jobs_per_s: float
    rss_mib: float


def service(number: int) -> JsonObject:
    """A service whose router has a life outside of its object."""
    return {
        "apiVersion": API_VERSION,
        "kind": INFERENCE_DEPLOYMENT.kind,
        "metadata": {"name": f"web-{number:03d}"},
        "spec": {
            "replicas": 1,
            "slo": {"latencyMs": 200, "percentile": 99},
            "batching": {"limits": {"queueMemory": "64Mi"}},
            "gpu": SHARE,
            "template": template(),
        },
    }


def search(number: int) -> JsonObject:
    """A search that has a place for one trial."""
    return {
        "apiVersion": API_VERSION,
        "kind": TUNING_JOB.kind,
        "metadata": {"name": f"search-{number:03d}"},
        "spec": {
            "algorithm": {"ref": "Random", "maxEpochs": 4, "seed": 1},
            "objective": {"metric": "accuracy", "goal": "Maximize"},
            "searchSpace": [{"name": "rate", "type": "Float", "min": "0.001", "max": "1"}],
            "trials": 4,
            "parallelism": 1,
            "trialTemplate": {"gpu": SHARE, "template": template()},
        },
    }


def beside() -> list[tuple[Kind, JsonObject]]:
    """What comes when all jobs run."""
    return [
        *((INFERENCE_DEPLOYMENT, service(number)) for number in range(SERVICES)),
        *((TUNING_JOB, search(number)) for number in range(SEARCHES)),
    ]


async def fill(source: Path, nodes: int, jobs: int, progress: Progress) -> Run:
    """Fill a new cluster with the operator of a checkout."""
    with kwok_cluster(nodes) as kubeconfig:
        credentials = await find_credentials(str(kubeconfig))
        async with K8sCluster(
            credentials, limits=TransportLimits(write_s=30.0), user_agent="bench"
        ) as cluster:
            filled = await fill_ours(
                cluster, kubeconfig, nodes, jobs, progress, Beside(source=source, later=beside())
            )
    return Run(jobs_per_s=jobs / filled.seconds, rss_mib=filled.rss_later_mib)


def compare(before: Path, nodes: int, jobs: int) -> dict[str, float]:
    """Figures of both versions, medians of the rounds, and their ratios."""
    order = [before, ROOT, ROOT, before][: 2 * ROUNDS]
    runs: dict[Path, list[Run]] = {before: [], ROOT: []}
    with Progress() as progress:
        for source in order:
            runs[source].append(asyncio.run(fill(source, nodes, jobs, progress)))
    then, now = runs[before], runs[ROOT]
    rate_then, rate_now = (
        statistics.median(run.jobs_per_s for run in group) for group in (then, now)
    )
    rss_then, rss_now = (statistics.median(run.rss_mib for run in group) for group in (then, now))
    return {
        "fill_jobs": jobs,
        "fill_before_per_s": round(rate_then, 2),
        "fill_now_per_s": round(rate_now, 2),
        "fill_ratio": round(rate_now / rate_then, 3),
        "rss_before_mib": round(rss_then, 1),
        "rss_now_mib": round(rss_now, 1),
        "rss_ratio": round(rss_now / rss_then, 3),
    }
