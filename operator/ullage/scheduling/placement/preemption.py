# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Preemption victims for a workload that does not fit.

Victims are TrainingJobs that can checkpoint: of lower priority, with their turn over, or training
in the headroom of the service that needs the devices. Elastic gangs first give up spare members,
also to other namespaces at equal priority. Then the order is lowest priority, latest checkpoint,
youngest, and no more victims than needed. They are tried in the occupancy without everything that
is leaving; nothing is evicted here.

Headroom: a service whose replicas follow its load needs its devices back when the load returns.
Best-effort training of its own namespace gives them back at equal priority, training of other
namespaces only at lower priority: containers report the load, so it must not stop the work of
others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ullage.api.reasons import Reason, Standing
from ullage.cluster.records.pod_shape import Resources
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.engines.quota.records import NO_TENANT
from ullage.scheduling.feasibility.occupancy import Occupancy, Occupant
from ullage.scheduling.inventory.resource_usage import charged
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.placement.placement import NoRoom, Placement, Placer

_MOST_SPARED = 16
"""Victims that are spared one by one; beyond it only those on other devices are spared."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A workload that may be evicted, and the devices and node resources that it would free."""

    uid: str
    priority: int
    created: float
    slices: tuple[tuple[int, Occupant], ...]
    pods: tuple[tuple[int, Resources], ...]
    unsaved_s: float = 0.0
    """Work that an eviction may lose: time since its last checkpoint, 0 = unknown."""
    spare: tuple[Victim, ...] = ()
    """Its members above the minimum, each as a part, the last first."""
    part: bool = False
    """A member that leaves while the rest of its gang continues."""
    reclaimed: bool = False
    """It uses borrowed quota, which the owner reclaims whatever the priority."""
    lent_by: str = ""
    """Namespace whose scaled services reclaim its devices at equal priority; empty = none."""
    given_back: bool = False
    """It is taken by a service of ``lent_by``."""
    namespace: str = ""
    extra: bool = False
    """Only its members above the minimum are taken, by another namespace of equal priority."""

    @property
    def name(self) -> str:
        """Namespace and name."""
        return self.slices[0][1].tenant.name


@dataclass(frozen=True, slots=True)
class Eviction:
    """The victims that make room, and the newcomer's places after it."""

    victims: tuple[Victim, ...]
    placements: tuple[Placement, ...]


def possible_victims(
    view: View, occupancy: Occupancy, candidates: Sequence[WorkloadRecord]
) -> tuple[Victim, ...]:
    """Victims in the order in which they are taken: lowest priority, latest checkpoint, youngest.

    Args:
        view: The cycle's snapshot.
        occupancy: Occupants by device.
        candidates: Training jobs that can checkpoint and may leave.
    """
    slices: dict[str, list[tuple[int, Occupant]]] = {job.ref.uid: [] for job in candidates}
    for site, occupants in enumerate(occupancy.occupants):
        for occupant in occupants:
            if occupant.owner_uid in slices and not occupant.leaving:
                slices[occupant.owner_uid].append((site, occupant))
    victims = [
        _victim(view, occupancy, job, job_slices)
        for job in candidates
        if (job_slices := slices[job.ref.uid])
    ]
    order = sorted(
        victims, key=lambda victim: (victim.priority, victim.unsaved_s, -victim.created, victim.uid)
    )
    return tuple(order)


def _victim(
    view: View,
    occupancy: Occupancy,
    workload: WorkloadRecord,
    slices: Sequence[tuple[int, Occupant]],
) -> Victim:
    members = view.members_of(workload)
    return Victim(
        uid=workload.ref.uid,
        priority=priority_of(workload, members),
        created=workload.created,
        unsaved_s=unsaved_s(view, members),
        slices=tuple(slices),
        pods=tuple(charged(occupancy.inventory, members, staying=True)),
        spare=_spare_members(view, occupancy, workload, slices) if workload.elasticity else (),
        lent_by=lender(workload),
        namespace=workload.ref.namespace,
    )


def _spare_members(
    view: View, occupancy: Occupancy, job: WorkloadRecord, slices: Sequence[tuple[int, Occupant]]
) -> tuple[Victim, ...]:
    """Members above the minimum of an elastic gang, the last first."""
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
            slices=member_slices,
            pods=tuple(charged(occupancy.inventory, [member], staying=True)),
            part=True,
        )
        for member in reversed(members[job.elasticity.min_replicas :])
        if (
            member_slices := tuple(
                slice_ for slice_ in slices if slice_[1].pod_uid == member.pod.uid
            )
        )
    )


def present(view: View, members: Sequence[Member]) -> list[Member]:
    """Members of a gang in place that stay; those that are still joining come last."""
    staying = [
        member
        for member in members
        if member.live and not member.pod.deleting and member.pod.uid not in view.evictions
    ]
    return sorted(staying, key=lambda member: (member.gated, member.pod.rank))


