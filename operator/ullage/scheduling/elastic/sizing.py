# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Sizes of elastic gangs in the order in which a cycle decides them.

First those whose start is over, then those that start, those that wait, and last those that run:
what is left then is what no one who waits can use. Work that is not elastic costs nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from ullage.api.reasons import Reason, Standing, standing_of
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.scheduling.accounting.losses import was_given_back
from ullage.scheduling.capacity.budgets import Limit
from ullage.scheduling.capacity.node_requests import Lack
from ullage.scheduling.elastic.resize import Growth, Resizer
from ullage.scheduling.elastic.sizes import Size, resumes
from ullage.scheduling.elastic.space import Space, other_models, sites_of
from ullage.scheduling.feasibility.resource_requests import ResourceRequests, keeps_to_one_type
from ullage.scheduling.lifecycle.in_place import is_creating, reliable_due
from ullage.scheduling.model.lifecycle_step import LifecycleStep, earliest
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import View
from ullage.scheduling.placement.attempt import Outcome, Refused, Requeue, SchedulingAttempt
from ullage.scheduling.placement.placement import Placer
from ullage.scheduling.placement.preemption import present, priority_of
from ullage.scheduling.placement.queue import SchedulingQueue
from ullage.scheduling.timeslicing.rounds import Rounds

_BETWEEN = (Phase.RESTARTING, Phase.PENDING)


