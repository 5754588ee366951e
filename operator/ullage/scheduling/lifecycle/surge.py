# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replicas that have to leave their device: the replacement starts first where there is room.

The Deployment gets one replica more; when that one serves, the old pod is evicted and the number
goes back. Level-triggered: where a move stands follows from the pods and the Deployment. Without
room a replica that harms others goes all the same, one at a time; one that would only be better off
elsewhere stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.records.snapshot import DeploymentRecord, PodStage, WorkloadRecord
from ullage.cluster.records.status import Exclusion
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.inventory.exclusions import active_exclusions
from ullage.scheduling.lifecycle.replacement import Doomed, Marked, doomed_of, replaced_ahead
from ullage.scheduling.model.lifecycle_step import evict
from ullage.scheduling.model.plan import Action
from ullage.scheduling.model.view import Member, PendingEviction, View
from ullage.scheduling.placement.clearing import clearing_s
from ullage.scheduling.placement.placement import Placer
from ullage.scheduling.placement.room import beside, elsewhere
from ullage.scheduling.times import REPLACEMENT_MOST_S

URGENT: Final = Reason.INTERFERING
"""Marks a replica that harms others where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """What a service does about replicas that have to leave."""

    steps: tuple[Action, ...] = ()
    extra: int = 0
    """Replicas beyond those that are wanted, for a while."""
    wake_at: float = 0.0

    @property
    def under_way(self) -> bool:
        """Whether anything is done."""
        return bool(self.steps) or self.extra > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A service with replicas that have to leave, and all that matters to it."""

    view: View
    placer: Placer
    requests: ResourceRequests
    service: WorkloadRecord
    deployment: DeploymentRecord | None
    """``None`` = there is none to be given one more."""
    busy: bool
    """Its template changes: pods come and go anyway."""
    refused: bool
    """A pod of it was just refused a place."""
    awaited: bool = False
    """Others are leaving a device for that pod."""
    placed: frozenset[int] = frozenset()
    """Devices that pods of it were just given, which the view does not show yet."""


def leave(move: Move) -> Leaving:
    """What is done in this cycle."""
    view, service = move.view, move.service
    members = view.members_of(service)
    marked = [
        (member, view.evictions[member.pod.uid]) for member in members if _must_go(view, member)
    ]
    marked += _begun(move, members)
    if not marked or not service.replicas:
        return Leaving()
    if doomed := doomed_of(marked):
        return _ahead(move, members, doomed)
    marked.sort(key=lambda at: (at[1].reason is not URGENT, at[0].pod.name))
    first, eviction = marked[0]
    here = [member for member in members if member.live and not member.pod.deleting]
    now = (evict(service, first, view.settings.epoch, eviction.reason, eviction.message),)
    if sum(member.pod.ready for member in here) > service.replicas:
        return Leaving(steps=now, extra=int(not move.busy))
    urgent = eviction.reason is URGENT
    patient_until = _told_at(view, service, eviction) + REPLACEMENT_MOST_S if urgent else 0.0
    over = urgent and view.now >= patient_until
    wake_at = 0.0 if over else patient_until
    coming = _is_any_coming(move, here, marked)
    if move.deployment is not None and not move.busy and not over:
        has_more = move.deployment.replicas > service.replicas
        if coming or (not move.refused and _has_room(move, marked)):
            return Leaving(extra=int(has_more or not coming), wake_at=wake_at)
    if coming and not over:
        return Leaving(wake_at=wake_at)
    going = any(member.live and member.pod.deleting for member in members)
    if going or not (urgent or _may_stop_first(move, here, first)):
        return Leaving(wake_at=wake_at)
    return Leaving(steps=now)


def leaves_by_surge(reason: Reason) -> bool:
    """Whether a running replica with such a mark is left to this module."""
    return reason is URGENT or reason is Reason.SPOT_INTERRUPTED


