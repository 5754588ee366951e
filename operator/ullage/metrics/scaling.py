# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of services whose replicas follow their objective; no label names a service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ullage.cluster.records.workload import WorkloadRecord
from ullage.process.metric_families import gauge


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingFigures:
    """Figures of scaled services; empty where there are none."""

    services: Mapping[str, int] = gauge(
        "ullage_services_scaled",
        "Services that the operator scales, by the reason of their number of replicas.",
        "reason",
    )
    replicas: int = gauge(
        "ullage_services_replicas_chosen", "Replicas that the operator chose for these services."
    )


def scaling_figures(workloads: Iterable[WorkloadRecord]) -> ScalingFigures:
    """The current figures."""
    records = [
        workload.status.scaling
        for workload in workloads
        if workload.scaling is not None and workload.status.scaling is not None
    ]
    return ScalingFigures(
        services=Counter(record.reason.value for record in records),
        replicas=sum(record.chosen.replicas for record in records),
    )
