# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The queue of a cycle: places workloads in order, or refuses them.

Workloads are served in order of priority, age and uid. Capacity only shrinks meanwhile, so a class
that was refused once is refused for the rest of the cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

import numpy as np

from ullage.api.reasons import Reason
from ullage.cluster.records.status import RefusalLine
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.records import Refusal
from ullage.engines.quota.records import NO_TENANT
from ullage.scheduling.feasibility.resource_requests import ResourceRequest, ResourceRequests
from ullage.scheduling.inventory.node_fit import Fit
from ullage.scheduling.inventory.reliable_machines import terms_of
from ullage.scheduling.model.device_choice import BEST
from ullage.scheduling.model.view import Member, View
from ullage.scheduling.placement.allowance import borrows, models_of
from ullage.scheduling.placement.attempt import Outcome, Refused, SchedulingAttempt
from ullage.scheduling.placement.candidates import by_node
from ullage.scheduling.placement.feasible import Feasibility
from ullage.scheduling.placement.placement import NoRoom, Placement, Placer, fewest_nodes
from ullage.scheduling.placement.preemption import Victim, lift, put_back
from ullage.scheduling.placement.room_maker import RoomMaker, class_of, freest
from ullage.scheduling.placement.spread import SpotPools
from ullage.scheduling.placement.victim_selection import LaterDevices
from ullage.scheduling.prediction.effort import in_turns

MOST_SEATED: Final = 500
"""Members seated per cycle, approximately; the rest follows in the next cycle."""
_IN_ORDER: Final = 0.5
"""Part of a cycle's effort that is spent strictly in the order of the queue."""
_order = attrgetter("order")
_elasticity = attrgetter("workload.elasticity")


@dataclass(frozen=True, slots=True)
class _Hopeless:
    """The outcome of a class in this cycle, for as many members or more, up to this priority."""

    members: int
    priority: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class _Spread:
    """Nodes that a gang would be on, and the fewest if all devices were free."""

    nodes: int
    fewest: int


