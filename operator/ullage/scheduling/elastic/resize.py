# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Size changes of elastic gangs: at a start, after a loss, while they wait and while they run.

The size changes by a restart of all members from a checkpoint, or in place, where the pods define
the size. No workload is preempted to let a gang grow. Only the number of members is decided
here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.spec_fields import Elasticity
from ullage.cluster.records.status import SizeRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.capacity.budgets import Limit
from ullage.scheduling.elastic.sizes import Size
from ullage.scheduling.elastic.space import Space
from ullage.scheduling.inventory.reliable_machines import terms_of
from ullage.scheduling.lifecycle.in_place import reliable_due
from ullage.scheduling.model.gang_speed import is_worth_it, restart_s, saved_s, wanted_members
from ullage.scheduling.model.gang_speed import left_s as left_of
from ullage.scheduling.model.lifecycle_step import Headcount, LifecycleStep
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.times import (
    GANG_HOLD_IN_PLACE_S,
    GANG_HOLD_S,
    GANG_ROOM_LASTS_IN_PLACE_S,
    GANG_ROOM_LASTS_S,
)

_NEXT_SECOND_S: Final = 1.0
"""Delay before room for members that may join beside waiting ones is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Decision about a running gang that could have another size.

    Attributes:
        size: Its size and record.
        life: Its restart; ``None`` = it keeps running.
        wake_at: Time of the next check; 0 = not needed.
        joins: Members that join in place.
        above: Lowest rank of those members.
        leaves: Members that leave in place.
    """

    size: Size
    life: LifecycleStep | None = None
    wake_at: float = 0.0
    joins: int = 0
    above: int = 0
    leaves: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resizer:
    """Decides sizes in one cycle."""

    space: Space
    now: float
    limits: Mapping[str, Limit] = field(default_factory=dict)
    """Maximum members within budgets, by uid; jobs without such a limit are missing."""
    _later: list[Space] = field(default_factory=list)

    def at_creation(self, job: WorkloadRecord, others: frozenset[int]) -> Size | None:
        """The size for a job without pods; ``None`` = unchanged.

        Args:
            job: A job without pods.
            others: Devices that workloads of other namespaces wait for.
        """
        bounds = _bounds(job)
        room = self._when_all_left().members(job, bounds.max_replicas, avoid=others)
        members = self._wanted(job, room)
        record = job.status.size
        if record is not None and (record.resumes or self.now - record.since < GANG_HOLD_S):
            # decided recently: the new room is for other waiting work, or temporary
            members = min(members, job.replicas)
        if record is not None and members == job.status.replicas:
            return None
        text = self._at_start(job, members, room)
        if others and room < bounds.min_replicas:
            text = f"{_part(bounds, members)}: workloads of other namespaces wait for the rest"
        if record is None:
            return Size(members, self._record(Reason.SIZED, text))
        return self._changed(job, members, text, resumes=record.resumes)

    def at_ending(self, job: WorkloadRecord, life: LifecycleStep) -> tuple[LifecycleStep, Size]:
        """The restart of a gang at the size that fits.

        Args:
            job: A started gang that restarts without a failure of its own.
            life: Its step; the message has the cause.
        """
        bounds = _bounds(job)
        room = self._when_all_left().without(job, bounds.max_replicas)
        members = self._wanted(job, room)
        if room < bounds.min_replicas:
            text = f"{life.message}; waits for room for {members} of its members at least"
            resumes = 0.0
        else:
            text = f"{life.message}; goes on with {_part(bounds, members)} from its checkpoint"
            resumes = whole_second(self.now)
        return replace(life, message=text), self._changed(job, members, text, resumes=resumes)

    def while_waiting(self, job: WorkloadRecord, placed: int) -> Size | None:
        """A smaller size for a gang of which only ``placed`` members fit."""
        members = self._wanted(job, min(placed, job.replicas - 1))
        if members >= job.replicas:
            return None
        record = job.status.size
        return self._changed(
            job,
            members,
            self._at_start(job, members, placed),
            resumes=record.resumes if record is not None else 0.0,
        )

    def when_seated(
        self, job: WorkloadRecord, contested: Callable[[], frozenset[int]]
    ) -> Size | None:
        """A larger size for a gang that is about to start and has more room than before.

        Its own members must be in the occupancy. It is rate-limited because its pods are recreated
        each time.

        Args:
            job: A gang with places.
            contested: Devices that waiting workloads could use.
        """
        bounds, record = _bounds(job), job.status.size
        missing = self._most(job) - job.replicas
        if bounds.in_place:
            return None  # it starts, and the rest joins
        if record is None or missing <= 0 or self.now - record.since < GANG_ROOM_LASTS_S:
            return None
        members = job.replicas + self.space.members(job, missing, avoid=contested())
        if members == job.replicas:
            return None
        text = self._at_start(job, members, members)
        return self._changed(job, members, text, resumes=whole_second(self.now))

    def while_running(
        self,
        job: WorkloadRecord,
        contested: Callable[[], frozenset[int]],
        only: Collection[int] | None,
    ) -> Growth | None:
        """Decide about a running gang; ``None`` = no change.

        Args:
            job: A gang with all members running.
            contested: Devices that waiting workloads could use.
            only: Allowed models; ``None`` = all.
        """
        record, most = job.status.size, self._most(job)
        if record is None:
            return None
        recent = self.now - record.since < GANG_HOLD_S
        if job.replicas > most:  # a limit applies at once
            return self._restart(job, most, self._why(job))
        if job.replicas < most and recent and not record.room_since:
            # no other event may trigger a cycle until then
            same = Size(job.replicas, record)
            return Growth(size=same, wake_at=record.since + GANG_HOLD_S)
        extra = 0
        if job.replicas < most and not recent and is_worth_it(job, most, self.now):
            extra = self.space.members(
                job, most - job.replicas, avoid=contested(), only=only, proven=True
            )
        if not extra or not is_worth_it(job, job.replicas + extra, self.now):
            return self._noted(job, record, 0.0) if record.room_since else None
        if not record.room_since:
            return self._noted(job, record, whole_second(self.now))
        if self.now < record.room_since + GANG_ROOM_LASTS_S:
            return self._noted(job, record, record.room_since)
        members = job.replicas + extra
        gain = saved_s(left_of(job, self.now), job.replicas, members)
        text = (
            f"there has been room for {extra} more for {self.now - record.room_since:.0f} s;"
            f" it ends about {gain:.0f} s sooner, a restart costs {restart_s(job):.0f} s"
        )
        return self._restart(job, members, text)

    def while_in_place(
        self,
        job: WorkloadRecord,
        avoid: Callable[[], frozenset[int]],
        only: Collection[int] | None,
    ) -> Growth | None:
        """Decide about members that join a running gang; ``None`` = no change.

        Args:
            job: A gang with all members running and none joining.
            avoid: Devices to avoid.
            only: Allowed models; ``None`` = all.
        """
        record, lacking = job.status.size, self._most(job) - job.replicas
        if record is None or not lacking:
            return None
        if lacking < 0:
            most = self._most(job)
            text = f"{self._why(job)}; goes on in place with {_part(_bounds(job), most)}"
            return Growth(size=self._changed(job, most, text, resumes=0.0), leaves=-lacking)
        if self.now - record.since < GANG_HOLD_IN_PLACE_S:
            same = Size(job.replicas, record)
            return Growth(size=same, wake_at=record.since + GANG_HOLD_IN_PLACE_S)
        extra, above, text = self._joining(job, lacking, avoid(), only)
        if text and text != record.message:
            record = replace(record, reason=Reason.SHRUNK, message=text, room_since=0.0)
            size = Size(job.replicas, record, is_news=True)
            return Growth(size=size, wake_at=self.now + _NEXT_SECOND_S)
        if not extra:
            return self._noted(job, record, 0.0) if record.room_since else None
        since = record.room_since or whole_second(self.now)
        wake_at = since + GANG_ROOM_LASTS_IN_PLACE_S
        if self.now < wake_at:
            size = Size(job.replicas, replace(record, room_since=since))
            return Growth(size=size, wake_at=wake_at)
        size = Size(job.replicas, replace(record, room_since=0.0))
        return Growth(size=size, joins=extra, above=above)

    def _joining(
        self,
        job: WorkloadRecord,
        lacking: int,
        avoid: frozenset[int],
        only: Collection[int] | None,
    ) -> tuple[int, int, str]:
        """Number of members that may join, their lowest rank, and a message about waiting ones.

        In tiers the members of the lowest ranks need reliable machines. They wait for room on
        those, and no other member takes their place in the gang.
        """
        due, free = reliable_due(self.space.requests.view, job)
        if free:
            most = lacking - (due - len(free))
            extra = self.space.members(
                job, most, avoid=avoid, only=only, proven=True, reliable=len(free)
            )
            if extra:
                return extra, 0, ""
        extra = self.space.members(
            job, max(0, lacking - due), avoid=avoid, only=only, proven=True, reliable=0
        )
        terms = terms_of(job)
        above = terms.reliable if due and terms is not None else 0
        return extra, above, _waiting(free, _part(_bounds(job), job.replicas))

    def lacking(self, job: WorkloadRecord) -> int:
        """Number of additional members that a gang could have within its budget."""
        return self._most(job) - job.replicas

    def wants_more(self, job: WorkloadRecord) -> bool:
        """True when more members save a running gang more time than a restart costs."""
        return job.in_place or is_worth_it(job, self._most(job), self.now)

    def is_held(self, job: WorkloadRecord) -> bool:
        """True when the size of a running gang changed too recently for another growth."""
        record = job.status.size
        hold_s = GANG_HOLD_IN_PLACE_S if _bounds(job).in_place else GANG_HOLD_S
        return record is None or self.now - record.since < hold_s

    def counted(self, job: WorkloadRecord, count: Headcount) -> Size | None:
        """The size of a gang in place by its pods; ``None`` = that of the status."""
        members, bounds, record = count.members, _bounds(job), job.status.size
        if record is not None and members == job.status.replicas:
            return None
        text = f"{members} members, as its pods were made"
        if record is not None:
            verb = "goes on in place with" if members < job.status.replicas else "it has"
            text = f"{count.text or 'its members were counted'}; {verb} {_part(bounds, members)}"
        return self._changed(job, members, text, resumes=0.0)

    def made_smaller(
        self, job: WorkloadRecord, lost: int, winner: str, cause: str
    ) -> tuple[str, Size]:
        """Message and size of a gang that loses ``lost`` members to another workload."""
        bounds = _bounds(job)
        members = max(bounds.min_replicas, job.replicas - lost)
        if bounds.in_place:
            how, resumes = "goes on in place with", 0.0
        else:
            how, resumes = "goes on with", whole_second(self.now)
        text = f"makes room for {winner}, {cause}; {how} {_part(bounds, members)}"
        text += "" if bounds.in_place else " from its checkpoint"
        return text, self._changed(job, members, text, resumes=resumes)

    def while_nothing_moves(self) -> Resizer:
        """The resizer with cached counts, valid while the occupancy does not change."""
        return replace(self, space=replace(self.space, counts={}))

    def _when_all_left(self) -> Space:
        """Room with leaving slices as free: usually those of the gang's last run."""
        if not self._later:
            self._later.append(self.space.later())
        return self._later[0]

    def _most(self, job: WorkloadRecord) -> int:
        return self._wanted(job, _bounds(job).max_replicas)

    def _wanted(self, job: WorkloadRecord, room: int) -> int:
        limit = self.limits.get(job.ref.uid)
        return wanted_members(_bounds(job), room, limit=limit.members if limit else None)

    def _why(self, job: WorkloadRecord) -> str:
        limit = self.limits.get(job.ref.uid)
        why = limit.why if limit is not None else f"spec.elasticity allows {self._most(job)}"
        return f"{why} members at the present price"

    def _at_start(self, job: WorkloadRecord, members: int, room: int) -> str:
        bounds, limit = _bounds(job), self.limits.get(job.ref.uid)
        if limit is not None and limit.members == members:
            return f"{_part(bounds, members)}: {limit.why}"
        return _at_start(bounds, members, room)

    def _restart(self, job: WorkloadRecord, members: int, why: str) -> Growth:
        text = f"{why}; goes on with {_part(_bounds(job), members)} from its checkpoint"
        life = LifecycleStep(
            phase=Phase.RESTARTING,
            reason=Reason.RESIZING,
            message=text,
            restarts=job.status.restarts,
        )
        size = self._changed(job, members, text, resumes=whole_second(self.now))
        return Growth(size=size, life=life)

    def _noted(self, job: WorkloadRecord, record: SizeRecord, room_since: float) -> Growth:
        """Record the time since which there is room; 0 = there is none."""
        return Growth(
            size=Size(job.replicas, replace(record, room_since=room_since)),
            wake_at=room_since + GANG_ROOM_LASTS_S if room_since else 0.0,
        )

    def _changed(self, job: WorkloadRecord, members: int, text: str, *, resumes: float) -> Size:
        """The record of another size; for the same size the previous record with ``resumes``."""
        before = job.status.size
        if before is not None and members == job.replicas:
            return Size(members, replace(before, resumes=resumes, room_since=0.0))
        reason = Reason.SHRUNK if members < job.replicas else Reason.GROWN
        if before is None and members == job.replicas:
            reason = Reason.SIZED
        record = replace(self._record(reason, text), resumes=resumes)
        is_news = bool(job.status.start_time) and members != job.replicas
        return Size(members, record, is_news)

    def _record(self, reason: Reason, text: str) -> SizeRecord:
        return SizeRecord(since=whole_second(self.now), reason=reason, message=text)


def _bounds(job: WorkloadRecord) -> Elasticity:
    assert job.elasticity is not None  # callers pass only elastic jobs
    return job.elasticity


def _waiting(names: Sequence[str], part: str) -> str:
    """Message about members that wait for a reliable machine; empty = none does."""
    if not names:
        return ""
    verb = "waits" if len(names) == 1 else "wait"
    return (
        f"{', '.join(names)} {verb} for room on a machine that is not taken away (CapacityPools"
        f" of type OnDemand or Reserved); goes on in place with {part}"
    )


def _part(bounds: Elasticity, members: int) -> str:
    return f"{members} of {bounds.max_replicas} members"


def _at_start(bounds: Elasticity, members: int, room: int) -> str:
    if room < bounds.min_replicas:
        return f"waits for room for {members} members, the fewest that it can train with"
    if members == bounds.max_replicas:
        return f"{members} members, the most that it may have"
    return f"{_part(bounds, members)}: there is room for {room}"
