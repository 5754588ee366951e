# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Places all members of a gang in the occupancy, or none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice, SliceKey
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import RefusalLine
from ullage.engines.admission.limits import first_broken, memory_of_share_mib
from ullage.engines.admission.records import Refusal
from ullage.engines.quota.records import NO_TENANT
from ullage.scheduling.feasibility.device_facts import figures
from ullage.scheduling.feasibility.held_quota import HeldQuota
from ullage.scheduling.feasibility.occupancy import Occupancy, Occupant
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.feasibility.slices import priority_held, slice_facts
from ullage.scheduling.model.device_choice import BEST
from ullage.scheduling.model.view import Member
from ullage.scheduling.placement.allowance import (
    allowance,
    barred_by_quota,
    exceeded,
    models_of,
)
from ullage.scheduling.placement.candidates import Candidate, CandidateIndex, CandidateList
from ullage.scheduling.placement.free_places import places
from ullage.scheduling.placement.messages import refusal_lines
from ullage.scheduling.placement.survey import survey
from ullage.scheduling.prediction.effort import FEW
from ullage.scheduling.prediction.verdicts import AdmissionRule

_MOST_SHARERS: Final = 16
"""Smallest part of a device that a gang is held to when its members crowd one another out."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One member and the class of what it asks for; placed once it has a candidate."""

    workload: WorkloadRecord
    member: Member
    request: ResourceRequest
    found: Candidate | None = None
    """Its place; ``None`` = it is still looked for."""
    runner_up: Candidate | None = None
    """What the first of a gang would have got instead."""

    @property
    def candidate(self) -> Candidate:
        """Its place.

        Raises:
            LookupError: it has none yet.
        """
        if self.found is None:
            raise LookupError(f"pod {self.member.pod.name} is not placed")
        return self.found

    def at(self, candidate: Candidate, runner_up: Candidate | None = None) -> Placement:
        """The member in a place."""
        return Placement(self.workload, self.member, self.request, candidate, runner_up)


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Not all members fit: how many would, and what stops the next one."""

    placed: int
    lines: tuple[RefusalLine, ...]
    most: int = 0
    """Members that fit where each is held to a smaller share; 0 = that was not tried."""


def _sharers(members: int) -> Sequence[int]:
    """Parts of a device that so many members are held to, one try after the other.

    Every part for few members; for many each half of the one before, because a try costs as much as
    there are members.
    """
    if members <= FEW:
        return range(2, _MOST_SHARERS + 1)
    return tuple(2**power for power in range(1, _MOST_SHARERS.bit_length()))


def fewest_nodes(room: Mapping[int, int], members: int) -> list[int]:
    """The fewest nodes that take all members; of as many those that leave least room over.

    Args:
        room: Members that each node takes.
        members: How many there are.

    Returns:
        Empty where there is no room for all.
    """
    chosen: list[int] = []
    lacking = members
    for node in sorted(room, key=lambda node: (-room[node], node)):
        if lacking <= 0:
            break
        if room[node] >= lacking:  # it is the last: the smallest that will do
            rest = (one for one in room if one not in chosen and room[one] >= lacking)
            node = min(rest, key=lambda one: (room[one], one))
        chosen.append(node)
        lacking -= room[node]
    return chosen if lacking <= 0 else []


@dataclass(slots=True)
class Placer:
    """Places members in one occupancy."""

    occupancy: Occupancy
    rule: AdmissionRule
    candidate_index: CandidateIndex = field(init=False)
    _shortlists: dict[int, CandidateList] = field(default_factory=dict)
    _narrower: dict[tuple[object, ...], ResourceRequest] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.candidate_index = CandidateIndex(self.occupancy, self.rule)

    def placement(
        self, unit: Sequence[Placement], near: set[int], *, explain: bool
    ) -> tuple[Placement, ...] | NoRoom:
        """Seat all members, or none.

        Each gets the largest share that its device grants. Where the first then leave too little
        for the last, all are held to the largest equal part of a device (a half, a third, ...) at
        which everyone fits.

        Args:
            unit: members that stand or fall together.
            near: nodes that the rest of the gang is on already.
            explain: find out what stops the first member that does not fit.
        """
        held = self.occupancy.quota
        if held is None or unit[0].request.quota_of == NO_TENANT:
            return self._wherever(unit, near, explain=explain)
        return self._within_quota(held, unit, near, explain=explain)

    def _within_quota(
        self, held: HeldQuota, unit: Sequence[Placement], near: set[int], *, explain: bool
    ) -> tuple[Placement, ...] | NoRoom:
        """Seat all members on types that their tenant's quota has room for, or none."""
        request, models = unit[0].request, self.occupancy.inventory.models
        allowed = allowance(held, request, len(unit), models)
        found: tuple[Placement, ...] | NoRoom = NoRoom(0, ())
        choices = allowed.choices(models_of(request, models), request.max_percent)
        for caps in choices:
            last = caps is choices[-1]
            within = self._held_to_quota(held, unit, caps)
            found = self._wherever(within, near, explain=explain and last)
            if not isinstance(found, NoRoom):
                return found
        if choices:
            return found
        if not models_of(request, models):  # it is not the quota that leaves it no type
            return self._wherever(unit, near, explain=explain)
        lines = exceeded(held, request, len(unit), models) if explain else ()
        return NoRoom(self._within_quota_at_once(held, unit, near, allowed.members), lines)

    def _within_quota_at_once(
        self, held: HeldQuota, unit: Sequence[Placement], near: set[int], most: int
    ) -> int:
        """How many members of an elastic gang its quota and the devices take together."""
        if not most or unit[0].workload.elasticity is None:
            return 0
        found = self._within_quota(held, unit[:most], near, explain=False)
        if isinstance(found, NoRoom):
            return found.placed
        self.unseat(found)
        return len(found)

    def _held_to_quota(
        self, held: HeldQuota, unit: Sequence[Placement], caps: Mapping[int, int]
    ) -> list[Placement]:
        """The same members on these models, each with no more than the cap there."""
        inventory, percent = self.occupancy.inventory, min(caps.values())
        first = unit[0].request
        passed = [at for at in models_of(first, inventory.models) if at not in caps]
        if not passed and percent >= first.max_percent:
            return list(unit)
        barred = {
            at: barred_by_quota(held, first, len(unit), inventory.model_names[at]) for at in passed
        }
        return self._narrowed(
            unit,
            ("quota", percent, frozenset(caps)),
            lambda one: replace(one, max_percent=percent, refused={**one.refused, **barred}),
        )

    def _wherever(
        self, unit: Sequence[Placement], near: set[int], *, explain: bool
    ) -> tuple[Placement, ...] | NoRoom:
        """Seat all members, or none, whatever their quota."""
        request = unit[0].request
        if not request.uniform:
            return self._on_any(unit, near, explain=explain)
        furthest: tuple[int, Sequence[Placement]] | None = None
        models = self._models(request, near)
        for model in models:
            narrowed = self._held_to_model(unit, model)
            found = self._on_any(narrowed, near, explain=explain and model == models[0])
            if not isinstance(found, NoRoom):
                return found
            if furthest is None or found.placed > furthest[0]:
                furthest = found.placed, narrowed
        return self._on_any(furthest[1] if furthest else unit, near, explain=explain)

    def _models(self, request: ResourceRequest, near: set[int]) -> list[int]:
        """Models to try for a gang of one type: that of the best place, then by worth."""
        candidate = self._shortlist(request).best(set(near))
        if candidate is None:
            return []
        inventory, worth = self.occupancy.inventory, dict(request.values)
        first = inventory.model.item(candidate.sites[0])
        allowed = (
            inventory.models.values() if request.accelerators is None else request.accelerators
        )
        others = [at for at in allowed if at not in request.barred and at != first]
        return [first, *sorted(others, key=lambda at: (-worth.get(at, 0), at))]

    def _held_to_model(self, unit: Sequence[Placement], model: int) -> list[Placement]:
        """The same members on devices of one model."""
        only = frozenset((model,))
        return self._narrowed(
            unit, ("model", model), lambda one: replace(one, accelerators=only, uniform=False)
        )

    def _on_any(
        self, unit: Sequence[Placement], near: set[int], *, explain: bool
    ) -> tuple[Placement, ...] | NoRoom:
        """Seat all members wherever they may be, or none."""
        request = unit[0].request
        packed = self._on_fewest_nodes(unit) if request.across < BEST and not near else None
        if packed is not None:
            return packed
        found = self._seat(unit, near, explain=explain)
        if not isinstance(found, NoRoom) or not found.placed or len(unit) == 1 or request.exclusive:
            return found  # where there is no place for one, no one crowds anyone out
        if places(self.candidate_index, unit[-1].request) < len(unit):
            return found  # however small the shares: no more sit there than what is free holds
        most = found.placed
        for sharers in _sharers(len(unit)):
            cap = request.percent_limit // sharers
            if cap < request.min_percent:
                break
            if cap < request.max_percent:
                trial = self._seat(self._held_to(unit, cap), near, explain=False)
                if not isinstance(trial, NoRoom):
                    return trial
                most = max(most, trial.placed)
        return replace(found, most=most)

    def _on_fewest_nodes(self, unit: Sequence[Placement]) -> tuple[Placement, ...] | None:
        """Seat all members on as few nodes as there is room on, the fullest that will do."""
        chosen = fewest_nodes(self._shortlist(unit[0].request).room_by_node(), len(unit))
        if not chosen or len(unit) == 1:
            return None
        held = self._narrowed(
            unit,
            ("nodes", *chosen),
            lambda one: replace(one, avoid=one.avoid | self._elsewhere(chosen)),
        )
        found = self._seat(held, set(), explain=False)
        if isinstance(found, NoRoom):
            return None
        return tuple(
            replace(placement, request=asked.request)
            for placement, asked in zip(found, unit, strict=True)
        )

    def avoiding(
        self, unit: Sequence[Placement], sites: frozenset[int], near: set[int]
    ) -> tuple[Placement, ...] | NoRoom:
        """Seat all members on other devices than these, or none.

        Args:
            unit: The members.
            sites: Devices that are left out beside those that each passes over anyway.
            near: Nodes that the rest of the gang is on already.
        """
        held = self._narrowed(
            unit, ("avoiding", sites), lambda one: replace(one, avoid=one.avoid | sites)
        )
        found = self.placement(held, near, explain=True)
        if isinstance(found, NoRoom):
            return found
        return tuple(
            replace(placement, request=asked.request)
            for placement, asked in zip(found, unit, strict=True)
        )

    def _elsewhere(self, nodes: Sequence[int]) -> frozenset[int]:
        """All devices but those of these nodes."""
        inventory = self.occupancy.inventory
        return frozenset(np.flatnonzero(~np.isin(inventory.node_of, nodes)).tolist())

    def _held_to(self, unit: Sequence[Placement], cap: int) -> list[Placement]:
        """The same members, content with less."""
        return self._narrowed(
            unit,
            ("percent", cap),
            lambda one: replace(one, max_percent=min(cap, one.max_percent)),
        )

    def _narrowed(
        self,
        unit: Sequence[Placement],
        how: tuple[object, ...],
        narrow: Callable[[ResourceRequest], ResourceRequest],
    ) -> list[Placement]:
        """The same members with narrower requests, which alike members of a cycle share.

        Args:
            unit: The members.
            how: What it is narrowed to.
            narrow: Does so.
        """
        held: list[Placement] = []
        for one in unit:
            key = (one.request.number, *how)
            known = self._narrower.get(key)
            if known is None:
                # numbers below 0 are of this placer alone
                known = replace(narrow(one.request), number=-1 - len(self._narrower))
                self._narrower[key] = known
            held.append(replace(one, request=known))
        return held

    def _seat(
        self, unit: Sequence[Placement], near: set[int], *, explain: bool
    ) -> tuple[Placement, ...] | NoRoom:
        """Seat all members at the largest shares, one after the other, or none."""
        placements: list[Placement] = []
        near = set(near)
        rules = self.occupancy.rules
        if rules is not None:
            for asked in unit:  # what it still holds is being taken back
                rules.pods.lift(asked.member.pod.uid)
        for asked in unit:
            shortlist = self._shortlist(self._where_rules_allow(asked))
            candidate = shortlist.best(near)
            if candidate is None:
                lines = self._explain(asked.request) if explain else ()
                self.unseat(placements)
                self.occupancy.effort.seated(len(placements))
                return NoRoom(len(placements), lines)
            other = shortlist.second(candidate) if explain and not placements else None
            placements.append(asked.at(candidate, other))
            self.take(placements[-1])
            near.add(candidate.node)
        self.occupancy.effort.seated(len(placements))
        return tuple(placements)

    def _where_rules_allow(self, asked: Placement) -> ResourceRequest:
        """What a member asks for, on the nodes that rules about other pods leave it now."""
        ruled, rules = asked.request.ruled, self.occupancy.rules
        if ruled is None or rules is None:
            return asked.request
        allowed = rules.allowed(ruled, asked.request.shape)
        nodes = allowed.nonzero()[0].tolist()
        (held,) = self._narrowed(
            [asked],
            ("rules", allowed.tobytes()),
            lambda one: replace(one, avoid=one.avoid | self._elsewhere(nodes)),
        )
        return held.request

    def join(self, asked: Placement, site: int) -> Placement | RefusalLine:
        """Seat a member beside the only one on a device, which no third one joins.

        Args:
            asked: The member; what it asks for has one share.
            site: The device.

        Returns:
            Its place, or the limit or prediction that stands in the way.
        """
        occupancy, request = self.occupancy, asked.request
        here, node = occupancy.occupants[site], occupancy.inventory.sites[site].node
        facts = replace(figures(occupancy, site), whole=0)
        broken = first_broken(facts, replace(request, lonely=False))
        reachable = bool(self.candidate_index.reachable(request)[site])
        lacks = self._lacks_quota(request, site)
        if lacks is not None:
            return lacks
        against = self._against_rules(request, site)
        if against is not None:
            return against
        if broken is not None:
            return self._no_place(site, broken[0], "its limits leave no room beside the other")
        if len(here) != 1 or here[0].leaving or not reachable:
            return self._no_place(site, Reason.NO_CAPACITY, "the device is not there for it")
        if not occupancy.has_room(node, request.needs):
            return self._no_place(site, Reason.NO_CAPACITY, "its node has no room for the pod")
        grant = self.candidate_index.predicted(request, site, request.max_percent)
        if isinstance(grant, Refusal):
            return self._no_place(site, grant.reason, grant.text)
        if grant.trial:
            return self._no_place(site, Reason.NEED_PROFILE, "it would be on trial there")
        placement = asked.at(Candidate(node, (site,), grant.percent, grant))
        self.take(placement)
        return placement

    def _against_rules(self, request: ResourceRequest, site: int) -> RefusalLine | None:
        """Which rule about other pods keeps a member from a device; ``None`` = none does."""
        ruled, rules = request.ruled, self.occupancy.rules
        if ruled is None or rules is None:
            return None
        node = self.occupancy.inventory.sites[site].node
        for reason, nodes in rules.barred(ruled, request.shape):
            if nodes[node]:
                return self._no_place(site, reason, rules.why(ruled, request.shape, node))
        return None

    def _lacks_quota(self, request: ResourceRequest, site: int) -> RefusalLine | None:
        """What a tenant's quota says against one more member on a device; ``None`` = nothing."""
        held = self.occupancy.quota
        if held is None or request.quota_of == NO_TENANT:
            return None
        kind = held.kinds[site]
        if held.usage.available(request.quota_of, kind) >= request.max_percent:
            return None
        return self._no_place(
            site, Reason.QUOTA_EXCEEDED, barred_by_quota(held, request, 1, kind).text
        )

    def _no_place(self, site: int, reason: Reason, text: str) -> RefusalLine:
        nearest = self.occupancy.inventory.place_name(site)
        return RefusalLine(reason=reason, devices=1, nearest=nearest, message=text)

    def has_room(self, request: ResourceRequest) -> bool:
        """Whether one more member of a class would fit."""
        return self._shortlist(request).best(set()) is not None

    def room(self, request: ResourceRequest) -> int:
        """How many members of a class would find a device, one each of those that are shared."""
        return sum(self._shortlist(request).room_by_node().values())

    def nodes_with_room(self, request: ResourceRequest) -> Collection[int]:
        """Indices of the nodes on which one more member of a class would fit."""
        return self._shortlist(request).room_by_node().keys()

    def knows(self, request: ResourceRequest) -> bool:
        """Whether all devices were judged for a class in this cycle."""
        return request.number in self._shortlists

    def take(self, placement: Placement) -> None:
        """Add a placed member to the occupancy."""
        for site in placement.candidate.sites:
            self.occupancy.put(site, self.occupant(placement, site))
        self.occupancy.charge(placement.candidate.node, placement.member.pod.shape.requests)

    def unseat(self, placements: Sequence[Placement]) -> None:
        """Remove members from the occupancy."""
        for placement in reversed(placements):
            for site in placement.candidate.sites:
                self.occupancy.lift(site, self.occupant(placement, site))
            self.occupancy.refund(placement.candidate.node, placement.member.pod.shape.requests)

    def occupant(self, placement: Placement, site: int) -> Occupant:
        """A seated member as it stands on one of its devices."""
        request, workload = placement.request, placement.workload
        model = self.occupancy.inventory.model.item(site)
        return Occupant(
            pod_uid=placement.member.pod.uid,
            owner_uid=workload.ref.uid,
            tenant=request.tenant(
                f"{workload.ref.namespace}/{workload.ref.name}",
                model,
                placement.candidate.percent,
                probation=placement.candidate.grant.trial,
            ),
            memory_mib=memory_mib(self.occupancy, request, site, placement.candidate.percent),
            domain=request.domain,
            whole=request.lonely,
            unmeasured=request.unmeasured.get(model, ""),
            lane=placement.candidate.lane,
            ephemeral_mib=request.lane.shared_mib if request.lane is not None else 0,
        )

    def _shortlist(self, request: ResourceRequest) -> CandidateList:
        known = self._shortlists.get(request.number)
        if known is None:
            known = CandidateList(self.candidate_index, request)
            self._shortlists[request.number] = known
        return known

    def _explain(self, request: ResourceRequest) -> tuple[RefusalLine, ...]:
        return refusal_lines(self.candidate_index, request, survey(self.candidate_index, request))


