# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The result of a cycle for one workload: its grant, its wait, and the actions on its pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ullage.cluster.records.status import MadeRoom
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.verdict import Verdict
from ullage.scheduling.elastic.sizes import Size
from ullage.scheduling.lifecycle.inference import Rollout
from ullage.scheduling.lifecycle.scaling import ScalingStep
from ullage.scheduling.lifecycle.surge import Leaving
from ullage.scheduling.model.view import Member
from ullage.scheduling.placement.attempt import Outcome, Requeue


class EntryState(StrEnum):
    """State of a workload in a cycle."""

    NOMINATED = "Nominated"
    """Considered; it may need no devices."""
    ASSUMED = "Assumed"
    """Granted: slices are recorded for it."""
    PREEMPTING = "Preempting"
    """Others are preempted or shrunk for it."""
    SKIPPED = "Skipped"
    """There is no place for it, or no time; ``requeue`` is the event that it waits for."""


@dataclass(slots=True)
class Entry:
    """A workload with a decision in this cycle."""

    workload: WorkloadRecord
    outcome: Outcome | None = None
    """Outcome of the attempt to place it; ``None`` = not tried."""
    planned: tuple[Member, ...] = ()
    """Members that do not exist yet and have places now."""
    postponed: bool = False
    """The cycle had no time for it; it gets no condition."""
    rollout: Rollout | None = None
    """Desired Deployment of a service."""
    leaving: Leaving | None = None
    """Action of a service on replicas that have to leave their device."""
    scaling: ScalingStep | None = None
    """Desired replicas of a service; ``None`` = an external autoscaler decides."""
    made_room: MadeRoom | None = None
    """It restarts with a smaller share."""
    size: Size | None = None
    """New size of an elastic gang."""

    @property
    def state(self) -> EntryState:
        """State in this cycle."""
        if self.postponed:
            return EntryState.SKIPPED
        if self.outcome is None:
            return EntryState.NOMINATED
        if self.outcome.victims or self.outcome.downsize is not None:
            return EntryState.PREEMPTING
        if self.outcome.refused is not None:
            return EntryState.SKIPPED
        return EntryState.ASSUMED if self.outcome.placements else EntryState.NOMINATED

    @property
    def requeue(self) -> Requeue | None:
        """Event that it waits for; ``None`` = none."""
        if self.postponed:
            return Requeue.NEXT_CYCLE
        return self.outcome.requeue if self.outcome is not None else None


@dataclass(slots=True)
class Entries:
    """The entries of a cycle, by uid; a workload without a decision has none.

    Of thousands of waiting workloads only the outcome is kept until another decision is made.
    """

    workloads: Mapping[str, WorkloadRecord]
    _entries: dict[str, Entry | Outcome] = field(default_factory=dict)

    def of(self, uid: str) -> Entry:
        """The entry of a workload; created if missing."""
        entry = self._entries.get(uid)
        if not isinstance(entry, Entry):
            entry = self._entries[uid] = Entry(self.workloads[uid], entry)
        return entry

    def get(self, uid: str) -> Entry | None:
        """The entry of a workload, if there is one."""
        return self.of(uid) if uid in self._entries else None

    def enter(self, uid: str, outcome: Outcome) -> None:
        """Record the outcome of an attempt to place a workload."""
        entry = self._entries.get(uid)
        if isinstance(entry, Entry):
            entry.outcome = outcome
        else:
            self._entries[uid] = outcome

    def outcome(self, uid: str) -> Outcome | None:
        """Outcome of the attempt to place a workload; ``None`` = not tried."""
        entry = self._entries.get(uid)
        return entry.outcome if isinstance(entry, Entry) else entry

    def outcomes(self) -> Iterator[tuple[str, Outcome]]:
        """Outcomes of attempts, by uid of the workload."""
        for uid, entry in self._entries.items():
            outcome = entry.outcome if isinstance(entry, Entry) else entry
            if outcome is not None:
                yield uid, outcome

    def postponed(self) -> list[str]:
        """Workloads that this cycle had no time for."""
        return [
            uid
            for uid, entry in self._entries.items()
            if isinstance(entry, Entry) and entry.postponed
        ]

    def verdicts(self) -> dict[str, Verdict]:
        """Verdict of admission on each pod that was placed, by uid of the pod."""
        return {
            placement.member.pod.uid: placement.candidate.grant.verdict
            for _, outcome in self.outcomes()
            for placement in outcome.placements
            if placement.candidate.grant.verdict is not None
        }

    def requeues(self) -> dict[str, int]:
        """Count of waiting workloads, by the event that they wait for."""
        counts: Counter[Requeue] = Counter()
        for entry in self._entries.values():
            requeue = entry.requeue
            if requeue is not None:
                counts[requeue] += 1
        return {requeue.value: count for requeue, count in sorted(counts.items())}
