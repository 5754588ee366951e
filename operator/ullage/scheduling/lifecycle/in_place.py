# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A gang whose members come and go while the others run: who is lost goes alone, who comes joins.

Its pods are the truth: a gated one beside others that were let go is joining, and how many members
it has is how many were let go and stay. The status remembers for whom something was told already.
A member that runs well is never touched here; what leaves too few of them ends the start as of any
gang.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ullage.api.reasons import Reason, Standing
from ullage.cluster.records.snapshot import PodStage, WorkloadRecord
from ullage.cluster.values.names import pod_name
from ullage.scheduling.inventory import timeouts
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.inventory.reliable_machines import staying, terms_of
from ullage.scheduling.lifecycle.drain import at_once, in_time
from ullage.scheduling.lifecycle.gang import deadline, must_move, refusal_of, ungate
from ullage.scheduling.lifecycle.termination import (
    Termination,
    close,
    completion,
    cut_off,
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
"""Members that one sentence names."""


@dataclass(frozen=True, slots=True)
class _Loss:
    """A member that was let go and cannot stay; ``ending`` says why."""

    member: Member
    ending: Termination


@dataclass(frozen=True, slots=True)
class _Roll:
    """The members of a gang, sorted."""

    staying: Sequence[Member]
    """Let go, and well or ended well."""
    losses: Sequence[_Loss]
    gated: Sequence[Member]
    """Not let go yet; those that are being deleted left out."""
    shown: frozenset[str]
    """uids of pods that the status shows with a place: nothing was told of their end."""
    gone: Sequence[str]
    """Names of shown pods that are not there any more."""
    steps_done: bool
    """Its coordinator has ended well, and with it every step."""

    @property
    def news(self) -> list[_Loss]:
        """Losses that the status does not know of."""
        return [loss for loss in self.losses if loss.member.pod.uid in self.shown]

    @property
    def ended(self) -> bool:
        """Whether a member is done: no one else comes to what is about to end."""
        return any(one.pod.stage is PodStage.SUCCEEDED for one in self.staying)


def life_in_place(
    view: View, inventory: Inventory, job: WorkloadRecord, members: Sequence[Member]
) -> LifecycleStep | None:
    """What the gang needs next; ``None`` where it is to be treated as any other gang is.

    Args:
        view: the cycle's snapshot.
        inventory: knows the nodes.
        job: a gang in place that is to run.
        members: all of its pods.
    """
    bounds = job.elasticity
    if bounds is None or all(one.gated for one in members):
        return None
    roll = _called(view, job, members)
    left_well = all(one.pod.stage is PodStage.SUCCEEDED for one in roll.staying)
    done = (
        "every member that was left ended with exit code 0"
        if roll.staying and left_well
        else completion(view, job, [one for one in members if not one.gated])
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
        return at_once(view, job, members, close(view, job, members, silent))
    if len(roll.staying) < bounds.min_replicas and not (roll.steps_done and roll.ended):
        comes_up = job.status.phase in ("", *_COMING_UP) and not (roll.losses or roll.gone)
        return None if comes_up else _over(view, job, members, (roll, failure))
    restarts, retry_at = job.status.restarts, job.status.retry_at
    text = _in_words(roll)
    if failure is not None:
        verdict = close(view, job, members, failure)
        if verdict.phase is Phase.FAILED:
            return verdict
        restarts, retry_at, text = verdict.restarts, verdict.retry_at, verdict.message
    return _goes_on(view, inventory, job, roll, (restarts, retry_at, text))


def reliable_due(view: View, job: WorkloadRecord) -> tuple[int, tuple[str, ...]]:
    """Members of a gang in tiers that are missing of those that count on machines that stay.

    Where there are no such machines they may be anywhere, and none is missed.

    Returns:
        How many, and the names of those whose pods can be created now.
    """
    terms = terms_of(job)
    if terms is None or not staying(view.snapshot.pools):
        return 0, ()
    there = {one.pod.rank for one in view.members_of(job) if one.live and not one.pod.deleting}
    due = sum(rank not in there for rank in range(terms.reliable))
    free = free_ranks(view, job, due) if due else ()
    return due, tuple(pod_name(job.ref.name, rank) for rank in free if rank < terms.reliable)


def free_ranks(view: View, job: WorkloadRecord, count: int, above: int = 0) -> tuple[int, ...]:
    """The lowest ranks from ``above`` on that no one has, of which pods can be created now.

    A pod that hangs on a machine which does not answer keeps its rank; the next one is taken.
    """
    namespace, name = job.ref.namespace, job.ref.name
    taken = {one.pod.rank for one in view.members_of(job)}
    found: list[int] = []
    rank = above
    while len(found) < count:
        key = (namespace, pod_name(name, rank))
        if write_refused(view, "Pod", *key) is not None:
            return ()
        if rank not in taken and key not in view.names and key not in view.snapshot.creating:
            found.append(rank)
        rank += 1
    return tuple(found)


def is_creating(view: View, job: WorkloadRecord) -> bool:
    """Whether pods of it were asked for that no one has seen yet."""
    if not view.snapshot.creating:
        return False
    ranks = range(_most(job) + len(view.members_of(job)))
    namespace, name = job.ref.namespace, job.ref.name
    return any((namespace, pod_name(name, rank)) in view.snapshot.creating for rank in ranks)


def _called(view: View, job: WorkloadRecord, members: Sequence[Member]) -> _Roll:
    coordinator = view.coordinators.get(job.ref.uid)
    steps_done = coordinator is not None and coordinator.stage is PodStage.SUCCEEDED
    losses: list[_Loss] = []
    staying: list[Member] = []
    for one in members:
        if one.gated:
            continue
        ending = _came_late(one) if steps_done else None
        ending = ending or _loss(view, one)
        if ending is None:
            staying.append(one)
        else:
            losses.append(_Loss(one, ending))
    there = {one.pod.uid for one in members}
    shown = {placement.key.pod_uid: placement.pod for placement in job.status.placement}
    return _Roll(
        staying=staying,
        losses=losses,
        gated=[one for one in members if one.gated and not one.pod.deleting],
        shown=frozenset(shown),
        gone=sorted(name for uid, name in shown.items() if uid not in there),
        steps_done=steps_done,
    )


def _came_late(member: Member) -> Termination | None:
    """Of a job whose steps are all done: a member that has not started has no part in its end."""
    if member.pod.stage not in (PodStage.UNSCHEDULED, PodStage.BOUND):
        return None
    text = f"{member.pod.name} is not needed any more: all steps are done"
    return Termination(Reason.COMPLETED, text)


def _loss(view: View, member: Member) -> Termination | None:
    """Why a member cannot stay, in the order in which causes count; ``None`` when it can."""
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
        return Termination(
            Reason.EXIT_CODE,
            f"{pod.name} failed with {pod.how_it_ended}",
            counted=True,
            code=pod.exit_code,
            at=pod.stage_since,
        )
    trouble = timeouts.trouble(view, member)
    return (
        Termination(trouble.reason, trouble.message, device=trouble.device)
        if trouble is not None
        else None
    )


def _failure(view: View, job: WorkloadRecord, roll: _Roll) -> Termination | None:
    """A failure that counts, once: the same status tells of it and of the smaller gang.

    Members that fail when another is cut off, or when the one where they meet is gone or has not
    started yet, are not to blame. In tiers they meet at their coordinator, and a member that comes
    when all steps are done does not find it.
    """
    if roll.steps_done and roll.ended:
        return None
    failed = [loss.ending for loss in roll.news if loss.ending.counted]
    unheard = [*roll.staying, *(loss.member for loss in roll.news)]
    if not failed or cut_off(view, job, unheard):
        return None
    bounds = job.elasticity
    in_tiers = bounds is not None and bounds.tiers is not None
    first_there = in_tiers or any(one.pod.rank == 0 and one.runs for one in roll.staying)
    first_failed = any(loss.ending.counted and loss.member.pod.rank == 0 for loss in roll.news)
    return failed[0] if first_there or first_failed else None


def _first_vanished(view: View, job: WorkloadRecord, roll: _Roll) -> Termination | None:
    """That the member at which the others meet was lost together with its machine.

    Connections to a pod that was killed break, and the others fail by themselves. Those to a
    machine that does not answer just stay: torchrun waits on them until the kernel gives up, for a
    quarter of an hour, and steps nothing. With one member as the fewest, the first may train on
    alone behind a cut cable: then its node has to be gone.
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


def _over(
    view: View,
    job: WorkloadRecord,
    members: Sequence[Member],
    found: tuple[_Roll, Termination | None],
) -> LifecycleStep:
    """Too few are left: every member starts again, as those of any gang."""
    roll, failure = found
    bounds = job.elasticity
    assert bounds is not None  # only gangs in place come here
    if failure is not None:
        return close(view, job, members, failure)
    whole = _all_moved(view, roll)
    if whole is not None:
        return at_once(view, job, members, close(view, job, members, whole))
    first = next((loss.ending for loss in (*roll.news, *roll.losses)), None)
    left = len(roll.staying)
    text = (
        f"{_in_words(roll) or 'members are missing'}; {left or 'none'} of them"
        f" {'is' if left < 2 else 'are'} left and it trains with {bounds.min_replicas} at least,"
        " so all start again"
    )
    reason = first.reason if first is not None else Reason.MEMBER_LOST
    reason = Reason.MEMBER_LOST if reason is Reason.EXIT_CODE else reason
    return at_once(view, job, members, close(view, job, members, Termination(reason, text)))


def _all_moved(view: View, roll: _Roll) -> Termination | None:
    """Why all of them leave, where it is one reason: then nothing is to be said of each."""
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
    """What happened to members since the status was told, or who came."""
    told = [loss.ending.message for loss in roll.news] + [f"{name} is gone" for name in roll.gone]
    if told:
        more = f" and {len(told) - _MOST_NAMED} more" if len(told) > _MOST_NAMED else ""
        return "; ".join(told[:_MOST_NAMED]) + more
    came = [one.pod.name for one in roll.staying if one.pod.uid not in roll.shown]
    more = f" and {len(came) - _MOST_NAMED} more" if len(came) > _MOST_NAMED else ""
    return f"{', '.join(came[:_MOST_NAMED])}{more} joined" if came else ""


def _goes_on(
    view: View,
    inventory: Inventory,
    job: WorkloadRecord,
    roll: _Roll,
    said: tuple[int, float, str],
) -> LifecycleStep:
    """Who is lost is retired, who joins is brought in; the others are left alone."""
    restarts, retry_at, text = said
    joining, dropped = _sorted_out(view, inventory, job, roll)
    if dropped:
        retry_at = max(retry_at, view.now + JOIN_RETRY_S)
    waits = retry_at > view.now
    steps = [step for loss in roll.losses for step in _retired(view, job, loss, roll.shown)]
    runs = all(one.runs for one in roll.staying)
    phase = Phase.RUNNING if runs or job.status.phase == Phase.RUNNING else Phase.STARTING
    for one in roll.gated:
        if one in dropped:
            reason, why = Reason.NO_CAPACITY, "it finds no place beside the others"
            steps.append(delete(job, one, view.settings.epoch, reason, why))
        elif (
            one.reserved
            and not one.foreign_gates
            and not write_refused(view, "Pod", one.pod.namespace, one.pod.name)
        ):
            steps.append(ungate(view, job, one))
    coming = bool(roll.gated) or is_creating(view, job)
    return LifecycleStep(
        phase=phase,
        restarts=restarts,
        retry_at=retry_at if waits else 0.0,
        steps=tuple(steps),
        joining=joining,
        release=tuple(one for one in dropped if one.held),
        passed_over=_passed(roll, dropped),
        headcount=Headcount(
            members=len(roll.staying),
            text=text,
            settled=runs and not (coming or roll.ended or waits),
        ),
        wake_at=earliest(
            retry_at if waits else 0.0,
            deadline(view, [one for one in roll.gated if one not in dropped]),
            *(timeouts.next_look(view, one) for one in roll.staying),
        ),
    )


def _retired(
    view: View, job: WorkloadRecord, loss: _Loss, shown: frozenset[str]
) -> tuple[Action, ...]:
    """How a lost member goes; a failure that counts must stand in the status first."""
    member, ending = loss.member, loss.ending
    if member.pod.deleting or (ending.counted and member.pod.uid in shown):
        return ()
    epoch = view.settings.epoch
    if Standing.OURS not in ending.reason.standing or not member.live:
        return (delete(job, member, epoch, ending.reason, ending.message),)
    step = evict(job, member, epoch, ending.reason, ending.message)
    return (in_time(view, step, member) if ending.reason is Reason.SPOT_INTERRUPTED else step,)


def _sorted_out(
    view: View, inventory: Inventory, job: WorkloadRecord, roll: _Roll
) -> tuple[tuple[Member, ...], list[Member]]:
    """Of those who join, who needs a place now, and who goes again because it got none."""
    room = 0 if roll.ended else _most(job) - len(roll.staying)
    dropped = [
        one
        for at, one in enumerate(roll.gated)
        if at >= room
        or (
            one.held
            and (must_move(view, inventory, one) or timeouts.overdue(view, one) is not None)
        )
    ]
    joining = tuple(
        one for one in roll.gated if not one.held and one not in dropped and not one.foreign_gates
    )
    return joining, dropped


def _most(job: WorkloadRecord) -> int:
    return job.elasticity.max_replicas if job.elasticity is not None else job.replicas


def _passed(roll: _Roll, dropped: Sequence[Member]) -> Passed | None:
    """A device that a member just had to leave, or that refused one."""
    for loss in roll.news:
        if loss.ending.device is not None:
            text = loss.ending.message
            return Passed(reason=loss.ending.reason, device=loss.ending.device, message=text)
    return refusal_of(dropped)
