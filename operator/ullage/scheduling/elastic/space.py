# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How many members of a gang there is room for, in the occupancy as it stands.

Counts with members whose pods need not exist yet, leaves the occupancy as it was, and decides
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ullage.cluster.records.pod_shape import PodShape
from ullage.cluster.records.snapshot import PodRecord, PodStage, WorkloadRecord
from ullage.scheduling.feasibility.resource_requests import ResourceRequest, ResourceRequests
from ullage.scheduling.inventory.exclusions import excluded_devices
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.inventory.reliable_machines import held_to, staying, terms_of
from ullage.scheduling.inventory.resource_usage import charged
from ullage.scheduling.model.view import Member
from ullage.scheduling.placement.free_places import places
from ullage.scheduling.placement.placement import NoRoom, Placement, Placer

Narrow = Callable[[ResourceRequest, frozenset[int]], ResourceRequest]
"""Holds a want to some models."""

_NOWHERE: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What members ask for, and what the first of them ask for instead: machines that stay."""

    shape: PodShape
    request: ResourceRequest
    tied: ResourceRequest | None = None
    first: int = 0
    like: PodRecord | None = None
    """Whose labels and rules they have, where any rule concerns them."""

    @property
    def key(self) -> tuple[int, int, int]:
        """Its identity within a cycle."""
        return self.request.number, self.tied.number if self.tied is not None else 0, self.first

    def unit(self, job: WorkloadRecord, most: int) -> list[Placement]:
        """So many members, in order of rank."""
        return [
            Placement(
                job,
                phantom,
                self.tied if self.tied and phantom.pod.rank < self.first else self.request,
            )
            for phantom in phantoms(job, self.shape, most, self.like)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """Counts room for members of gangs."""

    requests: ResourceRequests
    placer: Placer
    narrow: Narrow | None = None
    """Set where a gang never mixes types."""
    known: dict[tuple[object, ...], int] | None = None
    """What was counted already, as long as the occupancy stays as it is; ``None`` = it does not."""

    def members(
        self,
        job: WorkloadRecord,
        most: int,
        *,
        avoid: frozenset[int] = _NOWHERE,
        only: Collection[int] | None = None,
        proven: bool = False,
        reliable: int | None = None,
    ) -> int:
        """Members that fit at once beside all that is there, at most ``most``.

        Args:
            job: whose members they are.
            most: where counting ends.
            avoid: devices that will not do, beside those that are passed over anyway.
            only: models that will do; ``None`` = all, each alone where types are never mixed.
            proven: places on trial do not count.
            reliable: so many of them, the first, count on machines that stay; ``None`` = as many as
                a gang in tiers begins with.
        """
        view, occupancy = self.requests.view, self.placer.occupancy
        known = view.members_of(job)
        avoid |= excluded_devices(view, occupancy.inventory, job, known)
        shape = known[0].pod.shape if known else job.shape
        wanted = self._wanted(job, shape, avoid, reliable)
        if known:
            wanted = self._under_rules(wanted, job, known[0].pod)
        key = (*wanted.key, most, proven, None if only is None else frozenset(only))
        if self.known is None:
            return self._found(job, most, wanted, only, proven)
        if key not in self.known:
            self.known[key] = self._found(job, most, wanted, only, proven)
        return self.known[key]

    def phantoms(self, job: WorkloadRecord) -> tuple[Member, ...]:
        """The members of a gang whose pods are not there yet, as they will ask for places."""
        found = phantoms(job, job.shape, job.replicas)
        terms = terms_of(job)
        if terms is None:
            return found
        shape = self._on_machines_that_stay(job.shape)
        return tuple(
            Member(replace(member.pod, shape=shape), ())
            if member.pod.rank < terms.reliable
            else member
            for member in found
        )

    def _wanted(
        self, job: WorkloadRecord, shape: PodShape, avoid: frozenset[int], reliable: int | None
    ) -> _Wanted:
        terms = terms_of(job)
        if terms is None:
            return _Wanted(shape, self.requests.of(job, shape, avoid))
        # the pod that is looked at may be tied itself, or pinned
        shape = self.requests.same(replace(shape, affinity=job.shape.affinity))
        tied = self.requests.of(job, self._on_machines_that_stay(shape), avoid)
        first = terms.reliable if reliable is None else reliable
        return _Wanted(shape, self.requests.of(job, shape, avoid), tied, first)

    def _under_rules(self, wanted: _Wanted, job: WorkloadRecord, like: PodRecord) -> _Wanted:
        """The same of members with the rules of one that is there."""
        (phantom,) = phantoms(job, wanted.shape, 1, like)
        request = self.requests.under_rules(wanted.request, phantom.pod)
        if request is wanted.request:
            return wanted
        tied = wanted.tied and self.requests.under_rules(wanted.tied, phantom.pod)
        return replace(wanted, request=request, tied=tied, like=like)

    def _on_machines_that_stay(self, shape: PodShape) -> PodShape:
        return self.requests.same(held_to(shape, staying(self.requests.view.snapshot.pools)))

    def _found(
        self,
        job: WorkloadRecord,
        most: int,
        wanted: _Wanted,
        only: Collection[int] | None,
        proven: bool,
    ) -> int:
        request, narrow = wanted.request, self.narrow
        most = self._within_free(job, most, request)
        if not most:
            return 0
        unit = wanted.unit(job, most)
        rules = self.placer.occupancy.rules
        if rules is not None and wanted.like is not None:
            rules.pods.expect([placement.member.pod for placement in unit])
        if narrow is None:
            return self._count(unit, proven)
        models = self.placer.occupancy.inventory.models.values() if only is None else only
        return max(
            (
                self._count(
                    [
                        replace(one, request=narrow(one.request, frozenset((model,))))
                        for one in unit
                    ],
                    proven,
                )
                for model in sorted(models)
                if request.accelerators is None or model in request.accelerators
            ),
            default=0,
        )

    def _within_free(self, job: WorkloadRecord, most: int, request: ResourceRequest) -> int:
        """As many of them as what is free could hold; those that share few beyond the fewest."""
        most = min(most, places(self.placer.candidate_index, request))
        bounds = job.elasticity
        if bounds is None or request.exclusive or most <= bounds.min_replicas:
            return max(most, 0)
        return bounds.min_replicas + self.placer.occupancy.effort.counts(most - bounds.min_replicas)

    def later(self) -> Space:
        """The same when everything that is leaving has left."""
        occupancy = self.placer.occupancy
        if not occupancy.leaving():
            return self
        return replace(self, placer=Placer(occupancy.later(), self.placer.rule))

    def without(self, job: WorkloadRecord, most: int) -> int:
        """Members that fit when those that the job has now are gone.

        Those of them that are leaving must be out of the occupancy already.
        """
        occupancy = self.placer.occupancy
        members = self.requests.view.members_of(job)
        own = {member.pod.uid for member in members}
        slices = [
            (site, occupant)
            for site in sorted(self._sites_of(members))
            for occupant in occupancy.occupants[site]
            if occupant.pod_uid in own
        ]
        on_nodes = charged(occupancy.inventory, members, staying=True)
        order = {site: occupancy.occupants[site] for site, _ in slices}
        for site, occupant in slices:
            occupancy.lift(site, occupant)
        for node, wanted in on_nodes:
            occupancy.refund(node, wanted)
        found = self.members(job, most)
        for site, occupant in slices:
            occupancy.put(site, occupant)
        for node, wanted in on_nodes:
            occupancy.charge(node, wanted)
        for site, before in order.items():  # the order is part of what is written
            occupancy.occupants[site] = before
        return found

    def _sites_of(self, members: Collection[Member]) -> set[int]:
        index = self.placer.occupancy.inventory.site_index
        found = {
            index.get((held.node, held.slice.gpu)) for member in members for held in member.held
        } | {
            index.get((node, seen.gpu))
            for member in members
            for node, seen in self.requests.view.observed.get(member.pod.uid, ())
        }
        return {site for site in found if site is not None}

    def _count(self, unit: Sequence[Placement], proven: bool) -> int:
        fits, most = self._fitting(unit, proven)
        if unit[0].request.exclusive or not 0 < fits < len(unit):
            return fits
        # held to smaller shares, more may sit on the same devices
        least, over = fits, most + 1
        while over - least > 1:
            middle = (least + over) // 2
            if self._fitting(unit[:middle], proven)[0] == middle:
                least = middle
            else:
                over = middle
        return least

    def _fitting(self, unit: Sequence[Placement], proven: bool) -> tuple[int, int]:
        """Members that fit at the largest shares, and as many as could at smaller ones."""
        found = self.placer.placement(unit, set(), explain=False)
        if isinstance(found, NoRoom):
            return found.placed, max(found.placed, found.most)
        self.placer.unseat(found)
        fits = sum(not (proven and placement.candidate.grant.trial) for placement in found)
        return fits, len(found)


def other_models(inventory: Inventory, members: Sequence[Member]) -> frozenset[int]:
    """Devices of other models than those that the members have: a gang keeps the slowest's pace."""
    if len(inventory.models) < 2:
        return _NOWHERE
    sites = {
        inventory.site_index.get((held.node, held.slice.gpu))
        for member in members
        for held in member.held
    }
    models = {inventory.model.item(site) for site in sites if site is not None}
    if not models:
        return _NOWHERE
    unlike = np.isin(inventory.model, sorted(models), invert=True)
    return frozenset(unlike.nonzero()[0].tolist())


def phantoms(
    job: WorkloadRecord, shape: PodShape, count: int, like: PodRecord | None = None
) -> tuple[Member, ...]:
    """Members whose pods are not there (yet): enough to find places for them.

    Those that are ``like`` one that is there have its rules, and count for one another.
    """
    pod = PodRecord(
        uid="",
        namespace=job.ref.namespace,
        name="",
        owner=job.ref,
        created=job.created,
        stage=PodStage.GATED,
        stage_since=job.created,
        shape=shape,
        priority=job.priority,
    )
    if like is None:
        return tuple(Member(replace(pod, rank=rank), ()) for rank in range(count))
    pod = replace(pod, labels=like.labels, rules=like.rules)
    return tuple(
        Member(replace(pod, rank=rank, uid=f"{job.ref.uid}~{rank}"), ()) for rank in range(count)
    )


def sites_of(placements: Collection[Placement]) -> list[int]:
    """Devices of members that are seated."""
    return [site for placement in placements for site in placement.candidate.sites]
