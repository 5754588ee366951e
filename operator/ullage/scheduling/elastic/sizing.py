# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Sizes of elastic gangs in the order in which a cycle decides them.

First gangs whose run ended, then starting ones, waiting ones, and last running ones: they get only
devices that no waiting workload can use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from ullage.api.reasons import Reason, Standing, standing_of
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.accounting.losses import was_given_back
from ullage.scheduling.capacity.budgets import Limit
from ullage.scheduling.capacity.node_requests import Lack
from ullage.scheduling.elastic.resize import Growth, Resizer
from ullage.scheduling.elastic.sizes import Size, resumes
from ullage.scheduling.elastic.space import Space, other_models, sites_of
from ullage.scheduling.feasibility.resource_requests import ResourceRequests, keeps_to_one_type
from ullage.scheduling.lifecycle.in_place import is_creating, reliable_due
from ullage.scheduling.lifecycle.training import busy
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
        resizer: The rules.
        lifecycles: Steps of all workloads; those whose size changes are replaced.
        rounds: The turns of this cycle; ``None`` under FIFO.
        changes: Size changes so far, by uid.
        joins: Running gangs with the number of members to create, and their lowest rank.
        leaves: Running gangs with the number of members that leave.
        without_room: uids of running gangs that may grow now but have no room.
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
    """Gangs whose pods this cycle creates in another size, with that size."""

    def __post_init__(self) -> None:
        self.jobs = dict(self.view.index.those(self.view.index.elastic))

    def end(self) -> None:
        """Restart gangs that cannot continue at the size that fits."""
        for uid, job in self.jobs.items():
            life = self.lifecycles[uid]
            preempted = Standing.PREEMPTION in standing_of(life.reason)
            if life.phase is not Phase.RESTARTING or preempted:
                continue
            ends = job.status.phase != Phase.RESTARTING and life.restarts == job.status.restarts
            if ends or was_given_back(job, life.restarts):
                self.lifecycles[uid], self.changes[uid] = self.resizer.at_ending(job, life)

    def count(self) -> None:
        """Take the size of gangs in place from their pods."""
        for uid, job in self.jobs.items():
            headcount = self.lifecycles[uid].headcount
            if headcount is not None:
                size = self.resizer.counted(job, headcount)
                if size is not None:
                    self.changes[uid] = size

    def may_count(self, job: WorkloadRecord) -> bool:
        """True when this cycle counts the room for a gang's start.

        Only one gang per cycle: if two count the same room, one has its pods deleted again.
        """
        if job.elasticity is None or job.elasticity.max_replicas == job.elasticity.min_replicas:
            return True
        if self.resizer.space.placer.occupancy.effort.extra <= 0 or self._has_counted:
            return False
        return self.rounds is not None or not any(
            is_modest(other) and self._is_untried(uid) for uid, other in self.jobs.items()
        )

    def _is_untried(self, uid: str) -> bool:
        """True when the pods of a gang exist without a decision about them."""
        decision = self.jobs[uid].status.decision
        untried = decision is not None and decision.reason is Reason.WAITING_FOR_DECISION
        return untried and bool(self.lifecycles[uid].waiting)

    def create(
        self, job: WorkloadRecord, life: LifecycleStep
    ) -> tuple[WorkloadRecord, LifecycleStep]:
        """The job and its step at the size for which its pods are created."""
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
        """Devices for workloads of other namespaces that have waited since an earlier decision."""
        requests, index = self.resizer.space.requests, self.resizer.space.placer.candidate_index
        sites: set[int] = set()
        seen: set[int] = set()
        for uid in busy(self.lifecycles):
            life = self.lifecycles[uid]
            other = self.view.snapshot.workloads[uid]
            if not life.waiting or other.ref.namespace == job.ref.namespace:
                continue
            if other.status.decision is None or other.priority < job.priority:
                continue
            request = requests.of(other, life.waiting[0].pod.shape)
            if request.number not in seen:
                seen.add(request.number)
                sites.update(index.reachable(request).nonzero()[0].tolist())
        return frozenset(sites)

    def coming(self) -> list[SchedulingAttempt]:
        """Gangs between two runs, whose places are reserved until their pods exist.

        Not during a back-off: other work could run there for minutes.
        """
        if self.rounds is not None:
            return []  # the plan of turns reserves these places
        return [
            SchedulingAttempt(
                workload=self._created.get(uid, job),
                members=self.resizer.space.phantoms(self._created.get(uid, job)),
                priority=priority_of(job, self.view.members_of(job)),
                waiting_since=self.view.now,
                returns=True,
                coming=job.elasticity.min_replicas if job.elasticity is not None else job.replicas,
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
        """Fit the size of waiting gangs to the room, before any member starts."""
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
        """Let running gangs grow into devices that no waiting workload can use, one per cycle."""
        contested = cache(lambda: _contested(queue, attempts, outcomes))
        if any(job.in_place and is_creating(self.view, job) for job in self.jobs.values()):
            return  # the room is unknown until the pods of joining members exist
        resizer = self.resizer.while_nothing_moves()
        for uid, job in self.jobs.items():
            life = self.lifecycles[uid]
            if life.phase is not Phase.RUNNING or job.status.phase != Phase.RUNNING:
                continue
            if job.in_place:
                growth = None
                if self._is_settled(uid):
                    avoid = self._to_avoid(queue, job, contested)
                    growth = resizer.while_in_place(job, avoid, self._models(uid))
            else:
                avoid = self._to_avoid(queue, job, contested)
                growth = resizer.while_running(job, avoid, self._models(uid))
            if self._has_no_room(job, growth):
                self.without_room.add(uid)
            if growth is None:
                continue
            self._grow(job, growth)
            if growth.life is not None or growth.joins:
                return  # the others count again once its places are reserved

    def lacking(self) -> dict[str, Lack]:
        """Gangs that could use more members, within their bounds and their budget, by uid."""
        lacks: dict[str, Lack] = {}
        for uid, job in self.jobs.items():
            life, size = self.lifecycles[uid], job.status.size
            members = self.resizer.lacking(job)
            if life.phase is Phase.PENDING and self._is_unstarted(job) and members > 0:
                lacks[uid] = Lack(members=members, reliable=0, lost=False, asks=False)
            elif job.status.phase != Phase.RUNNING or size is None:
                continue
            elif life.phase is not Phase.RUNNING:  # it is about to restart on new nodes
                lacks[uid] = Lack(members=0, reliable=0, lost=False, asks=False)
            elif members > 0 and (self.resizer.is_held(job) or self.resizer.wants_more(job)):
                lacks[uid] = self._lack(job, members, lost=size.reason is Reason.SHRUNK)
        return lacks

    def _lack(self, job: WorkloadRecord, members: int, *, lost: bool) -> Lack:
        joining = max(0, len(present(self.view, self.view.members_of(job))) - job.replicas)
        members = max(0, members - joining)
        due, _ = reliable_due(self.view, job)
        # growth pauses while anything is postponed; lost members are requested nevertheless
        record = job.status.size
        replaces = (
            lost
            and record is not None
            and not record.room_since
            and not self.resizer.is_held(job)
            and self.resizer.wants_more(job)
        )
        asks = members > 0 and (replaces or job.ref.uid in self.without_room)
        return Lack(members=members, reliable=min(due, members), lost=lost, asks=asks)

    def _to_avoid(
        self, queue: SchedulingQueue, job: WorkloadRecord, contested: Callable[[], frozenset[int]]
    ) -> Callable[[], frozenset[int]]:
        """Devices that a gang does not grow into: contested ones, and those of other types."""
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
        """Models on which a job may grow: that of its turn; ``None`` = all."""
        if self.rounds is None:
            return None
        runner = self.rounds.arena.runners.get(uid)
        return self.rounds.models((runner.holds,)) if runner is not None and runner.holds else None

    def _lacks_room(self, refused: Refused) -> bool:
        """True when a smaller gang may fit; jobs under rounds wait for their turn instead."""
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
    """Create the sizing of a cycle."""
    narrow = rounds.tools.typed.of if rounds is not None else None
    space = Space(requests=requests, placer=placer, narrow=narrow)
    resizer = Resizer(space=space, now=requests.view.now, limits=limits)
    return Sizing(view=requests.view, resizer=resizer, lifecycles=lifecycles, rounds=rounds)


def is_modest(job: WorkloadRecord) -> bool:
    """True when a gang may start with fewer members than it waits for."""
    return job.elasticity is not None and job.replicas > job.elasticity.min_replicas


def _contested(
    queue: SchedulingQueue, attempts: Sequence[SchedulingAttempt], outcomes: Mapping[str, Outcome]
) -> frozenset[int]:
    """Devices that waiting workloads could use; running gangs do not grow into these."""
    sites: set[int] = set()
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
            sites.update(queue.placer.candidate_index.reachable(request).nonzero()[0].tolist())
    return frozenset(sites)
