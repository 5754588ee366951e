# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A gang in place: members join and leave while the others run.

The pods hold the state. A gated pod beside ungated ones is joining; the size of the gang is the
number of ungated pods that stay. The status has the members whose end was already reported. A
healthy running member is never touched. When too few are left, the gang restarts like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ullage.api.reasons import Reason, Standing
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.names import pod_name
from ullage.scheduling.inventory import timeouts
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.inventory.reliable_machines import staying, terms_of
from ullage.scheduling.lifecycle.drain import with_evictions, within_notice
from ullage.scheduling.lifecycle.gang import deadline, must_move, refusal_of, ungate
from ullage.scheduling.lifecycle.termination import (
    Termination,
    close,
    completion,
    cut_off,
    failure_of,
    stopped_text,
)
from ullage.scheduling.model.lifecycle_step import (
    Headcount,
    LifecycleStep,
    Passed,
    delete,
    earliest,
    evict,
    write_refused,
)
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.plan import Action
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.times import JOIN_RETRY_S

_COMING_UP = (Phase.PENDING, Phase.RESERVING, Phase.STARTING)
_MOST_NAMED = 3
"""Number of members named in a message."""


@dataclass(frozen=True, slots=True)
class _Loss:
    """An ungated member that cannot stay, and the reason."""

    member: Member
    ending: Termination


@dataclass(frozen=True, slots=True)
class _Roll:
    """The members of a gang by their state."""

    staying: Sequence[Member]
    """Ungated members that are well or succeeded."""
    losses: Sequence[_Loss]
    gated: Sequence[Member]
    """Without those that are being deleted."""
    shown: frozenset[str]
    """uids of pods in ``status.placement``; their end was not reported yet."""
    gone: Sequence[str]
    """Names of pods in ``status.placement`` that no longer exist."""
    steps_done: bool
    """True when the coordinator succeeded, so that every step is done."""

    @property
    def news(self) -> list[_Loss]:
        """Losses that the status does not show yet."""
        return [loss for loss in self.losses if loss.member.pod.uid in self.shown]

    @property
    def ended(self) -> bool:
        """True when a member succeeded; then no member joins any more."""
        return any(member.pod.stage is PodStage.SUCCEEDED for member in self.staying)


def life_in_place(
    view: View, inventory: Inventory, job: WorkloadRecord, members: Sequence[Member]
) -> LifecycleStep | None:
    """The next step of a gang in place; ``None`` = treat it like any other gang.

    Args:
        view: The cycle's snapshot.
        inventory: The nodes and devices.
        job: A gang in place that is to run.
        members: All of its pods.
    """
    bounds = job.elasticity
    if bounds is None or all(member.gated for member in members):
        return None
    roll = _roll_of(view, job, members)
    ended_well = all(member.pod.stage is PodStage.SUCCEEDED for member in roll.staying)
    done = (
        "every member that was left ended with exit code 0"
        if roll.staying and ended_well
        else completion(view, job, [member for member in members if not member.gated])
    )
    if done:
        late = [loss for loss in roll.losses if loss.ending.reason is Reason.COMPLETED]
        return LifecycleStep(
            phase=Phase.SUCCEEDED,
            reason=Reason.COMPLETED,
            message=done,
            restarts=job.status.restarts,
            steps=tuple(step for loss in late for step in _retired(view, job, loss, roll.shown)),
        )
    failure = _failure(view, job, roll)
    silent = _first_vanished(view, job, roll)
    if silent is not None:
        return with_evictions(view, job, members, close(view, job, members, silent))
    if len(roll.staying) < bounds.min_replicas and not (roll.steps_done and roll.ended):
        comes_up = job.status.phase in ("", *_COMING_UP) and not (roll.losses or roll.gone)
        return None if comes_up else _restart(view, job, members, roll, failure)
    restarts, retry_at = job.status.restarts, job.status.retry_at
    text = _in_words(roll)
    if failure is not None:
        verdict = close(view, job, members, failure)
        if verdict.phase is Phase.FAILED:
            return verdict
        restarts, retry_at, text = verdict.restarts, verdict.retry_at, verdict.message
    return _goes_on(view, inventory, job, roll, (restarts, retry_at, text))


