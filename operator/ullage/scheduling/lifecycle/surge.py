# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Replacement of replicas that have to leave their device: the new one starts first if possible.

The Deployment gets one more replica; when that one serves, the old pod is evicted and the number is
restored. The pods and the Deployment hold the state of a move. Without room a replica that harms
others is evicted nevertheless, one at a time; one that would only be better off elsewhere stays.

Replicas on a node under notice all leave just before its end, replaced or not. Without a known end
they stay until their replacements serve, or until the machine terminates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import Reason
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.snapshot import DeploymentRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.feasibility.resource_requests import ResourceRequests
from ullage.scheduling.inventory.exclusions import active_exclusions
from ullage.scheduling.inventory.interruptions import left_s
from ullage.scheduling.lifecycle.drain import within_notice
from ullage.scheduling.model.lifecycle_step import earliest, evict
from ullage.scheduling.model.plan import Action
from ullage.scheduling.model.view import Member, PendingEviction, View
from ullage.scheduling.placement.clearing import clearing_s
from ullage.scheduling.placement.placement import Placer
from ullage.scheduling.placement.room import beside, elsewhere
from ullage.scheduling.times import DRAIN_LAST_CALL_S, REPLACEMENT_MOST_S

URGENT: Final = Reason.INTERFERING
"""Marks a replica that harms others on its device."""
Marked = Sequence[tuple[Member, PendingEviction]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaving:
    """Steps for the replicas of a service that have to leave."""

    steps: tuple[Action, ...] = ()
    extra: int = 0
    """Replicas beyond those wanted, for the time of the move."""
    wake_at: float = 0.0

    @property
    def under_way(self) -> bool:
        """True when a replica leaves or is being replaced."""
        return bool(self.steps) or self.extra > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Inputs of the replacement of a service's replicas."""

    view: View
    placer: Placer
    requests: ResourceRequests
    service: WorkloadRecord
    deployment: DeploymentRecord | None
    """``None`` = there is none that could get one more replica."""
    busy: bool
    """True during a rolling update: pods come and go anyway."""
    refused: bool
    """True when one of its pods just found no place."""
    awaited: bool = False
    """True while others leave a device for that pod."""
    placed: frozenset[int] = frozenset()
    """Devices that its pods just got and that the view does not show yet."""


def leave(move: Move) -> Leaving:
    """Decide the steps of this cycle."""
    view, service = move.view, move.service
    members = view.members_of(service)
    marked = [
        (member, view.evictions[member.pod.uid]) for member in members if _must_go(view, member)
    ]
    marked += _begun(move, members)
    if not marked or not service.replicas:
        return Leaving()
    present = [member for member in members if member.live and not member.pod.deleting]
    doomed = [pair for pair in marked if pair[1].reason is Reason.SPOT_INTERRUPTED]
    if doomed:
        doomed.sort(key=lambda pair: (pair[0].pod.ready, pair[0].pod.name))
        return _ahead(move, present, doomed)
    marked.sort(key=lambda pair: (pair[1].reason is not URGENT, pair[0].pod.name))
    first, eviction = marked[0]
    now = (evict(service, first, view.settings.epoch, eviction.reason, eviction.message),)
    if sum(member.pod.ready for member in present) > service.replicas:
        return Leaving(steps=now, extra=int(not move.busy))
    urgent = eviction.reason is URGENT
    patient_until = _marked_since(view, service, eviction) + REPLACEMENT_MOST_S if urgent else 0.0
    over = urgent and view.now >= patient_until
    wake_at = 0.0 if over else patient_until
    coming = _is_any_coming(move, present, marked)
    if move.deployment is not None and not move.busy and not over:
        has_more = move.deployment.replicas > service.replicas
        if coming or (not move.refused and _has_room(move, marked)):
            return Leaving(extra=int(has_more or not coming), wake_at=wake_at)
    if coming and not over:
        return Leaving(wake_at=wake_at)
    going = any(member.live and member.pod.deleting for member in members)
    if going or not (urgent or _may_stop_first(move, present, first)):
        return Leaving(wake_at=wake_at)
    return Leaving(steps=now)


def leaves_by_surge(reason: Reason) -> bool:
    """True when running replicas with this reason are replaced by this module."""
    return reason is URGENT or reason is Reason.SPOT_INTERRUPTED


def _ahead(move: Move, present: Sequence[Member], doomed: Marked) -> Leaving:
    """Replace replicas on nodes under notice, all at the same time.

    One leaves for each that serves beyond the wanted number. Replicas that do not serve leave at
    once, and all of them just before the end of their node.
    """
    view, service = move.view, move.service
    last_calls = [_last_call_at(view, member) for member, _ in doomed]
    last = [pair for pair, at in zip(doomed, last_calls, strict=True) if at and view.now >= at]
    spare = sum(member.pod.ready for member in present) - service.replicas
    idle = [pair for pair in doomed if not pair[0].pod.ready]
    surplus = [pair for pair in doomed if pair[0].pod.ready][: max(0, spare)]
    leaving = {pair[0].pod.uid: pair for pair in (*last, *idle, *surplus)}
    epoch = view.settings.epoch
    steps = tuple(
        within_notice(view, evict(service, member, epoch, mark.reason, mark.message), member)
        for member, mark in leaving.values()
    )
    extends = (
        move.deployment is not None
        and not move.busy
        and (
            steps
            or move.awaited
            or _is_any_coming(move, present, doomed)
            or (not move.refused and _has_room(move, doomed))
            or clearing_s(view, service) is not None
        )
    )
    wake_at = earliest(*last_calls)
    return Leaving(
        steps=steps,
        extra=len(doomed) if extends else 0,
        wake_at=wake_at if wake_at > view.now else 0.0,
    )


def _last_call_at(view: View, member: Member) -> float:
    """Time at which a replica leaves its node, replaced or not; 0 = the end is not known."""
    remaining_s = left_s(view.snapshot, member.pod.node, view.now)
    return view.now + remaining_s - DRAIN_LAST_CALL_S if remaining_s is not None else 0.0


def _begun(move: Move, members: Sequence[Member]) -> list[tuple[Member, PendingEviction]]:
    """Replicas whose replacement is in progress although their mark is gone.

    A guard forgets its marks after a while, or when it restarts. Otherwise, the replacement would
    be stopped, and the replica that harms others would stay and be marked again.
    """
    view, service, deployment = move.view, move.service, move.deployment
    if deployment is None or deployment.replicas <= service.replicas:
        return []
    blamed = {
        exclusion.device: exclusion
        for exclusion in active_exclusions(view, service)
        if exclusion.reason is URGENT
    }
    marked = []
    for member in members:
        device = next((held.device for held in member.held if held.device in blamed), None)
        runs = member.pod.stage is PodStage.RUNNING and not member.pod.deleting
        if device is not None and runs and member.pod.uid not in view.evictions:
            why = blamed[device]
            marked.append((member, PendingEviction(why.reason, why.message, device)))
    return marked


def _must_go(view: View, member: Member) -> bool:
    pod = member.pod
    eviction = view.evictions.get(pod.uid)
    return (
        eviction is not None
        and eviction.reason is not Reason.PROBATION_ROLLED_BACK
        and pod.stage is PodStage.RUNNING
        and not pod.deleting
    )


def _is_any_coming(move: Move, present: Sequence[Member], marked: Marked) -> bool:
    """True when a replica has a place outside of the devices that marked replicas must leave."""
    if move.placed - _left_by(move, marked):
        return True
    return any(_is_coming(move.view, member) for member in present)


def _is_coming(view: View, member: Member) -> bool:
    """True when a replica has its place and is about to serve."""
    pod = member.pod
    if pod.ready or not member.held or pod.uid in view.evictions:
        return False
    if pod.stage is PodStage.RUNNING:
        return view.now - pod.stage_since <= view.settings.start_timeout_s
    return True


def _marked_since(view: View, service: WorkloadRecord, eviction: PendingEviction) -> float:
    """Time of the first cycle with this mark; now = it is new."""
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
    """True when one more replica finds a place outside of the devices to leave."""
    avoid = _left_by(move, marked)
    first, eviction = marked[0]
    proven = eviction.reason is not URGENT
    return beside(move.placer, move.requests, move.service, first, avoid, proven=proven)


def _left_by(move: Move, marked: Marked) -> frozenset[int]:
    """Sites of the devices that marked replicas must leave."""
    sites = move.placer.occupancy.inventory.site_index
    devices = (eviction.device for _, eviction in marked)
    return frozenset(sites[device] for device in devices if device is not None and device in sites)


def _may_stop_first(move: Move, present: Sequence[Member], first: Member) -> bool:
    """True when others serve meanwhile and the replica finds another place once it stopped."""
    service = move.service
    if move.busy or len(present) < 2 or not all(member.pod.ready for member in present):
        return False
    here_too = service.sharing.resizable
    return elsewhere(move.placer, move.requests, service, [first], here_too=here_too)
