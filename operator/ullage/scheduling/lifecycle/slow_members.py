# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replacement of members whose node makes their rank slow (``spec.stragglers.replaceAfter``).

One member of a gang in place leaves at a time, and only for a place on another node. The node is
left out for this job alone, for a while: other work may be right there. Where no member is
replaced, the status says why.

A rank that was slow on two nodes is slow by its program, which a third one would not help. No
program may go through the cluster by its own figures, so replacements in a day are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ullage.api.quantity import duration_text
from ullage.api.reasons import Reason
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import MOST_REPLACEMENTS, Replacement
from ullage.cluster.records.straggler import StragglerRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.cluster.values.device_ref import DeviceRef
from ullage.engines.stragglers.detector import SlowCause
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.inventory.exclusions import active_exclusions
from ullage.scheduling.lifecycle.in_place import is_creating
from ullage.scheduling.model.faults import Blames
from ullage.scheduling.model.lifecycle_step import LifecycleStep, earliest
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import Member, PendingEviction, View
from ullage.scheduling.placement.placement import Placer
from ullage.scheduling.placement.room import elsewhere
from ullage.scheduling.prediction.effort import in_turns
from ullage.scheduling.times import (
    GANG_HOLD_IN_PLACE_S,
    GANG_ROOM_LASTS_IN_PLACE_S,
    REPLACEMENTS_APART_S,
    REPLACEMENTS_COUNT_S,
)