def reliable_due(view: View, job: WorkloadRecord) -> tuple[int, tuple[str, ...]]:
    """Reliable members that a gang in tiers lacks.

    Without pools of reliable machines, members may run anywhere and none is missing.

    Returns:
        Their number, and the names of the pods that can be created now.
    """
    terms = terms_of(job)
    if terms is None or not staying(view.snapshot.pools):
        return 0, ()
    there = {
        member.pod.rank
        for member in view.members_of(job)
        if member.live and not member.pod.deleting
    }
    due = sum(rank not in there for rank in range(terms.reliable))
    free = free_ranks(view, job, due) if due else ()
    return due, tuple(pod_name(job.ref.name, rank) for rank in free if rank < terms.reliable)


def free_ranks(view: View, job: WorkloadRecord, count: int, above: int = 0) -> tuple[int, ...]:
    """The lowest ``count`` free ranks from ``above`` on whose pods can be created now.

    A pod on a node that does not answer keeps its rank.
    """
    namespace, name = job.ref.namespace, job.ref.name
    taken = {member.pod.rank for member in view.members_of(job)}
    free: list[int] = []
    rank = above
    while len(free) < count:
        key = (namespace, pod_name(name, rank))
        if write_refused(view, "Pod", *key) is not None:
            return ()
        if rank not in taken and key not in view.names and key not in view.snapshot.creating:
            free.append(rank)
        rank += 1
    return tuple(free)


def is_creating(view: View, job: WorkloadRecord) -> bool:
    """True when the creation of some of its pods was requested and is not observed yet."""
    if not view.snapshot.creating:
        return False
    ranks = range(_most(job) + len(view.members_of(job)))
    namespace, name = job.ref.namespace, job.ref.name
    return any((namespace, pod_name(name, rank)) in view.snapshot.creating for rank in ranks)


def _roll_of(view: View, job: WorkloadRecord, members: Sequence[Member]) -> _Roll:
    coordinator = view.coordinators.get(job.ref.uid)
    steps_done = coordinator is not None and coordinator.stage is PodStage.SUCCEEDED
    losses: list[_Loss] = []
    staying: list[Member] = []
    for member in members:
        if member.gated:
            continue
        ending = _came_too_late(member) if steps_done else None
        ending = ending or _loss(view, member)
        if ending is None:
            staying.append(member)
        else:
            losses.append(_Loss(member, ending))
    there = {member.pod.uid for member in members}
    shown = {placement.key.pod_uid: placement.pod for placement in job.status.placement}
    return _Roll(
        staying=staying,
        losses=losses,
        gated=[member for member in members if member.gated and not member.pod.deleting],
        shown=frozenset(shown),
        gone=sorted(name for uid, name in shown.items() if uid not in there),
        steps_done=steps_done,
    )


def _came_too_late(member: Member) -> Termination | None:
    """The end of a member that has not started when all steps are done."""
    if member.pod.stage not in (PodStage.UNSCHEDULED, PodStage.BOUND):
        return None
    text = f"{member.pod.name} is not needed any more: all steps are done"
    return Termination(Reason.COMPLETED, text)


def _loss(view: View, member: Member) -> Termination | None:
    """The first cause for which a member cannot stay; ``None`` = it can."""
    pod = member.pod
    if pod.lost_race:
        return Termination(Reason.LOST_RACE, f"{pod.name} lost its place at admission")
    if pod.stopped:
        return Termination(Reason.MEMBER_LOST, stopped_text(pod))
    eviction = view.evictions.get(pod.uid)
    if eviction is not None and not pod.stage.finished:
        return Termination(
            eviction.reason, f"{pod.name} leaves: {eviction.message}", device=eviction.device
        )
    if pod.deleting:
        return Termination(Reason.MEMBER_LOST, f"{pod.name} is being deleted")
    if pod.stage is PodStage.FAILED:
        return failure_of(pod)
    trouble = timeouts.trouble(view, member)
    if trouble is None:
        return None
    return Termination(trouble.reason, trouble.message, device=trouble.device)


