# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Downsizing: a resident restarts with a smaller share so that a newcomer fits beside it.

Done only where the newcomer fits nowhere at the current shares, the predicted gain of both together
exceeds the cost of the restart, and the rule of the cycle sees no objective at risk. A running
share never changes: the resident restarts from its checkpoint, keeps its place, and the newcomer
gets the rest. It is tried in the expected occupancy, which is restored if it does not help. A job
restarts at most once in :data:`AGREEMENT_HOLD_S`, and never below its
minimum share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import MadeRoom
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.feasibility.occupancy import Occupancy, Occupant
from ullage.scheduling.feasibility.resource_requests import ResourceRequest, ResourceRequests
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.placement.placement import NoRoom, Placement, Placer, memory_mib
from ullage.scheduling.placement.preemption import priority_of, unsaved_s
from ullage.scheduling.times import AGREEMENT_HOLD_S, DOWNSIZE_RESTART_S

PEAK_MARGIN: Final = 1.05
"""Memory counted for a tenant without a limit, as a multiple of its peak."""
STEP_PERCENT: Final = 10
"""Distance between the shares that are tried."""
MOST_MISSES: Final = 2
"""Failed tries per resident."""
MOST_TRIED: Final = 16
"""Residents tried per newcomer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownsizeCandidate:
    """A job that may be restarted with a smaller share, and the cost."""

    workload: WorkloadRecord
    member: Member
    site: int
    occupant: Occupant
    priority: int
    least: int
    lost_s: float
    """Seconds of work that the restart costs."""
    needs_mib: int = 0
    """Memory that it needs, by its measured use; 0 = unknown."""

    @property
    def uid(self) -> str:
        """Uid of the workload."""
        return self.workload.ref.uid

    @property
    def percent(self) -> int:
        """Its current share."""
        return self.occupant.tenant.percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Downsize:
    """A resident's restart at a smaller share, and the newcomer's places after it."""

    resident: DownsizeCandidate
    percent: int
    placements: tuple[Placement, ...]
    gain: float
    """Gain in normalised throughput of the device; 1 = a tenant alone."""

    @property
    def uid(self) -> str:
        """Uid of the resident."""
        return self.resident.uid

    @property
    def name(self) -> str:
        """Namespace and name of the resident."""
        return self.resident.occupant.tenant.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DownsizeContext:
    """The expected occupancy, and the members to place in it; none to judge shares alone."""

    placer: Placer
    requests: ResourceRequests
    unit: Sequence[Placement]
    near: frozenset[int] = frozenset()

    def placement(self) -> tuple[Placement, ...] | NoRoom:
        """Seat all members in the occupancy as it stands."""
        return self.placer.placement(self.unit, set(self.near), explain=False)


@dataclass(frozen=True, slots=True)
class _Trial:
    small: Occupant
    worth: float


def residents(
    view: View,
    requests: ResourceRequests,
    occupancy: Occupancy,
    lifecycles: Mapping[str, LifecycleStep],
) -> tuple[DownsizeCandidate, ...]:
    """Jobs that may be downsized, in order: lowest priority, latest checkpoint, youngest."""
    candidates = []
    for uid, workload in view.index.those(view.index.evictable):
        if not workload.sharing.resizable or workload.kind is not WorkloadKind.TRAINING_JOB:
            continue
        member = _may_restart(view, workload, lifecycles.get(uid))
        if member is None:
            continue
        slice_ = member.held[0]
        site = occupancy.inventory.site_index.get((slice_.node, slice_.slice.gpu))
        occupants = occupancy.occupants[site] if site is not None else ()
        occupant = next(
            (occupant for occupant in occupants if occupant.pod_uid == member.pod.uid), None
        )
        least = requests.of(workload, member.pod.shape).min_percent
        if site is None or occupant is None or occupant.tenant.percent <= least:
            continue
        if occupant.leaving or occupant.loose or occupant.whole:
            continue
        if occupant.lane or occupant.unmeasured:
            continue
        allocation = workload.status.allocation
        restart_s = (allocation.restart_seconds if allocation else None) or DOWNSIZE_RESTART_S
        candidates.append(
            DownsizeCandidate(
                workload=workload,
                member=member,
                site=site,
                occupant=occupant,
                priority=priority_of(workload, [member]),
                least=least,
                lost_s=unsaved_s(view, [member]) + float(restart_s),
                needs_mib=_needs_mib(member, occupant),
            )
        )
    return tuple(
        sorted(
            candidates,
            key=lambda candidate: (
                candidate.priority,
                candidate.lost_s,
                -candidate.workload.created,
                candidate.uid,
            ),
        )
    )


def _may_restart(view: View, job: WorkloadRecord, life: LifecycleStep | None) -> Member | None:
    """The only member of a job, if it has run undisturbed for long enough; else ``None``."""
    if not job.checkpoint or job.gpu.share is None or job.replicas != 1:
        return None
    if job.elasticity is not None:
        return None  # it makes room by its size
    if life is None or life.phase is not Phase.RUNNING or life.waiting or life.silent:
        return None
    members = view.members_of(job)
    if len(members) != 1 or len(members[0].held) != 1:
        return None
    member, slice_ = members[0], members[0].held[0]
    made, pod = job.status.made_room, members[0].pod
    calm = (
        pod.stage is PodStage.RUNNING
        and not pod.deleting
        and pod.uid not in view.evictions
        and not slice_.slice.probation
        and slice_.seen is not None
        and slice_.seen.phase is SlicePhase.ATTACHED
    )
    since = max(pod.stage_since, made.time if made is not None else 0.0)
    return member if calm and view.now >= since + AGREEMENT_HOLD_S else None


def _needs_mib(member: Member, occupant: Occupant) -> int:
    seen, profile = member.held[0].seen, occupant.tenant.profile
    peak = profile.fingerprint.peak_memory_mib if profile is not None else None
    used = seen.memory_used_mib if seen is not None else 0
    return math.ceil(PEAK_MARGIN * max(peak or 0, used))


def make_room_beside(
    context: DownsizeContext, candidates: Sequence[DownsizeCandidate]
) -> Downsize | None:
    """The first downsizing that lets all members sit and pays off.

    Args:
        context: The members and the occupancy. On success the resident has its smaller share
            there and the members their places; else the occupancy is as before.
        candidates: Residents in the order to try them.
    """
    request, placer = context.unit[0].request, context.placer
    if request.lonely or request.unmeasured:
        return None
    reach = placer.candidate_index.reachable(request)
    tried = 0
    for candidate in candidates:
        if not reach[candidate.site] or not _could_fit(placer.occupancy, candidate, request):
            continue
        if tried >= MOST_TRIED or placer.occupancy.effort.is_much:
            return None
        tried += 1
        downsize = _downsize(context, candidate)
        if downsize is not None:
            return downsize
    return None


def _could_fit(
    occupancy: Occupancy, candidate: DownsizeCandidate, request: ResourceRequest
) -> bool:
    """True when the sum of shares leaves room; a cheap test before any judgement."""
    if candidate.site in occupancy.lanes:
        return False  # speeds in lanes depend on turns, which are not considered here
    used = occupancy.percent_used.item(candidate.site) - (candidate.percent - candidate.least)
    fits = used + request.min_percent <= request.percent_limit
    return fits and candidate.occupant in occupancy.occupants[candidate.site]


def _downsize(context: DownsizeContext, candidate: DownsizeCandidate) -> Downsize | None:
    """The downsizing of a resident with the largest gain; ``None`` = none pays off."""
    occupancy, rule = context.placer.occupancy, context.placer.rule
    occupants = occupancy.occupants[candidate.site]
    slowdowns = rule.slowdowns(_model(occupancy, candidate), [at.tenant for at in occupants])
    best: _Trial | None = None
    for number, small in enumerate(smaller(context, candidate)):
        trial = _try(context, candidate, small)
        if trial is not None and (best is None or trial.worth >= best.worth):
            best = trial
        if best is None and number + 1 >= MOST_MISSES:
            return None  # larger shares leave even less room
    if best is None:
        return None
    gain = best.worth - _worth(occupants, slowdowns)
    speed = candidate.occupant.tenant.weight / slowdowns[occupants.index(candidate.occupant)]
    if gain * AGREEMENT_HOLD_S <= speed * candidate.lost_s:
        return None
    _swap(occupancy, candidate, candidate.occupant, best.small)
    gang = context.placement()
    if isinstance(gang, NoRoom):
        raise AssertionError("members that fitted before no longer fit on an unchanged board")
    percent = best.small.tenant.percent
    return Downsize(resident=candidate, percent=percent, placements=gang, gain=gain)


def smaller(context: DownsizeContext, resident: DownsizeCandidate) -> list[Occupant]:
    """The resident with each share that is tried, the smallest first.

    Without shares that leave it too little memory, or break its objective even alone.
    """
    occupants = []
    placer = context.placer
    model = placer.occupancy.inventory.model.item(resident.site)
    for percent in sorted({resident.least, *range(STEP_PERCENT, resident.percent, STEP_PERCENT)}):
        if percent < resident.least:
            continue
        request = _request(context, resident, percent)
        memory = memory_mib(placer.occupancy, request, resident.site, percent)
        case = placer.candidate_index.empty_case(request, model, percent)
        if memory >= resident.needs_mib and placer.rule.alone(case, percent) is None:
            tenant = replace(resident.occupant.tenant, percent=percent)
            occupants.append(replace(resident.occupant, tenant=tenant, memory_mib=memory))
    return occupants


def _try(context: DownsizeContext, resident: DownsizeCandidate, small: Occupant) -> _Trial | None:
    """The throughput of the device with the resident at a share; ``None`` = it does not fit."""
    occupancy = context.placer.occupancy
    order = occupancy.occupants[resident.site]
    _swap(occupancy, resident, resident.occupant, small)
    worth: float | None = None
    gang = context.placement()
    if not isinstance(gang, NoRoom):
        beside = any(resident.site in placement.candidate.sites for placement in gang)
        proven = not any(placement.candidate.grant.trial for placement in gang)
        if beside and proven and _is_granted(context, resident, small):
            occupants = occupancy.occupants[resident.site]
            slowdowns = context.placer.rule.slowdowns(
                _model(occupancy, resident), [at.tenant for at in occupants]
            )
            worth = _worth(occupants, slowdowns)
        context.placer.unseat(gang)
    _swap(occupancy, resident, small, resident.occupant)
    occupancy.occupants[resident.site] = order
    return _Trial(small, worth) if worth is not None else None


def _is_granted(context: DownsizeContext, resident: DownsizeCandidate, small: Occupant) -> bool:
    """True when the resident is admitted beside the newcomer without a trial."""
    occupancy = context.placer.occupancy
    order = occupancy.occupants[resident.site]
    occupancy.lift(resident.site, small)
    request = _request(context, resident, small.tenant.percent)
    grant = context.placer.candidate_index.granted(request, resident.site)
    occupancy.put(resident.site, small)
    occupancy.occupants[resident.site] = order
    return grant is not None and not grant.trial


def _request(
    context: DownsizeContext, resident: DownsizeCandidate, percent: int
) -> ResourceRequest:
    """The resident's request with at most this share."""
    share = resident.workload.gpu.share
    assert share is not None  # only jobs with a share are candidates
    less = replace(share, max_percent=max(share.min_percent, percent))
    workload = replace(resident.workload, gpu=replace(resident.workload.gpu, share=less))
    return context.requests.of(workload, resident.member.pod.shape)


