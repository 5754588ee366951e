# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Occupants of devices while a plan is made.

Mutable scratch of one cycle: placements are tried on it and undone. It counts every slice that is
in a spec or in a status, because capacity is free only when it is in neither.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from ullage.api.devices import GPUMode
from ullage.api.labels import SLOT_RESOURCE
from ullage.api.slices import DesiredSlice, ObservedSlice, SlicePhase
from ullage.cluster.records.node import NodeRecord
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.pod_shape import Resources
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.limits import MIXED, NO_DOMAIN, WHOLE_PERCENT, with_contexts_mib
from ullage.engines.admission.records import Tenant
from ullage.engines.lanes.assignment import (
    AssignedLane,
    LaneAssignment,
    assigned_lanes,
    assignment_of,
    counted_mib,
    counted_percent,
)
from ullage.scheduling.feasibility.held_quota import HeldQuota, held_quota
from ullage.scheduling.feasibility.pod_rules import RuleBoard, RuledPods, board_of
from ullage.scheduling.inventory.inventory import Flags, Ints, Inventory
from ullage.scheduling.inventory.node_fit import amounts, counted
from ullage.scheduling.inventory.resource_usage import where_charged
from ullage.scheduling.inventory.slices_by_pod import paired, runs_here, says_no
from ullage.scheduling.inventory.trust_domains import effective_domain
from ullage.scheduling.model.changes import Renewed
from ullage.scheduling.model.slice_ledger import Ledger
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.prediction.effort import Effort
from ullage.scheduling.prediction.workload_classes import Classes, Known

EMPTY: Final = 0
"""Situation of a device without occupants."""

_COUNTED: Final = (
    "sharers",
    "whole",
    "domain",
    "percent_used",
    "memory_used_mib",
    "loose",
    "unmeasured",
    "going",
    "_kind",
)
"""Columns derived from the occupants of a device."""
MOST_DOMAINS: Final = 4096
"""Maximum of numbered trust domains; beyond it, the domains in use are renumbered."""
_TURN_S: Final = 30.0
"""Seconds for which the same places are tried where not all can be."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A slice on a device; ``leaving`` when it is only in a status."""

    pod_uid: str
    owner_uid: str
    tenant: Tenant
    memory_mib: int
    domain: int
    whole: bool
    """True when no other tenant may join it."""
    leaving: bool = False
    loose: bool = False
    """True when it runs without verified limits."""
    unmeasured: str = ""
    """Text of the figures that it is alone on the device to measure; empty = none."""
    lane: int = 0
    """Lane of its turns; 0 = none."""
    ephemeral_mib: int = 0
    """The part of its memory that it has only during its turn."""

    @property
    def assignment(self) -> LaneAssignment:
        """Its lane, memory and share."""
        return LaneAssignment(
            lane=self.lane,
            persistent_mib=self.memory_mib - self.ephemeral_mib,
            ephemeral_mib=self.ephemeral_mib,
            percent=self.tenant.percent,
        )

    @property
    def likeness(self) -> tuple[object, ...]:
        """All inputs of a decision about the tenant: everything but its name."""
        tenant = self.tenant
        return (
            tenant.percent,
            tenant.utilisation,
            tenant.max_slowdown,
            tenant.probation,
            tenant.latency,
            id(tenant.profile),  # equal profiles are the same object (Classes)
            *((self.lane,) if self.lane else ()),
        )


_Seated = tuple[DesiredSlice | ObservedSlice, PodRecord, WorkloadRecord, Known, int, int, Occupant]
"""The inputs of an occupant, its model and domain, and the occupant."""