def memory_mib(occupancy: Occupancy, request: ResourceRequest, site: int, percent: int) -> int:
    """What the container may allocate: what it asked for, else its part less the context's cost."""
    if request.memory_mib:
        return request.memory_mib
    device = occupancy.inventory.sites[site]
    return memory_of_share_mib(device.device.memory_mib, percent) - device.overhead_mib


def slices_of(
    placer: Placer, placement: Placement, epoch: int
) -> tuple[tuple[str, DesiredSlice], ...]:
    """The slices that a seated member gets: (node, slice), in order of their index."""
    inventory = placer.occupancy.inventory
    pod, workload, request = (
        placement.member.pod,
        placement.workload,
        placement.request,
    )
    return tuple(
        (
            inventory.nodes[placement.candidate.node].name,
            replace(
                slice_facts(workload, request.known, inventory.model.item(site)),
                key=SliceKey(pod_uid=pod.uid, container=pod.shape.device_container, index=index),
                pod_namespace=pod.namespace,
                pod_name=pod.name,
                gpu=inventory.sites[site].uuid,
                percent=placement.candidate.percent,
                memory_mib=memory_mib(placer.occupancy, request, site, placement.candidate.percent),
                epoch=epoch,
                priority=priority_held(pod.priority),
                probation=placement.candidate.grant.trial,
                context_overhead_mib=inventory.sites[site].overhead_mib,
                lane=placement.candidate.lane,
            ),
        )
        for index, site in enumerate(placement.candidate.sites)
    )
