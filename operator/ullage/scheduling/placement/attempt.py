# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A try to place a workload, and what comes of it: values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ullage.api.reasons import Reason
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import RefusalLine
from ullage.engines.admission.records import Refusal
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.model.view import Member
from ullage.scheduling.placement.candidates import Candidate
from ullage.scheduling.placement.downsizing import Downsize
from ullage.scheduling.placement.messages import for_good, headline
from ullage.scheduling.placement.placement import Placement
from ullage.scheduling.placement.preemption import Victim


class Requeue(StrEnum):
    """What a workload without a place waits for."""

    NEXT_CYCLE = "NextCycle"
    """This cycle had no time for it."""
    ROOM_COMING = "RoomComing"
    """Devices are kept for it that others are about to leave."""
    ROUND = "Round"
    """Its turn on a type of device."""
    CAPACITY = "Capacity"
    """Devices, or a pool to order them from."""
    QUOTA = "Quota"
    """Quota of its tenant, or what its cohort lent to others."""
    CHANGE = "Change"
    """An edit, or devices of another kind: it can never run here as it is."""


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
    """Devices passed over for this workload."""
    only: frozenset[int] | None = None
    """Models that its round gives it; ``None`` = it does not go by rounds."""
    percent: int = 0
    """Share of a device that it gets as one of a pair; 0 = as much as it asks for."""
    promised: bool = False
    """It made room for another and comes back to what it was left: before all others."""
    modest: bool = False
    """It could do with fewer members: no one makes way for it, and nothing is held."""
    returns: bool = False
    """It starts again where it was, or with what is left of it: before others of its priority."""
    coming: int = 0
    """Set while its pods are not there yet: places are kept if there are so many, 0 = it waits."""
    may_stop: Mapping[str, int] = field(default_factory=dict)
    """Workloads whose turn is over, by uid, with their place in the order to stop them."""
    lent_by: str = ""
    """Namespace whose best-effort training makes way for it at equal priority; empty = none does.
    """
    since: float = 0.0
    """Since when it has its place in the queue of its priority; 0 = since its workload was
    created."""
    order: tuple[bool, int, bool, float, bool, str] = field(init=False, compare=False)
    """Its place in the queue, quota apart."""

    def __post_init__(self) -> None:
        """Work out the place once; the queue compares it many times."""
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
        """Members without which it does not start; those beyond them keep no other waiting."""
        bounds = self.workload.elasticity
        return bounds.min_replicas if bounds is not None else len(self.members)

    def takes_back(self, victim: Victim) -> bool:
        """Whether someone of equal priority makes way for it."""
        lent = bool(self.lent_by) and victim.lent_by == self.lent_by
        return lent and victim.priority == self.priority and not self.modest

    def takes_extra(self, victim: Victim) -> bool:
        """Whether members above the fewest of a gang of equal priority make way for it."""
        return (
            bool(victim.spare)
            and victim.priority == self.priority
            and victim.namespace != self.workload.ref.namespace
            and not self.modest
        )


@dataclass(slots=True)
class AttemptCache:
    """Attempts of the last cycle that hold as long as their workload only waits."""

    rests_on: object = None
    """What the classes of requests rest on."""
    attempts: dict[str, tuple[SchedulingAttempt, ResourceRequest]] = field(default_factory=dict)
    """By uid, with what each member of the workload asks for: all for the same."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a workload goes on waiting; its text is made only when someone reads it."""

    reason: Reason
    lines: tuple[RefusalLine, ...] = ()
    placed: int = 0
    """Members that would have fit."""
    never: Refusal | None = None
    """Why not even an empty cluster could take it, if so."""
    prospect: str = ""
    """What is under way for it, in words."""
    requeue: Requeue = Requeue.CAPACITY
    turn: Callable[[], str] | None = None
    """Says where it stands, for those who take turns."""

    @classmethod
    def for_good(cls, infeasible: Refusal) -> Refused:
        """Why it can never run here."""
        return cls(infeasible.reason, never=infeasible, requeue=Requeue.CHANGE)

    def text(self, workload: WorkloadRecord) -> str:
        """The sentence for the user."""
        if self.never is not None:
            return for_good(workload, self.never)
        if self.turn is not None:
            return self.turn() + self.prospect
        return headline(workload, self.placed, self.lines) + self.prospect


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a try brought: places, a refusal, or (members that are placed one by one) both."""

    placements: tuple[Placement, ...] = ()
    runner_up: Candidate | None = None
    refused: Refused | None = None
    victims: tuple[Victim, ...] = ()
    downsize: Downsize | None = None
    """Who starts again with a smaller share for it."""

    @property
    def requeue(self) -> Requeue | None:
        """What it waits for; ``None`` = for nothing."""
        return self.refused.requeue if self.refused is not None else None

    @property
    def sites(self) -> Iterator[int]:
        """Devices that it brought."""
        return (site for one in self.placements for site in one.candidate.sites)

    @property
    def is_only_refused(self) -> bool:
        """Whether the attempt gave no placement, victim or downsizing."""
        return not self.placements and not self.victims and self.downsize is None