@dataclass(slots=True)
class NodeOccupants:
    """Occupants of the devices of one node, in order."""

    occupants: list[tuple[int, Occupant]] = field(default_factory=list)
    """(device, occupant)."""
    seated: dict[int, _Seated] = field(default_factory=dict)
    """Inputs of the occupants, by identity of their slice."""
    settled: bool = True
    """True when every slice is in a spec, and its pod and workload exist and stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Last:
    """The occupants of a node in the last cycle."""

    seated: Mapping[int, _Seated]
    """Inputs of the occupants, by identity of their slice."""
    rules_stand: bool
    """True when no change may affect all workloads."""


class Domains:
    """Numbers for trust domains, assigned at first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The number of a domain."""
        return self._numbers.setdefault(name, len(self._numbers))

    def __len__(self) -> int:
        return len(self._numbers)

    def names(self, numbers: Iterable[int]) -> list[str]:
        """The domains of numbers; a number below 0 is none."""
        known = tuple(self._numbers)
        return [known[number] if number >= 0 else str(number) for number in numbers]


_Charge = tuple[str, Resources, bool]
"""Name of a node, the request of a pod there, and whether the pod is leaving."""


@dataclass(slots=True)
class Charges:
    """Requests of our own pods by node: by binding, or by the node of their slice."""

    used: dict[str, dict[str, int]] = field(default_factory=dict)
    """By name of the node, then of the resource."""
    _members: Mapping[str, Sequence[Member]] = field(default_factory=dict)
    _charges: dict[str, list[_Charge]] = field(default_factory=dict)
    """By uid of the workload."""
    _leaving: set[str] = field(default_factory=set)
    """Workloads with a pod that is leaving."""
    _free: dict[str, tuple[NodeRecord, dict[str, int]]] = field(default_factory=dict)
    """Free resources by name of the node, while neither it nor our pods there change."""

    def free_on(self, nodes: Iterable[NodeRecord]) -> list[dict[str, int]]:
        """Free resources of nodes without our own pods, by name of the resource; new objects."""
        last, self._free = self._free, {}
        for node in nodes:
            entry = last.get(node.name)
            if entry is None or entry[0] is not node:
                free = dict(amounts(node.allocatable))
                free["pods"] = node.allocatable.pods
                for name, amount in self.used.get(node.name, {}).items():
                    free[name] = free.get(name, 0) - amount
                entry = node, free
            self._free[node.name] = entry
        return [free.copy() for _, free in self._free.values()]

    def update(
        self, members: Mapping[str, Sequence[Member]], renewed: Renewed[str] | None = None
    ) -> None:
        """Update the members of all workloads; unchanged ones are not read again."""
        for uid in (renewed or Renewed()).since(self._members, members):
            for node, wanted, _ in self._charges.pop(uid, ()):
                self._count(node, wanted, -1)
            charges = [
                (node, member.pod.shape.requests, member.pod.deleting)
                for member in members.get(uid, ())
                if member.live and (node := where_charged(member))
            ]
            for node, wanted, _ in charges:
                self._count(node, wanted, 1)
            if charges:
                self._charges[uid] = charges
            self._leaving.discard(uid)
            if any(leaves for _, _, leaves in charges):
                self._leaving.add(uid)
        self._members = members

    def departing(self) -> Iterator[tuple[str, Resources]]:
        """Node and request of each pod that is leaving."""
        for uid in sorted(self._leaving):
            yield from ((node, wanted) for node, wanted, leaves in self._charges[uid] if leaves)

    def _count(self, node: str, wanted: Resources, times: int) -> None:
        self._free.pop(node, None)
        used = self.used.setdefault(node, {})
        for name, amount in amounts(wanted):
            used[name] = used.get(name, 0) + times * amount
        if not used["pods"]:  # every pod requests at least one of these
            del self.used[node]


@dataclass(slots=True)
class OccupantCache:
    """Occupants of the last cycle, reused in the next where nothing changed."""

    snapshot: Snapshot | None = None
    """The snapshot of that cycle."""
    inventory: Inventory | None = None
    domains: Domains = field(default_factory=Domains)
    nodes: dict[str, NodeOccupants] = field(default_factory=dict)
    occupants: list[tuple[Occupant, ...]] = field(default_factory=list)
    """By device."""
    columns: dict[str, Ints] = field(default_factory=dict)
    lanes: dict[int, tuple[AssignedLane, ...]] = field(default_factory=dict)
    charges: Charges = field(default_factory=Charges)
    ruled: RuledPods = field(default_factory=RuledPods)

    def stands(self, inventory: Inventory) -> bool:
        """True when devices, models and trust domains keep their numbers."""
        before = self.inventory
        return (
            before is not None
            and len(self.domains) <= MOST_DOMAINS
            and before.site_index == inventory.site_index
            and before.models == inventory.models
        )


class Occupancy:
    """Occupants of the inventory's devices; columns have one entry per device.

    ``log`` lists the devices that changed, in order, so that callers can update values derived from
    the occupancy.
    """

    def __init__(self, inventory: Inventory, domains: Domains) -> None:
        count = len(inventory.sites)
        self.inventory = inventory
        self.domains = domains
        self.occupants: list[tuple[Occupant, ...]] = [()] * count
        """Occupants by device, in order of arrival."""
        self.sharers: Ints = np.zeros(count, dtype=np.int64)
        self.whole: Ints = np.zeros(count, dtype=np.int64)
        self.domain: Ints = np.full(count, NO_DOMAIN, dtype=np.int64)
        self.percent_used: Ints = np.zeros(count, dtype=np.int64)
        self.memory_used_mib: Ints = np.zeros(count, dtype=np.int64)
        self.loose: Ints = np.zeros(count, dtype=np.int64)
        self.unmeasured: Ints = np.zeros(count, dtype=np.int64)
        self.going: Ints = np.zeros(count, dtype=np.int64)
        """Number of slices that are leaving."""
        self.facts: Final = replace(
            inventory.facts,
            sharers=self.sharers,
            contexts_used=self.sharers,
            whole=self.whole,
            domain=self.domain,
            percent_used=self.percent_used,
            memory_used=self.memory_used_mib,
            loose=self.loose,
            unmeasured=self.unmeasured,
        )
        """Figures of the devices with their occupants, each of which has one context."""
        self.lanes: dict[int, tuple[AssignedLane, ...]] = {}
        """By device, where it has any."""
        self.blocked: Flags = np.zeros(count, dtype=np.bool_)
        self.held: Flags = np.zeros(count, dtype=np.bool_)
        """Blocked devices that are held for overdue work; the others are granted soon."""
        self.blocker: dict[int, str] = {}
        """By device: the name of the workload that it is reserved for."""
        self.free: list[dict[str, int]] = []
        """By node: free amounts by name of the resource."""
        self.slot_holders: dict[int, str] = {}
        """By node: text about pods of other owners that hold device slots, with their number."""
        self.rules: RuleBoard | None = None
        """Rules of pods about other pods; ``None`` = no pod has any."""
        self.quota: HeldQuota | None = None
        """Usage of tenants' quotas; ``None`` = there are none."""
        self.log: list[int] = []
        self.effort = Effort()
        self.turn = 0
        """Rotates the places that are tried where not all can be; grows with time."""
        self._kind: Ints = np.zeros(count, dtype=np.int64)
        """By device: the number of its situation; -1 = not numbered since it changed."""
        self._kinds: dict[tuple[object, ...], int] = {(): EMPTY}
        self._alike: list[tuple[Occupant, ...]] = []
        """Occupants of every situation, kept alive because identities are part of its key."""
        self._columns: dict[str, Ints] = {}
        self._leaving: bool | None = None
        self._departing: list[tuple[int, Resources]] = []

    def put(self, site: int, occupant: Occupant) -> None:
        """Add a slice to a device."""
        self.occupants[site] = (*self.occupants[site], occupant)
        if self.rules is not None:
            self.rules.put(occupant.pod_uid, self.inventory.sites[site].node)
        if self.quota is not None:
            self.quota.count(site, occupant.owner_uid, occupant.tenant.percent)
        self._recount(site)
        self.log.append(site)

    def lift(self, site: int, occupant: Occupant) -> None:
        """Remove a slice from a device."""
        occupants = list(self.occupants[site])
        occupants.remove(occupant)
        self.occupants[site] = tuple(occupants)
        if self.rules is not None:
            self.rules.pods.lift(occupant.pod_uid)
        if self.quota is not None:
            self.quota.count(site, occupant.owner_uid, -occupant.tenant.percent)
        self._recount(site)
        self.log.append(site)

    def charge(self, node: int, wanted: Resources, times: int = 1) -> None:
        """Subtract the requests of one or more equal pods from the node's free resources."""
        self._change(node, wanted, -times)

    def refund(self, node: int, wanted: Resources) -> None:
        """Refund the requests of a pod; all devices of the node are logged as changed."""
        self._change(node, wanted, 1)
        self.log.extend(self.inventory.sites_on[node])

    def has_room(self, node: int, wanted: Sequence[tuple[str, int]]) -> bool:
        """True when the node still has these amounts."""
        free = self.free[node]
        return all(amount <= free.get(name, 0) for name, amount in wanted)

    def block(self, sites: Iterable[int], name: str, *, held: bool = False) -> None:
        """Reserve devices for a workload: no later one in this cycle gets them."""
        for site in sites:
            self.held[site] |= held
            if not self.blocked[site]:
                self.blocked[site] = True
                self.blocker[site] = name
                self.log.append(site)

    def leaving(self) -> bool:
        """True when any slice or pod is leaving; none starts to during planning."""
        if self._leaving is None:
            self._leaving = bool(self._departing) or bool(self.going.any())
        return self._leaving

    def later(self) -> Occupancy:
        """A copy of the occupancy without everything that is leaving."""
        occupancy = Occupancy(self.inventory, self.domains)
        for name in _COUNTED:
            getattr(occupancy, name)[:] = getattr(self, name)
        occupancy._kinds, occupancy._alike = self._kinds, self._alike
        occupancy.occupants, occupancy.lanes = list(self.occupants), dict(self.lanes)
        quota = occupancy.quota = self.quota.copy() if self.quota is not None else None
        rules = occupancy.rules = self.rules.copy() if self.rules is not None else None
        for site in np.flatnonzero(self.going).tolist():
            occupants = occupancy.occupants[site]
            occupancy.occupants[site] = tuple(
                [occupant for occupant in occupants if not occupant.leaving]
            )
            for occupant in occupants:
                if occupant.leaving and quota is not None:
                    quota.count(site, occupant.owner_uid, -occupant.tenant.percent)
                if occupant.leaving and rules is not None:
                    rules.pods.lift(occupant.pod_uid)
            occupancy._recount(site)
        occupancy.blocked = self.blocked.copy()
        occupancy.held = self.held.copy()
        occupancy.blocker = dict(self.blocker)
        occupancy.free = [dict(free) for free in self.free]
        occupancy.slot_holders = self.slot_holders
        for node, wanted in self._departing:
            occupancy.refund(node, wanted)
        occupancy.log.clear()
        occupancy.effort, occupancy.turn = self.effort, self.turn
        return occupancy

    def kind_of(self, site: int) -> int:
        """The number of a device's situation: devices of equal numbers are evaluated once."""
        number = self._kind.item(site)
        if number < 0:
            occupants = self.occupants[site]
            likeness = tuple([occupant.likeness for occupant in occupants])
            number = self._kinds.get(likeness, number)
            if number < 0:
                number = self._kinds[likeness] = len(self._kinds)
                self._alike.append(occupants)
            self._kind[site] = number
        return number

    def kinds_of(self, sites: Ints) -> Ints:
        """The situations of several devices."""
        for site in sites[self._kind[sites] < 0].tolist():
            self.kind_of(site)
        return self._kind[sites]

    def departing(self, node: int, wanted: Resources) -> None:
        """Record that a pod with counted requests is leaving."""
        self._departing.append((node, wanted))

    def free_column(self, name: str) -> Ints:
        """Free amount of a resource, by node."""
        column = self._columns.get(name)
        if column is None:
            column = np.array([counted(free.get(name, 0)) for free in self.free], dtype=np.int64)
            self._columns[name] = column
        return column

    def _change(self, node: int, wanted: Resources, times: int) -> None:
        free = self.free[node]
        for name, amount in amounts(wanted):
            free[name] = free.get(name, 0) + times * amount
            column = self._columns.get(name)
            if column is not None:
                column[node] = counted(free[name])

    def _recount(self, site: int) -> None:
        occupants = self.occupants[site]
        overhead = self.inventory.sites[site].overhead_mib
        percent = memory = loose = whole = unmeasured = going = in_lanes = 0
        domain = NO_DOMAIN
        for occupant in occupants:
            percent += occupant.tenant.percent
            memory += occupant.memory_mib
            loose += occupant.loose
            whole += occupant.whole
            unmeasured += bool(occupant.unmeasured)
            going += occupant.leaving
            in_lanes += occupant.lane
            domain = occupant.domain if domain in (NO_DOMAIN, occupant.domain) else MIXED
        if in_lanes:  # a lane counts once for all its residents
            assignments = [occupant.assignment for occupant in occupants]
            self.lanes[site] = assigned_lanes(assignments)
            percent, memory = counted_percent(assignments), sum(counted_mib(assignments))
        else:
            self.lanes.pop(site, None)
        self.sharers[site] = len(occupants)
        self.whole[site] = whole
        self.domain[site] = domain
        self.percent_used[site] = percent
        self.memory_used_mib[site] = with_contexts_mib(memory, len(occupants), overhead)
        self.loose[site] = loose
        self._kind[site] = -1 if occupants else EMPTY
        self.unmeasured[site] = unmeasured
        self.going[site] = going