@dataclass(slots=True)
class Sizing:
    """Decides the sizes of one cycle.

    Attributes:
        view: The cycle's snapshot.
        resizer: Knows the rules.
        lifecycles: What everyone needs; those whose size changes are written again.
        rounds: The turns of this cycle; ``None`` under FIFO.
        changes: What was decided so far, by uid.
        joins: Gangs that so many members are to be created for, beside those that run, and the
            rank that none of them is below.
        leaves: Gangs that so many of those that run are to leave.
        without_room: Gangs that run, may grow by now, and have no room for it.
        jobs: The elastic jobs, by uid.
    """

    view: View
    resizer: Resizer
    lifecycles: dict[str, LifecycleStep]
    rounds: Rounds | None = None
    changes: dict[str, Size] = field(default_factory=dict)
    joins: list[tuple[WorkloadRecord, int, int]] = field(default_factory=list)
    leaves: list[tuple[WorkloadRecord, int]] = field(default_factory=list)
    without_room: set[str] = field(default_factory=set)
    jobs: Mapping[str, WorkloadRecord] = field(init=False)
    _has_counted: bool = False
    _created: dict[str, WorkloadRecord] = field(default_factory=dict)
    """Gangs whose pods this cycle creates in another size than before, in that size."""

    def __post_init__(self) -> None:
        self.jobs = dict(self.view.index.those(self.view.index.elastic))

    def end(self) -> None:
        """Gangs that cannot go on as they are go on with what is left."""
        for uid, job in self.jobs.items():
            life = self.lifecycles[uid]
            preempted = Standing.PREEMPTION in standing_of(life.reason)
            if life.phase is not Phase.RESTARTING or preempted:
                continue
            ends = job.status.phase != Phase.RESTARTING and life.restarts == job.status.restarts
            if ends or was_given_back(job, life.restarts):
                self.lifecycles[uid], self.changes[uid] = self.resizer.at_ending(job, life)

    def count(self) -> None:
        """Gangs in place are as large as their pods say."""
        for uid, job in self.jobs.items():
            headcount = self.lifecycles[uid].headcount
            if headcount is not None:
                size = self.resizer.counted(job, headcount)
                if size is not None:
                    self.changes[uid] = size

    def may_count(self, job: WorkloadRecord) -> bool:
        """Whether this cycle counts how many members a gang could start with.

        One gang after the other: two that count the same room get pods that are deleted again.
        """
        if job.elasticity is None or job.elasticity.max_replicas == job.elasticity.min_replicas:
            return True
        if self.resizer.space.placer.occupancy.effort.extra <= 0 or self._has_counted:
            return False
        return self.rounds is not None or not any(
            is_modest(other) and self._is_untried(uid) for uid, other in self.jobs.items()
        )

    def _is_untried(self, uid: str) -> bool:
        """Whether the pods of a gang are there and no decision was made about them."""
        decision = self.jobs[uid].status.decision
        untried = decision is not None and decision.reason is Reason.WAITING_FOR_DECISION
        return untried and bool(self.lifecycles[uid].waiting)

    def create(
        self, job: WorkloadRecord, life: LifecycleStep
    ) -> tuple[WorkloadRecord, LifecycleStep]:
        """The job and what it needs, in the size that its pods are to be made for."""
        if job.elasticity is None or len(life.missing) < job.replicas:
            return job, life
        size = self.resizer.at_creation(job, self._for_others(job))
        if size is None:
            return job, life
        self._has_counted = self.rounds is None and size.replicas > job.elasticity.min_replicas
        self.changes[job.ref.uid] = size
        self.lifecycles[job.ref.uid] = life = replace(life, missing=tuple(range(size.replicas)))
        self._created[job.ref.uid] = job = replace(job, replicas=size.replicas)
        return job, life

    def _for_others(self, job: WorkloadRecord) -> frozenset[int]:
        """Devices that workloads of other namespaces could use which wait since a decision."""
        requests, index = self.resizer.space.requests, self.resizer.space.placer.candidate_index
        found: set[int] = set()
        seen: set[int] = set()
        for uid, life in self.lifecycles.items():
            other = self.view.snapshot.workloads[uid]
            if not life.waiting or other.ref.namespace == job.ref.namespace:
                continue
            if other.status.decision is None or other.priority < job.priority:
                continue
            request = requests.of(other, life.waiting[0].pod.shape)
            if request.number not in seen:
                seen.add(request.number)
                found.update(index.reachable(request).nonzero()[0].tolist())
        return frozenset(found)

    def coming(self) -> list[SchedulingAttempt]:
        """Gangs between two starts, whose places are kept until their pods are there.

        Not while one backs off: others could have run there for minutes.
        """
        if self.rounds is not None:
            return []  # turns keep the places of those who are on their way
        return [
            SchedulingAttempt(
                workload=self._created.get(uid, job),
                members=self.resizer.space.phantoms(self._created.get(uid, job)),
                priority=priority_of(job, self.view.members_of(job)),
                waiting_since=self.view.now,
                returns=True,
                coming=_least(job),
            )
            for uid, job in self.jobs.items()
            if self.lifecycles[uid].phase in _BETWEEN
            and not self.lifecycles[uid].waiting
            and self.lifecycles[uid].reason is not Reason.WAITING_FOR_GATE
            and (uid not in self.changes or uid in self._created)
            and self.lifecycles[uid].retry_at <= self.view.now
            and resumes(job, self.view.now)
        ]

    def settle(
        self,
        queue: SchedulingQueue,
        attempts: Sequence[SchedulingAttempt],
        outcomes: dict[str, Outcome],
    ) -> None:
        """Gangs that wait get the size that there is room for, before anything of them starts."""
        contested = cache(lambda: _contested(queue, attempts, outcomes))
        for attempt in attempts if self.jobs else ():
            uid, job = attempt.workload.ref.uid, attempt.workload
            outcome = outcomes.get(uid)
            if outcome is None or uid not in self.jobs or not self._is_unstarted(job):
                continue
            if outcome.placements:
                size = self.resizer.when_seated(job, contested)
                if size is None:
                    continue
                queue.placer.unseat(outcome.placements)
                name = f"{job.ref.namespace}/{job.ref.name}"
                queue.placer.occupancy.block(sites_of(outcome.placements), name)
                outcomes[uid] = Outcome()
                self._again(job, size)
            elif outcome.refused is not None and self._lacks_room(outcome.refused):
                size = self.resizer.while_waiting(job, outcome.refused.placed)
                if size is not None:
                    self.changes[uid] = size

    def run(
        self,
        queue: SchedulingQueue,
        attempts: Sequence[SchedulingAttempt],
        outcomes: Mapping[str, Outcome],
    ) -> None:
        """Gangs that run grow into what no one who waits can use, one in a cycle."""
        contested = cache(lambda: _contested(queue, attempts, outcomes))
        if any(self._is_expected(job) for job in self.jobs.values()):
            return  # what has room now may not have it when these are here
        resizer = self.resizer.while_nothing_moves()
        for uid, job in self.jobs.items():
            life = self.lifecycles[uid]
            if life.phase is not Phase.RUNNING or job.status.phase != Phase.RUNNING:
                continue
            if job.in_place:
                growth = self._in_place(queue, resizer, job, contested)
            else:
                avoid = self._not_for(queue, job, contested)
                growth = resizer.while_running(job, avoid, self._models(uid))
            if self._has_no_room(job, growth):
                self.without_room.add(uid)
            if growth is None:
                continue
            self._grow(job, growth)
            if growth.life is not None or growth.joins:
                return  # the others count again when its places are kept

    def lacking(self) -> dict[str, Lack]:
        """Gangs that could use more members than they run, or wait, with, by uid.

        They may have as many as their bounds and their budget allow.
        """
        found: dict[str, Lack] = {}
        for uid, job in self.jobs.items():
            life, size = self.lifecycles[uid], job.status.size
            members = self.resizer.lacking(job)
            if life.phase is Phase.PENDING and self._is_unstarted(job) and members > 0:
                found[uid] = Lack(members=members, reliable=0, lost=False, asks=False)
            elif job.status.phase != Phase.RUNNING or size is None:
                continue
            elif life.phase is not Phase.RUNNING:  # it is about to start again on what came
                found[uid] = Lack(members=0, reliable=0, lost=False, asks=False)
            elif members > 0 and (self.resizer.is_held(job) or self.resizer.wants_more(job)):
                found[uid] = self._lack(job, members, lost=size.reason is Reason.SHRUNK)
        return found

    def _lack(self, job: WorkloadRecord, members: int, *, lost: bool) -> Lack:
        joining = max(0, len(present(self.view, self.view.members_of(job))) - job.replicas)
        members = max(0, members - joining)
        due, _ = reliable_due(self.view, job)
        # growth rests while anything is postponed; what was lost is requested all the same
        known = job.status.size
        replaces = (
            lost
            and known is not None
            and not known.room_since
            and not self.resizer.is_held(job)
            and self.resizer.wants_more(job)
        )
        asks = members > 0 and (replaces or job.ref.uid in self.without_room)
        return Lack(members=members, reliable=min(due, members), lost=lost, asks=asks)

    def _in_place(
        self,
        queue: SchedulingQueue,
        resizer: Resizer,
        job: WorkloadRecord,
        contested: Callable[[], frozenset[int]],
    ) -> Growth | None:
        """What joins a gang in place; nothing while anything else about it changes."""
        uid = job.ref.uid
        if not self._is_settled(uid):
            return None
        avoid = self._not_for(queue, job, contested)
        return resizer.while_in_place(job, avoid, self._models(uid))

    def _not_for(
        self, queue: SchedulingQueue, job: WorkloadRecord, contested: Callable[[], frozenset[int]]
    ) -> Callable[[], frozenset[int]]:
        """Devices that a gang does not grow into: what others could use, and other types."""
        if not (job.in_place or keeps_to_one_type(job)):
            return contested
        unlike = other_models(queue.placer.occupancy.inventory, self.view.members_of(job))
        return (lambda: contested() | unlike) if unlike else contested

    def _has_no_room(self, job: WorkloadRecord, growth: Growth | None) -> bool:
        if not self._is_settled(job.ref.uid) or self.resizer.is_held(job):
            return False
        if growth is None:
            return True
        changes = growth.life is not None or growth.joins or growth.leaves
        return not changes and not growth.size.record.room_since

    def _is_settled(self, uid: str) -> bool:
        headcount = self.lifecycles[uid].headcount
        return uid not in self.changes and (headcount is None or headcount.settled)

    def _is_expected(self, job: WorkloadRecord) -> bool:
        """Whether pods that are to join a gang in place were asked for and are not there yet."""
        return job.in_place and is_creating(self.view, job)

    def _grow(self, job: WorkloadRecord, growth: Growth) -> None:
        uid = job.ref.uid
        if growth.size.record != job.status.size:
            self.changes[uid] = growth.size
        if growth.joins:
            self.joins.append((job, growth.joins, growth.above))
        if growth.leaves:
            self.leaves.append((job, growth.leaves))
        if growth.life is not None:
            self.lifecycles[uid] = growth.life
        elif growth.wake_at:
            life = self.lifecycles[uid]
            self.lifecycles[uid] = replace(life, wake_at=earliest(life.wake_at, growth.wake_at))

    def _models(self, uid: str) -> Collection[int] | None:
        """Models that a job may grow on: those of its turn, where it takes turns."""
        if self.rounds is None:
            return None
        runner = self.rounds.arena.runners.get(uid)
        return self.rounds.models((runner.holds,)) if runner is not None and runner.holds else None

    def _lacks_room(self, refused: Refused) -> bool:
        """Whether a smaller gang may help; who takes turns waits for its turn, not for room."""
        if self.rounds is not None:
            return refused.requeue is Requeue.CHANGE
        return refused.requeue is not Requeue.ROOM_COMING

    def _is_unstarted(self, job: WorkloadRecord) -> bool:
        return all(member.gated for member in self.view.members_of(job))

    def _again(self, job: WorkloadRecord, size: Size) -> None:
        self.changes[job.ref.uid] = size
        self.lifecycles[job.ref.uid] = LifecycleStep(
            phase=Phase.PENDING,
            reason=Reason.WAITING_FOR_DECISION,
            message=f"its pods are made again, for {size.replicas} members",
            restarts=job.status.restarts,
        )


