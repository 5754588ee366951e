# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An attempt to place a workload, and its outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ullage.api.reasons import Reason
from ullage.cluster.records.status import RefusalLine
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.records import Refusal
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.model.view import Member
from ullage.scheduling.placement.candidates import Candidate
from ullage.scheduling.placement.downsizing import Downsize
from ullage.scheduling.placement.messages import for_good, headline
from ullage.scheduling.placement.placement import Placement
from ullage.scheduling.placement.preemption import Victim


class Requeue(StrEnum):
    """The event that a workload without a place waits for."""

    NEXT_CYCLE = "NextCycle"
    """The next cycle; this one had no time for it."""
    ROOM_COMING = "RoomComing"
    """Devices that are reserved for it and about to become free."""
    ROUND = "Round"
    """Its turn on a type of device."""
    CAPACITY = "Capacity"
    """Devices, or a pool to request them from."""
    QUOTA = "Quota"
    """Quota of its tenant, or quota that its cohort lent to others."""
    CHANGE = "Change"
    """An edit, or devices of another kind: unchanged, it can never run here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingAttempt:
    """A workload with members that wait for slices."""

    workload: WorkloadRecord
    members: tuple[Member, ...]
    priority: int
    waiting_since: float
    near: frozenset[int] = frozenset()
    """Nodes that other members are on."""
    avoid: frozenset[int] = frozenset()
    """Devices excluded for this workload."""
    only: frozenset[int] | None = None
    """Models of its round; ``None`` = it takes no part in rounds."""
    percent: int = 0
    """Share of a device that it gets as one of a pair; 0 = as much as requested."""
    promised: bool = False
    """It was downsized for another workload, and comes first for its remaining share."""
    modest: bool = False
    """It can run with fewer members: nothing is preempted or held for it."""
    returns: bool = False
    """It restarts in place, or with the rest of its place: before others of its priority."""
    coming: int = 0
    """Number of places to keep while its pods do not exist yet; 0 = its pods wait."""
    may_stop: Mapping[str, int] = field(default_factory=dict)
    """By uid: workloads whose turn is over, with their rank for preemption."""
    lent_by: str = ""
    """Namespace whose best-effort training yields to it at equal priority; empty = none."""
    since: float = 0.0
    """Start of its wait in the queue of its priority; 0 = the creation of its workload."""
    request: ResourceRequest | None = None
    """The request that all members share while they only wait; ``None`` = it is asked for each."""
    order: tuple[bool, int, bool, float, bool, str] = field(init=False, compare=False)
    """Its place in the queue, regardless of quota."""

    def __post_init__(self) -> None:
        """Compute the order once; the queue compares it many times."""
        order = (
            not self.promised,
            -self.priority,
            not self.returns,
            self.since or self.workload.created,
            not self.lent_by,
            self.workload.ref.uid,
        )
        object.__setattr__(self, "order", order)

    @property
    def fewest(self) -> int:
        """Members that it needs to start; those beyond keep no other workload waiting."""
        bounds = self.workload.elasticity
        return bounds.min_replicas if bounds is not None else len(self.members)

    def takes_back(self, victim: Victim) -> bool:
        """True when a victim of equal priority trains in its headroom and yields to it."""
        lent = bool(self.lent_by) and victim.lent_by == self.lent_by
        return lent and victim.priority == self.priority and not self.modest

    def takes_extra(self, victim: Victim) -> bool:
        """True when spare members of a gang of equal priority yield to it."""
        return (
            bool(victim.spare)
            and victim.priority == self.priority
            and victim.namespace != self.workload.ref.namespace
            and not self.modest
        )


@dataclass(slots=True)
class AttemptCache:
    """Attempts of the last cycle, valid while their workload only waits."""

    rests_on: object = None
    """Identifies the inputs of the request classes."""
    attempts: dict[str, SchedulingAttempt] = field(default_factory=dict)
    """By uid: those whose members share a request."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal of this cycle; its text is made when it is read."""

    reason: Reason
    lines: tuple[RefusalLine, ...] = ()
    placed: int = 0
    """Members that would have fit."""
    never: Refusal | None = None
    """The refusal of an empty cluster, for a workload that can never run here."""
    prospect: str = ""
    """Text of the devices that it is about to get."""
    requeue: Requeue = Requeue.CAPACITY
    turn: Callable[[], str] | None = None
    """Function for the text of a workload under rounds."""

    @classmethod
    def for_good(cls, infeasible: Refusal) -> Refused:
        """The refusal of a workload that can never run here."""
        return cls(infeasible.reason, never=infeasible, requeue=Requeue.CHANGE)

    def text(self, workload: WorkloadRecord) -> str:
        """The message for the user."""
        if self.never is not None:
            return for_good(workload, self.never)
        if self.turn is not None:
            return self.turn() + self.prospect
        return headline(workload, self.placed, self.lines) + self.prospect


@dataclass(frozen=True, slots=True)
class Outcome:
    """Places, a refusal, or both for members that are placed one by one."""

    placements: tuple[Placement, ...] = ()
    runner_up: Candidate | None = None
    refused: Refused | None = None
    victims: tuple[Victim, ...] = ()
    downsize: Downsize | None = None
    """The resident that restarts with a smaller share for it."""

    @property
    def requeue(self) -> Requeue | None:
        """The event that it waits for; ``None`` = none."""
        return self.refused.requeue if self.refused is not None else None

    @property
    def sites(self) -> Iterator[int]:
        """Devices of its places."""
        return (site for placement in self.placements for site in placement.candidate.sites)

    @property
    def is_only_refused(self) -> bool:
        """True when the attempt gave no placement, victim or downsizing."""
        return not self.placements and not self.victims and self.downsize is None
