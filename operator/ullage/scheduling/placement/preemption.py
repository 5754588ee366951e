# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Select preemption victims for a workload that does not fit.

Victims are TrainingJobs that can checkpoint: of lower priority, with their turn over, or training
in the headroom of the service that needs the devices. Elastic gangs first give up spare members,
to other namespaces at equal priority too: what a gang could do without keeps no one waiting. Then
the lowest priority goes first, then the latest checkpoint, then the youngest, and no more of them
than needed. They are tried in the occupancy as it will be when what is leaving has left;
nothing is evicted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ullage.api.reasons import Reason, Standing
from ullage.cluster.records.pod_shape import Resources
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import WorkloadStatus
from ullage.engines.quota.records import NO_TENANT
from ullage.scheduling.feasibility.occupancy import Occupancy, Occupant
from ullage.scheduling.inventory.resource_usage import charged
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.placement.headroom import lender
from ullage.scheduling.placement.placement import NoRoom, Placement, Placer

_MOST_SPARED = 16
"""Victims that are spared one by one; above it only those on other devices are spared."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A workload that may be evicted, and what it would give back."""

    uid: str
    priority: int
    created: float
    slices: tuple[tuple[int, Occupant], ...]
    pods: tuple[tuple[int, Resources], ...]
    unsaved_s: float = 0.0
    """Work that stopping it now may lose: time since its last checkpoint, 0 = not known."""
    spare: tuple[Victim, ...] = ()
    """Its members above the fewest that it can train with, each as a part, the last first."""
    part: bool = False
    """A member that goes while the rest of its gang goes on."""
    reclaimed: bool = False
    """It holds what its tenant borrowed, and the owner takes it back whatever its priority."""
    lent_by: str = ""
    """Namespace whose scaled services take its devices back at equal priority; empty = none."""
    given_back: bool = False
    """It is taken so."""
    namespace: str = ""
    extra: bool = False
    """Only its members above the fewest are taken, by another namespace of equal priority."""

    @property
    def name(self) -> str:
        """As people read it."""
        return self.slices[0][1].tenant.name


@dataclass(frozen=True, slots=True)
class Eviction:
    """The victims whose leaving makes room, and where the newcomer then sits."""

    victims: tuple[Victim, ...]
    placements: tuple[Placement, ...]


def possible_victims(
    view: View, occupancy: Occupancy, candidates: Sequence[WorkloadRecord]
) -> tuple[Victim, ...]:
    """Victims in the order in which they are taken.

    Lowest priority first, then who saved its work last, then youngest.

    Args:
        view: The cycle's snapshot.
        occupancy: Who is where.
        candidates: Training jobs that can checkpoint and may leave.
    """
    here: dict[str, list[tuple[int, Occupant]]] = {job.ref.uid: [] for job in candidates}
    for site, occupants in enumerate(occupancy.occupants):
        for occupant in occupants:
            if occupant.owner_uid in here and not occupant.leaving:
                here[occupant.owner_uid].append((site, occupant))
    victims = [
        _victim(view, occupancy, job, own) for job in candidates if (own := here[job.ref.uid])
    ]
    order = sorted(
        victims, key=lambda victim: (victim.priority, victim.unsaved_s, -victim.created, victim.uid)
    )
    return tuple(order)


def _victim(
    view: View, occupancy: Occupancy, workload: WorkloadRecord, own: Sequence[tuple[int, Occupant]]
) -> Victim:
    members = view.members_of(workload)
    return Victim(
        uid=workload.ref.uid,
        priority=priority_of(workload, members),
        created=workload.created,
        unsaved_s=unsaved_s(view, members),
        slices=tuple(own),
        pods=tuple(charged(occupancy.inventory, members, staying=True)),
        spare=_spare_members(view, occupancy, workload, own) if workload.elasticity else (),
        lent_by=lender(workload),
        namespace=workload.ref.namespace,
    )