def _ahead(move: Move, members: Sequence[Member], doomed: Marked) -> Leaving:
    """Replicas on a node that goes."""
    here = [member for member in members if member.live and not member.pod.deleting]
    deployed = move.deployment is not None and not move.busy
    way = replaced_ahead(
        Doomed(
            view=move.view,
            service=move.service,
            replicas=doomed,
            here=here,
            coming=_is_any_coming(move, here, doomed),
            room=(lambda: _room_ahead(move, doomed)) if deployed else None,
        )
    )
    return Leaving(steps=way.steps, extra=way.extra, wake_at=way.wake_at)


def _room_ahead(move: Move, doomed: Marked) -> bool:
    """Whether a replacement finds a place, or others make way for it as soon as it asks."""
    if move.awaited or (not move.refused and _has_room(move, doomed)):
        return True
    return clearing_s(move.view, move.service) is not None


def _begun(move: Move, members: Sequence[Member]) -> list[tuple[Member, PendingEviction]]:
    """Replicas whose replacement is under way though their mark is gone: the move is finished.

    A guard forgets whom it blamed, after a while or with its process. To turn back then would stop
    the replacement and leave the one that harms others, to be blamed again.
    """
    view, service, deployment = move.view, move.service, move.deployment
    if deployment is None or deployment.replicas <= service.replicas:
        return []
    blamed = {exclusion.device: exclusion for exclusion in _urgent(view, service)}
    found = []
    for member in members:
        device = next((held.device for held in member.held if held.device in blamed), None)
        runs = member.pod.stage is PodStage.RUNNING and not member.pod.deleting
        if device is not None and runs and member.pod.uid not in view.evictions:
            why = blamed[device]
            found.append((member, PendingEviction(why.reason, why.message, device)))
    return found


def _urgent(view: View, service: WorkloadRecord) -> list[Exclusion]:
    return [
        exclusion for exclusion in active_exclusions(view, service) if exclusion.reason is URGENT
    ]


def _must_go(view: View, member: Member) -> bool:
    pod = member.pod
    eviction = view.evictions.get(pod.uid)
    return (
        eviction is not None
        and eviction.reason is not Reason.PROBATION_ROLLED_BACK
        and pod.stage is PodStage.RUNNING
        and not pod.deleting
    )


def _is_any_coming(move: Move, here: Sequence[Member], marked: Marked) -> bool:
    """Whether a replica has a place, elsewhere than on the devices that these must leave."""
    if move.placed - _left_by(move, marked):
        return True
    return any(_is_coming(move.view, member) for member in here)


def _is_coming(view: View, member: Member) -> bool:
    """Whether a replica has its place and shortly serves."""
    pod = member.pod
    if pod.ready or not member.held or pod.uid in view.evictions:
        return False
    if pod.stage is PodStage.RUNNING:
        return view.now - pod.stage_since <= view.settings.start_timeout_s
    return True


def _told_at(view: View, service: WorkloadRecord, eviction: PendingEviction) -> float:
    """Since when the mark is known; now, where it is news."""
    why = (eviction.reason, eviction.device)
    return next(
        (
            exclusion.since
            for exclusion in active_exclusions(view, service)
            if (exclusion.reason, exclusion.device) == why
        ),
        view.now,
    )


def _has_room(move: Move, marked: Marked) -> bool:
    """Whether one more replica finds a place, away from the devices that these must leave."""
    avoid = _left_by(move, marked)
    first, eviction = marked[0]
    proven = eviction.reason is not URGENT
    return beside(move.placer, move.requests, move.service, first, avoid, proven=proven)


def _left_by(move: Move, marked: Marked) -> frozenset[int]:
    """The devices that these must leave."""
    sites = move.placer.occupancy.inventory.site_index
    left = (eviction.device for _, eviction in marked)
    return frozenset(sites[at] for at in left if at is not None and at in sites)


def _may_stop_first(move: Move, here: Sequence[Member], first: Member) -> bool:
    """Whether others serve meanwhile, and what it frees makes the place that it needs."""
    service = move.service
    if move.busy or len(here) < 2 or not all(member.pod.ready for member in here):
        return False
    here_too = service.sharing.resizable
    return elsewhere(move.placer, move.requests, service, [first], here_too=here_too)
