# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Workloads by traits that few of them have, so that what concerns few looks at few.

Kept from cycle to cycle: only workloads whose record changed are read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from ullage.api.reasons import ConditionType
from ullage.cluster.records.snapshot import WorkloadKind, WorkloadRecord
from ullage.cluster.records.status import WorkloadStatus
from ullage.scheduling.model.phases import Phase


@dataclass(slots=True)
class WorkloadIndex:
    """uids of workloads by trait."""

    elastic: set[str] = field(default_factory=set)
    services: set[str] = field(default_factory=set)
    spending: set[str] = field(default_factory=set)
    """With books or a choice of pools."""
    excluding: set[str] = field(default_factory=set)
    """With devices that are left out for them."""
    made_room: set[str] = field(default_factory=set)
    restarting: set[str] = field(default_factory=set)
    evictable: set[str] = field(default_factory=set)
    """Jobs and adopted pods that can checkpoint."""
    misplaced: set[str] = field(default_factory=set)
    """Jobs that do not have the devices that are recommended to them."""
    _workloads: Mapping[str, WorkloadRecord] = field(default_factory=dict)

    def update(self, uids: Collection[str], workloads: Mapping[str, WorkloadRecord]) -> None:
        """Take in the workloads of a snapshot; ``uids`` are those that are not as they were."""
        tables = (
            self.elastic,
            self.services,
            self.spending,
            self.excluding,
            self.made_room,
            self.restarting,
            self.evictable,
            self.misplaced,
        )
        for uid in uids:
            workload = workloads.get(uid)
            traits = _traits(workload) if workload is not None else (False,) * len(tables)
            for table, has in zip(tables, traits, strict=True):
                (table.add if has else table.discard)(uid)
        self._workloads = workloads

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
    )


def _is_misplaced(status: WorkloadStatus) -> bool:
    shown = status.condition(ConditionType.AS_RECOMMENDED)
    return shown is not None and shown.status == "False"
