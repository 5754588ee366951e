# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Placement of all members of a gang in the occupancy, or of none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np

from ullage.api.reasons import Reason
from ullage.api.rebalancing import StragglerPolicy
from ullage.api.slices import DesiredSlice, SliceKey
from ullage.cluster.records.status import RefusalLine
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.engines.admission.limits import first_broken, memory_of_share_mib
from ullage.engines.admission.records import Refusal
from ullage.engines.quota.records import NO_TENANT
from ullage.scheduling.feasibility.device_facts import one_device
from ullage.scheduling.feasibility.held_quota import HeldQuota
from ullage.scheduling.feasibility.occupancy import Occupancy, Occupant
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.feasibility.slices import priority_held, slice_facts
from ullage.scheduling.model.device_choice import BEST
from ullage.scheduling.model.view import Member
from ullage.scheduling.placement.allowance import allowance, barred_by_quota, exceeded, models_of
from ullage.scheduling.placement.candidates import Candidate, CandidateIndex, CandidateList
from ullage.scheduling.placement.free_places import places
from ullage.scheduling.placement.messages import refusal_lines
from ullage.scheduling.prediction.effort import FEW
from ullage.scheduling.prediction.verdicts import AdmissionRule

_MOST_SHARERS: Final = 16
"""Smallest part of a device, 1/n, that members are limited to so that all of them fit."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A member and its request class; placed once it has a candidate."""

    workload: WorkloadRecord
    member: Member
    request: ResourceRequest
    place: Candidate | None = None
    """``None`` = not placed yet."""
    runner_up: Candidate | None = None
    """The second best place of the first member of a gang."""

    @property
    def candidate(self) -> Candidate:
        """Its place.

        Raises:
            LookupError: it is not placed yet.
        """
        if self.place is None:
            raise LookupError(f"pod {self.member.pod.name} is not placed")
        return self.place

    def at(self, candidate: Candidate, runner_up: Candidate | None = None) -> Placement:
        """The member in a place."""
        return Placement(self.workload, self.member, self.request, candidate, runner_up)


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Not all members fit: the number that would, and the refusal of the next one."""

    placed: int
    lines: tuple[RefusalLine, ...]
    most: int = 0
    """Members that fit at smaller shares; 0 = not tried."""


def _sharers(members: int) -> Sequence[int]:
    """Numbers of members per device to try: all for few members, else powers of two.

    The cost of a try grows with the members.
    """
    if members <= FEW:
        return range(2, _MOST_SHARERS + 1)
    return tuple(2**power for power in range(1, _MOST_SHARERS.bit_length()))


def fewest_nodes(room: Mapping[int, int], members: int) -> list[int]:
    """The fewest nodes that fit all members; ties to the smallest remaining room.

    Args:
        room: Members that each node takes.
        members: Number of members.

    Returns:
        Nodes; empty where there is no room for all.
    """
    chosen: list[int] = []
    lacking = members
    for node in sorted(room, key=lambda node: (-room[node], node)):
        if lacking <= 0:
            break
        if room[node] >= lacking:  # the last node: the smallest that suffices
            rest = (
                candidate
                for candidate in room
                if candidate not in chosen and room[candidate] >= lacking
            )
            node = min(rest, key=lambda candidate: (room[candidate], candidate))
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

        Each gets the largest share that its device admits. Where the first then leave too little
        for the last, all are limited to the largest equal part of a device (a half, a third, ...)
        at which they fit.

        Args:
            unit: Members that are placed together.
            near: Nodes that the rest of the gang is on already.
            explain: Build the refusal of the first member that does not fit.
        """
        quota = self.occupancy.quota
        if quota is None or unit[0].request.quota_of == NO_TENANT:
            return self._wherever(unit, near, explain=explain)
        return self._within_quota(quota, unit, near, explain=explain)

    def _within_quota(
        self, quota: HeldQuota, unit: Sequence[Placement], near: set[int], *, explain: bool
    ) -> tuple[Placement, ...] | NoRoom:
        """Seat all members on types that their tenant's quota has room for, or none."""
        request, models = unit[0].request, self.occupancy.inventory.models
        allowed = allowance(quota, request, len(unit), models)
        seated: tuple[Placement, ...] | NoRoom = NoRoom(0, ())
        choices = allowed.choices(models_of(request, models), request.max_percent)
        for caps in choices:
            last = caps is choices[-1]
            within = self._held_to_quota(quota, unit, caps)
            seated = self._wherever(within, near, explain=explain and last)
            if not isinstance(seated, NoRoom):
                return seated
        if choices:
            return seated
        if not models_of(request, models):  # the quota is not the reason
            return self._wherever(unit, near, explain=explain)
        lines = exceeded(quota, request, len(unit), models) if explain else ()
        return NoRoom(self._within_quota_at_once(quota, unit, near, allowed.members), lines)

    def _within_quota_at_once(
        self, quota: HeldQuota, unit: Sequence[Placement], near: set[int], most: int
    ) -> int:
        """Members of an elastic gang that fit into both its quota and the devices."""
        if not most or unit[0].workload.elasticity is None:
            return 0
        seated = self._within_quota(quota, unit[:most], near, explain=False)
        if isinstance(seated, NoRoom):
            return seated.placed
        self.unseat(seated)
        return len(seated)

    def _held_to_quota(
        self, quota: HeldQuota, unit: Sequence[Placement], caps: Mapping[int, int]
    ) -> list[Placement]:
        """The members limited to these models, and to the smallest of the caps."""
        inventory, percent = self.occupancy.inventory, min(caps.values())
        first = unit[0].request
        passed = [at for at in models_of(first, inventory.models) if at not in caps]
        if not passed and percent >= first.max_percent:
            return list(unit)
        barred = {
            at: barred_by_quota(quota, first, len(unit), inventory.model_names[at]) for at in passed
        }
        return self._narrowed(
            unit,
            ("quota", percent, frozenset(caps)),
            lambda request: replace(
                request, max_percent=percent, refused={**request.refused, **barred}
            ),
        )

    def _wherever(
        self, unit: Sequence[Placement], near: set[int], *, explain: bool
    ) -> tuple[Placement, ...] | NoRoom:
        """Seat all members, or none, regardless of their quota."""
        request = unit[0].request
        if not request.uniform:
            return self._on_any(unit, near, explain=explain)
        furthest: tuple[int, Sequence[Placement]] | None = None
        models = self._models(request, near)
        for model in models:
            only = partial(replace, accelerators=frozenset((model,)), uniform=False)
            narrowed = self._narrowed(unit, ("model", model), only)
            seated = self._on_any(narrowed, near, explain=explain and model == models[0])
            if not isinstance(seated, NoRoom):
                return seated
            if furthest is None or seated.placed > furthest[0]:
                furthest = seated.placed, narrowed
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

    def _on_any(
        self, unit: Sequence[Placement], near: set[int], *, explain: bool
    ) -> tuple[Placement, ...] | NoRoom:
        """Seat all members on any devices, or none."""
        request = unit[0].request
        packed = self._on_fewest_nodes(unit) if request.across < BEST and not near else None
        if packed is not None:
            return packed
        seated = self._seat(unit, near, explain=explain)
        if (
            not isinstance(seated, NoRoom)
            or not seated.placed
            or len(unit) == 1
            or request.exclusive
        ):
            return seated  # smaller shares do not help
        if places(self.candidate_index, unit[-1].request) < len(unit):
            return seated  # too few places at any share
        most = seated.placed
        for sharers in _sharers(len(unit)):
            cap = request.percent_limit // sharers
            if cap < request.min_percent:
                break
            if cap < request.max_percent:
                smaller = self._narrowed(unit, ("percent", cap), partial(_at_most, percent=cap))
                trial = self._seat(smaller, near, explain=False)
                if not isinstance(trial, NoRoom):
                    return trial
                most = max(most, trial.placed)
        return replace(seated, most=most)

    def _on_fewest_nodes(self, unit: Sequence[Placement]) -> tuple[Placement, ...] | None:
        """Seat all members on the fewest nodes with room, the fullest sufficient ones."""
        chosen = fewest_nodes(self._shortlist(unit[0].request).room_by_node(), len(unit))
        if not chosen or len(unit) == 1:
            return None
        narrowed = self._narrowed(
            unit,
            ("nodes", *chosen),
            lambda request: replace(request, avoid=request.avoid | self._elsewhere(chosen)),
        )
        seated = self._seat(narrowed, set(), explain=False)
        if isinstance(seated, NoRoom):
            return None
        return tuple(
            replace(placement, request=asked.request)
            for placement, asked in zip(seated, unit, strict=True)
        )

    def avoiding(
        self, unit: Sequence[Placement], sites: frozenset[int], near: set[int]
    ) -> tuple[Placement, ...] | NoRoom:
        """Seat all members on other devices than these, or none.

        Args:
            unit: The members.
            sites: Devices to exclude, beside those that a request always excludes.
            near: Nodes that the rest of the gang is on already.
        """
        narrowed = self._narrowed(
            unit, ("avoiding", sites), lambda request: replace(request, avoid=request.avoid | sites)
        )
        seated = self.placement(narrowed, near, explain=True)
        if isinstance(seated, NoRoom):
            return seated
        return tuple(
            replace(placement, request=asked.request)
            for placement, asked in zip(seated, unit, strict=True)
        )

    def _elsewhere(self, nodes: Sequence[int]) -> frozenset[int]:
        """All devices but those of these nodes."""
        inventory = self.occupancy.inventory
        return frozenset(np.flatnonzero(~np.isin(inventory.node_of, nodes)).tolist())

    def _narrowed(
        self,
        unit: Sequence[Placement],
        how: tuple[object, ...],
        narrow: Callable[[ResourceRequest], ResourceRequest],
    ) -> list[Placement]:
        """The members with narrower requests, which equal members of a cycle share.

        Args:
            unit: The members.
            how: Identifies the restriction.
            narrow: Applies it.
        """
        narrowed: list[Placement] = []
        for asked in unit:
            key = (asked.request.number, *how)
            request = self._narrower.get(key)
            if request is None:
                # numbers below 0 belong to this placer alone
                request = replace(narrow(asked.request), number=-1 - len(self._narrower))
                self._narrower[key] = request
            narrowed.append(replace(asked, request=request))
        return narrowed

    def _seat(
        self, unit: Sequence[Placement], near: set[int], *, explain: bool
    ) -> tuple[Placement, ...] | NoRoom:
        """Seat all members at the largest shares, one after the other, or none."""
        placements: list[Placement] = []
        near = set(near)
        rules = self.occupancy.rules
        if rules is not None:
            for asked in unit:  # slices that a member still has are being revoked
                rules.pods.lift(asked.member.pod.uid)
        for asked in unit:
            shortlist = self._shortlist(self._where_rules_allow(asked))
            candidate = shortlist.best(near)
            if candidate is None:
                lines = refusal_lines(self.candidate_index, asked.request) if explain else ()
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
        """The request of a member, limited to the nodes that rules about other pods allow now."""
        ruled, rules = asked.request.ruled, self.occupancy.rules
        if ruled is None or rules is None:
            return asked.request
        allowed = rules.allowed(ruled, asked.request.shape)
        nodes = allowed.nonzero()[0].tolist()
        (narrowed,) = self._narrowed(
            [asked],
            ("rules", allowed.tobytes()),
            lambda request: replace(request, avoid=request.avoid | self._elsewhere(nodes)),
        )
        return narrowed.request

    def join(self, asked: Placement, site: int) -> Placement | RefusalLine:
        """Seat a member beside the only occupant of a device.

        Args:
            asked: The member; its request has a single share.
            site: The device.

        Returns:
            Its place, or a refusal.
        """
        occupancy, request = self.occupancy, asked.request
        occupants, node = occupancy.occupants[site], occupancy.inventory.sites[site].node
        facts = replace(one_device(occupancy.facts, site), whole=0)
        broken = first_broken(facts, replace(request, lonely=False))
        reachable = bool(self.candidate_index.reachable(request)[site])
        lacks = self._lacks_quota(request, site)
        if lacks is not None:
            return lacks
        against = self._against_rules(request, site)
        if against is not None:
            return against
        if broken is not None:
            return self._no_place(site, broken.reason, "its limits leave no room beside the other")
        if len(occupants) != 1 or occupants[0].leaving or not reachable:
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
        """The refusal of a rule about other pods on a device; ``None`` = none applies."""
        ruled, rules = request.ruled, self.occupancy.rules
        if ruled is None or rules is None:
            return None
        node = self.occupancy.inventory.sites[site].node
        for reason, nodes in rules.barred(ruled, request.shape):
            if nodes[node]:
                return self._no_place(site, reason, rules.why(ruled, request.shape, node))
        return None

    def _lacks_quota(self, request: ResourceRequest, site: int) -> RefusalLine | None:
        """The refusal of a tenant's quota for one more member on a device; ``None`` = none."""
        quota = self.occupancy.quota
        if quota is None or request.quota_of == NO_TENANT:
            return None
        kind = quota.kinds[site]
        if quota.usage.available(request.quota_of, kind) >= request.max_percent:
            return None
        return self._no_place(
            site, Reason.QUOTA_EXCEEDED, barred_by_quota(quota, request, 1, kind).text
        )

    def _no_place(self, site: int, reason: Reason, text: str) -> RefusalLine:
        nearest = self.occupancy.inventory.place_name(site)
        return RefusalLine(reason=reason, devices=1, nearest=nearest, message=text)

    def has_room(self, request: ResourceRequest) -> bool:
        """True when one more member of a class fits."""
        return self._shortlist(request).best(set()) is not None

    def room(self, request: ResourceRequest) -> int:
        """Members of a class that fit, at most one per shared device."""
        return sum(self._shortlist(request).room_by_node().values())

    def nodes_with_room(self, request: ResourceRequest) -> Collection[int]:
        """Indices of the nodes on which one more member of a class would fit."""
        return self._shortlist(request).room_by_node().keys()

    def knows(self, request: ResourceRequest) -> bool:
        """True when all devices were evaluated for a class in this cycle."""
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
        """The occupant that a seated member is on one of its devices."""
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
        shortlist = self._shortlists.get(request.number)
        if shortlist is None:
            shortlist = CandidateList(self.candidate_index, request)
            self._shortlists[request.number] = shortlist
        return shortlist


def _at_most(request: ResourceRequest, percent: int) -> ResourceRequest:
    return replace(request, max_percent=min(percent, request.max_percent))


def memory_mib(occupancy: Occupancy, request: ResourceRequest, site: int, percent: int) -> int:
    """Memory that the container may allocate: as requested, else its part minus the context's."""
    if request.memory_mib:
        return request.memory_mib
    device = occupancy.inventory.sites[site]
    return memory_of_share_mib(device.device.memory_mib, percent) - device.overhead_mib


def slices_of(
    placer: Placer, placement: Placement, epoch: int, *, inject: bool
) -> tuple[tuple[str, DesiredSlice], ...]:
    """The slices of a seated member: (node, slice), in order of their index.

    Args:
        placer: Who placed it.
        placement: Where.
        epoch: Of the leader that decides.
        inject: Its container gets the step hook.
    """
    inventory = placer.occupancy.inventory
    pod, workload, request = placement.member.pod, placement.workload, placement.request
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
                inject=inject,
                rebalance=workload.kind is WorkloadKind.POD
                and workload.stragglers is StragglerPolicy.REBALANCE,
            ),
        )
        for index, site in enumerate(placement.candidate.sites)
    )
