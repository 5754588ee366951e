# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Who is on which device while a plan is made.

Mutable scratch of one cycle: placements are tried on it and taken back. It counts every slice that
stands in a spec or in a status, because capacity is free only when it stands in neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ullage.api.contract import DesiredSlice, GPUMode, ObservedSlice, SlicePhase
from ullage.decide.classes import Classes
from ullage.decide.fit import amounts
from ullage.decide.ground import Flags, Ground, Ints
from ullage.decide.ledger import Ledger
from ullage.decide.view import View
from ullage.engines.admission.limits import WHOLE_PERCENT, with_contexts_mib
from ullage.engines.admission.records import Tenant
from ullage.state.records import GPUNodeRecord, Resources

NOBODY: Final = -1
MIXED: Final = -2
"""Trust domain of a device whose tenants differ or are not known: nobody joins them."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A slice on a device; ``leaving`` when it is on its way out and only has to end."""

    pod_uid: str
    owner_uid: str
    tenant: Tenant
    memory_mib: int
    domain: int
    whole: bool
    """Nobody joins it."""
    leaving: bool = False
    loose: bool = False
    """It runs without verified limits."""
    unmeasured: str = ""
    """What of it is being measured alone, in words: nobody joins it until that is known."""


class Domains:
    """Numbers for trust domains, handed out as they are met."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The number of a domain."""
        return self._numbers.setdefault(name, len(self._numbers))

    def name(self, number: int) -> str:
        """The domain of a number."""
        return next((one for one, at in self._numbers.items() if at == number), "unknown")


