# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The result of a cycle for one workload: its grant, its wait, and the actions on its pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import itemgetter

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
    _entries: dict[str, Entry] = field(default_factory=dict)
    _outcomes: dict[str, Outcome] = field(default_factory=dict)
    """Outcomes of workloads without an entry."""

    def of(self, uid: str) -> Entry:
        """The entry of a workload; created if missing."""
        entry = self._entries.get(uid)
        if entry is None:
            outcome = self._outcomes.pop(uid, None)
            entry = self._entries[uid] = Entry(self.workloads[uid], outcome)
        return entry

    def get(self, uid: str) -> Entry | None:
        """The entry of a workload, if there is one."""
        return self.of(uid) if uid in self._entries or uid in self._outcomes else None

    def enter(self, outcomes: Mapping[str, Outcome]) -> None:
        """Record the outcomes of attempts to place workloads, by their uid."""
        self._outcomes.update(outcomes)
        for uid, entry in self._entries.items():
            entry.outcome = self._outcomes.pop(uid, entry.outcome)

    def outcome(self, uid: str) -> Outcome | None:
        """Outcome of the attempt to place a workload; ``None`` = not tried."""
        entry = self._entries.get(uid)
        return entry.outcome if entry is not None else self._outcomes.get(uid)

    def outcomes(self) -> dict[str, Outcome]:
        """Outcomes of attempts, by uid of the workload."""
        own = {uid: entry.outcome for uid, entry in self._entries.items() if entry.outcome}
        return {**own, **self._outcomes}

    def postponed(self) -> list[str]:
        """Workloads that this cycle had no time for."""
        return [uid for uid, entry in self._entries.items() if entry.postponed]

    def placed(self) -> list[tuple[str, Outcome]]:
        """Outcomes that gave places, with the uid of the workload, in order of uids."""
        given = [(uid, outcome) for uid, outcome in self.outcomes().items() if outcome.placements]
        return sorted(given, key=itemgetter(0))

    def verdicts(self) -> dict[str, Verdict]:
        """Verdict of admission on each pod that was placed, by uid of the pod."""
        return {
            placement.member.pod.uid: placement.candidate.grant.verdict
            for _, outcome in self.placed()
            for placement in outcome.placements
            if placement.candidate.grant.verdict is not None
        }

    def requeues(self) -> dict[str, int]:
        """Count of waiting workloads, by the event that they wait for."""
        counts = Counter(entry.requeue for entry in self._entries.values())
        waiting = self._outcomes.values()
        shared = dict(zip(map(id, waiting), waiting, strict=True))
        for number, count in Counter(map(id, waiting)).items():  # most outcomes are shared
            counts[shared[number].requeue] += count
        known = [(requeue, count) for requeue, count in counts.items() if requeue is not None]
        return {requeue.value: count for requeue, count in sorted(known)}
