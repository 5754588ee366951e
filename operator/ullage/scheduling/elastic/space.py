# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Counts of the members of a gang that fit into the occupancy.

The pods of the members need not exist. The occupancy is left unchanged, and nothing is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ullage.cluster.records.pod import PodRecord, PodStage
from ullage.cluster.records.pod_shape import PodShape
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.feasibility.resource_requests import ResourceRequest, ResourceRequests
from ullage.scheduling.inventory.exclusions import excluded_devices
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.inventory.reliable_machines import held_to, staying, terms_of
from ullage.scheduling.inventory.resource_usage import charged
from ullage.scheduling.model.view import Member
from ullage.scheduling.placement.free_places import places
from ullage.scheduling.placement.placement import NoRoom, Placement, Placer

Narrow = Callable[[ResourceRequest, frozenset[int]], ResourceRequest]
"""Restricts a request to some models."""

_NOWHERE: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Requests of members; the first ones may request reliable machines (``tied``)."""

    shape: PodShape
    request: ResourceRequest
    tied: ResourceRequest | None = None
    first: int = 0
    like: PodRecord | None = None
    """Pod with their labels and scheduling rules, where a rule applies to them."""

    @property
    def key(self) -> tuple[int, int, int]:
        """Key within a cycle."""
        return self.request.number, self.tied.number if self.tied is not None else 0, self.first

    def unit(self, job: WorkloadRecord, most: int) -> list[Placement]:
        """``most`` members in order of rank."""
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
    """Set when a gang never mixes types."""
    counts: dict[tuple[object, ...], int] | None = None
    """Cache of counts, valid while the occupancy does not change; ``None`` = no cache."""

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
        """Number of members that fit now, at most ``most``.

        Args:
            job: The gang.
            most: Upper bound of the count.
            avoid: Devices to avoid, beside those that are always excluded.
            only: Allowed models; ``None`` = all, each alone where types are never mixed.
            proven: True when trial places do not count.
            reliable: Number of first members that need reliable machines; ``None`` = as many as a
                gang in tiers starts with.
        """
        view, occupancy = self.requests.view, self.placer.occupancy
        existing = view.members_of(job)
        avoid |= excluded_devices(view, occupancy.inventory, job, existing)
        shape = existing[0].pod.shape if existing else job.shape
        wanted = self._wanted(job, shape, avoid, reliable)
        if existing:
            wanted = self._under_rules(wanted, job, existing[0].pod)
        key = (*wanted.key, most, proven, None if only is None else frozenset(only))
        if self.counts is None:
            return self._fit(job, most, wanted, only, proven)
        if key not in self.counts:
            self.counts[key] = self._fit(job, most, wanted, only, proven)
        return self.counts[key]

    def phantoms(self, job: WorkloadRecord) -> tuple[Member, ...]:
        """Placeholders for the members of a gang without pods."""
        members = phantoms(job, job.shape, job.replicas)
        terms = terms_of(job)
        if terms is None:
            return members
        shape = self._on_machines_that_stay(job.shape)
        return tuple(
            Member(replace(member.pod, shape=shape), ())
            if member.pod.rank < terms.reliable
            else member
            for member in members
        )

    def _wanted(
        self, job: WorkloadRecord, shape: PodShape, avoid: frozenset[int], reliable: int | None
    ) -> _Wanted:
        terms = terms_of(job)
        if terms is None:
            return _Wanted(shape, self.requests.of(job, shape, avoid))
        # the existing pod may be tied or pinned itself
        shape = self.requests.same(replace(shape, affinity=job.shape.affinity))
        tied = self.requests.of(job, self._on_machines_that_stay(shape), avoid)
        first = terms.reliable if reliable is None else reliable
        return _Wanted(shape, self.requests.of(job, shape, avoid), tied, first)

    def _under_rules(self, wanted: _Wanted, job: WorkloadRecord, like: PodRecord) -> _Wanted:
        """The requests with the scheduling rules of an existing member."""
        (phantom,) = phantoms(job, wanted.shape, 1, like)
        request = self.requests.under_rules(wanted.request, phantom.pod)
        if request is wanted.request:
            return wanted
        tied = wanted.tied and self.requests.under_rules(wanted.tied, phantom.pod)
        return replace(wanted, request=request, tied=tied, like=like)

    def _on_machines_that_stay(self, shape: PodShape) -> PodShape:
        return self.requests.same(held_to(shape, staying(self.requests.view.snapshot.pools)))

    def _fit(
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
                        replace(placement, request=narrow(placement.request, frozenset((model,))))
                        for placement in unit
                    ],
                    proven,
                )
                for model in sorted(models)
                if request.accelerators is None or model in request.accelerators
            ),
            default=0,
        )

    def _within_free(self, job: WorkloadRecord, most: int, request: ResourceRequest) -> int:
        """Upper bound by free places; for shares, a few members beyond the minimum."""
        most = min(most, places(self.placer.candidate_index, request))
        bounds = job.elasticity
        if bounds is None or request.exclusive or most <= bounds.min_replicas:
            return max(most, 0)
        return bounds.min_replicas + self.placer.occupancy.effort.counts(most - bounds.min_replicas)

    def later(self) -> Space:
        """The space once all leaving slices are gone."""
        occupancy = self.placer.occupancy
        if not occupancy.leaving():
            return self
        return replace(self, placer=Placer(occupancy.later(), self.placer.rule))

    def without(self, job: WorkloadRecord, most: int) -> int:
        """Number of members that fit without the present members of the job.

        Members that are leaving must be out of the occupancy already.
        """
        occupancy = self.placer.occupancy
        members = self.requests.view.members_of(job)
        uids = {member.pod.uid for member in members}
        slices = [
            (site, occupant)
            for site in sorted(self._sites_of(members))
            for occupant in occupancy.occupants[site]
            if occupant.pod_uid in uids
        ]
        on_nodes = charged(occupancy.inventory, members, staying=True)
        order = {site: occupancy.occupants[site] for site, _ in slices}
        for site, occupant in slices:
            occupancy.lift(site, occupant)
        for node, wanted in on_nodes:
            occupancy.refund(node, wanted)
        count = self.members(job, most)
        for site, occupant in slices:
            occupancy.put(site, occupant)
        for node, wanted in on_nodes:
            occupancy.charge(node, wanted)
        for site, before in order.items():  # specs are written in this order
            occupancy.occupants[site] = before
        return count

    def _sites_of(self, members: Collection[Member]) -> set[int]:
        index = self.placer.occupancy.inventory.site_index
        sites = {
            index.get((held.node, held.slice.gpu)) for member in members for held in member.held
        } | {
            index.get((node, seen.gpu))
            for member in members
            for node, seen in self.requests.view.observed.get(member.pod.uid, ())
        }
        return {site for site in sites if site is not None}

    def _count(self, unit: Sequence[Placement], proven: bool) -> int:
        fits, most = self._fitting(unit, proven)
        if unit[0].request.exclusive or not 0 < fits < len(unit):
            return fits
        # with smaller shares, more members may fit on the same devices
        least, over = fits, most + 1
        while over - least > 1:
            middle = (least + over) // 2
            if self._fitting(unit[:middle], proven)[0] == middle:
                least = middle
            else:
                over = middle
        return least

    def _fitting(self, unit: Sequence[Placement], proven: bool) -> tuple[int, int]:
        """Number of members that fit at the largest shares, and at smaller ones."""
        outcome = self.placer.placement(unit, set(), explain=False)
        if isinstance(outcome, NoRoom):
            return outcome.placed, max(outcome.placed, outcome.most)
        self.placer.unseat(outcome)
        fits = sum(not (proven and placement.candidate.grant.trial) for placement in outcome)
        return fits, len(outcome)


def other_models(inventory: Inventory, members: Sequence[Member]) -> frozenset[int]:
    """Devices of models that no member has; a gang runs at the pace of its slowest member."""
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
    """Placeholders for members without pods, sufficient to find places.

    With ``like`` they have its labels and scheduling rules, and affect each other by these.
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
    """Devices of placements."""
    return [site for placement in placements for site in placement.candidate.sites]