def sizing_of(
    requests: ResourceRequests,
    placer: Placer,
    lifecycles: dict[str, LifecycleStep],
    rounds: Rounds | None,
    limits: Mapping[str, Limit],
) -> Sizing:
    """The sizes of this cycle, none decided yet."""
    narrow = rounds.tools.typed.of if rounds is not None else None
    space = Space(requests=requests, placer=placer, narrow=narrow)
    resizer = Resizer(space=space, now=requests.view.now, limits=limits)
    return Sizing(view=requests.view, resizer=resizer, lifecycles=lifecycles, rounds=rounds)


def is_modest(job: WorkloadRecord) -> bool:
    """Whether a gang could do with fewer members than it waits for."""
    return job.elasticity is not None and job.replicas > job.elasticity.min_replicas


def _least(job: WorkloadRecord) -> int:
    return job.elasticity.min_replicas if job.elasticity is not None else job.replicas


def _contested(
    queue: SchedulingQueue, attempts: Sequence[SchedulingAttempt], outcomes: Mapping[str, Outcome]
) -> frozenset[int]:
    """Devices that someone who waits could use one day: no one grows into these."""
    found: set[int] = set()
    seen: set[int] = set()
    for attempt in attempts:
        if attempt.coming:
            continue
        outcome = outcomes.get(attempt.workload.ref.uid)
        if outcome is not None and (outcome.refused is None or outcome.refused.never is not None):
            continue
        request = queue.request(attempt, attempt.members[0])
        if request.number not in seen:
            seen.add(request.number)
            found.update(queue.placer.candidate_index.reachable(request).nonzero()[0].tolist())
    return frozenset(found)