def smaller_first(victims: Sequence[Victim], priority: int) -> list[Victim]:
    """The victims, with the spare members of gangs before all others.

    Gangs give up spare members if they have lower priority, hold reclaimed or lent devices, or
    belong to another namespace (then nothing else of them is taken).
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
    """A victim without its spare members."""
    spared = {slice_[1].pod_uid for part in victim.spare for slice_ in part.slices}
    pods = list(victim.pods)
    for part in victim.spare:
        for pod in part.pods:
            pods.remove(pod)
    kept = tuple(slice_ for slice_ in victim.slices if slice_[1].pod_uid not in spared)
    return replace(victim, slices=kept, pods=tuple(pods), spare=())


def divided(victims: Sequence[Victim]) -> tuple[list[Victim], Counter[str]]:
    """Victims preempted as a whole; and of the other gangs, by uid, the members to release."""
    whole = [victim for victim in victims if not victim.part]
    going = {victim.uid for victim in whole}
    return whole, Counter(
        victim.uid for victim in victims if victim.part and victim.uid not in going
    )


def pods_of(victims: Sequence[Victim], uid: str) -> frozenset[str]:
    """The pods that a gang releases, by uid."""
    return frozenset(
        occupant.pod_uid
        for victim in victims
        if victim.part and victim.uid == uid
        for _, occupant in victim.slices
    )


def wave_is_leaving(view: View) -> bool:
    """True while pods of an earlier preemption exist; the next wave waits for them."""
    for _, job in view.index.those(view.index.restarting):
        size, decision = job.status.size, job.status.decision
        shrunk = size is not None and size.reason is Reason.SHRUNK
        preempted = decision is not None and Standing.PREEMPTION in decision.reason.standing
        if (shrunk or preempted) and any(member.live for member in view.members_of(job)):
            return True
    return False


def in_words(victims: Sequence[Victim]) -> str:
    """Text of the victims and of the action on each."""
    whole = dict.fromkeys(victim.name for victim in victims if not victim.part)
    smaller = dict.fromkeys(
        victim.name for victim in victims if victim.part and victim.name not in whole
    )
    texts: list[str] = []
    for verb, names in (("preempting", list(whole)), ("making smaller", list(smaller))):
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        if names:
            texts.append(f"{verb} {', '.join(names[:3])}{more}")
    return " and ".join(texts)


def unsaved_s(view: View, members: Sequence[Member]) -> float:
    """Seconds since the oldest of the members' last checkpoints; 0 = none was reported."""
    oldest = 0.0
    for member in members:
        for slice_ in member.held:
            seen = slice_.seen
            if seen is not None and seen.checkpoint_age_s:
                silent_s = max(0.0, view.now - view.snapshot.gpu_nodes[slice_.node].heartbeat)
                oldest = max(oldest, seen.checkpoint_age_s + silent_s)
    return oldest


def priority_of(workload: WorkloadRecord, members: Sequence[Member]) -> int:
    """Priority of a workload, as its pods' priority class resolved."""
    if len(members) == 1:
        return members[0].pod.priority
    return max((member.pod.priority for member in members), default=workload.priority)


def within_reach(
    placer: Placer, unit: Sequence[Placement], victims: Sequence[Victim]
) -> list[Victim]:
    """Victims on devices that members could use; with quota, on devices of such a type."""
    reach = placer.candidate_index.reachable(unit[0].request)
    if unit[-1].request is not unit[0].request:  # in tiers the first need other machines
        reach = reach | placer.candidate_index.reachable(unit[-1].request)
    quota, inventory = placer.occupancy.quota, placer.occupancy.inventory
    if quota is not None and unit[0].request.quota_of != NO_TENANT:
        reach = np.isin(inventory.model, inventory.model[reach])
    on = reach.tolist()
    return [victim for victim in victims if any(on[site] for site, _ in victim.slices)]


def make_room(
    placer: Placer, unit: Sequence[Placement], near: set[int], victims: Sequence[Victim]
) -> Eviction | None:
    """The fewest victims, taken in order, that make room for all members; removes them.

    Args:
        placer: Seats in the expected occupancy; unchanged when there is no room.
        unit: The members.
        near: Nodes that the rest of the gang is on.
        victims: Victims in the order to take them.
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
            return _spare(placer, unit, near, taken, gang)
        batch = min(2 * batch, 256)
    for victim in reversed(taken):
        put_back(placer.occupancy, victim)
    return None


def _spare(
    placer: Placer,
    unit: Sequence[Placement],
    near: set[int],
    taken: list[Victim],
    gang: tuple[Placement, ...],
) -> Eviction:
    """Put back the unnecessary victims."""
    placer.unseat(gang)
    used = {site for placement in gang for site in placement.candidate.sites}
    sites_on = placer.occupancy.inventory.sites_on
    on_nodes = {site for placement in gang for site in sites_on[placement.candidate.node]}
    for keep in (used, on_nodes):
        spared = [victim for victim in taken if not any(site in keep for site, _ in victim.slices)]
        if spared and _fits_with(placer, unit, near, spared):
            # by identity: comparing hundreds of records is slow
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
    """Put victims back if all members still fit beside them; else remove them again."""
    for victim in spared:
        put_back(placer.occupancy, victim)
    gang = placer.placement(unit, near, explain=False)
    if not isinstance(gang, NoRoom):
        placer.unseat(gang)
        return True
    for victim in spared:
        lift(placer.occupancy, victim)
    return False


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


def lender(job: WorkloadRecord) -> str:
    """The namespace whose services reclaim devices from a job at equal priority; empty = none.

    They do from best-effort training: without objective or deadline, with checkpoints. Pods of
    other controllers are excluded, because those may not restart them.
    """
    best_effort = (
        job.kind is WorkloadKind.TRAINING_JOB
        and job.checkpoint
        and not job.adopted
        and job.max_slowdown is None
        and job.min_throughput is None
        and (job.cost is None or (job.cost.deadline_s is None and job.cost.max_time_s is None))
    )
    return job.ref.namespace if best_effort else ""


def follows_load(workload: WorkloadRecord) -> bool:
    """True for a service that the operator scales, so that its new replicas are needed."""
    return workload.scaling is not None and workload.slo is not None