@dataclass(slots=True)
class SchedulingQueue:
    """Serves the waiting workloads of one cycle."""

    view: View
    requests: ResourceRequests
    placer: Placer
    feasibility: Feasibility
    room: RoomMaker
    """Makes room for workloads that do not fit."""
    narrow: Callable[[ResourceRequest, frozenset[int], int], ResourceRequest] | None = None
    """Restricts a request to some models, and to a share of a device if that is above 0."""
    idle: Mapping[str, tuple[Reason, str]] = field(default_factory=dict)
    """By uid: reason and text for workloads that have no pool to be placed in now."""
    budget: int = MOST_SEATED
    """Members that this cycle may still seat."""
    _hopeless: dict[int, _Hopeless] = field(default_factory=dict)
    _refused: dict[int, tuple[int, NoRoom]] = field(default_factory=dict)
    _spreads: dict[tuple[int, ...], _Spread] = field(default_factory=dict)
    """Spreads of gangs that wait for fewer nodes, by :meth:`_spread_key`."""
    _borrowers: dict[tuple[int, int], bool] = field(default_factory=dict)
    """By class and members: true when they would borrow, at the start of the cycle."""
    _pools: SpotPools | None = None
    """Built at first use."""

    @property
    def later(self) -> LaterDevices:
        """Devices without everything that is leaving."""
        return self.room.later

    def serve(self, attempts: Sequence[SchedulingAttempt]) -> dict[str, Outcome]:
        """The outcome of every attempt, by uid of the workload.

        Attempts after the budget of the cycle is spent have none; the next cycle serves them.
        Classes that need new evaluations when half of the cycle's effort is spent are postponed:
        the other half serves some of them, different ones each cycle.
        """
        ordered = self._ordered(attempts)
        outcomes: dict[str, Outcome] = {}
        effort, put_off = self.placer.occupancy.effort, list[SchedulingAttempt]()
        elastic = {attempt.workload.ref.uid: attempt for attempt in _before_others(ordered)}
        minimum: dict[str, tuple[Placement, ...]] = {}
        late = effort.is_spent(_IN_ORDER)
        for attempt in ordered:
            uid = attempt.workload.ref.uid
            if self.budget <= 0:
                break
            if attempt.coming:
                self._expect(attempt, attempt.coming if uid in elastic else None)
            elif late and not self.is_known(attempt):
                put_off.append(attempt)
            elif uid in elastic:
                minimum[uid] = self._fewest_seated(attempt)
            else:  # most of thousands are refused as others before
                outcome = self._refused_before(attempt)
                if outcome is not None:
                    outcomes[uid] = outcome
                    continue
                outcomes[uid] = self._attempted(attempt)
            late = effort.is_spent(_IN_ORDER)
        for uid, seated in minimum.items():
            self.placer.unseat(seated)
            if self.budget > 0:
                outcomes[uid] = self.place(elastic[uid])
        for attempt in in_turns(put_off, self.view.now):
            if self.budget <= 0 or effort.is_spent():
                break
            outcomes[attempt.workload.ref.uid] = self.place(attempt)
        return outcomes

    def _fewest_seated(self, attempt: SchedulingAttempt) -> tuple[Placement, ...]:
        """Seat the minimum of a gang while others are served; empty = no room."""
        seated = self.placer.placement(
            self.asked(attempt)[: attempt.fewest], set(attempt.near), explain=False
        )
        return () if isinstance(seated, NoRoom) else seated

    def _ordered(self, attempts: Sequence[SchedulingAttempt]) -> list[SchedulingAttempt]:
        """Promised attempts first, then those that need not borrow quota, then by order."""
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
        """True when it needs more than its tenant's nominal quota."""
        quota = self.placer.occupancy.quota
        if quota is None:
            return False
        request = self.request(attempt, attempt.members[0])
        if request.quota_of == NO_TENANT:
            return False
        key = request.number, len(attempt.members)
        borrowing = self._borrowers.get(key)
        if borrowing is None:
            inventory = self.placer.occupancy.inventory
            kinds = [inventory.model_names[at] for at in models_of(request, inventory.models)]
            borrowing = self._borrowers[key] = borrows(quota, request, len(attempt.members), kinds)
        return borrowing

    def is_known(self, attempt: SchedulingAttempt) -> bool:
        """True when this cycle has evaluated the devices for all requests of an attempt."""
        return all(self.placer.knows(self.request(attempt, member)) for member in attempt.members)

    def is_choosy(self, attempt: SchedulingAttempt) -> bool:
        """True when a gang may rather wait for room on fewer nodes than take what there is."""
        return len(attempt.members) > 1 and any(
            self.request(attempt, member).across < BEST for member in attempt.members
        )

    def place(self, attempt: SchedulingAttempt) -> Outcome:
        """Place one workload, make room for it, or refuse it."""
        return self._refused_before(attempt) or self._attempted(attempt)

    def _refused_before(self, attempt: SchedulingAttempt) -> Outcome | None:
        """The outcome of an equal attempt of this cycle that holds for this one, too."""
        if attempt.request is None:
            return None
        return self._known_refusal(attempt, attempt.request.number, len(attempt.members))

    def _attempted(self, attempt: SchedulingAttempt) -> Outcome:
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
        """Place a gang where there is room now; nothing is preempted or reserved."""
        asked = self.asked(attempt)
        number = class_of(asked)
        refused = self._refused.get(number)
        if refused is None or refused[0] > len(asked):
            seated = self.placer.placement(asked, set(attempt.near), explain=True)
            if not isinstance(seated, NoRoom):
                self.later.take(seated)
                self.budget -= len(seated)
                return Outcome(seated, seated[0].runner_up)
            self._refused[number] = refused = (len(asked), seated)
        return refused[1]

    def join(self, attempt: SchedulingAttempt, site: int) -> Outcome:
        """Place a job of one member beside its partner on a device."""
        (asked,) = self.asked(attempt)
        joined = self.placer.join(asked, site)
        if isinstance(joined, RefusalLine):
            return Outcome(refused=Refused(joined.reason, (joined,)))
        self.later.take((joined,))
        self.budget -= 1
        return Outcome((joined,))

    def move(self, attempt: SchedulingAttempt, mover: Victim) -> tuple[Victim, ...] | None:
        """Reserve a better place for a running workload, which has to restart to get there.

        Returns:
            The other victims; ``None`` when there is no such place.
        """
        if mover.uid in self.room.selection.evicted:
            return None
        later, asked = self.later.placer, self.asked(attempt)
        lift(later.occupancy, mover)
        seated = later.placement(asked, set(), explain=False)
        victims: tuple[Victim, ...] = ()
        if isinstance(seated, NoRoom):

            def others(victims: list[Victim]) -> list[Victim]:
                return [victim for victim in victims if victim.uid != mover.uid]

            way = self.room.selection.eviction(attempt, asked, set(), others)
            if way is None:
                put_back(later.occupancy, mover)
                return None
            seated, victims = way.placements, way.victims
        self.room.selection.evicted |= {mover.uid, *(victim.uid for victim in victims)}
        self.room.keep(attempt, seated)
        return victims

    def _expect(self, attempt: SchedulingAttempt, most: int | None) -> None:
        """Reserve places for members without pods, ``most`` at most, if enough fit."""
        later, asked = self.later.placer, self.asked(attempt)[:most]
        seated = later.placement(asked, set(), explain=False)
        if isinstance(seated, NoRoom) and seated.placed >= attempt.coming:
            seated = later.placement(asked[: seated.placed], set(), explain=False)
        if not isinstance(seated, NoRoom):
            self.room.keep(attempt, seated)

    def asked(self, attempt: SchedulingAttempt) -> list[Placement]:
        """The members of an attempt, each with its request class."""
        return [
            Placement(attempt.workload, member, self.request(attempt, member))
            for member in attempt.members
        ]

    def _place(self, attempt: SchedulingAttempt) -> Outcome:
        asked = self.asked(attempt)
        if attempt.workload.is_gang:
            return self._unit(attempt, asked)
        outcome = Outcome()
        for member in asked:
            single = self._apart(attempt, member, outcome.placements) or self._unit(
                attempt, [member]
            )
            outcome = Outcome(
                placements=outcome.placements + single.placements,
                runner_up=outcome.runner_up or single.runner_up,
                refused=outcome.refused or single.refused,
                victims=outcome.victims + single.victims,
                downsize=outcome.downsize or single.downsize,
            )
        return outcome

    def _apart(
        self, attempt: SchedulingAttempt, replica: Placement, placed: Sequence[Placement]
    ) -> Outcome | None:
        """Place a replica in the pools whose interruption takes least of its service.

        ``None`` when all places are equally safe, or the safest have no room.
        """
        if not self.view.snapshot.pools or attempt.workload.replicas < 2:
            return None
        occupancy = self.placer.occupancy
        if self._pools is None:
            self._pools = SpotPools(self.view.snapshot, occupancy.inventory)
        pools, nodes = self._pools, occupancy.inventory.nodes
        replicas = pools.held(self.view.members_of(attempt.workload))
        replicas.update(pools.of(nodes[placement.candidate.node].name) for placement in placed)
        passed = pools.less_safe(self.placer.nodes_with_room(replica.request), replicas)
        if not passed:
            return None
        seated = self.placer.avoiding([replica], passed, set(attempt.near))
        if isinstance(seated, NoRoom):
            return None
        self.later.take(seated)
        return Outcome(seated, seated[0].runner_up)

    def request(self, attempt: SchedulingAttempt, member: Member) -> ResourceRequest:
        """The request class of a member, without nodes where its own old slices remain."""
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
        request = self.requests.of(attempt.workload, member.pod.shape, avoid)
        request = self.requests.under_rules(request, member.pod, settled=member.settled)
        if attempt.only is None or self.narrow is None:
            return request
        return self.narrow(request, attempt.only, attempt.percent)

    def _unit(self, attempt: SchedulingAttempt, unit: Sequence[Placement]) -> Outcome:
        """Place members that are placed together, or refuse them."""
        number, near = class_of(unit), set(attempt.near)
        outcome = self._known_refusal(attempt, number, len(unit))
        if outcome is not None:
            return outcome
        refused = self._refused.get(number)
        if refused is None or refused[0] > len(unit):
            spread = self._spreads.get(self._spread_key(number, len(unit)))
            waits = self._waits_for_fewer(attempt, unit, spread) if spread is not None else None
            if waits is not None:
                return waits
            seated = self.placer.placement(unit, near, explain=True)
            if not isinstance(seated, NoRoom):
                return self._take_or_wait(attempt, number, seated)
            self._refused[number] = refused = (len(unit), seated)
        infeasible = self._infeasible(attempt.workload, unit)
        if infeasible is not None:
            return Outcome(refused=Refused.for_good(infeasible))
        outcome, for_all = self.room.make(attempt, unit, refused[1])
        if for_all:
            self._hopeless[number] = _Hopeless(len(unit), attempt.priority, outcome)
        return outcome

    def _take_or_wait(
        self, attempt: SchedulingAttempt, number: int, gang: tuple[Placement, ...]
    ) -> Outcome:
        """Take the places, unless they are on more nodes than needed and waiting costs less."""
        if gang[0].request.across < BEST:
            nodes = len({placement.candidate.node for placement in gang})
            spread = _Spread(nodes, self._fewest(gang))
            waits = self._waits_for_fewer(attempt, gang, spread)
            if waits is not None:
                self.placer.unseat(gang)
                self._spreads[self._spread_key(number, len(gang))] = spread
                return waits
        self.later.take(gang)
        return Outcome(gang, gang[0].runner_up)

    def _spread_key(self, number: int, members: int) -> tuple[int, ...]:
        """Equal for gangs that would be on the same nodes; changes with every seat or block."""
        return number, members, self.budget, len(self.placer.occupancy.blocker)

    def _waits_for_fewer(
        self, attempt: SchedulingAttempt, unit: Sequence[Placement], spread: _Spread
    ) -> Outcome | None:
        """The refusal of a gang that waits for fewer nodes; ``None`` = it takes the places.

        It waits for a part of its patience: the part of its speed that it would lose.
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

    def _fewest(self, gang: tuple[Placement, ...]) -> int:
        """Nodes that the gang would need if all devices of its type were free."""
        inventory, request = self.placer.occupancy.inventory, gang[0].request
        model = inventory.model.item(gang[0].candidate.sites[0])
        fits = self.placer.candidate_index.fit(request.shape) == int(Fit.OK)
        of_type = inventory.node_of[inventory.model == model]
        devices = np.bincount(of_type, minlength=len(inventory.sites_on))
        room = by_node(np.where(fits, devices // request.count, 0))
        return len(fewest_nodes(room, len(gang))) or 1

    def _known_refusal(
        self, attempt: SchedulingAttempt, number: int, members: int
    ) -> Outcome | None:
        """The outcome of an equal request, if it is valid for this attempt too."""
        hopeless = self._hopeless.get(number)
        if (
            hopeless is not None
            and members >= hopeless.members
            and attempt.priority <= hopeless.priority
            and (self.room.holder or not self.room.waited_too_long(attempt))
        ):
            return hopeless.outcome
        return None

    def _infeasible(self, workload: WorkloadRecord, unit: Sequence[Placement]) -> Refusal | None:
        """The refusal of members that can never all run here; in tiers the first separately."""
        first, last, terms = unit[0].request, freest(unit), terms_of(workload)
        if terms is None or last is first:
            return self.feasibility.judge(workload, first)
        tied = self.feasibility.judge(workload, first, terms.reliable)
        if tied is None:
            return self.feasibility.judge(workload, last)
        text = "members of elasticity.reliableReplicas run on machines that are not taken away"
        return Refusal(tied.reason, f"{text}: {tied.text}")


def _before_others(ordered: Sequence[SchedulingAttempt]) -> list[SchedulingAttempt]:
    """Gangs with more than the minimum of members, before workloads of equal priority.

    Only workloads of other namespaces count. They get their places before the members above the
    minimum do.
    """
    before: list[SchedulingAttempt] = []
    if not any(map(_elasticity, ordered)):
        return before  # no gang has more than its minimum
    behind: dict[int, set[str]] = {}
    for attempt in reversed(ordered):
        namespace = attempt.workload.ref.namespace
        others = behind.setdefault(attempt.priority, set())
        if len(attempt.members) > attempt.fewest and others - {namespace}:
            before.append(attempt)
        others.add(namespace)
    return before[::-1]
