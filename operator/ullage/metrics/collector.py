# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator's metrics, read from the live objects at scrape time.

A collector instead of gauges: nothing can drift, and no label outlives what it named. No label
ever holds a pod's or a workload's name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import structlog
from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ullage.metrics.cost import CostFigures, cost_metrics
from ullage.metrics.devices import DeviceFigures, device_metrics
from ullage.metrics.histograms import told
from ullage.metrics.pools import PoolFigures, pool_metrics
from ullage.metrics.sharing import SharingFigures, sharing_metrics
from ullage.metrics.spending import SpendFigures, spend_metrics
from ullage.metrics.tiers import TierFigures, tier_metrics
from ullage.metrics.turns import TurnFigures, turn_metrics

log = structlog.get_logger("ullage.metrics")

Told = TypeVar("Told")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFigures:
    """Figures of one reflector."""

    name: str
    age_s: float
    objects: int
    relists: int
    drift: int
    errors: int
    synced: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFigures:
    """Everything the collector tells, gathered at scrape time."""

    leading: bool
    epoch: int
    loop_lag_s: float
    streams: Sequence[StreamFigures]
    decision_seconds: Histogram
    timeouts: int
    crashes: int
    pokes: Counter[str]
    skipped: Counter[str]
    failed: Counter[str]
    decision_age_s: float
    actions: Counter[str]
    writes: Mapping[tuple[str, str, str], int]
    """By (verb, kind, result)."""
    queue_depth: int
    fenced: int
    assumed: int
    assume_expired: int
    projection_errors: Mapping[str, int]
    foreign_pods: int
    workloads: Mapping[tuple[str, str], int]
    """By (kind, phase)."""
    waiting: Mapping[str, int]
    requeues: Mapping[str, int]
    """Waiting workloads by reason."""
    sharing: SharingFigures
    set_aside: Mapping[str, int] = field(default_factory=dict)
    """Objects that decisions are made without now, by kind."""
    faults: Mapping[str, int] = field(default_factory=dict)
    """Objects that were set aside so far, by kind."""
    task_failures: Mapping[str, int] = field(default_factory=dict)
    """Failures of background tasks, by task."""
    turns: TurnFigures = field(default_factory=TurnFigures)
    devices: DeviceFigures = field(default_factory=DeviceFigures)
    cost: CostFigures = field(default_factory=CostFigures)
    spend: SpendFigures = field(default_factory=SpendFigures)
    tiers: TierFigures = field(default_factory=TierFigures)
    pools: PoolFigures = field(default_factory=PoolFigures)


class SectionGuard:
    """Keeps a fault within its section of the metrics: the others are still exported."""

    def __init__(self) -> None:
        """Nothing has failed yet."""
        self.failures: Counter[str] = Counter()

    def __call__(self, section: str, make: Callable[[], Told], otherwise: Told) -> Told:
        """What ``make`` says, or where it raises ``otherwise``, logged and counted."""
        try:
            return make()
        except Exception:  # the seam of one section of the metrics
            self.failures[section] += 1
            log.exception("metrics section failed", section=section)
            return otherwise


_SECTIONS: Final[Mapping[str, Callable[[OperatorFigures], Iterator[Metric]]]] = {
    "election": lambda figures: _election(figures),
    "streams": lambda figures: _streams(figures),
    "decisions": lambda figures: _decisions(figures),
    "writes": lambda figures: _writes(figures),
    "workloads": lambda figures: _workloads(figures),
    "sharing": lambda figures: sharing_metrics(figures.sharing),
    "turns": lambda figures: turn_metrics(figures.turns),
    "devices": lambda figures: device_metrics(figures.devices),
    "cost": lambda figures: cost_metrics(figures.cost),
    "spend": lambda figures: spend_metrics(figures.spend),
    "tiers": lambda figures: tier_metrics(figures.tiers),
    "pools": lambda figures: pool_metrics(figures.pools),
}


class OperatorCollector(Collector):
    """Yields metric families from figures that a callback gathers; never raises."""

    def __init__(
        self, gather: Callable[[], OperatorFigures], guard: SectionGuard | None = None
    ) -> None:
        self._gather = gather
        self._guard = guard or SectionGuard()

    def collect(self) -> Iterator[Metric]:
        """Gather once, then tell."""
        figures, nothing = self._guard("figures", self._gather, None), list[Metric]()
        if figures is not None:
            for name, section in _SECTIONS.items():
                yield from self._guard(name, partial(_told, section, figures), nothing)
        yield _labelled(
            "ullage_metrics_failures",
            "Sections of the metrics that could not be told.",
            "section",
            self._guard.failures,
        )


def _told(
    section: Callable[[OperatorFigures], Iterator[Metric]], figures: OperatorFigures
) -> list[Metric]:
    return list(section(figures))