def _spare_members(
    view: View, occupancy: Occupancy, job: WorkloadRecord, slices: Sequence[tuple[int, Occupant]]
) -> tuple[Victim, ...]:
    """Members that an elastic gang can do without, the last first."""
    members = view.members_of(job)
    if job.in_place:
        members = present(view, members)
    elif len(members) != job.replicas:
        return ()
    if job.elasticity is None:
        return ()
    return tuple(
        Victim(
            uid=job.ref.uid,
            priority=priority_of(job, members),
            created=job.created,
            slices=own,
            pods=tuple(charged(occupancy.inventory, [member], staying=True)),
            part=True,
        )
        for member in reversed(members[job.elasticity.min_replicas :])
        if (own := tuple(held for held in slices if held[1].pod_uid == member.pod.uid))
    )


def present(view: View, members: Sequence[Member]) -> list[Member]:
    """Members of a gang in place that nothing takes away, those that only join last."""
    here = [
        member
        for member in members
        if member.live and not member.pod.deleting and member.pod.uid not in view.evictions
    ]
    return sorted(here, key=lambda member: (member.gated, member.pod.rank))


def smaller_first(victims: Sequence[Victim], priority: int) -> list[Victim]:
    """The same victims, but what gangs can spare comes before all of them.

    Gangs of lower priority, those that hold what is taken back, and those of other namespaces, of
    which nothing else is taken.
    """

    def gives_way(victim: Victim) -> bool:
        return victim.reclaimed or victim.given_back or victim.extra or victim.priority < priority

    parts = [
        replace(part, given_back=victim.given_back, extra=victim.extra)
        for victim in victims
        if gives_way(victim)
        for part in victim.spare
    ]
    if not parts:
        return list(victims)
    whole = [victim for victim in victims if not victim.extra]
    return [*parts, *(_rest(victim) if gives_way(victim) else victim for victim in whole)]


def _rest(victim: Victim) -> Victim:
    """A victim without what it can spare."""
    spared = {one[1].pod_uid for part in victim.spare for one in part.slices}
    pods = list(victim.pods)
    for part in victim.spare:
        for pod in part.pods:
            pods.remove(pod)
    kept = tuple(one for one in victim.slices if one[1].pod_uid not in spared)
    return replace(victim, slices=kept, pods=tuple(pods), spare=())


def divided(victims: Sequence[Victim]) -> tuple[list[Victim], Counter[str]]:
    """Those who go wholly, and of the other gangs how many members each gives up, by uid."""
    whole = [victim for victim in victims if not victim.part]
    going = {victim.uid for victim in whole}
    return whole, Counter(
        victim.uid for victim in victims if victim.part and victim.uid not in going
    )


def pods_of(victims: Sequence[Victim], uid: str) -> frozenset[str]:
    """The pods that a gang gives up, by uid."""
    return frozenset(
        one.pod_uid
        for victim in victims
        if victim.part and victim.uid == uid
        for _, one in victim.slices
    )


def wave_is_leaving(view: View) -> bool:
    """Whether pods of an earlier preemption are still there; the next wave waits for them."""
    return any(
        _gave_way(job.status) and any(one.live for one in view.members_of(job))
        for _, job in view.index.those(view.index.restarting)
    )


def _gave_way(status: WorkloadStatus) -> bool:
    if status.size is not None and status.size.reason is Reason.SHRUNK:
        return True
    decision = status.decision
    return decision is not None and Standing.PREEMPTION in decision.reason.standing


def in_words(victims: Sequence[Victim]) -> str:
    """What is done to whom."""
    gone = dict.fromkeys(victim.name for victim in victims if not victim.part)
    less = dict.fromkeys(
        victim.name for victim in victims if victim.part and victim.name not in gone
    )
    done = (("preempting", list(gone)), ("making smaller", list(less)))
    return " and ".join(f"{verb} {_listed(names)}" for verb, names in done if names)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def unsaved_s(view: View, members: Sequence[Member]) -> float:
    """Seconds since the last checkpoint of the member whose is oldest; 0 = no one told of one."""
    oldest = 0.0
    for member in members:
        for held in member.held:
            seen = held.seen
            if seen is not None and seen.checkpoint_age_s:
                silent_s = max(0.0, view.now - view.snapshot.gpu_nodes[held.node].heartbeat)
                oldest = max(oldest, seen.checkpoint_age_s + silent_s)
    return oldest


def priority_of(workload: WorkloadRecord, members: Sequence[Member]) -> int:
    """Priority of a workload: its pods know what their class resolved to."""
    if len(members) == 1:
        return members[0].pod.priority
    return max((member.pod.priority for member in members), default=workload.priority)


