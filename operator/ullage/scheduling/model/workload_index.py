# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Workloads by rare traits, so that rules about few workloads read only those.

Kept from cycle to cycle: only workloads with a changed record are read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import filterfalse

from ullage.api.reasons import ConditionType
from ullage.cluster.records.status import WorkloadStatus
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.model.phases import Phase


@dataclass(slots=True)
class WorkloadIndex:
    """uids of workloads by trait."""

    elastic: set[str] = field(default_factory=set)
    services: set[str] = field(default_factory=set)
    spending: set[str] = field(default_factory=set)
    """Workloads with an account or a choice of pools."""
    excluding: set[str] = field(default_factory=set)
    """Workloads with excluded devices."""
    made_room: set[str] = field(default_factory=set)
    restarting: set[str] = field(default_factory=set)
    evictable: set[str] = field(default_factory=set)
    """Jobs and adopted pods that can checkpoint."""
    misplaced: set[str] = field(default_factory=set)
    """Jobs that do not run on their recommended devices."""
    named: set[str] = field(default_factory=set)
    """Workloads whose members may find each other by name."""
    order: list[str] = field(default_factory=list)
    """All workloads."""
    _workloads: Mapping[str, WorkloadRecord] = field(default_factory=dict)

    def update(self, uids: Collection[str], workloads: Mapping[str, WorkloadRecord]) -> None:
        """Update from a snapshot; ``uids`` are those of changed records."""
        tables = (
            self.elastic,
            self.services,
            self.spending,
            self.excluding,
            self.made_room,
            self.restarting,
            self.evictable,
            self.misplaced,
            self.named,
        )
        for uid in uids:
            workload = workloads.get(uid)
            traits = _traits(workload) if workload is not None else (False,) * len(tables)
            for table, has in zip(tables, traits, strict=True):
                (table.add if has else table.discard)(uid)
        if uids and self._workloads.keys() != workloads.keys():
            self._sort(uids, workloads)
        self._workloads = workloads

    def _sort(self, uids: Collection[str], workloads: Mapping[str, WorkloadRecord]) -> None:
        """Update the order; a nearly sorted list takes little time to sort."""
        gone = self._workloads.keys() - workloads.keys()
        self.order = list(filterfalse(gone.__contains__, self.order))
        self.order.extend(uid for uid in uids if uid in workloads and uid not in self._workloads)
        self.order.sort()

    def those(self, uids: set[str]) -> Iterator[tuple[str, WorkloadRecord]]:
        """Workloads with a trait, in order of their uid."""
        for uid in sorted(uids):
            yield uid, self._workloads[uid]


def _traits(workload: WorkloadRecord) -> tuple[bool, ...]:
    status = workload.status
    return (
        workload.elasticity is not None,
        workload.kind is WorkloadKind.INFERENCE_DEPLOYMENT,
        status.spend is not None,
        bool(status.scheduling.exclusions),
        status.made_room is not None,
        status.phase == Phase.RESTARTING,
        workload.is_gang and workload.checkpoint,
        bool(status.recommendation) and _is_misplaced(status),
        workload.replicas != 1 or workload.in_place,
    )


def _is_misplaced(status: WorkloadStatus) -> bool:
    shown = status.condition(ConditionType.AS_RECOMMENDED)
    return shown is not None and shown.status == "False"
