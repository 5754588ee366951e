# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Candidates of a request class, best first, kept current while the occupancy changes.

The first query evaluates all devices at once, later ones only changed devices. Devices with equal
tenants are evaluated once; with too many situations, the most promising are evaluated. Places that
need no trial come first. Then, by worth: larger net value, smaller share, nodes already used, uuid;
by share: largest share, least percent left over, nodes already used, uuid. A better type for the
job adds a little to the worth, decides between equal shares, and comes first among whole devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from ullage.api.slices import MAX_LANE
from ullage.cluster.records.pod_shape import PodShape
from ullage.engines.admission.limits import (
    LIMITS,
    WHOLE_PERCENT,
    ceiling,
    first_broken,
    percent_fits,
)
from ullage.engines.admission.query import AdmissionQuery
from ullage.engines.admission.records import Refusal
from ullage.engines.lanes.assignment import AssignedLane
from ullage.scheduling.feasibility.device_facts import (
    allowed_model,
    columns_for,
    figures_for,
    picked,
)
from ullage.scheduling.feasibility.lanes import (
    joined_lane,
    joined_lanes,
    lane_number,
    lane_tenant,
    parties,
    top_share,
)
from ullage.scheduling.feasibility.occupancy import EMPTY, Occupancy
from ullage.scheduling.feasibility.resource_requests import ResourceRequest
from ullage.scheduling.inventory.inventory import Flags, Ints, Inventory
from ullage.scheduling.inventory.node_fit import Fit, judge_node
from ullage.scheduling.prediction.effort import FEW, SEARCH
from ullage.scheduling.prediction.verdicts import Admission, AdmissionRule

_CATCH_UP: Final = 1000
"""Number of changed devices above which evaluating all is cheaper."""
_ONE_BY_ONE: Final = 6
"""Number of changed devices up to which evaluating one by one is cheaper."""

NEWCOMER: Final = "this workload"

Key = tuple[int, int, int]
"""Order of a place: rank, tie-breaker, device."""
_NEVER: Final = np.iinfo(np.int64).max
"""Rank of a device that is no place."""