def _swap(occupancy: Occupancy, resident: DownsizeCandidate, old: Occupant, new: Occupant) -> None:
    occupancy.lift(resident.site, old)
    occupancy.put(resident.site, new)


def _worth(occupants: Sequence[Occupant], slowdowns: Sequence[float]) -> float:
    """Weighted sum of normalised throughputs."""
    return math.fsum(
        occupant.tenant.weight / value
        for occupant, value in zip(occupants, slowdowns, strict=True)
        if value > 0
    )


def _model(occupancy: Occupancy, resident: DownsizeCandidate) -> str:
    return occupancy.inventory.model_names[occupancy.inventory.model.item(resident.site)]


def made_room(
    downsize: Downsize, winner: WorkloadRecord, now: float, occupancy: Occupancy
) -> MadeRoom:
    """The record of a downsizing in the resident's status."""
    site = occupancy.inventory.sites[downsize.resident.site]
    return MadeRoom(
        time=whole_second(now),
        percent=downsize.percent,
        node=occupancy.inventory.nodes[site.node].name,
        gpu=site.uuid,
        beneficiary=f"{winner.ref.namespace}/{winner.ref.name}",
        beneficiary_uid=winner.ref.uid,
    )


def restart_step(downsize: Downsize, room: MadeRoom) -> LifecycleStep:
    """The restart of the resident; its pods go once its status holds the record."""
    return LifecycleStep(
        phase=Phase.RESTARTING,
        reason=Reason.MADE_ROOM,
        message=(
            f"makes room for {room.beneficiary} on {room.node}/{room.gpu}: starts again from its"
            f" checkpoint at {downsize.percent} % instead of {downsize.resident.percent} %; the"
            f" device gains {downsize.gain:.2f} of a job's speed (predicted)"
        ),
        restarts=downsize.resident.workload.status.restarts,
    )
