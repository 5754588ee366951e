# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who starts again with a smaller share so that a newcomer fits beside it.

Only where the newcomer fits nowhere as shares stand, both together are predicted to reach more than
what stopping the resident costs, and no one's objective is at risk by the rule of the cycle. A
running share never changes: the resident restarts at its checkpoint, keeps its place, and the
newcomer gets the rest. It is tried in the expected occupancy, which is restored where it does not
help.
It must never ask for more than one restart of a job in :data:`AGREEMENT_HOLD_S`, nor below its
least share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.snapshot import PodStage, WorkloadKind, WorkloadRecord
from ullage.cluster.records.status import MadeRoom
from ullage.engines.admission.filters import PEAK_MARGIN
from ullage.scheduling.feasibility.occupancy import Occupancy, Occupant
from ullage.scheduling.feasibility.resource_requests import ResourceRequest, ResourceRequests
from ullage.scheduling.model.lifecycle_step import LifecycleStep
from ullage.scheduling.model.phases import Phase
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.placement.placement import (
    NoRoom,
    Placement,
    Placer,
    memory_mib,
)
from ullage.scheduling.placement.preemption import priority_of, unsaved_s
from ullage.scheduling.times import AGREEMENT_HOLD_S, DOWNSIZE_RESTART_S

STEP_PERCENT: Final = 10
"""Shares that are tried lie so far apart."""
MOST_MISSES: Final = 2
"""Shares of a resident that are tried without success before it is left alone."""
MOST_TRIED: Final = 16
"""Residents that are tried for one newcomer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownsizeCandidate:
    """A job that may be restarted with a smaller share, and what that costs."""

    workload: WorkloadRecord
    member: Member
    site: int
    occupant: Occupant
    priority: int
    least: int
    lost_s: float
    """Seconds of its work that the restart costs."""
    needs_mib: int = 0
    """Memory that it must be left, by what it is known to use; 0 = not known."""

    @property
    def uid(self) -> str:
        """Uid of the workload."""
        return self.workload.ref.uid

    @property
    def percent(self) -> int:
        """The share that it has."""
        return self.occupant.tenant.percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Downsize:
    """A resident's restart at a smaller share, and where the newcomer then sits."""

    resident: DownsizeCandidate
    percent: int
    placements: tuple[Placement, ...]
    gain: float
    """Normalised throughput that the device gains, in units of one tenant's alone."""

    @property
    def uid(self) -> str:
        """Uid of the resident."""
        return self.resident.uid

    @property
    def name(self) -> str:
        """Namespace and name of the resident."""
        return self.resident.occupant.tenant.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A newcomer that fits nowhere, and the occupancy of what will be."""

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
    """Jobs that may be asked, in the order of asking.

    Lowest priority first, then who saved its work last, then youngest.
    """
    found = []
    for uid, workload in view.index.those(view.index.evictable):
        if not workload.sharing.resizable or workload.kind is not WorkloadKind.TRAINING_JOB:
            continue
        member = _may_restart(view, workload, lifecycles.get(uid))
        if member is None:
            continue
        held = member.held[0]
        site = occupancy.inventory.site_index.get((held.node, held.slice.gpu))
        here = occupancy.occupants[site] if site is not None else ()
        occupant = next((one for one in here if one.pod_uid == member.pod.uid), None)
        least = requests.of(workload, member.pod.shape).min_percent
        if site is None or occupant is None or _stays_as_it_is(occupant, least):
            continue
        found.append(
            DownsizeCandidate(
                workload=workload,
                member=member,
                site=site,
                occupant=occupant,
                priority=priority_of(workload, [member]),
                least=least,
                lost_s=unsaved_s(view, [member]) + _restart_s(workload),
                needs_mib=_needs_mib(member, occupant),
            )
        )
    return tuple(
        sorted(
            found,
            key=lambda candidate: (
                candidate.priority,
                candidate.lost_s,
                -candidate.workload.created,
                candidate.uid,
            ),
        )
    )


def _may_restart(view: View, job: WorkloadRecord, life: LifecycleStep | None) -> Member | None:
    """The only member of a job that runs undisturbed long enough; ``None`` where it does not."""
    if not job.checkpoint or job.gpu.share is None or job.replicas != 1:
        return None
    if job.elasticity is not None:
        return None  # its size makes room
    if life is None or life.phase is not Phase.RUNNING or life.waiting or life.silent:
        return None
    members = view.members_of(job)
    if len(members) != 1 or len(members[0].held) != 1:
        return None
    member, held = members[0], members[0].held[0]
    made, pod = job.status.made_room, members[0].pod
    calm = (
        pod.stage is PodStage.RUNNING
        and not pod.deleting
        and pod.uid not in view.evictions
        and not held.slice.probation
        and held.seen is not None
        and held.seen.phase is SlicePhase.ATTACHED
    )
    since = max(pod.stage_since, made.time if made is not None else 0.0)
    return member if calm and view.now >= since + AGREEMENT_HOLD_S else None


def _stays_as_it_is(occupant: Occupant, least: int) -> bool:
    return (
        occupant.tenant.percent <= least
        or occupant.leaving
        or occupant.loose
        or occupant.whole
        or bool(occupant.lane)
        or bool(occupant.unmeasured)
    )


def _needs_mib(member: Member, occupant: Occupant) -> int:
    seen, profile = member.held[0].seen, occupant.tenant.profile
    peak = profile.fingerprint.peak_memory_mib if profile is not None else None
    used = seen.memory_used_mib if seen is not None else 0
    return math.ceil(PEAK_MARGIN * max(peak or 0, used))


def _restart_s(job: WorkloadRecord) -> float:
    """What its last restart took, where that was measured."""
    known = job.status.allocation
    return float(known.restart_seconds) if known and known.restart_seconds else DOWNSIZE_RESTART_S


def make_room_beside(ask: Asking, asked: Sequence[DownsizeCandidate]) -> Downsize | None:
    """The first resident whose restart at a smaller share lets all members sit, and is worth it.

    Args:
        ask: the newcomer and the occupancy; afterwards the resident has its smaller share there
            and the newcomer its place, or all is as it was.
        asked: residents in the order of asking.
    """
    request, placer = ask.unit[0].request, ask.placer
    if request.lonely or request.unmeasured:
        return None
    reach = placer.candidate_index.reachable(request)
    tried = 0
    for candidate in asked:
        if not reach[candidate.site] or not _could_fit(placer.occupancy, candidate, request):
            continue
        if tried >= MOST_TRIED or placer.occupancy.effort.is_much:
            return None
        tried += 1
        downsize = _concession(ask, candidate)
        if downsize is not None:
            return downsize
    return None


def _could_fit(
    occupancy: Occupancy, downsize_candidate: DownsizeCandidate, request: ResourceRequest
) -> bool:
    """Whether the shares alone would leave room; anything else costs a judgement."""
    if downsize_candidate.site in occupancy.lanes:
        return False  # its speeds follow from who takes turns, which is not weighed here
    used = occupancy.percent_used.item(downsize_candidate.site) - (
        downsize_candidate.percent - downsize_candidate.least
    )
    fits = used + request.min_percent <= request.percent_limit
    return fits and downsize_candidate.occupant in occupancy.occupants[downsize_candidate.site]


def _concession(ask: Asking, candidate: DownsizeCandidate) -> Downsize | None:
    """The share of a resident at which its device is worth most; ``None`` = none is worth it."""
    occupancy, rule = ask.placer.occupancy, ask.placer.rule
    here = occupancy.occupants[candidate.site]
    slowdowns = rule.slowdowns(_model(occupancy, candidate), [at.tenant for at in here])
    best: _Trial | None = None
    for number, small in enumerate(smaller(ask, candidate)):
        trial = _try(ask, candidate, small)
        if trial is not None and (best is None or trial.worth >= best.worth):
            best = trial
        if best is None and number + 1 >= MOST_MISSES:
            return None  # the least shares leave most room
    if best is None:
        return None
    gain = best.worth - _worth(here, slowdowns)
    speed = candidate.occupant.tenant.weight / slowdowns[here.index(candidate.occupant)]
    if gain * AGREEMENT_HOLD_S <= speed * candidate.lost_s:
        return None
    _swap(occupancy, candidate, candidate.occupant, best.small)
    gang = ask.placement()
    if isinstance(gang, NoRoom):
        raise AssertionError("members that fitted before no longer fit on an unchanged board")
    percent = best.small.tenant.percent
    return Downsize(resident=candidate, percent=percent, placements=gang, gain=gain)


def smaller(ask: Asking, one: DownsizeCandidate) -> list[Occupant]:
    """The resident with each share that is tried, the least first.

    None that leaves it less memory than it is known to use, or too slow even with no one beside it.
    """
    made = []
    placer = ask.placer
    model = placer.occupancy.inventory.model.item(one.site)
    for percent in sorted({one.least, *range(STEP_PERCENT, one.percent, STEP_PERCENT)}):
        if percent < one.least:
            continue
        request = _want(ask, one, percent)
        memory = memory_mib(placer.occupancy, request, one.site, percent)
        case = placer.candidate_index.empty_case(request, model, percent)
        if memory >= one.needs_mib and placer.rule.alone(case, percent) is None:
            tenant = replace(one.occupant.tenant, percent=percent)
            made.append(replace(one.occupant, tenant=tenant, memory_mib=memory))
    return made


def _try(ask: Asking, one: DownsizeCandidate, small: Occupant) -> _Trial | None:
    """What the device is worth with the resident at a share; ``None`` = it does not work out."""
    occupancy = ask.placer.occupancy
    order = occupancy.occupants[one.site]
    _swap(occupancy, one, one.occupant, small)
    worth: float | None = None
    gang = ask.placement()
    if not isinstance(gang, NoRoom):
        there = any(one.site in placement.candidate.sites for placement in gang)
        proven = not any(placement.candidate.grant.trial for placement in gang)
        if there and proven and _comes_back(ask, one, small):
            here = occupancy.occupants[one.site]
            slowdowns = ask.placer.rule.slowdowns(
                _model(occupancy, one), [at.tenant for at in here]
            )
            worth = _worth(here, slowdowns)
        ask.placer.unseat(gang)
    _swap(occupancy, one, small, one.occupant)
    occupancy.occupants[one.site] = order
    return _Trial(small, worth) if worth is not None else None


def _comes_back(ask: Asking, one: DownsizeCandidate, small: Occupant) -> bool:
    """Whether the resident itself is granted its place beside the newcomer, without a trial."""
    occupancy = ask.placer.occupancy
    order = occupancy.occupants[one.site]
    occupancy.lift(one.site, small)
    grant = ask.placer.candidate_index.granted(_want(ask, one, small.tenant.percent), one.site)
    occupancy.put(one.site, small)
    occupancy.occupants[one.site] = order
    return grant is not None and not grant.trial


def _want(ask: Asking, one: DownsizeCandidate, percent: int) -> ResourceRequest:
    """What the resident asks for when it starts with no more than this."""
    share = one.workload.gpu.share
    assert share is not None  # only who has a share is asked
    less = replace(share, max_percent=max(share.min_percent, percent))
    asks = replace(one.workload, gpu=replace(one.workload.gpu, share=less))
    return ask.requests.of(asks, one.member.pod.shape)


def _swap(occupancy: Occupancy, one: DownsizeCandidate, old: Occupant, new: Occupant) -> None:
    occupancy.lift(one.site, old)
    occupancy.put(one.site, new)


def _worth(here: Sequence[Occupant], slowdowns: Sequence[float]) -> float:
    """Weighted sum of normalised throughputs."""
    return math.fsum(
        one.tenant.weight / value for one, value in zip(here, slowdowns, strict=True) if value > 0
    )


def _model(occupancy: Occupancy, one: DownsizeCandidate) -> str:
    return occupancy.inventory.model_names[occupancy.inventory.model.item(one.site)]


def remembered(
    made: Downsize, winner: WorkloadRecord, now: float, occupancy: Occupancy
) -> MadeRoom:
    """What the resident's status has to say of it."""
    site = occupancy.inventory.sites[made.resident.site]
    return MadeRoom(
        time=whole_second(now),
        percent=made.percent,
        node=occupancy.inventory.nodes[site.node].name,
        gpu=site.uuid,
        beneficiary=f"{winner.ref.namespace}/{winner.ref.name}",
        beneficiary_uid=winner.ref.uid,
    )


def starts_again(made: Downsize, room: MadeRoom) -> LifecycleStep:
    """The resident's life from now on; its pods go once its status says what it was left."""
    return LifecycleStep(
        phase=Phase.RESTARTING,
        reason=Reason.MADE_ROOM,
        message=(
            f"makes room for {room.beneficiary} on {room.node}/{room.gpu}: starts again from its"
            f" checkpoint at {made.percent} % instead of {made.resident.percent} %; the device"
            f" gains {made.gain:.2f} of a job's speed (predicted)"
        ),
        restarts=made.resident.workload.status.restarts,
    )
