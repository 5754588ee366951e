# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of chosen pools: cost of work, moves, deadlines; no label names a job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from ullage.api.reasons import ConditionType
from ullage.cluster.records.workload import WorkloadRecord
from ullage.metrics.currency import CURRENCY, DEFAULT_CURRENCY, in_currency
from ullage.metrics.tenants import TenantLabels
from ullage.process.metric_families import counter, gauge


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendFigures:
    """Figures of chosen pools; empty where none are chosen."""

    cost_per_work: Mapping[tuple[str, str], float] = gauge(
        "ullage_job_cost_per_work_hour",
        "Expected cost of an hour of work of one member, losses included; mean over the jobs.",
        "tenant",
        CURRENCY,
    )
    switches: Mapping[str, int] = counter(
        "ullage_switches",
        "Jobs for which other pools were chosen than before, by the kind of capacity gone to.",
        "capacity",
    )
    deadlines: Mapping[str, int] = gauge(
        "ullage_job_deadlines",
        "Jobs with a deadline that have not ended, by whether it is kept at the present progress.",
        "kept",
    )


@dataclass(slots=True)
class SpendSums:
    """Changes of pools since the start of this process; bounded by the existing workloads."""

    currency: str = DEFAULT_CURRENCY
    parties: TenantLabels = field(default_factory=TenantLabels)
    switches: Counter[str] = field(default_factory=Counter)
    _seen: dict[str, frozenset[str]] = field(default_factory=dict)

    def figures(self, workloads: Iterable[WorkloadRecord]) -> SpendFigures:
        """Add new changes, and export the current figures."""
        costs: dict[str, list[float]] = defaultdict(list)
        deadlines: Counter[str] = Counter()
        seen: dict[str, frozenset[str]] = {}
        for workload in workloads:
            spend = workload.status.spend
            decision = spend.decision if spend is not None else None
            if decision is None:
                continue
            pools = frozenset(share.pool for share in decision.chosen.pools)
            before = self._seen.get(workload.ref.uid, frozenset())
            if before and pools and before != pools:
                self.switches[decision.mode] += 1
            # a job that waits for a while and restarts elsewhere has switched as well
            seen[workload.ref.uid] = pools or before
            if decision.chosen.cost_per_work:
                costs[self.parties.label(workload)].append(float(decision.chosen.cost_per_work))
            safe = workload.status.condition(ConditionType.DEADLINE_SAFE)
            if safe is not None and not workload.status.completion_time:
                deadlines["yes" if safe.status == "True" else "no"] += 1
        self._seen = seen
        return SpendFigures(
            cost_per_work=in_currency(
                {party: fmean(values) for party, values in costs.items()}, self.currency
            ),
            switches=dict(self.switches),
            deadlines=dict(deadlines),
        )