def _failure(view: View, job: WorkloadRecord, roll: _Roll) -> Termination | None:
    """The failure that counts against the job; ``None`` = none does.

    Members that fail because another is cut off, or because the member at their rendezvous is gone
    or has not started, do not count. In tiers the rendezvous is the coordinator, and a member that
    starts when all steps are done does not find it.
    """
    if roll.steps_done and roll.ended:
        return None
    failed = [loss.ending for loss in roll.news if loss.ending.counted]
    unheard = [*roll.staying, *(loss.member for loss in roll.news)]
    if not failed or cut_off(view, job, unheard):
        return None
    bounds = job.elasticity
    in_tiers = bounds is not None and bounds.tiers is not None
    first_there = in_tiers or any(member.pod.rank == 0 and member.runs for member in roll.staying)
    first_failed = any(loss.ending.counted and loss.member.pod.rank == 0 for loss in roll.news)
    return failed[0] if first_there or first_failed else None


def _first_vanished(view: View, job: WorkloadRecord, roll: _Roll) -> Termination | None:
    """The loss of the member at the rendezvous together with its machine.

    Connections to a killed pod break, and the others fail by themselves. Connections to a machine
    that does not answer stay open: torchrun waits about 15 minutes for the kernel to give up. With
    ``minReplicas: 1`` the first member may still train behind a network partition, so its node has
    to be gone.
    """
    bounds = job.elasticity
    if bounds is None or bounds.tiers is not None or bounds.meets_elsewhere:
        return None
    name = pod_name(job.ref.name, 0)
    lost = [loss.member.pod.node for loss in roll.losses if loss.member.pod.rank == 0]
    if name in roll.gone:
        lost += [placement.node for placement in job.status.placement if placement.pod == name]
    for node in filter(None, lost):
        record = view.snapshot.nodes.get(node)
        if record is None or (not record.ready and bounds.min_replicas > 1):
            text = f"{name}, where the members meet, was lost with {node}, so all start again"
            return Termination(Reason.MEMBER_LOST, text)
    return None


def _restart(
    view: View,
    job: WorkloadRecord,
    members: Sequence[Member],
    roll: _Roll,
    failure: Termination | None,
) -> LifecycleStep:
    """Restart every member because too few are left."""
    bounds = job.elasticity
    assert bounds is not None  # only gangs in place come here
    if failure is not None:
        return close(view, job, members, failure)
    whole = _all_moved(view, roll)
    if whole is not None:
        return with_evictions(view, job, members, close(view, job, members, whole))
    first = next((loss.ending for loss in (*roll.news, *roll.losses)), None)
    remaining = len(roll.staying)
    text = (
        f"{_in_words(roll) or 'members are missing'}; {remaining or 'none'} of them"
        f" {'is' if remaining < 2 else 'are'} left and it trains with {bounds.min_replicas}"
        " at least, so all start again"
    )
    reason = first.reason if first is not None else Reason.MEMBER_LOST
    reason = Reason.MEMBER_LOST if reason is Reason.EXIT_CODE else reason
    return with_evictions(view, job, members, close(view, job, members, Termination(reason, text)))


def _all_moved(view: View, roll: _Roll) -> Termination | None:
    """The common reason when all members are evicted for the same one."""
    evictions = {view.evictions.get(loss.member.pod.uid) for loss in roll.losses}
    causes = {
        (eviction.reason, eviction.message) if eviction is not None else None
        for eviction in evictions
    }
    eviction = next(iter(evictions), None)
    if roll.staying or roll.gone or len(causes) != 1 or eviction is None:
        return None
    return Termination(eviction.reason, eviction.message, device=eviction.device)