class Board:
    """Occupancy of the ground; columns have one entry per device.

    ``log`` names the devices that changed, in order, so that whoever keeps something derived
    from the board can catch up.
    """

    def __init__(self, ground: Ground, domains: Domains) -> None:
        count = len(ground.sites)
        self.ground = ground
        self.domains = domains
        self.occupants: list[list[Occupant]] = [[] for _ in range(count)]
        self.sharers: Ints = np.zeros(count, dtype=np.int64)
        self.whole: Ints = np.zeros(count, dtype=np.int64)
        self.domain: Ints = np.full(count, NOBODY, dtype=np.int64)
        self.percent_used: Ints = np.zeros(count, dtype=np.int64)
        self.memory_used_mib: Ints = np.zeros(count, dtype=np.int64)
        self.loose: Ints = np.zeros(count, dtype=np.int64)
        self.unmeasured: Ints = np.zeros(count, dtype=np.int64)
        self.blocked: Flags = np.zeros(count, dtype=np.bool_)
        self.held: Flags = np.zeros(count, dtype=np.bool_)
        """Of the blocked, those held by whoever waited too long; the rest is taken soon anyway."""
        self.blocker: dict[int, str] = {}
        """By device: for whom it is blocked."""
        self.free: list[dict[str, int]] = []
        self.log: list[int] = []
        self._columns: dict[str, Ints] = {}
        self._leaving: bool | None = None
        self._departing: list[tuple[int, Resources]] = []

    def put(self, site: int, occupant: Occupant) -> None:
        """Add a slice to a device."""
        self.occupants[site].append(occupant)
        self._recount(site)
        self.log.append(site)

    def lift(self, site: int, occupant: Occupant) -> None:
        """Take a slice off a device."""
        self.occupants[site].remove(occupant)
        self._recount(site)
        self.log.append(site)

    def charge(self, node: int, wanted: Resources, times: int = 1) -> None:
        """Count what a pod, or several alike, request against their node."""
        self._change(node, wanted, -times)

    def refund(self, node: int, wanted: Resources) -> None:
        """Give back what a pod requested; every device of the node may now fit better."""
        self._change(node, wanted, 1)
        self.log.extend(self.ground.sites_on[node])

    def has_room(self, node: int, wanted: Sequence[tuple[str, int]]) -> bool:
        """Whether the node still has these amounts."""
        free = self.free[node]
        return all(amount <= free.get(name, 0) for name, amount in wanted)

    def block(self, sites: Iterable[int], name: str, *, held: bool = False) -> None:
        """Keep devices for somebody: nobody later in this cycle gets them."""
        for site in sites:
            self.held[site] |= held
            if not self.blocked[site]:
                self.blocked[site] = True
                self.blocker[site] = name
                self.log.append(site)

    def leaving(self) -> bool:
        """Whether anything is on its way out; nothing starts leaving while a plan is made."""
        if self._leaving is None:
            self._leaving = bool(self._departing) or any(
                one.leaving for here in self.occupants for one in here
            )
        return self._leaving

    def later(self) -> Board:
        """The board as it will be when everything that is leaving has left."""
        board = Board(self.ground, self.domains)
        board.occupants = [[one for one in here if not one.leaving] for here in self.occupants]
        for site, here in enumerate(self.occupants):
            if here:
                board._recount(site)
        board.blocked = self.blocked.copy()
        board.held = self.held.copy()
        board.blocker = dict(self.blocker)
        board.free = [dict(one) for one in self.free]
        for node, wanted in self._departing:
            board.refund(node, wanted)
        board.log.clear()
        return board

    def departing(self, node: int, wanted: Resources) -> None:
        """Note that a pod which is charged will leave."""
        self._departing.append((node, wanted))

    def free_column(self, name: str) -> Ints:
        """What every node has left of an amount, by node."""
        column = self._columns.get(name)
        if column is None:
            column = np.array([free.get(name, 0) for free in self.free], dtype=np.int64)
            self._columns[name] = column
        return column

    def _change(self, node: int, wanted: Resources, times: int) -> None:
        free = self.free[node]
        for name, amount in amounts(wanted):
            free[name] = free.get(name, 0) + times * amount
            column = self._columns.get(name)
            if column is not None:
                column[node] = free[name]

    def _recount(self, site: int) -> None:
        here = self.occupants[site]
        overhead = self.ground.sites[site].overhead_mib
        percent = memory = loose = whole = unmeasured = 0
        domain = NOBODY
        for one in here:
            percent += one.tenant.percent
            memory += one.memory_mib
            loose += one.loose
            whole += one.whole
            unmeasured += bool(one.unmeasured)
            domain = one.domain if domain in (NOBODY, one.domain) else MIXED
        self.sharers[site] = len(here)
        self.whole[site] = whole
        self.domain[site] = domain
        self.percent_used[site] = percent
        self.memory_used_mib[site] = with_contexts_mib(memory, len(here), overhead)
        self.loose[site] = loose
        self.unmeasured[site] = unmeasured


def set_up(view: View, ground: Ground, ledger: Ledger, classes: Classes | None = None) -> Board:
    """The board of this snapshot."""
    classes = classes or Classes(view.snapshot, ground)
    board = Board(ground, Domains())
    for node in ground.nodes:
        free = dict(amounts(node.allocatable))
        free["pods"] = node.allocatable.pods
        board.free.append(free)
    for name, use in view.snapshot.foreign_use.items():
        index = ground.node_index.get(name)
        if index is not None:
            free = board.free[index]
            for what, amount in (*amounts(use)[:2], ("pods", use.pods), *use.extended):
                free[what] = free.get(what, 0) - amount
    _seat_slices(view, board, ledger, classes)
    _charge_pods(view, board)
    board.log.clear()
    return board