def occupancy_of(
    view: View,
    inventory: Inventory,
    ledger: Ledger,
    classes: Classes | None = None,
    cache: OccupantCache | None = None,
    disturbed: Collection[str] | None = None,
) -> Occupancy:
    """The occupancy of a snapshot.

    Args:
        view: The cycle's snapshot.
        inventory: Its nodes and devices.
        ledger: Slices that this cycle grants and revokes.
        classes: Facts about workload classes; read from the snapshot where it is ``None``.
        cache: Occupants of the last cycle.
        disturbed: Nodes whose occupants may have changed since then; ``None`` = all nodes.
    """
    classes, cache = classes or Classes(view.snapshot, inventory), cache or OccupantCache()
    stands = disturbed is not None and cache.stands(inventory)
    if not stands:
        cache.domains = Domains()
    occupancy = Occupancy(inventory, cache.domains)
    occupancy.turn = int(view.now / _TURN_S)
    cache.charges.update(view.members, view.renewed)
    occupancy.free = cache.charges.free_on(inventory.nodes)
    for name, use in view.snapshot.foreign_use.items():
        index = inventory.node_index.get(name)
        if index is not None:
            free = occupancy.free[index]
            for resource, amount in (*amounts(use)[:2], ("pods", use.pods), *use.extended):
                free[resource] = free.get(resource, 0) - amount
            holders = view.snapshot.slot_holders.get(name)
            if holders:
                slots = dict(use.extended).get(SLOT_RESOURCE, 0)
                occupancy.slot_holders[index] = f"{slots} held by {', '.join(holders)}"
    _seat_slices(view, occupancy, ledger, classes, cache, disturbed if stands else None)
    slices = (
        (site, occupant.owner_uid, occupant.tenant.percent)
        for site, occupants in enumerate(occupancy.occupants)
        for occupant in occupants
    )
    occupancy.quota = held_quota(view.snapshot, inventory, slices)
    _note_departing(view, occupancy, cache.charges)
    ruled = cache.ruled.update(view.snapshot.pods, view.changes)
    occupancy.rules = board_of(view, inventory, ruled, occupancy.effort)
    occupancy.log.clear()
    return occupancy