def _in_words(roll: _Roll) -> str:
    """Message about members that were lost or joined since the last status."""
    ends = [loss.ending.message for loss in roll.news] + [f"{name} is gone" for name in roll.gone]
    if ends:
        more = f" and {len(ends) - _MOST_NAMED} more" if len(ends) > _MOST_NAMED else ""
        return "; ".join(ends[:_MOST_NAMED]) + more
    joined = [member.pod.name for member in roll.staying if member.pod.uid not in roll.shown]
    more = f" and {len(joined) - _MOST_NAMED} more" if len(joined) > _MOST_NAMED else ""
    return f"{', '.join(joined[:_MOST_NAMED])}{more} joined" if joined else ""


def _goes_on(
    view: View,
    inventory: Inventory,
    job: WorkloadRecord,
    roll: _Roll,
    outcome: tuple[int, float, str],
) -> LifecycleStep:
    """Retire lost members and bring in new ones; the others are left alone."""
    restarts, retry_at, text = outcome
    joining, dropped = _joining_and_dropped(view, inventory, job, roll)
    if dropped:
        retry_at = max(retry_at, view.now + JOIN_RETRY_S)
    waits = retry_at > view.now
    steps = [step for loss in roll.losses for step in _retired(view, job, loss, roll.shown)]
    runs = all(member.runs for member in roll.staying)
    phase = Phase.RUNNING if runs or job.status.phase == Phase.RUNNING else Phase.STARTING
    for member in roll.gated:
        if member in dropped:
            reason, why = Reason.NO_CAPACITY, "it finds no place beside the others"
            steps.append(delete(job, member, view.settings.epoch, reason, why))
        elif (
            member.reserved
            and not member.foreign_gates
            and not write_refused(view, "Pod", member.pod.namespace, member.pod.name)
        ):
            steps.append(ungate(view, job, member))
    coming = bool(roll.gated) or is_creating(view, job)
    return LifecycleStep(
        phase=phase,
        restarts=restarts,
        retry_at=retry_at if waits else 0.0,
        steps=tuple(steps),
        joining=joining,
        release=tuple(member for member in dropped if member.held),
        passed_over=_passed(roll, dropped),
        headcount=Headcount(
            members=len(roll.staying),
            text=text,
            settled=runs and not (coming or roll.ended or waits),
        ),
        wake_at=earliest(
            retry_at if waits else 0.0,
            deadline(view, [member for member in roll.gated if member not in dropped]),
            *(timeouts.next_look(view, member) for member in roll.staying),
        ),
    )


def _retired(
    view: View, job: WorkloadRecord, loss: _Loss, shown: frozenset[str]
) -> tuple[Action, ...]:
    """Delete or evict a lost member; a counted failure must be in the status first."""
    member, ending = loss.member, loss.ending
    if member.pod.deleting or (ending.counted and member.pod.uid in shown):
        return ()
    epoch = view.settings.epoch
    if Standing.OURS not in ending.reason.standing or not member.live:
        return (delete(job, member, epoch, ending.reason, ending.message),)
    step = evict(job, member, epoch, ending.reason, ending.message)
    return (
        within_notice(view, step, member) if ending.reason is Reason.SPOT_INTERRUPTED else step,
    )


def _joining_and_dropped(
    view: View, inventory: Inventory, job: WorkloadRecord, roll: _Roll
) -> tuple[tuple[Member, ...], list[Member]]:
    """Members that join and need a place now, and those to delete because they got none."""
    room = 0 if roll.ended else _most(job) - len(roll.staying)
    dropped = [
        member
        for at, member in enumerate(roll.gated)
        if at >= room
        or (
            member.held
            and (must_move(view, inventory, member) or timeouts.overdue(view, member) is not None)
        )
    ]
    joining = tuple(
        member
        for member in roll.gated
        if not member.held and member not in dropped and not member.foreign_gates
    )
    return joining, dropped


def _most(job: WorkloadRecord) -> int:
    return job.elasticity.max_replicas if job.elasticity is not None else job.replicas


def _passed(roll: _Roll, dropped: Sequence[Member]) -> Passed | None:
    """The device that a member just had to leave, or that refused a member."""
    for loss in roll.news:
        if loss.ending.device is not None:
            text = loss.ending.message
            return Passed(reason=loss.ending.reason, device=loss.ending.device, message=text)
    return refusal_of(dropped)