def _election(figures: OperatorFigures) -> Iterator[Metric]:
    yield _gauge("ullage_leader", "Whether this replica leads.", float(figures.leading))
    yield _gauge("ullage_lease_epoch", "Epoch of this replica's last leadership.", figures.epoch)
    yield _gauge("ullage_event_loop_lag_seconds", "How late the event loop is.", figures.loop_lag_s)
    yield _labelled(
        "ullage_task_failures", "Failures of background tasks, which began again.", "task",
        figures.task_failures,
    )  # fmt: skip


def _streams(figures: OperatorFigures) -> Iterator[Metric]:
    gauges = {
        "ullage_reflector_last_event_age_seconds": "Seconds since the stream was heard of.",
        "ullage_reflector_objects": "Objects the stream holds.",
        "ullage_reflector_synced": "Whether the stream is in step with the API server.",
    }
    counters = {
        "ullage_reflector_relists": "Full lists after the first one.",
        "ullage_reflector_resync_drift": "Resyncs that found the picture wrong.",
        "ullage_reflector_errors": "Failures that led to a pause.",
    }
    families: list[Metric] = []
    for index, (name, text) in enumerate(gauges.items()):
        gauge = GaugeMetricFamily(name, text, labels=["kind"])
        for stream in figures.streams:
            gauge.add_metric(
                [stream.name], (stream.age_s, stream.objects, float(stream.synced))[index]
            )
        families.append(gauge)
    for index, (name, text) in enumerate(counters.items()):
        counter = CounterMetricFamily(name, text, labels=["kind"])
        for stream in figures.streams:
            counter.add_metric([stream.name], (stream.relists, stream.drift, stream.errors)[index])
        families.append(counter)
    yield from families
    yield _labelled(
        "ullage_projection_errors", "Objects that could not be read.", "kind",
        figures.projection_errors,
    )  # fmt: skip
    yield _gauge(
        "ullage_foreign_pods",
        "Pods that claim a workload which did not create them; nothing is done to them.",
        figures.foreign_pods,
    )


def _decisions(figures: OperatorFigures) -> Iterator[Metric]:
    yield from told(figures.decision_seconds)
    yield _counter(
        "ullage_decision_timeouts", "Decisions that missed their deadline.", figures.timeouts
    )
    yield _counter("ullage_decision_crashes", "Decisions that failed.", figures.crashes)
    aside = GaugeMetricFamily(
        "ullage_set_aside", "Objects that decisions are made without.", labels=["kind"]
    )
    for kind, count in sorted(figures.set_aside.items()):
        aside.add_metric([kind], count)
    yield aside
    yield _labelled(
        "ullage_decision_faults", "Objects that were set aside.", "kind", figures.faults
    )
    yield _labelled("ullage_trigger_pokes", "Wishes for a decision.", "reason", figures.pokes)
    yield _labelled("ullage_cycles_skipped", "Cycles without work.", "cause", figures.skipped)
    yield _labelled(
        "ullage_cycles_failed", "Cycles that brought no decision.", "error", figures.failed
    )
    yield _gauge(
        "ullage_decision_age_seconds",
        "Seconds since this leader's last completed decision; 0 on a standby.",
        figures.decision_age_s,
    )
    yield _labelled("ullage_actions", "Actions decided.", "action", figures.actions)


def _writes(figures: OperatorFigures) -> Iterator[Metric]:
    writes = CounterMetricFamily(
        "ullage_writes", "Requests that write.", labels=["verb", "kind", "result"]
    )
    for labels, count in sorted(figures.writes.items()):
        writes.add_metric(list(labels), count)
    yield writes
    yield _gauge("ullage_write_queue_depth", "Actions that wait to be sent.", figures.queue_depth)
    yield _counter("ullage_fenced_writes", "Writes refused without the Lease.", figures.fenced)
    yield _gauge("ullage_assumed_placements", "Assumptions that stand.", figures.assumed)
    yield _counter("ullage_assume_expired", "Assumptions never seen.", figures.assume_expired)


def _workloads(figures: OperatorFigures) -> Iterator[Metric]:
    workloads = GaugeMetricFamily("ullage_workloads", "Workloads.", labels=["kind", "phase"])
    for labels, count in sorted(figures.workloads.items()):
        workloads.add_metric(list(labels), count)
    yield workloads
    waiting = GaugeMetricFamily(
        "ullage_workloads_waiting", "Workloads that wait, by what binds.", labels=["reason"]
    )
    for reason, count in sorted(figures.waiting.items()):
        waiting.add_metric([reason], count)
    yield waiting
    requeues = GaugeMetricFamily(
        "ullage_workloads_requeued",
        "Workloads that the last decision gave no place, by what they wait for.",
        labels=["waits_for"],
    )
    for waits_for, count in sorted(figures.requeues.items()):
        requeues.add_metric([waits_for], count)
    yield requeues


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _labelled(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family