_TRIAL: Final = 1 << 40
"""Added to the rank of a place on trial; far above any worth."""
_FAVOUR: Final = 1_000
"""Bonus per percent of the best type's worth, in millionths of a device (our choice: a tenth of a
device for the best type)."""
_WHOLE: Final = Admission(WHOLE_PERCENT, 1.0)
_SHARES: Final = 1 << 20
"""More than the largest share that is judged."""
_LANES: Final = MAX_LANE + 1


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place for one member: devices of one node, at a share."""

    node: int
    sites: tuple[int, ...]
    percent: int
    grant: Admission
    """The answer for the first device."""
    lane: int = 0
    """Lane of its turns; 0 = none."""


@dataclass(slots=True)
class CandidateIndex:
    """Data that all classes of a cycle share: the occupancy, the rule, node fits and answers."""

    occupancy: Occupancy
    rule: AdmissionRule
    grants: dict[tuple[object, ...], Admission | Refusal] = field(default_factory=dict)

    def fit(self, shape: PodShape, *, in_principle: bool = False) -> Ints:
        """By node: the :class:`Fit` of a shape; callers do not change the result."""
        inventory = self.occupancy.inventory
        entry = inventory.fits.get((id(shape), in_principle))
        if entry is None:
            answers = [
                judge_node(shape, node, in_principle=in_principle) for node in inventory.nodes
            ]
            entry = shape, np.array(answers, dtype=np.int64)
            inventory.fits[id(shape), in_principle] = entry
        return entry[1]

    def reachable(self, request: ResourceRequest) -> Flags:
        """Devices on nodes that fit, of an allowed model, neither blocked nor excluded."""
        occupancy = self.occupancy
        mask: Flags = (self.fit(request.shape) == int(Fit.OK))[occupancy.inventory.node_of]
        mask &= allowed_model(occupancy.facts, request)
        mask &= ~occupancy.blocked
        if request.avoid:
            mask[sorted(request.avoid)] = False
        if request.place is not None:
            mask &= request.place.nodes[occupancy.inventory.node_of]
        return mask

    def predicted(self, request: ResourceRequest, site: int, top: int) -> Admission | Refusal:
        """The rule's answer for shares up to ``top`` percent, computed once per situation."""
        model = self.occupancy.inventory.model.item(site)
        occupants = self.occupancy.occupants[site]
        if request.exclusive and not occupants:
            return _WHOLE
        lane = joined_lane(self.occupancy, request, site)
        joins = lane.lane if lane is not None else 0
        key = (request.number, model, top, self.occupancy.kind_of(site), joins)
        answer = self.grants.get(key)
        if answer is None:
            self.occupancy.effort.spent += 1
            answer = self.grants[key] = self.rule.judge(self.case(request, site, top, lane))
        return answer

    def asked(
        self, request: ResourceRequest, sites: Ints, tops: Sequence[int]
    ) -> tuple[Ints, list[Admission | Refusal]]:
        """The rule's answers for several devices, each up to its share.

        Args:
            request: The class.
            sites: Devices, shape (n,).
            tops: Largest share by device, percent.

        Returns:
            By device the number of its answer, -1 where too many had to be evaluated; and the
            answers.
        """
        if request.exclusive:
            return np.zeros(len(sites), dtype=np.int64), [_WHOLE]
        kinds = self.occupancy.kinds_of(sites)
        shares = np.array(tops, dtype=np.int64)
        models = len(self.occupancy.inventory.models)
        question = (kinds * models + self.occupancy.inventory.model[sites]) * _SHARES + shares
        joins = joined_lanes(self.occupancy, request, sites.tolist())
        if joins:
            lanes = [joins[site].lane if site in joins else 0 for site in sites.tolist()]
            question = question * _LANES + np.array(lanes, dtype=np.int64)
        _, first, number = np.unique(question, return_index=True, return_inverse=True)
        chosen: Sequence[int] = range(len(first))
        if self.occupancy.effort.is_much and len(first) > FEW:
            chosen = self._promising(kinds[first], shares[first])
        answers: list[Admission | Refusal] = []
        numbers = np.full(len(first), -1, dtype=np.int64)
        for at in chosen:
            place = first.item(at)
            numbers[at] = len(answers)
            answers.append(self.predicted(request, sites.item(place), tops[place]))
        return numbers[number], answers

    def _promising(self, kinds: Ints, shares: Ints) -> list[int]:
        """The situations to evaluate where there are too many.

        Half are the best: empty devices, then those with most room. The other half rotates with
        time, so that every device is evaluated at times.
        """
        order: list[int] = np.lexsort((kinds, -shares, kinds != EMPTY)).tolist()
        best, rest = order[: FEW // 2], order[FEW // 2 :]
        start = self.occupancy.turn * (FEW // 2) % len(rest)
        return best + (rest[start:] + rest[:start])[: FEW // 2]

    def case(
        self, request: ResourceRequest, site: int, top: int, lane: AssignedLane | None
    ) -> AdmissionQuery:
        """The query to admit a class to a device.

        A newcomer that joins a lane is evaluated as the lane with it: one of its tenants runs at a
        time.
        """
        inventory, occupants = self.occupancy.inventory, self.occupancy.occupants[site]
        case = self.empty_case(request, inventory.model.item(site), top)
        if lane is None:
            return case.beside(parties(occupants))
        turns = [occupant.tenant for occupant in occupants if occupant.lane == lane.lane]
        together = replace(lane_tenant([case.newcomer, *turns]), name=NEWCOMER)
        return replace(case, newcomer=together, least=top, most=top).beside(
            parties(occupants, without=lane.lane)
        )

    def empty_case(self, request: ResourceRequest, model: int, top: int) -> AdmissionQuery:
        """The query for an empty device of a model."""
        # work that is measured alone takes its maximum: no other tenant may use the rest
        least = top if model in request.unmeasured else request.min_percent
        return AdmissionQuery(
            accelerator=self.occupancy.inventory.model_names[model],
            newcomer=request.tenant(NEWCOMER, model, top),
            least=least,
            most=top,
            percent_limit=request.percent_limit,
            account=request.known.account,
            domain=request.trust_domain,
        )

    def granted(self, request: ResourceRequest, site: int) -> Admission | None:
        """The admission to a device; ``None`` = refused."""
        lane = joined_lane(self.occupancy, request, site)
        facts = figures_for(self.occupancy, request, site, lane)
        if first_broken(facts, request) is not None:
            return None
        top = WHOLE_PERCENT if request.exclusive else top_share(lane, ceiling(facts, request))
        answer = self.predicted(request, site, top)
        return answer if isinstance(answer, Admission) else None


class CandidateList:
    """Candidates of one class.

    Columns have one entry per device: its rank (smallest first), the tie-breaker between equal
    ranks, and the number of its admission, -1 = none. For whole devices a node is represented by
    its first free device, with several types by that of the best type.
    """

    def __init__(self, candidate_index: CandidateIndex, request: ResourceRequest) -> None:
        self.request = request
        self._index = candidate_index
        self._occupancy = candidate_index.occupancy
        count = len(candidate_index.occupancy.inventory.sites)
        self._rank: Ints = np.full(count, _NEVER, dtype=np.int64)
        self._then: Ints = np.zeros(count, dtype=np.int64)
        self._gives: Ints = np.full(count, -1, dtype=np.int64)
        self._grants: list[Admission] = []
        self._reachable = candidate_index.reachable(request)
        self._favours = _favours(candidate_index.occupancy.inventory, request)
        self._seen = 0
        self._judge_all()

    def best(self, near: set[int]) -> Candidate | None:
        """The best place now; of equal places, a place on a node in ``near``."""
        self._catch_up()
        key = self._top()
        if key is None:
            return None
        if near:
            node_of = self._occupancy.inventory.node_of
            equals = np.flatnonzero((self._rank == key[0]) & (self._then == key[1]))
            closer = equals[np.isin(node_of[equals], list(near))]
            for site in closer[np.argsort(node_of[closer], kind="stable")].tolist():
                if self._has_room(site):
                    return self._spot(site)
        return self._spot(key[2])

    def second(self, chosen: Candidate) -> Candidate | None:
        """The best place on other devices, for the record."""
        self._catch_up()
        aside: list[tuple[int, int]] = []
        second: Candidate | None = None
        while second is None:
            key = self._top()
            if key is None:
                break
            candidate = self._spot(key[2])
            if not set(candidate.sites) & set(chosen.sites):
                second = candidate
            else:
                aside.append((key[2], key[0]))
                self._rank[key[2]] = _NEVER
        for site, rank in aside:
            self._rank[site] = rank
        return second

    def room_by_node(self) -> dict[int, int]:
        """Members that each node accepts now; a shared device counts for one."""
        self._catch_up()
        free = np.bincount(self._occupancy.inventory.node_of[self._gives >= 0])
        return by_node(free // self.request.count if self.request.exclusive else free)

    def _spot(self, site: int) -> Candidate:
        node = self._occupancy.inventory.sites[site].node
        grant = self._grants[self._gives.item(site)]
        if not self.request.exclusive:
            lane = lane_number(self._occupancy, self.request, site)
            return Candidate(node, (site,), grant.percent, grant, lane)
        return Candidate(
            node, tuple(self._free_on(node)[: self.request.count]), WHOLE_PERCENT, grant
        )

    def _free_on(self, node: int) -> list[int]:
        """Free devices of a node, those of the best type first."""
        gives, inventory = self._gives, self._occupancy.inventory
        free = [site for site in inventory.sites_on[node] if gives.item(site) >= 0]
        if node in inventory.mixed:
            free.sort(key=self._favour, reverse=True)
        return free

    def _top(self) -> Key | None:
        """The first place whose node has room for the pod."""
        rank = self._rank
        while len(rank):
            least = rank.min()
            if least == _NEVER:
                return None
            equals = np.flatnonzero(rank == least)
            site = equals.item(self._then[equals].argmin())
            if self._has_room(site):
                return int(least), self._then.item(site), site
            # no place on the node fits until something is refunded, which is logged
            rank[
                list(self._occupancy.inventory.sites_on[self._occupancy.inventory.sites[site].node])
            ] = _NEVER
        return None

    def _has_room(self, site: int) -> bool:
        return self._occupancy.has_room(
            self._occupancy.inventory.sites[site].node, self.request.needs
        )

    def _judge_all(self) -> None:
        """Evaluate every device at once."""
        self._occupancy.effort.spent += SEARCH
        self._seen = len(self._occupancy.log)
        self._grants.clear()
        self._gives.fill(-1)
        self._rank.fill(_NEVER)
        self._judge_some(None)

    def _judge_some(self, sites: Ints | None) -> None:
        """Evaluate some devices (or all) at once and rank them."""
        occupancy, request = self._occupancy, self.request
        joins = joined_lanes(occupancy, request, None if sites is None else sites.tolist())
        facts = columns_for(occupancy, request, joins)
        mask = self._reachable & ~occupancy.blocked
        if sites is None:  # few devices of a full cluster have room, and only those are left
            sites = np.flatnonzero(mask & (percent_fits(facts, request) <= 0))
        facts, mask = picked(facts, sites), mask[sites]
        for limit in LIMITS:
            mask = mask & (limit.short(facts, request) <= 0)
        at = np.flatnonzero(mask)
        if not len(at) and not request.exclusive:
            return
        judged = sites[at]
        tops: list[int] = [WHOLE_PERCENT] * len(judged)
        if not request.exclusive:
            tops = ceiling(facts, request)[at].tolist()
        if joins:
            pairs = zip(judged.tolist(), tops, strict=True)
            tops = [top_share(joins.get(site), top) for site, top in pairs]
        numbers, answers = self._index.asked(request, judged, tops)
        self._enter(judged, numbers, answers)
        if request.exclusive:
            self._renew_nodes(judged.tolist())

    def _enter(self, sites: Ints, numbers: Ints, answers: Sequence[Admission | Refusal]) -> None:
        """Rank devices by their admissions."""
        base = len(self._grants)
        granted = [answer for answer in answers if isinstance(answer, Admission)]
        self._grants.extend(granted)
        # one more entry at the end, for -1 ("not evaluated")
        index = np.full(len(answers) + 1, -1, dtype=np.int64)
        places = [at for at, answer in enumerate(answers) if isinstance(answer, Admission)]
        index[places] = range(base, base + len(granted))
        gives = index[numbers]
        sites, gives = sites[gives >= 0], gives[gives >= 0]
        self._gives[sites] = gives
        if self.request.exclusive or not len(sites):
            return
        percent = np.array([admission.percent for admission in granted], dtype=np.int64)[
            gives - base
        ]
        if self._index.rule.by_worth:
            worth = [_TRIAL * admission.trial - admission.net for admission in granted]
            self._rank[sites] = np.array(worth, dtype=np.int64)[gives - base]
            self._then[sites] = percent
        else:
            self._rank[sites] = -percent
            self._then[sites] = (
                self.request.percent_limit - self._occupancy.percent_used[sites] - percent
            )
        if self.request.values:
            order = self._rank if self._index.rule.by_worth else self._then
            order[sites] -= self._favours[self._occupancy.inventory.model[sites]]

    def _catch_up(self) -> None:
        """Evaluate again the devices that changed since the last query."""
        log = self._occupancy.log
        if self._seen == len(log):
            return
        changed = list(dict.fromkeys(log[self._seen :]))
        if len(changed) > _CATCH_UP:
            self._judge_all()
            return
        self._seen = len(log)
        self._occupancy.effort.spent += len(changed) // _ONE_BY_ONE
        sites = np.array(changed, dtype=np.int64)
        self._gives[sites] = -1
        self._rank[sites] = _NEVER
        if len(changed) > _ONE_BY_ONE:
            self._judge_some(sites)
        else:
            for site in changed:
                self._judge(site)
        if self.request.exclusive:
            self._renew_nodes(changed)

    def _renew_nodes(self, changed: Iterable[int]) -> None:
        """Represent each node that has enough free devices by the first of them."""
        sites = self._occupancy.inventory.sites
        for node in {sites[site].node for site in changed}:
            free = self._free_on(node)
            self._rank[list(self._occupancy.inventory.sites_on[node])] = _NEVER
            if len(free) >= self.request.count:
                self._rank[free[0]] = -WHOLE_PERCENT - self._favour(free[0])
                self._then[free[0]] = len(free) - self.request.count

    def _judge(self, site: int) -> None:
        if self._occupancy.blocked.item(site) or not self._reachable.item(site):
            return
        grant = self._index.granted(self.request, site)
        if grant is None:
            return
        self._gives[site] = len(self._grants)
        self._grants.append(grant)
        if self.request.exclusive:
            return
        if self._index.rule.by_worth:
            self._rank[site] = _TRIAL * grant.trial - grant.net - self._favour(site)
            self._then[site] = grant.percent
        else:
            used = self._occupancy.percent_used.item(site)
            self._rank[site] = -grant.percent
            rest = self.request.percent_limit - used - grant.percent
            self._then[site] = rest - self._favour(site)

    def _favour(self, site: int) -> int:
        """The bonus of a device for its type."""
        return self._favours.item(self._occupancy.inventory.model.item(site))


def by_node(counts: Ints) -> dict[int, int]:
    """Positive counts by node."""
    nodes = np.flatnonzero(counts)
    return dict(zip(nodes.tolist(), counts[nodes].tolist(), strict=True))


def _favours(inventory: Inventory, request: ResourceRequest) -> Ints:
    """The bonus of each model."""
    favours = np.zeros(len(inventory.models), dtype=np.int64)
    for model, percent in request.values:
        favours[model] = percent * _FAVOUR
    return favours