def _seat_slices(
    view: View,
    occupancy: Occupancy,
    ledger: Ledger,
    classes: Classes,
    cache: OccupantCache,
    disturbed: Collection[str] | None,
) -> None:
    inventory, before = occupancy.inventory, cache.nodes
    if disturbed is not None:
        for name in _COUNTED:
            getattr(occupancy, name)[:] = cache.columns[name]
        occupancy.occupants, occupancy.lanes = list(cache.occupants), dict(cache.lanes)
    again = {*(disturbed or ()), *ledger.changed_nodes()}
    after: dict[str, NodeOccupants] = {}
    for name, index in inventory.node_index.items():
        occupants = before.get(name)
        if (
            disturbed is not None
            and occupants is not None
            and occupants.settled
            and name not in again
        ):
            after[name] = occupants
            continue
        last = _Last(
            seated=occupants.seated if occupants is not None else {},
            rules_stand=disturbed is not None,
        )
        after[name] = occupants = _seated_on(view, occupancy, ledger, classes, name, last)
        by_site: dict[int, list[Occupant]] = {site: [] for site in inventory.sites_on[index]}
        for site, occupant in occupants.occupants:
            by_site[site].append(occupant)
        for site, together in by_site.items():
            now = tuple(together)
            if now != occupancy.occupants[site]:
                occupancy.occupants[site] = now
                occupancy._recount(site)
    cache.snapshot, cache.inventory, cache.nodes = view.snapshot, inventory, after
    cache.occupants, cache.lanes = list(occupancy.occupants), dict(occupancy.lanes)
    cache.columns = {name: getattr(occupancy, name).copy() for name in _COUNTED}