def within_reach(
    placer: Placer, unit: Sequence[Placement], victims: Sequence[Victim]
) -> list[Victim]:
    """Victims that hold a device which members could be on, or quota of such a type."""
    reach = placer.candidate_index.reachable(unit[0].request)
    if unit[-1].request is not unit[0].request:  # in tiers the first ask for other machines
        reach = reach | placer.candidate_index.reachable(unit[-1].request)
    held, inventory = placer.occupancy.quota, placer.occupancy.inventory
    if held is not None and unit[0].request.quota_of != NO_TENANT:
        reach = np.isin(inventory.model, inventory.model[reach])
    on = reach.tolist()
    return [victim for victim in victims if any(on[site] for site, _ in victim.slices)]


def make_room(
    placer: Placer, unit: Sequence[Placement], near: set[int], victims: Sequence[Victim]
) -> Eviction | None:
    """The fewest victims, taken in order, that let all members sit; they stay out of the occupancy.

    Args:
        placer: seats in the occupancy of what will be; left as it was when there is no way.
        unit: the members that want in.
        near: nodes that the rest of the gang is on.
        victims: those of lower priority, in the order to take them.
    """
    useful = within_reach(placer, unit, victims)
    taken: list[Victim] = []
    batch = 1
    while len(taken) < len(useful):
        chunk = useful[len(taken) : len(taken) + batch]
        for victim in chunk:
            lift(placer.occupancy, victim)
        taken.extend(chunk)
        gang = placer.placement(unit, near, explain=False)
        if not isinstance(gang, NoRoom):
            return _spare(placer, unit, near, (taken, gang))
        batch = min(2 * batch, 256)
    for victim in reversed(taken):
        put_back(placer.occupancy, victim)
    return None


def _spare(
    placer: Placer,
    unit: Sequence[Placement],
    near: set[int],
    found: tuple[list[Victim], tuple[Placement, ...]],
) -> Eviction:
    """Let every victim stay that need not go."""
    taken, gang = found
    placer.unseat(gang)
    used = {site for placement in gang for site in placement.candidate.sites}
    on_nodes = {placement.candidate.node for placement in gang}
    for keep in (used, _sites_on(placer.occupancy, on_nodes)):
        spared = [victim for victim in taken if not any(site in keep for site, _ in victim.slices)]
        if spared and _fits_with(placer, unit, near, spared):
            # by identity: comparing records of hundreds with one another takes longer than the rest
            stay = {id(victim) for victim in spared}
            taken = [victim for victim in taken if id(victim) not in stay]
            break
    if len(taken) <= _MOST_SPARED:
        for victim in list(reversed(taken)):
            if len(taken) > 1 and _fits_with(placer, unit, near, [victim]):
                taken.remove(victim)
    final = placer.placement(unit, near, explain=False)
    if isinstance(final, NoRoom):
        raise AssertionError("members that fitted before no longer fit on an unchanged board")
    return Eviction(tuple(taken), final)


def _fits_with(
    placer: Placer, unit: Sequence[Placement], near: set[int], spared: Sequence[Victim]
) -> bool:
    """Put victims back for good if everyone still fits; else leave them off."""
    for victim in spared:
        put_back(placer.occupancy, victim)
    gang = placer.placement(unit, near, explain=False)
    if not isinstance(gang, NoRoom):
        placer.unseat(gang)
        return True
    for victim in spared:
        lift(placer.occupancy, victim)
    return False


def _sites_on(occupancy: Occupancy, nodes: set[int]) -> set[int]:
    return {site for node in nodes for site in occupancy.inventory.sites_on[node]}


def lift(occupancy: Occupancy, victim: Victim) -> None:
    """Remove a victim from the occupancy."""
    for site, occupant in victim.slices:
        occupancy.lift(site, occupant)
    for node, requests in victim.pods:
        occupancy.refund(node, requests)


def put_back(occupancy: Occupancy, victim: Victim) -> None:
    """Return a victim to the occupancy."""
    for site, occupant in victim.slices:
        occupancy.put(site, occupant)
    for node, requests in victim.pods:
        occupancy.charge(node, requests)
