# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of device time, by namespace: used, wasted, withheld, unmeasured, and why it is wasted.

Rows end with their workload, counters must not: growth since the last reading is added to sums that
never shrink; time from before this process is not counted again. Labels name namespaces and rules,
never a job, so a workload that reports nonsense changes figures of its own namespace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ullage.api.usage import DeviceTime
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.efficiency.ledger import NO_TIME
from ullage.process.metric_families import counter, gauge
from ullage.scheduling.accounting.fleet import efficiencies, ranked_row
from ullage.scheduling.times import EFFICIENCY_FIGURES_S

Label = tuple[str, str]
"""Namespace, then state or rule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyFigures:
    """Figures of device time; empty until nodes measure it."""

    seconds: Mapping[Label, float] = counter(
        "ullage_workload_device_seconds",
        "Device time of workloads since this process looks on, in seconds of a whole device: used,"
        " wasted, withheld by the guard and lanes, unmeasured.",
        "workload_namespace",
        "state",
    )
    findings: Mapping[Label, int] = gauge(
        "ullage_efficiency_findings",
        "Workloads whose device time is not used, by the rule that says why.",
        "workload_namespace",
        "rule",
    )
    explained: Mapping[Label, float] = gauge(
        "ullage_efficiency_explained_devices",
        "Devices that the findings of a rule would free now; those of two rules overlap.",
        "workload_namespace",
        "rule",
    )


@dataclass(slots=True)
class EfficiencySums:
    """Sums since the start of this process; bounded by the workloads that exist and namespaces."""

    began: float
    _figures: EfficiencyFigures = field(default_factory=EfficiencyFigures)
    _made_at: float = 0.0
    _sums: Counter[Label] = field(default_factory=Counter)
    _seen: dict[str, DeviceTime] = field(default_factory=dict)

    def figures(self, snapshot: Snapshot, now: float) -> EfficiencyFigures:
        """The figures, at most a minute old: scrapes are more frequent than heartbeats."""
        if not 0 <= now - self._made_at < EFFICIENCY_FIGURES_S:
            self._made_at = now
            self._figures = self._made(snapshot, now)
        return self._figures

    def _made(self, snapshot: Snapshot, now: float) -> EfficiencyFigures:
        findings: Counter[Label] = Counter()
        explained: dict[Label, float] = {}
        seen: dict[str, DeviceTime] = {}
        for entry in efficiencies(snapshot, snapshot.workloads.values(), now):
            workload, time = entry.workload, entry.time
            uid, namespace = workload.ref.uid, workload.ref.namespace
            before = self._seen.get(uid)
            if before is None:
                before = NO_TIME if workload.created >= self.began else time
            for state, grown in _growth(before, time):
                self._sums[namespace, state] += grown
            seen[uid] = time
            devices = sum(part.percent for part in workload.status.placement) / 100
            for finding in ranked_row(snapshot, entry, time).findings:
                label = (namespace, finding.rule.value)
                findings[label] += 1
                freed = devices * finding.gain_permille / 1000
                explained[label] = explained.get(label, 0.0) + freed
        self._seen = seen
        return EfficiencyFigures(
            seconds={label: grown / 1000 for label, grown in self._sums.items()},
            findings=dict(findings),
            explained=explained,
        )


_STATES: Final = ("used_ms", "wasted_ms", "withheld_ms", "unmeasured_ms")


def _growth(before: DeviceTime, now: DeviceTime) -> Iterator[tuple[str, int]]:
    for name in _STATES:
        grown = getattr(now, name) - getattr(before, name)
        yield name.removesuffix("_ms"), max(0, grown)
