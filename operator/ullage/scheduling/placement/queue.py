# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The queue of a cycle: who is placed, who is passed over, for whom room is kept or made.

Owners in order of priority, age and uid. Capacity only shrinks while the queue is served, so a
class that was refused once is refused for the rest of the cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Final

import numpy as np

from ullage.api.reasons import Reason
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import RefusalLine
from ullage.engines.admission.limits import HEALTHY, LIMITS
from ullage.engines.admission.records import Refusal
from ullage.engines.quota.records import NO_TENANT
from ullage.scheduling.feasibility.device_facts import columns, emptied
from ullage.scheduling.feasibility.resource_requests import ResourceRequest, ResourceRequests
from ullage.scheduling.inventory.node_fit import Fit
from ullage.scheduling.inventory.reliable_machines import terms_of
from ullage.scheduling.model.device_choice import BEST
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.placement.allowance import borrows, models_of
from ullage.scheduling.placement.attempt import Outcome, Refused, Requeue, SchedulingAttempt
from ullage.scheduling.placement.candidates import by_node
from ullage.scheduling.placement.downsizing import (
    Asking,
    Downsize,
    DownsizeCandidate,
    make_room_beside,
)
from ullage.scheduling.placement.feasible import Feasibility
from ullage.scheduling.placement.later_devices import LaterDevices
from ullage.scheduling.placement.nearest import emptiest
from ullage.scheduling.placement.placement import (
    NoRoom,
    Placement,
    Placer,
    fewest_nodes,
)
from ullage.scheduling.placement.preemption import (
    Victim,
    in_words,
    lift,
    put_back,
    smaller_first,
)
from ullage.scheduling.placement.spread import SpotPools
from ullage.scheduling.placement.victim_selection import VictimSelection
from ullage.scheduling.prediction.effort import in_turns

MOST_SEATED: Final = 500
"""Members seated in one cycle, at least; the rest follows in the next, which bounds a cycle."""
_IN_ORDER: Final = 0.5
"""Part of a cycle's effort that goes strictly by the order of the queue."""
_MOST_PREEMPTORS: Final = 64
"""Owners that may make room in one cycle."""
_order = attrgetter("order")


@dataclass(frozen=True, slots=True)
class _Hopeless:
    """A class for which nothing can be done in this cycle: so many members, up to this priority."""

    members: int
    priority: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class _Spread:
    """Nodes that a gang would be on, and how few would do if all devices were free."""

    nodes: int
    fewest: int