def _seat_slices(view: View, board: Board, ledger: Ledger, classes: Classes) -> None:
    ground, snapshot = board.ground, view.snapshot
    touched: set[int] = set()
    for name in ground.node_index:
        record = snapshot.gpu_nodes[name]
        for wanted, seen in _paired(record):
            slice_ = wanted or seen
            site = ground.site_index.get((name, slice_.gpu)) if slice_ is not None else None
            if slice_ is None or site is None:
                continue
            if wanted is None:
                if seen is None or not seen.phase.holds_capacity:
                    continue
                leaving = not (seen.phase.started and _runs_here(view, seen, name))
            elif seen is not None and _says_no(wanted, seen):
                continue
            else:
                leaving = ledger.dropped(name, wanted.key)
            occupant = _occupant(view, board, site, slice_, classes)
            if leaving and not occupant.leaving:
                occupant = replace(occupant, leaving=True)
            if seen is not None and seen.phase is SlicePhase.FAILED:
                occupant = replace(occupant, loose=True)
            board.occupants[site].append(occupant)
            touched.add(site)
    for site in touched:
        board._recount(site)


def _paired(record: GPUNodeRecord) -> Iterator[tuple[DesiredSlice | None, ObservedSlice | None]]:
    """Every slice that counts on a node once: as wanted, as reported, or both."""
    desired, observed = record.desired, record.observed
    if len(desired) == len(observed) and all(
        one.key == other.key and one.gpu == other.gpu
        for one, other in zip(desired, observed, strict=True)
    ):
        yield from zip(desired, observed, strict=True)
        return
    reports = {(one.key, one.gpu): one for one in observed}
    for one in desired:
        yield one, reports.pop((one.key, one.gpu), None)
    for seen in reports.values():
        yield None, seen


def _says_no(wanted: DesiredSlice, seen: ObservedSlice) -> bool:
    return seen.phase is SlicePhase.REFUSED and seen.epoch == wanted.epoch


def _runs_here(view: View, seen: ObservedSlice, node: str) -> bool:
    pod = view.snapshot.pods.get(seen.key.pod_uid)
    return pod is not None and not pod.stage.finished and pod.node == node


def _occupant(
    view: View, board: Board, site: int, slice_: DesiredSlice | ObservedSlice, classes: Classes
) -> Occupant:
    snapshot = view.snapshot
    pod = snapshot.pods.get(slice_.key.pod_uid)
    owner = snapshot.workloads.get(pod.owner.uid) if pod is not None else None
    if pod is None or owner is None:
        return Occupant(
            pod_uid=slice_.key.pod_uid,
            owner_uid="",
            tenant=Tenant(name=pod.name if pod else "a pod that is gone", percent=slice_.percent),
            memory_mib=slice_.memory_mib,
            domain=MIXED,
            whole=slice_.percent >= WHOLE_PERCENT,
            leaving=pod is None or pod.stage.finished or pod.deleting,
        )
    trial = isinstance(slice_, DesiredSlice) and slice_.probation
    known, model = classes.seated(owner), board.ground.model.item(site)
    whole = owner.gpu.mode is GPUMode.EXCLUSIVE or not owner.sharing.allow
    return Occupant(
        pod_uid=pod.uid,
        owner_uid=owner.ref.uid,
        tenant=known.tenant(
            f"{owner.ref.namespace}/{owner.ref.name}", model, slice_.percent, probation=trial
        ),
        memory_mib=slice_.memory_mib,
        domain=board.domains.number(owner.trust_domain),
        whole=whole,
        unmeasured="" if whole else known.unmeasured.get(model, ""),
        leaving=pod.stage.finished or pod.deleting,
    )


def _charge_pods(view: View, board: Board) -> None:
    """Our own pods count where they are bound, or where their slice pins them to."""
    index = board.ground.node_index
    alike: dict[tuple[int, int], int] = {}
    requests: dict[int, Resources] = {}
    for group in view.members.values():
        for member in group:
            pod = member.pod
            where = pod.node or (member.held[0].node if member.held else "")
            node = index.get(where) if where else None
            if node is None or not member.live:
                continue
            wanted = pod.shape.requests
            requests[id(wanted)] = wanted
            key = (node, id(wanted))
            alike[key] = alike.get(key, 0) + 1
            if pod.deleting:
                board.departing(node, wanted)
    for (node, kind), times in alike.items():
        board.charge(node, requests[kind], times)
