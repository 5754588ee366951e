# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Counters of the guard's observations and actions. Labels name outcomes, never pods."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from ullage_node.model.guard import PauseResult, WindowVerdict

BUCKETS = (0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 12.5)


class GuardMetrics:
    """The guard's metrics; every label exists from the start, so that rates begin at 0."""

    def __init__(self, registry: CollectorRegistry) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # as old as the process
        self.freezes = Counter(
            "ullage_guard_freezes_total",
            "Pauses of best-effort neighbours, by how they ended.",
            ["result"],
            registry=registry,
        )
        self.seconds = Histogram(
            "ullage_guard_freeze_seconds",
            "How long best-effort neighbours stood still.",
            buckets=BUCKETS,
            registry=registry,
        )
        self.windows = Counter(
            "ullage_guard_windows_total",
            "Windows of tenants with an objective, by what they said.",
            ["verdict"],
            registry=registry,
        )
        self.frozen = Gauge(
            "ullage_guard_frozen_containers",
            "Containers that stand still now.",
            registry=registry,
        )
        self.reachable = Gauge(
            "ullage_guard_reachable",
            "1 = the process that stops containers answers.",
            registry=registry,
        )
        for result in PauseResult:
            self.freezes.labels(result.value)
        for verdict in WindowVerdict:
            self.windows.labels(verdict.value)
