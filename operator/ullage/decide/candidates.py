# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Where one class of request fits, best first, kept current while the board changes.

The first query judges all devices at once; later ones only what changed since. The order is the
placement rule's: largest share, least percent left over, nodes already used, uuid.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ullage.decide.board import WHOLE_PERCENT, Board
from ullage.decide.checks import (
    CHAIN,
    Breach,
    Grant,
    allowed_model,
    ceiling,
    columns,
    figures,
    largest_share,
    passes,
    picked,
)
from ullage.decide.fit import Fit, judge_node
from ullage.decide.ground import Flags, Ints
from ullage.decide.want import Want
from ullage.engines.admission.prediction import Predictor
from ullage.state.records import PodShape

_CATCH_UP: Final = 1000
"""More changed devices than this are cheaper judged by judging all."""
_ONE_BY_ONE: Final = 6
"""So many changed devices are cheaper judged one by one than in one go."""

NEWCOMER: Final = "this workload"

Key = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Spot:
    """A place for one member: devices of one node, at a share."""

    node: int
    sites: tuple[int, ...]
    percent: int
    left_over: int
    """Percent, or whole devices of the node, that stay free beside it."""


@dataclass(slots=True)
class Scout:
    """What all classes of a cycle share: the board, the predictor, verdicts by shape."""

    board: Board
    predictor: Predictor
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

    def share(self, want: Want, site: int, top: int) -> int:
        """Largest share that the predictor grants up to ``top``; 0 = none."""
        if want.max_slowdown is None and not self.board.protected[site]:
            return top
        found = self.predicted(want, site, top)
        return found.percent if isinstance(found, Grant) else 0

    def predicted(self, want: Want, site: int, top: int) -> Grant | Breach:
        """What the predictor says to shares up to ``top``; asked once per situation."""
        model = self.board.ground.model.item(site)
        tenants = tuple(one.tenant for one in self.board.occupants[site])
        situation = tuple((t.percent, t.utilisation, t.max_slowdown) for t in tenants)
        key = (want.number, model, top, situation)
        found = self.grants.get(key)
        if found is None:
            newcomer = want.tenant(NEWCOMER, model, top)
            found = largest_share(newcomer, tenants, (want.min_percent, top), self.predictor)
            self.grants[key] = found
        return found

    def granted(self, want: Want, site: int) -> int:
        """Share that one device would give, 0 = refused."""
        facts = figures(self.board, site)
        if not passes(facts, want):
            return 0
        top = WHOLE_PERCENT if want.exclusive else ceiling(facts, want)
        return self.share(want, site, top)


class Shortlist:
    """Candidates of one class."""

    def __init__(self, scout: Scout, want: Want) -> None:
        self.want = want
        self._scout = scout
        self._board = scout.board
        self._order: list[Key] = []
        self._percent: dict[int, int] = {}
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
        if not self.want.exclusive:
            site = key[2]
            node = self._board.ground.sites[site].node
            return Spot(node, (site,), -key[0], key[1])
        node = self._board.ground.sites[key[2]].node
        free = [one for one in self._board.ground.sites_on[node] if one in self._percent]
        return Spot(node, tuple(free[: self.want.count]), WHOLE_PERCENT, key[1])

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
        percent = self._percent.get(site, 0)
        if not percent:
            return None
        want, board = self.want, self._board
        if not want.exclusive:
            left = want.percent_limit - board.percent_used.item(site) - percent
            return (-percent, left, site)
        key = self._node_key(board.ground.sites[site].node)
        return key if key is not None and key[2] == site else None

    def _node_key(self, node: int) -> Key | None:
        """Where a node with enough whole devices stands; its first free device names it."""
        percent = self._percent
        free = [one for one in self._board.ground.sites_on[node] if one in percent]
        left = len(free) - self.want.count
        return (-WHOLE_PERCENT, left, free[0]) if left >= 0 else None

    def _best_on(self, node: int) -> Key | None:
        if self.want.exclusive:
            return self._node_key(node)
        keys = [self._key(site) for site in self._board.ground.sites_on[node]]
        return min((key for key in keys if key is not None), default=None)

    def _judge_all(self) -> None:
        """Judge every device at once."""
        self._percent = self._judged(None)
        if not self.want.exclusive:
            keys = [self._key(site) for site in self._percent]
        else:
            sites = self._board.ground.sites
            keys = [self._node_key(node) for node in {sites[one].node for one in self._percent}]
        self._order = [key for key in keys if key is not None]
        heapq.heapify(self._order)
        self._seen = len(self._board.log)

    def _judged(self, sites: Ints | None) -> dict[int, int]:
        """Shares that some devices (or all) would give, those that refuse left out."""
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
        share = self._scout.share
        granted = ((site, share(want, site, top)) for site, top in zip(found, tops, strict=True))
        return {site: percent for site, percent in granted if percent}

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
            granted = {site: self._judge(site) for site in changed}
        else:
            granted = self._judged(np.array(list(changed), dtype=np.int64))
        for site in changed:
            percent = granted.get(site, 0)
            if percent:
                self._percent[site] = percent
            elif self._percent.pop(site, 0) and not self.want.exclusive:
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

    def _judge(self, site: int) -> int:
        if self._board.blocked.item(site) or not self._reachable.item(site):
            return 0
        return self._scout.granted(self.want, site)
