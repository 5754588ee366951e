# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where one class of request fits, best first, kept current while the board changes.

The first query judges all devices at once; later ones only what changed since. Places that need no
trial come first. Then, by worth: larger net value, smaller share, nodes already used, uuid; by
share: largest share, least percent left over, nodes already used, uuid.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ullage.decide.board import Board
from ullage.decide.checks import (
    CHAIN,
    allowed_model,
    ceiling,
    columns,
    figures,
    passes,
    picked,
)
from ullage.decide.fit import Fit, judge_node
from ullage.decide.ground import Flags, Ints
from ullage.decide.judging import Breach, Case, Grant, Rule
from ullage.decide.want import Want
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.state.records import PodShape

_CATCH_UP: Final = 1000
"""More changed devices than this are cheaper judged by judging all."""
_ONE_BY_ONE: Final = 6
"""So many changed devices are cheaper judged one by one than in one go."""

NEWCOMER: Final = "this workload"

Key = tuple[int, int, int]

_TRIAL: Final = 1 << 40
"""Far above any worth: what has to be tried out comes after what has not."""
_WHOLE: Final = Grant(WHOLE_PERCENT, 1.0)


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for one member: devices of one node, at a share."""

    node: int
    sites: tuple[int, ...]
    percent: int
    grant: Grant
    """What was said of the first device."""


@dataclass(slots=True)
class Scout:
    """What all classes of a cycle share: the board, the rule, verdicts by shape."""

    board: Board
    rule: Rule
    fits: dict[tuple[int, bool], Ints] = field(default_factory=dict)
    """Of the nodes, by identity of the shape: a :class:`Fit` each."""
    grants: dict[tuple[object, ...], Grant | Breach] = field(default_factory=dict)

    def fit(self, shape: PodShape, *, in_principle: bool = False) -> Ints:
        """How every node answers to a shape."""
        known = self.fits.get((id(shape), in_principle))
        if known is None:
            nodes = self.board.ground.nodes
            known = np.array(
                [judge_node(shape, node, in_principle=in_principle) for node in nodes],
                dtype=np.int64,
            )
            self.fits[id(shape), in_principle] = known
        return known

    def reachable(self, want: Want) -> Flags:
        """Devices on nodes that fit, of an allowed model, neither held back nor passed over."""
        board = self.board
        mask: Flags = (self.fit(want.shape) == int(Fit.OK))[board.ground.node_of]
        mask &= allowed_model(columns(board), want)
        mask &= ~board.blocked
        if want.avoid:
            mask[sorted(want.avoid)] = False
        return mask

    def predicted(self, want: Want, site: int, top: int) -> Grant | Breach:
        """What the rule says to shares up to ``top``; asked once per situation."""
        model = self.board.ground.model.item(site)
        here = self.board.occupants[site]
        if want.exclusive and not here:
            return _WHOLE
        situation = tuple(
            (
                one.tenant.percent,
                one.tenant.utilisation,
                one.tenant.max_slowdown,
                one.tenant.probation,
                one.tenant.latency,
                one.tenant.profile.klass if one.tenant.profile is not None else "",
            )
            for one in here
        )
        key = (want.number, model, top, situation)
        found = self.grants.get(key)
        if found is None:
            found = self.grants[key] = self.rule.judge(self.case(want, site, top))
        return found

    def case(self, want: Want, site: int, top: int) -> Case:
        """The question whether a class may join a device, as the rule is asked it."""
        ground = self.board.ground
        return self.empty_case(want, ground.model.item(site), top).beside(
            tuple(one.tenant for one in self.board.occupants[site])
        )

    def empty_case(self, want: Want, model: int, top: int) -> Case:
        """The same of an empty device of a model."""
        # whoever is measured alone takes all it may have: nobody else is there for the rest
        least = top if model in want.unmeasured else want.min_percent
        return Case(
            accelerator=self.board.ground.model_names[model],
            newcomer=want.tenant(NEWCOMER, model, top),
            tenants=(),
            least=least,
            most=top,
            percent_limit=want.percent_limit,
            account=want.known.account,
            domain=str(want.domain),
        )

    def granted(self, want: Want, site: int) -> Grant | None:
        """What one device would give; ``None`` = refused."""
        facts = figures(self.board, site)
        if not passes(facts, want):
            return None
        top = WHOLE_PERCENT if want.exclusive else ceiling(facts, want)
        found = self.predicted(want, site, top)
        return found if isinstance(found, Grant) else None


class Shortlist:
    """Candidates of one class."""

    def __init__(self, scout: Scout, want: Want) -> None:
        self.want = want
        self._scout = scout
        self._board = scout.board
        self._order: list[Key] = []
        self._granted: dict[int, Grant] = {}
        self._reachable = scout.reachable(want)
        self._seen = 0
        self._judge_all()

    def best(self, near: set[int]) -> Spot | None:
        """The best place now; of equals one on a node in ``near``, which loses full nodes."""
        self._catch_up()
        key = self._top()
        if key is None:
            return None
        for node in sorted(near):
            closer = self._best_on(node)
            if closer is None:
                near.discard(node)
            elif closer[:2] == key[:2] and self._has_room(closer):
                return self._spot(closer)
        return self._spot(key)

    def second(self, spot: Spot) -> Spot | None:
        """The best place beside this one, for the record."""
        self._catch_up()
        aside: list[Key] = []
        found: Spot | None = None
        while found is None:
            key = self._top()
            if key is None:
                break
            candidate = self._spot(key)
            if not set(candidate.sites) & set(spot.sites):
                found = candidate
            else:
                aside.append(heapq.heappop(self._order))
        for key in aside:
            heapq.heappush(self._order, key)
        return found

    def _spot(self, key: Key) -> Spot:
        node = self._board.ground.sites[key[2]].node
        grant = self._granted[key[2]]
        if not self.want.exclusive:
            return Spot(node, (key[2],), grant.percent, grant)
        free = [one for one in self._board.ground.sites_on[node] if one in self._granted]
        return Spot(node, tuple(free[: self.want.count]), WHOLE_PERCENT, grant)

    def _top(self) -> Key | None:
        """The first entry of the order that still says the truth."""
        order = self._order
        while order:
            key = order[0]
            now = self._key(key[2])
            if now == key and self._has_room(key):
                return key
            heapq.heappop(order)
            if now is not None and now != key and self._has_room(now):
                heapq.heappush(order, now)
        return None

    def _has_room(self, key: Key) -> bool:
        return self._board.has_room(self._board.ground.sites[key[2]].node, self.want.needs)

    def _key(self, site: int) -> Key | None:
        """Where a device (or, for whole devices, the node of it) stands in the order."""
        grant = self._granted.get(site)
        if grant is None:
            return None
        want, board = self.want, self._board
        if want.exclusive:
            key = self._node_key(board.ground.sites[site].node)
            return key if key is not None and key[2] == site else None
        if self._scout.rule.by_worth:
            return (_TRIAL * grant.trial - grant.net, grant.percent, site)
        left = want.percent_limit - board.percent_used.item(site) - grant.percent
        return (-grant.percent, left, site)

    def _node_key(self, node: int) -> Key | None:
        """Where a node with enough whole devices stands; its first free device names it."""
        free = [one for one in self._board.ground.sites_on[node] if one in self._granted]
        left = len(free) - self.want.count
        return (-WHOLE_PERCENT, left, free[0]) if left >= 0 else None

    def _best_on(self, node: int) -> Key | None:
        if self.want.exclusive:
            return self._node_key(node)
        keys = [self._key(site) for site in self._board.ground.sites_on[node]]
        return min((key for key in keys if key is not None), default=None)

    def _judge_all(self) -> None:
        """Judge every device at once."""
        self._granted = self._judged(None)
        if not self.want.exclusive:
            keys = [self._key(site) for site in self._granted]
        else:
            sites = self._board.ground.sites
            keys = [self._node_key(node) for node in {sites[one].node for one in self._granted}]
        self._order = [key for key in keys if key is not None]
        heapq.heapify(self._order)
        self._seen = len(self._board.log)

    def _judged(self, sites: Ints | None) -> dict[int, Grant]:
        """What some devices (or all) would give, those that refuse left out."""
        board, want = self._board, self.want
        facts = columns(board)
        mask = self._reachable & ~board.blocked
        if sites is not None:
            facts, mask = picked(facts, sites), mask[sites]
        for _, check in CHAIN:
            mask = mask & (check(facts, want) <= 0)
        at = np.flatnonzero(mask)
        found = (at if sites is None else sites[at]).tolist()
        tops: list[int] = [WHOLE_PERCENT] * len(found)
        if not want.exclusive:
            tops = ceiling(facts, want)[at].tolist()
        predicted = self._scout.predicted
        said = ((site, predicted(want, site, top)) for site, top in zip(found, tops, strict=True))
        return {site: one for site, one in said if isinstance(one, Grant)}

    def _catch_up(self) -> None:
        """Judge anew what changed since the last query."""
        log = self._board.log
        if self._seen == len(log):
            return
        changed = dict.fromkeys(log[self._seen :])
        if len(changed) > _CATCH_UP:
            self._judge_all()
            return
        self._seen = len(log)
        if len(changed) <= _ONE_BY_ONE:
            said = ((site, self._judge(site)) for site in changed)
            granted = {site: one for site, one in said if one is not None}
        else:
            granted = self._judged(np.array(list(changed), dtype=np.int64))
        for site in changed:
            grant = granted.get(site)
            if grant is not None:
                self._granted[site] = grant
            elif self._granted.pop(site, None) is not None and not self.want.exclusive:
                continue
            key = self._key(site) if not self.want.exclusive else None
            if key is not None:
                heapq.heappush(self._order, key)
        if self.want.exclusive:
            self._renew_nodes(changed)

    def _renew_nodes(self, changed: Iterable[int]) -> None:
        sites = self._board.ground.sites
        for node in {sites[site].node for site in changed}:
            key = self._node_key(node)
            if key is not None:
                heapq.heappush(self._order, key)

    def _judge(self, site: int) -> Grant | None:
        if self._board.blocked.item(site) or not self._reachable.item(site):
            return None
        return self._scout.granted(self.want, site)