def _seated_on(
    view: View,
    occupancy: Occupancy,
    ledger: Ledger,
    classes: Classes,
    name: str,
    last: _Last,
) -> NodeOccupants:
    """Occupants of the devices of a node."""
    seats = NodeOccupants()
    for wanted, seen in paired(view.snapshot.gpu_nodes[name]):
        slice_ = wanted or seen
        index = occupancy.inventory.site_index
        site = index.get((name, slice_.gpu)) if slice_ is not None else None
        if slice_ is None or site is None:
            continue
        if wanted is None:
            if seen is None or not seen.phase.holds_capacity:
                continue
            leaving = not (seen.phase.started and runs_here(view, seen, name))
        elif seen is not None and says_no(wanted, seen):
            continue
        else:
            leaving = ledger.dropped(name, wanted.key)
        occupant = _occupant(view, occupancy, site, slice_, classes, last, seats)
        if leaving and not occupant.leaving:
            occupant = replace(occupant, leaving=True)
        if seen is not None and seen.phase is SlicePhase.FAILED:
            occupant = replace(occupant, loose=True)
        seats.settled &= wanted is not None and not occupant.leaving
        seats.occupants.append((site, occupant))
    return seats


def _occupant(
    view: View,
    occupancy: Occupancy,
    site: int,
    slice_: DesiredSlice | ObservedSlice,
    classes: Classes,
    last: _Last,
    after: NodeOccupants,
) -> Occupant:
    """The occupant of a slice; that of the last cycle where nothing changed."""
    snapshot = view.snapshot
    pod = snapshot.pods.get(slice_.key.pod_uid)
    owner = snapshot.workloads.get(pod.owner.uid) if pod is not None else None
    if pod is None or owner is None:
        after.settled = False
        return Occupant(
            pod_uid=slice_.key.pod_uid,
            owner_uid="",
            tenant=Tenant(name=pod.name if pod else "a pod that is gone", percent=slice_.percent),
            memory_mib=slice_.memory_mib,
            domain=MIXED,
            whole=slice_.percent >= WHOLE_PERCENT,
            leaving=pod is None or pod.stage.finished or pod.deleting,
            lane=slice_.lane,
            ephemeral_mib=assignment_of(slice_).ephemeral_mib,
        )
    before = last.seated.get(id(slice_))
    same = before is not None and before[0] is slice_ and before[1] is pod and before[2] is owner
    # unless its load is divided among replicas, an occupant follows from its record and the rules
    divided = owner.load is not None or owner.scaling is not None
    if same and before is not None and last.rules_stand and not divided:
        after.seated[id(slice_)] = before
        return before[6]
    facts, model = classes.seated(owner), occupancy.inventory.model.item(site)
    domain = occupancy.domains.number(effective_domain(view, owner))
    if same and before is not None and before[3] is facts and before[4:6] == (model, domain):
        after.seated[id(slice_)] = before
        return before[6]
    trial = isinstance(slice_, DesiredSlice) and slice_.probation
    whole = owner.gpu.mode is GPUMode.EXCLUSIVE or not owner.sharing.allow
    occupant = Occupant(
        pod_uid=pod.uid,
        owner_uid=owner.ref.uid,
        tenant=facts.tenant(
            f"{owner.ref.namespace}/{owner.ref.name}", model, slice_.percent, probation=trial
        ),
        memory_mib=slice_.memory_mib,
        domain=domain,
        whole=whole,
        unmeasured="" if whole else facts.unmeasured.get(model, ""),
        leaving=pod.stage.finished or pod.deleting,
        lane=slice_.lane,
        ephemeral_mib=assignment_of(slice_).ephemeral_mib,
    )
    after.seated[id(slice_)] = (slice_, pod, owner, facts, model, domain, occupant)
    return occupant


def _note_departing(view: View, occupancy: Occupancy, charges: Charges) -> None:
    """Record the requests of leaving pods, and charge those of coordinators."""
    index = occupancy.inventory.node_index
    for node, wanted in charges.departing():
        if node in index:
            occupancy.departing(index[node], wanted)
    for coordinator in view.coordinators.values():
        if coordinator.node in index and not coordinator.stage.finished:
            occupancy.charge(index[coordinator.node], coordinator.shape.requests)