REASONS: Final[Mapping[SlowCause, Reason]] = {
    SlowCause.COMPUTE: Reason.RANK_COMPUTES_LONGER,
    SlowCause.THROTTLED: Reason.RANK_THROTTLED,
    SlowCause.NEIGHBOUR: Reason.RANK_BESIDE_NEIGHBOURS,
    SlowCause.DATA: Reason.RANK_WAITS_FOR_DATA,
    SlowCause.LINK: Reason.RANK_COMMUNICATES_LONGER,
}
"""Reasons of a slow rank by its cause."""
NO_ROOM: Final = "no other node with room for it was found yet"
MOST_TRIED: Final = 16
"""Members for which one cycle looks for a place (not measured)."""
HasRoom = Callable[[WorkloadRecord, Member], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowMembers:
    """Members that a cycle replaces, and those that stay although they are due.

    Attributes:
        evictions: Members that leave, by uid of the pod.
        jobs: uids of their jobs.
        kept: Texts why a slow member stays, by uid of the job.
        wake_at: Time at which the next one is due; 0 = none.
    """

    evictions: Mapping[str, PendingEviction] = field(default_factory=dict)
    jobs: Sequence[str] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    wake_at: float = 0.0


def slow_members(view: View, has_room: HasRoom) -> SlowMembers:
    """Decide about the slow ranks that have lasted for as long as their jobs allow.

    One job after the other gets a place, so that no two leave for the same one.

    Args:
        view: The cycle's snapshot, with the evictions for other causes.
        has_room: True when a member would find a place on another node.
    """
    leaving: list[_Due] = []
    waiting: list[_Due] = []
    kept: dict[str, str] = {}
    moments: list[float] = []
    blames = Blames(view.snapshot)
    for uid, slow in sorted((view.snapshot.stragglers or {}).items()):
        job = view.snapshot.workloads.get(uid)
        if job is None or job.replace_after_s is None or not _runs_on(job):
            continue
        due_at = slow.since + job.replace_after_s
        if view.now < due_at:
            moments.append(due_at)
            continue
        with blames.of(job.ref):
            members = view.members_of(job)
            member = next((each for each in members if each.pod.uid == slow.pod_uid), None)
            if member is None:
                continue
            text, settled_at = _stays(view, job, slow, member), _settled_at(job)
            if text:
                kept[uid] = text
            elif view.now < settled_at or _is_changing(view, job):
                moments.append(settled_at)
            else:
                due = _Due(job, slow, member)
                (leaving if _is_under_way(job, slow) else waiting).append(due)
    apart_at = _last_left(view) + REPLACEMENTS_APART_S
    chosen: _Due | None = None
    for number, due in enumerate(in_turns(waiting, view.now)):
        if chosen is None and view.now >= apart_at and number < MOST_TRIED:
            with blames.of(due.job.ref):
                if has_room(due.job, due.member):
                    chosen = due
                    leaving.append(due)
                    continue
        kept[due.job.ref.uid] = NO_ROOM
    blames.settle()
    if chosen is not None or view.now < apart_at or len(waiting) > MOST_TRIED:
        moments.append(max(apart_at, view.now + REPLACEMENTS_APART_S))
    wake_at = earliest(*(moment for moment in moments if moment > view.now))
    return SlowMembers(
        evictions={due.member.pod.uid: due.eviction() for due in leaving},
        jobs=sorted(due.job.ref.uid for due in leaving),
        kept=kept,
        wake_at=wake_at,
    )


@dataclass(frozen=True, slots=True)
class _Due:
    """A slow member that may leave."""

    job: WorkloadRecord
    slow: StragglerRecord
    member: Member

    def eviction(self) -> PendingEviction:
        """Its eviction."""
        text = _in_words(self.slow, self.job.replace_after_s or 0.0)
        return PendingEviction(Reason.STRAGGLER_REPLACED, text, _device(self.member))


def _runs_on(job: WorkloadRecord) -> bool:
    """True for a job that runs and that nothing else was asked of."""
    stops = job.deleting or job.suspend or job.aside
    return job.status.phase == Phase.RUNNING and not stops


def _last_left(view: View) -> float:
    """Time at which a member of any job last left a slow node."""
    return max(
        (
            exclusion.since
            for _, job in view.index.those(view.index.excluding)
            for exclusion in active_exclusions(view, job)
            if exclusion.reason is Reason.STRAGGLER_REPLACED
        ),
        default=0.0,
    )


def room_on_others(placer: Placer, requests: ResourceRequests) -> HasRoom:
    """The test of :func:`slow_members` for the current occupancy.

    A member of a gang of one type needs a device of that type.
    """
    inventory = placer.occupancy.inventory

    def has_room(job: WorkloadRecord, member: Member) -> bool:
        device = _device(member)
        node = None if device is None else inventory.node_index.get(device.node)
        site = None if device is None else inventory.site_index.get(device)
        if node is None or site is None:
            return False
        return elsewhere(
            placer,
            requests,
            job,
            [member],
            here_too=False,
            only="" if job.mixed_accelerators else inventory.sites[site].device.model,
            avoid=frozenset(inventory.sites_on[node]),
        )

    return has_room


def with_replacement(
    view: View, job: WorkloadRecord, life: LifecycleStep
) -> tuple[Replacement, ...]:
    """Replacements for the status; the previous tuple unless a member just had to leave."""
    before = job.status.scheduling.replacements
    passed = life.passed_over
    slow = (view.snapshot.stragglers or {}).get(job.ref.uid)
    if passed is None or passed.reason is not Reason.STRAGGLER_REPLACED or slow is None:
        return before
    if _is_under_way(job, slow):
        return before
    now = Replacement(
        rank=slow.rank,
        pod=slow.pod,
        node=slow.node,
        reason=REASONS[slow.cause],
        time=whole_second(view.now),
        message=passed.message,
    )
    return (*before, now)[-MOST_REPLACEMENTS:]


def _settled_at(job: WorkloadRecord) -> float:
    """Time by which the successor of a lost member has its pod, where there is room."""
    size = job.status.size
    if size is None:
        return 0.0
    return size.since + GANG_HOLD_IN_PLACE_S + 2 * GANG_ROOM_LASTS_IN_PLACE_S


def _is_changing(view: View, job: WorkloadRecord) -> bool:
    """True while members come, go or have ended: one is replaced at a time."""
    members = view.members_of(job)
    return (
        is_creating(view, job)
        or job.status.retry_at > view.now
        or len(members) != job.replicas
        or any(
            member.pod.stage is not PodStage.RUNNING
            or member.pod.deleting
            or member.pod.uid in view.evictions
            for member in members
        )
    )


def _stays(view: View, job: WorkloadRecord, slow: StragglerRecord, member: Member) -> str:
    """The cause for which a member is not replaced, whatever room there is; empty = none."""
    match slow.cause:
        case SlowCause.NEIGHBOUR:
            return "the cause is a neighbour on its device, not the node"
        case SlowCause.DATA:
            return "the cause is its input, not the node"
        case SlowCause.COMPUTE | SlowCause.THROTTLED | SlowCause.LINK:
            pass
    bounds = job.elasticity
    if bounds is None or not bounds.in_place:
        return (
            "all members would start again, because spec.elasticity.membership is not InPlace;"
            " delete its pod where that is worth it"
        )
    if bounds.tiers is None and not bounds.meets_elsewhere and member.pod.rank == 0:
        return "the members meet at it, so all would start again"
    if len(view.members_of(job)) <= bounds.min_replicas:
        return f"the gang trains with {bounds.min_replicas} members at least"
    if _is_under_way(job, slow):
        return ""
    lately = [
        replacement
        for replacement in job.status.scheduling.replacements
        if view.now < replacement.time + REPLACEMENTS_COUNT_S
    ]
    earlier = next((other for other in reversed(lately) if other.rank == slow.rank), None)
    if earlier is not None:
        return f"the rank was slow on {earlier.node}, too, so its program is the cause"
    if len(lately) >= MOST_REPLACEMENTS:
        hours = REPLACEMENTS_COUNT_S / 3600
        return f"{len(lately)} members were replaced in {hours:.0f} hours, which is the most"
    return ""


def _is_under_way(job: WorkloadRecord, slow: StragglerRecord) -> bool:
    """True when the status already has this replacement, and the pod has not gone yet."""
    return any(
        (other.rank, other.pod, other.node) == (slow.rank, slow.pod, slow.node)
        and other.time >= slow.since
        for other in job.status.scheduling.replacements
    )


def _device(member: Member) -> DeviceRef | None:
    return member.held[0].device if member.held else None


def _in_words(slow: StragglerRecord, lasted_s: float) -> str:
    return (
        f"rank {slow.rank} on {slow.node} took {slow.ratio_percent / 100:.1f} times as long as the"
        f" others for {duration_text(lasted_s)} ({REASONS[slow.cause]}), so it starts on another"
        " node"
    )