@dataclass(slots=True)
class SchedulingQueue:
    """Serves the waiting owners of one cycle."""

    view: View
    requests: ResourceRequests
    placer: Placer
    feasibility: Feasibility
    selection: VictimSelection
    """Selects victims for workloads that do not fit."""
    residents: Callable[[], Sequence[DownsizeCandidate]] | None = None
    """Who may be asked to make room with a part of its share; ``None`` = no one is."""
    narrow: Callable[[ResourceRequest, frozenset[int], int], ResourceRequest] | None = None
    """Restricts a request to some models, and to a share of a device where that is above 0."""
    idle: Mapping[str, tuple[Reason, str]] = field(default_factory=dict)
    """Who has no pool to be placed in now, by uid, and why."""
    alike: Mapping[str, tuple[SchedulingAttempt, ResourceRequest]] = field(default_factory=dict)
    """By uid: attempts of which all members ask for this, wherever they are."""
    budget: int = MOST_SEATED
    """Members that are still seated in this cycle."""
    _hopeless: dict[int, _Hopeless] = field(default_factory=dict)
    _refused: dict[int, tuple[int, NoRoom]] = field(default_factory=dict)
    _refused_later: dict[int, int] = field(default_factory=dict)
    _spreads: dict[tuple[int, ...], _Spread] = field(default_factory=dict)
    """Of gangs that waited for fewer nodes, by what they share with alike ones."""
    _no_victims: dict[int, int] = field(default_factory=dict)
    _no_downsize: dict[int, int] = field(default_factory=dict)
    _borrowers: dict[tuple[int, int], bool] = field(default_factory=dict)
    """By class and members: whether they would borrow, as the cycle began."""
    _preemptors: int = 0
    _holder: str = ""
    _pools: SpotPools | None = None
    """Made when a replica first asks."""

    @property
    def later(self) -> LaterDevices:
        """Devices when all that is leaving has left."""
        return self.selection.later

    def serve(self, attempts: Sequence[SchedulingAttempt]) -> dict[str, Outcome]:
        """The outcome of every attempt, by uid of the workload.

        Attempts that come when the budget of the cycle is spent have none: they are next. So are
        new questions once half of the cycle's effort is spent: of those the other half takes some,
        each time others.
        """
        ordered = self._ordered(attempts)
        outcomes: dict[str, Outcome] = {}
        effort, passed = self.placer.occupancy.effort, list[SchedulingAttempt]()
        polite = {one.workload.ref.uid: one for one in _before_others(ordered)}
        fewest: dict[str, tuple[Placement, ...]] = {}
        for attempt in ordered:
            if self.budget <= 0:
                break
            if attempt.coming:
                before_others = attempt.workload.ref.uid in polite
                self._expect(attempt, attempt.coming if before_others else None)
                continue
            if effort.is_spent(_IN_ORDER) and not self.is_known(attempt):
                passed.append(attempt)
                continue
            if attempt.workload.ref.uid in polite:
                fewest[attempt.workload.ref.uid] = self._fewest_seated(attempt)
                continue
            outcomes[attempt.workload.ref.uid] = self.place(attempt)
        for uid, seated in fewest.items():
            self.placer.unseat(seated)
            if self.budget > 0:
                outcomes[uid] = self.place(polite[uid])
        for attempt in in_turns(passed, self.view.now):
            if self.budget <= 0 or effort.is_spent():
                break
            outcomes[attempt.workload.ref.uid] = self.place(attempt)
        return outcomes

    def _fewest_seated(self, attempt: SchedulingAttempt) -> tuple[Placement, ...]:
        """The fewest members of a gang, seated while others are served; empty = no room."""
        found = self.placer.placement(
            self.asked(attempt)[: attempt.fewest], set(attempt.near), explain=False
        )
        return () if isinstance(found, NoRoom) else found

    def _ordered(self, attempts: Sequence[SchedulingAttempt]) -> list[SchedulingAttempt]:
        """Those with a promise, then those who need not borrow, then by priority and age."""
        if self.placer.occupancy.quota is None:
            return sorted(attempts, key=_order)
        return sorted(
            attempts,
            key=lambda attempt: (
                not attempt.promised,
                self._borrows(attempt),
                attempt.order,
            ),
        )

    def _borrows(self, attempt: SchedulingAttempt) -> bool:
        """Whether it needs more than its tenant's nominal quota; those who do not come first."""
        held = self.placer.occupancy.quota
        if held is None:
            return False
        request = self.request(attempt, attempt.members[0])
        if request.quota_of == NO_TENANT:
            return False
        key = request.number, len(attempt.members)
        known = self._borrowers.get(key)
        if known is None:
            inventory = self.placer.occupancy.inventory
            kinds = [inventory.model_names[at] for at in models_of(request, inventory.models)]
            known = self._borrowers[key] = borrows(held, request, len(attempt.members), kinds)
        return known

    def is_known(self, attempt: SchedulingAttempt) -> bool:
        """Whether this cycle has judged the devices for all that an attempt asks for."""
        return all(self.placer.knows(self.request(attempt, member)) for member in attempt.members)

    def only_waits(self, attempt: SchedulingAttempt) -> bool:
        """Whether all members of a workload wait for the same, and hold nothing."""
        alike = self.alike.get(attempt.workload.ref.uid)
        return alike is not None and alike[0] is attempt

    def place(self, attempt: SchedulingAttempt) -> Outcome:
        """Place one workload, make way for it, or say why not."""
        alike = self.alike.get(attempt.workload.ref.uid)
        if alike is not None and alike[0] is attempt:
            outcome = self._without_hope(attempt, alike[1].number, len(attempt.members))
            if outcome is not None:
                return outcome
        idle = self.idle.get(attempt.workload.ref.uid)
        if idle is not None:
            return Outcome(refused=Refused(idle[0], turn=lambda: idle[1]))
        apart = self.feasibility.stands_apart(attempt.workload)
        if apart is not None:
            return Outcome(refused=Refused.for_good(apart))
        outcome = self._place(attempt)
        self.budget -= len(outcome.placements)
        return outcome

    def fill(self, attempt: SchedulingAttempt) -> Outcome | NoRoom:
        """Place a gang where there is room as it is; no one makes way and nothing is kept."""
        asked = self.asked(attempt)
        number = _class_of(asked)
        known = self._refused.get(number)
        if known is None or known[0] > len(asked):
            found = self.placer.placement(asked, set(attempt.near), explain=True)
            if not isinstance(found, NoRoom):
                self.later.take(found)
                self.budget -= len(found)
                return Outcome(found, found[0].runner_up)
            self._refused[number] = known = (len(asked), found)
        return known[1]

    def join(self, attempt: SchedulingAttempt, site: int) -> Outcome:
        """Place a job of one member beside the one that has the other part of a device."""
        (asked,) = self.asked(attempt)
        found = self.placer.join(asked, site)
        if isinstance(found, RefusalLine):
            return Outcome(refused=Refused(found.reason, (found,)))
        self.later.take((found,))
        self.budget -= 1
        return Outcome((found,))

    def move(self, attempt: SchedulingAttempt, mover: Victim) -> tuple[Victim, ...] | None:
        """Keep a better place for a workload that runs elsewhere; it has to leave to get there.

        Returns:
            Who has to leave beside it; ``None`` when there is no such place.
        """
        if mover.uid in self.selection.evicted:
            return None
        later, asked = self.later.placer, self.asked(attempt)
        lift(later.occupancy, mover)
        found = later.placement(asked, set(), explain=False)
        victims: tuple[Victim, ...] = ()
        if isinstance(found, NoRoom):

            def others(victims: list[Victim]) -> list[Victim]:
                return [victim for victim in victims if victim.uid != mover.uid]

            way = self.selection.eviction(attempt, asked, set(), others)
            if way is None:
                put_back(later.occupancy, mover)
                return None
            found, victims = way.placements, way.victims
        self.selection.evicted |= {mover.uid, *(victim.uid for victim in victims)}
        self._keep(attempt, found)
        return victims

    def _expect(self, attempt: SchedulingAttempt, most: int | None) -> None:
        """Keep places for members whose pods are on their way, ``most`` at most, if enough fit."""
        later, asked = self.later.placer, self.asked(attempt)[:most]
        found = later.placement(asked, set(), explain=False)
        if isinstance(found, NoRoom) and found.placed >= attempt.coming:
            found = later.placement(asked[: found.placed], set(), explain=False)
        if not isinstance(found, NoRoom):
            self._keep(attempt, found)

    def asked(self, attempt: SchedulingAttempt) -> list[Placement]:
        """The members of an attempt, each with the class of what it asks for."""
        return [
            Placement(attempt.workload, member, self.request(attempt, member))
            for member in attempt.members
        ]

    def _place(self, attempt: SchedulingAttempt) -> Outcome:
        asked = self.asked(attempt)
        if attempt.workload.is_gang:
            return self._unit(attempt, asked)
        outcome = Outcome()
        for one in asked:
            single = self._apart(attempt, one, outcome.placements) or self._unit(attempt, [one])
            outcome = Outcome(
                placements=outcome.placements + single.placements,
                runner_up=outcome.runner_up or single.runner_up,
                refused=outcome.refused or single.refused,
                victims=outcome.victims + single.victims,
                downsize=outcome.downsize or single.downsize,
            )
        return outcome

    def _apart(
        self, attempt: SchedulingAttempt, one: Placement, placed: Sequence[Placement]
    ) -> Outcome | None:
        """A replica's place in the pools whose loss takes least of its service.

        ``None`` = all places are as safe, or there is no room in the safest: then any will do.
        """
        if not self.view.snapshot.pools or attempt.workload.replicas < 2:
            return None
        occupancy = self.placer.occupancy
        if self._pools is None:
            self._pools = SpotPools(self.view.snapshot, occupancy.inventory)
        pools, nodes = self._pools, occupancy.inventory.nodes
        held = pools.held(self.view.members_of(attempt.workload))
        held.update(pools.of(nodes[placement.candidate.node].name) for placement in placed)
        passed = pools.less_safe(self.placer.nodes_with_room(one.request), held)
        if not passed:
            return None
        found = self.placer.avoiding([one], passed, set(attempt.near))
        if isinstance(found, NoRoom):
            return None
        self.later.take(found)
        return Outcome(found, found[0].runner_up)

    def request(self, attempt: SchedulingAttempt, member: Member) -> ResourceRequest:
        """The class of what a member asks for, less where its own old slices linger."""
        avoid = attempt.avoid
        lingering = self.view.lingering_nodes(member)
        if lingering:
            inventory = self.placer.occupancy.inventory
            on_them = [
                inventory.sites_on[inventory.node_index[node]]
                for node in sorted(lingering)
                if node in inventory.node_index
            ]
            avoid = avoid.union(*on_them)
        found = self.requests.of(attempt.workload, member.pod.shape, avoid)
        found = self.requests.under_rules(found, member.pod, settled=member.settled)
        if attempt.only is None or self.narrow is None:
            return found
        return self.narrow(found, attempt.only, attempt.percent)

    def _unit(self, attempt: SchedulingAttempt, unit: Sequence[Placement]) -> Outcome:
        """Place members that stand or fall together, or say why not."""
        number, near = _class_of(unit), set(attempt.near)
        hopeless = self._without_hope(attempt, number, len(unit))
        if hopeless is not None:
            return hopeless
        known = self._refused.get(number)
        if known is None or known[0] > len(unit):
            spread = self._spreads.get(self._alike_apart(number, len(unit)))
            waits = self._waits_for_fewer(attempt, unit, spread) if spread is not None else None
            if waits is not None:
                return waits
            found = self.placer.placement(unit, near, explain=True)
            if not isinstance(found, NoRoom):
                return self._taken_or_apart(attempt, number, found)
            self._refused[number] = known = (len(unit), found)
        infeasible = self._infeasible(attempt.workload, unit)
        if infeasible is not None:
            return Outcome(refused=Refused.for_good(infeasible))
        return self._make_way(attempt, unit, known[1])

    def _taken_or_apart(
        self, attempt: SchedulingAttempt, number: int, found: tuple[Placement, ...]
    ) -> Outcome:
        """The places, unless they are on more nodes than need be and waiting costs less."""
        if found[0].request.across < BEST:
            nodes = len({placement.candidate.node for placement in found})
            spread = _Spread(nodes, self._fewest(found))
            waits = self._waits_for_fewer(attempt, found, spread)
            if waits is not None:
                self.placer.unseat(found)
                self._spreads[self._alike_apart(number, len(found))] = spread
                return waits
        self.later.take(found)
        return Outcome(found, found[0].runner_up)

    def _alike_apart(self, number: int, members: int) -> tuple[int, ...]:
        """What gangs share that would be on the same nodes: until seats or devices are given."""
        return number, members, self.budget, len(self.placer.occupancy.blocker)

    def _waits_for_fewer(
        self, attempt: SchedulingAttempt, unit: Sequence[Placement], spread: _Spread
    ) -> Outcome | None:
        """That a gang waits for fewer nodes, and why; ``None`` = it takes the places.

        It waits at most that part of its patience that it would lose of its speed.
        """
        across, policy = unit[0].request.across, self.view.snapshot.policy
        patience_s = (1 - across / BEST) * policy.gang_skip_limit * policy.round_seconds
        if spread.nodes <= spread.fewest or attempt.only is not None or attempt.near:
            return None
        if self.view.now - attempt.waiting_since > patience_s:
            return None
        text = (
            f"there is room on {spread.nodes} nodes, where it keeps {across} % of its speed; it"
            f" waits for room on {spread.fewest}, for {patience_s:.0f} s at most"
        )
        return Outcome(
            refused=Refused(Reason.WAITS_FOR_FEWER_NODES, placed=len(unit), turn=lambda: text)
        )

    def _fewest(self, found: tuple[Placement, ...]) -> int:
        """Nodes that the gang would need if all devices of its type were free."""
        inventory, request = self.placer.occupancy.inventory, found[0].request
        model = inventory.model.item(found[0].candidate.sites[0])
        fits = self.placer.candidate_index.fit(request.shape) == int(Fit.OK)
        of_type = inventory.node_of[inventory.model == model]
        devices = np.bincount(of_type, minlength=len(inventory.sites_on))
        room = by_node(np.where(fits, devices // request.count, 0))
        return len(fewest_nodes(room, len(found))) or 1

    def _without_hope(
        self, attempt: SchedulingAttempt, number: int, members: int
    ) -> Outcome | None:
        """What others were told who ask for the same, where nothing can be done for this one."""
        hopeless = self._hopeless.get(number)
        if (
            hopeless is not None
            and members >= hopeless.members
            and attempt.priority <= hopeless.priority
            and (self._holder or not self._waited_too_long(attempt))
        ):
            return hopeless.outcome
        return None

    def _infeasible(self, workload: WorkloadRecord, unit: Sequence[Placement]) -> Refusal | None:
        """Why the members can never all run here; in tiers the first are judged by themselves."""
        first, freest, terms = unit[0].request, _freest(unit), terms_of(workload)
        if terms is None or freest is first:
            return self.feasibility.judge(workload, first)
        tied = self.feasibility.judge(workload, first, terms.reliable)
        if tied is None:
            return self.feasibility.judge(workload, freest)
        text = "members of elasticity.reliableReplicas run on machines that are not taken away"
        return Refusal(tied.reason, f"{text}: {tied.text}")

    def _make_way(
        self, attempt: SchedulingAttempt, unit: Sequence[Placement], no_room: NoRoom
    ) -> Outcome:
        """It does not fit now: wait for what is leaving, make room, or hold what becomes free."""
        reason = no_room.lines[0].reason if no_room.lines else Reason.NO_CAPACITY
        refused = Refused(reason, no_room.lines, no_room.placed)
        by_quota = reason is Reason.QUOTA_EXCEEDED
        if by_quota:
            refused = replace(refused, requeue=Requeue.QUOTA)
        if self._fits_later(attempt, unit):
            return Outcome(refused=_coming(refused, "what it needs is about to become free"))
        if attempt.modest and not attempt.may_stop:
            return Outcome(refused=refused)
        made = None if by_quota else self._ask_residents(attempt, unit)
        if made is not None:
            room = (
                f"room is made by restarting {made.name} at {made.percent} % instead of"
                f" {made.resident.percent} %"
            )
            return Outcome(refused=_coming(refused, room), downsize=made)
        victims = self._preempt(attempt, unit)
        if victims:
            room = f"room is made by {in_words(victims)}"
            return Outcome(refused=_coming(refused, room), victims=victims)
        if not by_quota:  # devices that are held do not help it
            self._maybe_hold(attempt, unit)
        outcome = Outcome(refused=refused)
        self._hopeless[_class_of(unit)] = _Hopeless(len(unit), attempt.priority, outcome)
        return outcome

    def _fits_later(self, attempt: SchedulingAttempt, unit: Sequence[Placement]) -> bool:
        """Whether it fits once everything that is leaving has left; then it keeps those devices."""
        if not self.later.differ:
            return False
        number = _class_of(unit)
        if self._refused_later.get(number, len(unit) + 1) <= len(unit):
            return False
        later = self.later.placer
        found = later.placement(unit, set(attempt.near), explain=False)
        if isinstance(found, NoRoom):
            self._refused_later[number] = len(unit)
            return False
        self._keep(attempt, found)
        return True

    def _ask_residents(
        self, attempt: SchedulingAttempt, unit: Sequence[Placement]
    ) -> Downsize | None:
        """Someone who goes on with less; that stops less than to make it go."""
        number = _class_of(unit)
        hopeless = self._no_downsize.get(number)
        if self.residents is None or (hopeless is not None and attempt.priority <= hopeless):
            return None
        asked = [
            resident
            for resident in self.residents()
            if resident.uid not in self.selection.evicted and resident.priority <= attempt.priority
        ]
        made: Downsize | None = None
        if asked and len(self.selection.evicted) < _MOST_PREEMPTORS:
            ask = Asking(
                placer=self.later.placer, requests=self.requests, unit=unit, near=attempt.near
            )
            made = make_room_beside(ask, asked)
        if made is None:
            self._no_downsize[number] = attempt.priority
            return None
        self.selection.evicted.add(made.uid)
        self._keep(attempt, made.placements)
        return made

    def _preempt(self, attempt: SchedulingAttempt, unit: Sequence[Placement]) -> tuple[Victim, ...]:
        number = _class_of(unit)
        hopeless = self._no_victims.get(number)
        if self._preemptors >= _MOST_PREEMPTORS or (
            hopeless is not None and attempt.priority <= hopeless
        ):
            return ()

        def arranged(victims: list[Victim]) -> list[Victim]:
            return smaller_first(victims, attempt.priority)

        eviction = self.selection.eviction(attempt, unit, set(attempt.near), arranged)
        if eviction is None:
            self._no_victims[number] = attempt.priority
            return ()
        self._preemptors += 1
        self.selection.evicted |= {victim.uid for victim in eviction.victims}
        self._keep(attempt, eviction.placements)
        return eviction.victims

    def _maybe_hold(self, attempt: SchedulingAttempt, unit: Sequence[Placement]) -> None:
        """The first who waited too long holds as many devices as it needs, the emptiest."""
        if attempt.only is not None:
            return  # rounds keep devices themselves
        if self._holder or not self._waited_too_long(attempt):
            return
        self._holder = f"{attempt.workload.ref.namespace}/{attempt.workload.ref.name}"
        occupancy, request = self.placer.occupancy, _freest(unit)
        facts = emptied(columns(occupancy))
        mask = self.placer.candidate_index.reachable(request) & (
            occupancy.inventory.health == HEALTHY
        )
        if request.ruled is not None and occupancy.rules is not None:
            allowed = occupancy.rules.allowed(request.ruled, request.shape)
            mask &= allowed[occupancy.inventory.node_of]
        for limit in LIMITS:
            mask &= limit.short(facts, request) <= 0
        held = emptiest(occupancy, request, mask.nonzero()[0].tolist(), len(unit))
        occupancy.block(held, self._holder, held=True)
        self.later.hold(held, self._holder)

    def _waited_too_long(self, attempt: SchedulingAttempt) -> bool:
        policy = self.view.snapshot.policy
        patience_s = policy.gang_skip_limit * policy.round_seconds
        return self.view.now - attempt.waiting_since > patience_s

    def _keep(self, attempt: SchedulingAttempt, gang: Sequence[Placement]) -> None:
        """No one later in the queue gets the devices that this one is about to get."""
        name = f"{attempt.workload.ref.namespace}/{attempt.workload.ref.name}"
        sites = [site for placement in gang for site in placement.candidate.sites]
        self.placer.occupancy.block(sites, name)


def _before_others(ordered: Sequence[SchedulingAttempt]) -> list[SchedulingAttempt]:
    """Gangs with members beyond the fewest that others of their priority wait behind.

    Others are workloads of other namespaces. These get their places before those members do.
    """
    found: list[SchedulingAttempt] = []
    behind: dict[int, set[str]] = {}
    for attempt in reversed(ordered):
        namespace = attempt.workload.ref.namespace
        others = behind.setdefault(attempt.priority, set())
        if len(attempt.members) > attempt.fewest and others - {namespace}:
            found.append(attempt)
        others.add(namespace)
    return found[::-1]


def _coming(refused: Refused, how: str) -> Refused:
    """Devices are kept for it that become free in this way."""
    return replace(refused, prospect=f"; {how}", requeue=Requeue.ROOM_COMING)


def _class_of(unit: Sequence[Placement]) -> int:
    """What members ask for together, as a number; that of the first where all ask for the same.

    In tiers the first ask for other machines than the rest, and how many do counts as well.
    """
    first, last = unit[0].request.number, _freest(unit).number
    if first == last:
        return first
    return hash((first, last, sum(one.request.number == first for one in unit), len(unit)))


def _freest(unit: Sequence[Placement]) -> ResourceRequest:
    """What the members ask for that may run on most machines: in tiers those that come last."""
    return unit[0 if terms_of(unit[0].workload) is None else -1].request
