# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""When an elastic gang changes its size: at a start, after a loss, while it waits, as it runs.

Another size comes by a restart of all members at a checkpoint, through the same gates as every
start, or in place, where its pods say how many they are. No one is preempted so that a gang may
grow. What is decided here is only the number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.spec_fields import Elasticity
from ullage.cluster.records.status import SizeRecord
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
"""When others are counted that may join beside those that wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What becomes of a gang that runs and could have another size.

    ``life`` is ``None`` while it runs on; ``wake_at`` when it is looked at again, 0 = not needed;
    ``joins`` so many members come to it in place, none of them of a rank below ``above``;
    ``leaves`` so many go.
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
    """Most members of a job for the sake of money, by uid; who may have all is not in it."""
    _later: list[Space] = field(default_factory=list)

    def at_creation(self, job: WorkloadRecord, others: frozenset[int]) -> Size | None:
        """The size to create pods for, when none is there; ``None`` = as it is.

        Args:
            job: it has no pods.
            others: devices that workloads of other namespaces wait for.
        """
        bounds = _bounds(job)
        room = self._when_all_left().members(job, bounds.max_replicas, avoid=others)
        members = self._wanted(job, room)
        known = job.status.size
        if known is not None and (known.resumes or self.now - known.since < GANG_HOLD_S):
            # decided lately: more room now is what others wait for, or comes and goes
            members = min(members, job.replicas)
        if known is not None and members == job.status.replicas:
            return None
        text = self._at_start(job, members, room)
        if others and room < bounds.min_replicas:
            text = f"{_part(bounds, members)}: workloads of other namespaces wait for the rest"
        if known is None:
            return Size(members, self._record(Reason.SIZED, text))
        return self._changed(job, members, text, resumes=known.resumes)

    def at_ending(self, job: WorkloadRecord, life: LifecycleStep) -> tuple[LifecycleStep, Size]:
        """How a start that is over goes on: with what is left, and with what may replace the rest.

        Args:
            job: it had started, and is to start again through no fault of its own.
            life: what it needs; its message says what happened.
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
        """A smaller size for a gang that does not fit, where so many of its members would."""
        members = self._wanted(job, min(placed, job.replicas - 1))
        if members >= job.replicas:
            return None
        known = job.status.size
        return self._changed(
            job,
            members,
            self._at_start(job, members, placed),
            resumes=known.resumes if known is not None else 0.0,
        )

    def when_seated(
        self, job: WorkloadRecord, contested: Callable[[], frozenset[int]]
    ) -> Size | None:
        """A greater size for a gang that is about to start, where there is more room than it knew.

        Asked when its own members are in the occupancy. Not again at once: each time its pods are
        made again.

        Args:
            job: it has its places.
            contested: devices that someone who waits could use one day.
        """
        bounds, known = _bounds(job), job.status.size
        missing = self._most(job) - job.replicas
        if bounds.in_place:
            return None  # it starts, and the rest joins
        if known is None or missing <= 0 or self.now - known.since < GANG_ROOM_LASTS_S:
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
        """What becomes of a gang that runs; ``None`` = nothing.

        Args:
            job: it runs, every member of it.
            contested: devices that someone who waits could use one day.
            only: models that will do; ``None`` = all.
        """
        known, most = job.status.size, self._most(job)
        if known is None:
            return None
        held = self.now - known.since < GANG_HOLD_S
        if job.replicas > most:  # at once: a limit is no matter of taste
            return self._restart(job, most, self._why(job))
        if job.replicas < most and held and not known.room_since:
            # nothing else may happen in the cluster until then
            same = Size(job.replicas, known)
            return Growth(size=same, wake_at=known.since + GANG_HOLD_S)
        extra = 0
        if job.replicas < most and not held and is_worth_it(job, most, self.now):
            extra = self.space.members(
                job, most - job.replicas, avoid=contested(), only=only, proven=True
            )
        if not extra or not is_worth_it(job, job.replicas + extra, self.now):
            return self._noted(job, known, 0.0) if known.room_since else None
        if not known.room_since:
            return self._noted(job, known, whole_second(self.now))
        if self.now < known.room_since + GANG_ROOM_LASTS_S:
            return self._noted(job, known, known.room_since)
        members = job.replicas + extra
        gain = saved_s(left_of(job, self.now), job.replicas, members)
        text = (
            f"there has been room for {extra} more for {self.now - known.room_since:.0f} s;"
            f" it ends about {gain:.0f} s sooner, a restart costs {restart_s(job):.0f} s"
        )
        return self._restart(job, members, text)

    def while_in_place(
        self,
        job: WorkloadRecord,
        avoid: Callable[[], frozenset[int]],
        only: Collection[int] | None,
    ) -> Growth | None:
        """How many members may join a gang that runs; ``None`` = nothing is new.

        Args:
            job: it runs, every member of it, and no one is on the way to it.
            avoid: devices that will not do.
            only: models that will do; ``None`` = all.
        """
        known, lacking = job.status.size, self._most(job) - job.replicas
        if known is None or not lacking:
            return None
        if lacking < 0:
            most = self._most(job)
            text = f"{self._why(job)}; goes on in place with {_part(_bounds(job), most)}"
            return Growth(size=self._changed(job, most, text, resumes=0.0), leaves=-lacking)
        if self.now - known.since < GANG_HOLD_IN_PLACE_S:
            same = Size(job.replicas, known)
            return Growth(size=same, wake_at=known.since + GANG_HOLD_IN_PLACE_S)
        extra, above, said = self._joining(job, lacking, avoid(), only)
        if said and said != known.message:
            known = replace(known, reason=Reason.SHRUNK, message=said, room_since=0.0)
            size = Size(job.replicas, known, is_news=True)
            return Growth(size=size, wake_at=self.now + _NEXT_SECOND_S)
        if not extra:
            return self._noted(job, known, 0.0) if known.room_since else None
        since = known.room_since or whole_second(self.now)
        wake_at = since + GANG_ROOM_LASTS_IN_PLACE_S
        if self.now < wake_at:
            size = Size(job.replicas, replace(known, room_since=since))
            return Growth(size=size, wake_at=wake_at)
        size = Size(job.replicas, replace(known, room_since=0.0))
        return Growth(size=size, joins=extra, above=above)

    def _joining(
        self,
        job: WorkloadRecord,
        lacking: int,
        avoid: frozenset[int],
        only: Collection[int] | None,
    ) -> tuple[int, int, str]:
        """Members that may join, the rank that none of them is below, and who has to wait.

        In tiers those of the lowest ranks count on machines that stay. Where none has room they
        wait, and no one else takes their part of the gang.
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
        """Members that a gang could have more; at most as many as its budget pays for."""
        return self._most(job) - job.replicas

    def wants_more(self, job: WorkloadRecord) -> bool:
        """Whether more members save a gang that runs more time than a restart costs it."""
        return job.in_place or is_worth_it(job, self._most(job), self.now)

    def is_held(self, job: WorkloadRecord) -> bool:
        """Whether the size of a gang that runs changed too lately to change again unforced."""
        known = job.status.size
        hold_s = GANG_HOLD_IN_PLACE_S if _bounds(job).in_place else GANG_HOLD_S
        return known is None or self.now - known.since < hold_s

    def counted(self, job: WorkloadRecord, count: Headcount) -> Size | None:
        """The size of a gang in place, as its pods say it; ``None`` = as the status says."""
        members, bounds, known = count.members, _bounds(job), job.status.size
        if known is not None and members == job.status.replicas:
            return None
        text = f"{members} members, as its pods were made"
        if known is not None:
            verb = "goes on in place with" if members < job.status.replicas else "it has"
            text = f"{count.text or 'its members were counted'}; {verb} {_part(bounds, members)}"
        return self._changed(job, members, text, resumes=0.0)

    def made_smaller(
        self, job: WorkloadRecord, lost: int, winner: str, cause: str
    ) -> tuple[str, Size]:
        """So many members fewer for the sake of another, for this cause; in words, and the size."""
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
        """The same for as long as the occupancy stays as it is: equal questions are asked once."""
        return replace(self, space=replace(self.space, known={}))

    def _when_all_left(self) -> Space:
        """What is leaving is what the last start of a gang had, as a rule: it counts as free."""
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

    def _noted(self, job: WorkloadRecord, known: SizeRecord, room_since: float) -> Growth:
        """That there is room now, or none any more."""
        return Growth(
            size=Size(job.replicas, replace(known, room_since=room_since)),
            wake_at=room_since + GANG_ROOM_LASTS_S if room_since else 0.0,
        )

    def _changed(self, job: WorkloadRecord, members: int, text: str, *, resumes: float) -> Size:
        """The record of another size; of the same size that of before, but for when it resumes."""
        known = job.status.size
        if known is not None and members == job.replicas:
            return Size(members, replace(known, resumes=resumes, room_since=0.0))
        reason = Reason.SHRUNK if members < job.replicas else Reason.GROWN
        if known is None and members == job.replicas:
            reason = Reason.SIZED
        record = replace(self._record(reason, text), resumes=resumes)
        is_news = bool(job.status.start_time) and members != job.replicas
        return Size(members, record, is_news)

    def _record(self, reason: Reason, text: str) -> SizeRecord:
        return SizeRecord(since=whole_second(self.now), reason=reason, message=text)


def _bounds(job: WorkloadRecord) -> Elasticity:
    assert job.elasticity is not None  # only elastic jobs are asked about
    return job.elasticity


def _waiting(names: Sequence[str], part: str) -> str:
    """Who has no place on a machine that stays; empty = no one waits for one."""
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
