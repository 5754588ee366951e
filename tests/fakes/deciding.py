# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Deciding on built snapshots in one line, and reading what came out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import builders
from ullage.api.slices import DesiredSlice
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Condition, DecisionRecord, WorkloadStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.assignment.cycle_cache import CycleCache
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.cycle.diff import diff
from ullage.scheduling.model.plan import Action, DecideSettings, Emit, Plan
from ullage.scheduling.timeslicing.division import Allocate

SETTINGS = DecideSettings(epoch=builders.EPOCH)
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Decided:
    """A snapshot and what was decided on it."""

    snapshot: Snapshot
    plan: Plan
    actions: tuple[Action, ...]

    def all(self, kind: type[Kind]) -> list[Kind]:
        """The actions of one kind, in order."""
        return [one for one in self.actions if isinstance(one, kind)]

    def one(self, kind: type[Kind]) -> Kind:
        """The only action of a kind."""
        found = self.all(kind)
        assert len(found) == 1, f"{len(found)} of {kind.__name__}: {found}"
        return found[0]

    def slices(self) -> list[tuple[str, DesiredSlice]]:
        """All wanted slices: (node, slice)."""
        return [(node, one) for node in sorted(self.plan.slices) for one in self.plan.slices[node]]

    def places(self) -> dict[str, list[str]]:
        """Devices by name of the pod."""
        found: dict[str, list[str]] = {}
        for _, one in self.slices():
            found.setdefault(one.pod_name, []).append(one.gpu)
        return found

    def status(self, workload: builders.WorkloadBuilder | WorkloadRecord | str) -> WorkloadStatus:
        """The planned status of a workload (or of the one with this name)."""
        uid = _uid(workload)
        return self.plan.statuses.get(uid) or self.snapshot.workloads[uid].status

    def decision(self, workload: builders.WorkloadBuilder | WorkloadRecord | str) -> DecisionRecord:
        """The planned decision of a workload."""
        found = self.status(workload).decision
        assert found is not None
        return found

    def condition(
        self, workload: builders.WorkloadBuilder | WorkloadRecord | str, type_: str
    ) -> Condition:
        """A planned condition of a workload."""
        found = self.status(workload).condition(type_)
        assert found is not None, f"no condition {type_}"
        return found

    def events(self) -> list[tuple[str, str]]:
        """Events: (reason, text)."""
        return [(one.reason.value, one.text) for one in self.all(Emit)]


def decided(
    *parts: builders.Part,
    at: float = builders.NOW,
    settings: DecideSettings = SETTINGS,
    allocate: Allocate | None = None,
    cache: CycleCache | None = None,
    **more: object,
) -> Decided:
    """Decide on a snapshot of these parts."""
    snapshot = builders.a_snapshot(*parts, now=at, **more)  # type: ignore[arg-type]
    return decided_on(snapshot, at=at, settings=settings, allocate=allocate, cache=cache)


def decided_on(
    snapshot: Snapshot,
    *,
    at: float = builders.NOW,
    settings: DecideSettings = SETTINGS,
    allocate: Allocate | None = None,
    cache: CycleCache | None = None,
) -> Decided:
    """Decide on a snapshot."""
    plan = decide(snapshot, at, settings, allocate, cache)
    return Decided(snapshot, plan, diff(plan, snapshot))


def told(
    workload: builders.WorkloadBuilder, *parts: builders.Part, at: float = builders.NOW
) -> builders.WorkloadBuilder:
    """The workload as it reads once its status for these parts was written."""
    found = decided(workload, *parts, at=at).status(workload)
    return builders.WorkloadBuilder(replace(workload.build(), status=found))


def _uid(workload: builders.WorkloadBuilder | WorkloadRecord | str) -> str:
    if isinstance(workload, str):
        return f"uid-default-{workload}"
    record = workload.build() if isinstance(workload, builders.WorkloadBuilder) else workload
    return record.ref.uid
