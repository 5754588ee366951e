# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of time slicing, from the accounts in the jobs' statuses; stateless.

Labels are types of devices and tenants, never a job.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import Histogram

from ullage.api.reasons import Reason, Standing
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.allocation.round_records import MEMORY_ROUNDS
from ullage.metrics.histograms import division_seconds
from ullage.metrics.tenants import TenantLabels
from ullage.process.metric_families import counter, gauge
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import Action, SetStatus, TellPod
from ullage.scheduling.timeslicing.round_records import owed_s, promised, received_s

PRIORITY: Final = "priority"
RECLAIM: Final = "reclaim"
TURN: Final = "turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFigures:
    """Figures of time slicing; empty under FIFO."""

    allocation: Mapping[tuple[str, str], float] = gauge(
        "ullage_allocation_ratio",
        "Parts of time promised on a type, summed over the jobs of a tenant.",
        "accelerator",
        "tenant",
    )
    received: Mapping[tuple[str, str], float] = gauge(
        "ullage_received_ratio",
        "Parts of the time since their creation that jobs had on a type, summed by tenant.",
        "accelerator",
        "tenant",
    )
    deficit: Mapping[tuple[str, str], float] = gauge(
        "ullage_deficit_seconds",
        "Time owed on a type, summed over the jobs of a tenant that had less than promised.",
        "accelerator",
        "tenant",
    )
    preemptions: Mapping[str, int] = counter(
        "ullage_preemptions",
        "Workloads asked to save their work and leave: for a higher priority, because a tenant "
        "took its quota back, or because their turn was over.",
        "cause",
    )
    divisions: Histogram = field(default_factory=division_seconds)
    """Times of dividing the cluster."""


def preempted(snapshot: Snapshot, actions: Sequence[Action]) -> Iterator[str]:
    """Reasons for evictions of workloads from their devices."""
    counted: set[str] = set()
    for action in actions:
        if not isinstance(action, SetStatus):
            continue
        if Standing.PREEMPTION not in action.reason.standing:
            continue
        uid = action.unit if isinstance(action, TellPod) else action.owner.uid
        before = snapshot.workloads.get(uid)
        if uid in counted or before is None or before.status.phase == Phase.RESTARTING:
            continue
        counted.add(uid)
        yield _cause(before, action)


def _cause(before: WorkloadRecord, action: SetStatus) -> str:
    """The end of a turn does not count as a preemption and causes no back-off."""
    if action.reason is Reason.QUOTA_RECLAIMED:
        return RECLAIM
    now, known = action.status.scheduling, before.status.scheduling
    is_remembered = (now.preemptions, now.preempted_at) != (known.preemptions, known.preempted_at)
    return PRIORITY if is_remembered or action.status.allocation is None else TURN


def turn_figures(
    workloads: Iterable[WorkloadRecord],
    now: float,
    parties: TenantLabels,
    *,
    round_s: float,
    preemptions: Counter[str],
    divisions: Histogram,
) -> TurnFigures:
    """The current figures, summed by accelerator type and tenant."""
    allocation: dict[tuple[str, str], float] = defaultdict(float)
    received: dict[tuple[str, str], float] = defaultdict(float)
    deficit: dict[tuple[str, str], float] = defaultdict(float)
    for job in workloads:
        books = job.status.allocation
        if books is None:
            continue
        tenant = parties.tenant(job)
        for kind, part in promised(books).items():
            allocation[kind, tenant] += part
        age_s = max(1.0, now - job.created)
        if not Phase(job.status.phase or Phase.PENDING).terminal:
            for kind, seconds in received_s(books, now).items():
                received[kind, tenant] += seconds / age_s
        for kind, seconds in owed_s(books, now, MEMORY_ROUNDS * round_s).items():
            deficit[kind, tenant] += max(0.0, seconds)
    return TurnFigures(
        allocation=allocation,
        received=received,
        deficit=deficit,
        preemptions=preemptions,
        divisions=divisions,
    )
