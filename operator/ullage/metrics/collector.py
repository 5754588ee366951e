# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The operator's metrics, read from the live objects at scrape time.

A collector instead of gauges: nothing can drift, and no label outlives its object. No label ever
has a pod's or a workload's name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import partial
from typing import Any, Final, TypeVar

import structlog
from prometheus_client import Histogram
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from ullage.metrics.cost import CostFigures
from ullage.metrics.devices import DeviceFigures
from ullage.metrics.efficiency import EfficiencyFigures
from ullage.metrics.histograms import decision_seconds
from ullage.metrics.inventory import InventoryFigures
from ullage.metrics.pools import PoolFigures
from ullage.metrics.quota import QuotaFigures
from ullage.metrics.ranks import RankFigures
from ullage.metrics.scaling import ScalingFigures
from ullage.metrics.sharing import SharingFigures
from ullage.metrics.spending import SpendFigures
from ullage.metrics.suggestions import SuggestionFigures
from ullage.metrics.tiers import TierFigures
from ullage.metrics.traces import TraceFigures
from ullage.metrics.tuning import TuningFigures
from ullage.metrics.turns import TurnFigures
from ullage.process.metric_families import Family, counter, field_families, gauge

log = structlog.get_logger("ullage.metrics")

Told = TypeVar("Told")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFigures:
    """Figures of the reflectors, by kind."""

    age_s: Mapping[str, float] = gauge(
        "ullage_reflector_last_event_age_seconds", "Seconds since the stream was heard of.", "kind"
    )
    objects: Mapping[str, int] = gauge(
        "ullage_reflector_objects", "Objects the stream holds.", "kind"
    )
    synced: Mapping[str, bool] = gauge(
        "ullage_reflector_synced", "Whether the stream is in step with the API server.", "kind"
    )
    relists: Mapping[str, int] = counter(
        "ullage_reflector_relists", "Full lists after the first one.", "kind"
    )
    drift: Mapping[str, int] = counter(
        "ullage_reflector_resync_drift", "Resyncs that found the cache out of date.", "kind"
    )
    errors: Mapping[str, int] = counter(
        "ullage_reflector_errors", "Failures that led to a pause.", "kind"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFigures:
    """All exported figures, gathered at scrape time; a fault costs only its field."""

    is_leader: bool = gauge("ullage_leader", "Whether this replica leads.")
    epoch: int = gauge("ullage_lease_epoch", "Epoch of this replica's last leadership.")
    loop_lag_s: float = gauge("ullage_event_loop_lag_seconds", "How late the event loop is.")
    task_failures: Mapping[str, int] = counter(
        "ullage_task_failures", "Failures of background tasks, which began again.", "task"
    )
    streams: StreamFigures = field(default_factory=StreamFigures)
    projection_errors: Mapping[str, int] = counter(
        "ullage_projection_errors", "Objects that could not be read.", "kind"
    )
    foreign_pods: int = gauge(
        "ullage_foreign_pods",
        "Pods that claim a workload which did not create them; nothing is done to them.",
    )
    decision_seconds: Histogram = field(default_factory=decision_seconds)
    timeouts: int = counter("ullage_decision_timeouts", "Decisions that missed their deadline.")
    crashes: int = counter("ullage_decision_crashes", "Decisions that failed.")
    set_aside: Mapping[str, int] = gauge(
        "ullage_set_aside", "Objects that decisions are made without.", "kind"
    )
    faults: Mapping[str, int] = counter(
        "ullage_decision_faults", "Objects that were set aside.", "kind"
    )
    pokes: Mapping[str, int] = counter("ullage_trigger_pokes", "Wishes for a decision.", "reason")
    skipped: Mapping[str, int] = counter("ullage_cycles_skipped", "Cycles without work.", "cause")
    failed: Mapping[str, int] = counter(
        "ullage_cycles_failed", "Cycles that brought no decision.", "error"
    )
    decision_age_s: float = gauge(
        "ullage_decision_age_seconds",
        "Seconds since this leader's last completed decision; 0 on a standby.",
    )
    actions: Mapping[str, int] = counter("ullage_actions", "Actions decided.", "action")
    writes: Mapping[tuple[str, str, str], int] = counter(
        "ullage_writes", "Requests that write.", "verb", "kind", "result"
    )
    queue_depth: int = gauge("ullage_write_queue_depth", "Actions that wait to be sent.")
    fenced: int = counter("ullage_fenced_writes", "Writes refused without the Lease.")
    assumed: int = gauge("ullage_assumed_placements", "Assumptions that stand.")
    assume_expired: int = counter("ullage_assume_expired", "Assumptions never seen.")
    workloads: Mapping[tuple[str, str], int] = gauge(
        "ullage_workloads", "Workloads.", "kind", "phase"
    )
    waiting: Mapping[str, int] = gauge(
        "ullage_workloads_waiting", "Workloads that wait, by what binds.", "reason"
    )
    requeues: Mapping[str, int] = gauge(
        "ullage_workloads_requeued",
        "Workloads that the last decision gave no place, by what they wait for.",
        "waits_for",
    )
    sharing: SharingFigures = field(default_factory=SharingFigures)
    turns: TurnFigures = field(default_factory=TurnFigures)
    devices: DeviceFigures = field(default_factory=DeviceFigures)
    cost: CostFigures = field(default_factory=CostFigures)
    efficiency: EfficiencyFigures = field(default_factory=EfficiencyFigures)
    spend: SpendFigures = field(default_factory=SpendFigures)
    scaling: ScalingFigures = field(default_factory=ScalingFigures)
    tiers: TierFigures = field(default_factory=TierFigures)
    inventory: InventoryFigures = field(default_factory=InventoryFigures)
    ranks: RankFigures = field(default_factory=RankFigures)
    quota: QuotaFigures = field(default_factory=QuotaFigures)
    pools: PoolFigures = field(default_factory=PoolFigures)
    tuning: TuningFigures = field(default_factory=TuningFigures)
    suggestions: SuggestionFigures = field(default_factory=SuggestionFigures)
    traces: TraceFigures = field(default_factory=TraceFigures)


FAILURES: Final = Family(
    CounterMetricFamily,
    "ullage_metrics_failures",
    "Sections of the metrics that could not be told.",
    ("section",),
)


class SectionGuard:
    """Confines a fault to its section of the metrics: the others are still exported."""

    def __init__(self) -> None:
        """Nothing has failed yet."""
        self.failures: Counter[str] = Counter()

    def __call__(self, section: str, make: Callable[[], Told], otherwise: Told) -> Told:
        """The result of ``make``, or ``otherwise`` where it raises, logged and counted."""
        try:
            return make()
        except Exception:  # the boundary of one section of the metrics
            self.failures[section] += 1
            log.exception("metrics section failed", section=section)
            return otherwise


class OperatorCollector(Collector):
    """Yields metric families from figures that a callback gathers; never raises."""

    def __init__(
        self, gather: Callable[[], OperatorFigures], guard: SectionGuard | None = None
    ) -> None:
        self._gather = gather
        self._guard = guard or SectionGuard()

    def collect(self) -> Iterator[Metric]:
        """Gather once, then export."""
        figures, nothing = self._guard("figures", self._gather, None), list[Metric]()
        if figures is not None:
            for item in fields(figures):
                yield from self._guard(item.name, partial(_field_metrics, item, figures), nothing)
        yield FAILURES.of(self._guard.failures)


def _field_metrics(item: Field[Any], figures: OperatorFigures) -> list[Metric]:
    return list(field_families(item, getattr(figures, item.name)))
