# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Searches from the held allocation for a better one: add, release, move, each for a gain.

Allocations are counts aligned with the pools. A change must gain by a fraction of the current
value, so that noise in prices and hazards moves nothing. It must never end beyond a limit: budget,
replicas, capacity of a pool.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ullage.engines.capacity.cost import CostTerms, expected
from ullage.engines.capacity.records import (
    OBJECTIVES,
    Ask,
    CapacityOption,
    CapacitySettings,
    CapacityType,
    Expected,
    Pool,
    PoolInstances,
)

Counts = tuple[int, ...]
MOST_SIZES = 32
"""Most sizes of one step that are tried: a user's bounds must not decide the duration of a
decision. Sizes in between are reached by the next steps."""
_TIES = 1e-9
"""Values closer than this fraction are equal."""


@dataclass(slots=True)
class CapacitySearch:
    """The search of one decision; it caches evaluated allocations.

    Attributes:
        pools: Sorted by name, each with a price.
        ask: Of the job.
        terms: Of the job.
        settings: Of the policy.
        held: Current holdings.
        held_s: Seconds since each pool's instances were acquired.
    """

    pools: Sequence[Pool]
    ask: Ask
    terms: CostTerms
    settings: CapacitySettings
    held: Counts
    held_s: tuple[float, ...]
    seen: dict[Counts, Expected] = field(default_factory=dict)
    rivals: list[Counts] = field(default_factory=list)
    """The candidates of the last change."""
    waited: bool = False
    """True when a candidate would have gained but is held for too short a time."""

    def run(self) -> Counts:
        """The target allocation; no instances where the minimum is not available."""
        best = self._move(self._shrink(self._release(self._grow(self._within_limits()))))
        return best if sum(best) >= self.ask.least else (0,) * len(best)

    def expect(self, counts: Counts) -> Expected:
        """Cost and work of an allocation; a change is charged to all but the held one."""
        if counts not in self.seen:
            self.seen[counts] = expected(
                self.pools,
                counts,
                self.terms,
                changed=self._changed(counts),
                horizon_h=self.settings.horizon_h,
            )
        return self.seen[counts]

    def _changed(self, counts: Counts) -> float:
        """Fraction of a whole change that an allocation costs."""
        terms = self.terms
        if counts == self.held:
            return 0.0
        if terms.meet_h is None or not terms.change_h:
            return 1.0
        steps = [new - old for new, old in zip(counts, self.held, strict=True)]
        moved = min(sum(max(0, step) for step in steps), sum(max(0, -step) for step in steps))
        least = min(1.0, terms.meet_h / terms.change_h)
        return least + (1.0 - least) * moved / max(1, sum(self.held))

    def option(self, counts: Counts) -> CapacityOption:
        """An allocation with its expected cost and work."""
        return CapacityOption(shares=self.shares(counts), expected=self.expect(counts))

    def runner_up(self, chosen: Counts) -> CapacityOption | None:
        """The best alternative among the candidates of the last change, else of all seen.

        An alternative with other pools comes before one with other counts.
        """
        allowed = [
            counts
            for counts in self.rivals or self.seen
            if counts != chosen and sum(counts) >= self.ask.least and self.fits(counts)
        ]
        if not allowed:
            return None
        used = [count > 0 for count in chosen]
        return self.option(
            min(
                allowed,
                key=lambda counts: (
                    [count > 0 for count in counts] == used,
                    *self.rank(counts),
                ),
            )
        )

    def shares(self, counts: Counts) -> tuple[PoolInstances, ...]:
        """Counts with the names of their pools."""
        return tuple(
            PoolInstances(pool=pool.name, instances=count)
            for pool, count in zip(self.pools, counts, strict=True)
            if count
        )

    def rank(self, counts: Counts) -> tuple[float, float, Counts]:
        """Sort key: the minimised figure, then tie breakers, then the counts."""
        expected = self.expect(counts)
        if OBJECTIVES[self.ask.objective].fastest:
            return _rounded(-expected.work), _rounded(expected.per_work), counts
        return _rounded(expected.per_work), _rounded(-expected.work), counts

    def gains(self, new: Counts, old: Counts) -> bool:
        """True if an allocation is better by more than the minimum gain.

        Args:
            new: Instances of each pool after the change.
            old: Instances of each pool before it.
        """
        least = self.settings.min_gain
        after, before = self.expect(new), self.expect(old)
        if OBJECTIVES[self.ask.objective].fastest:
            if after.work > before.work * (1 + least):
                return True
            if after.work < before.work * (1 - _TIES):
                return False
        return after.per_work < before.per_work * (1 - least)

    def fits(self, counts: Counts) -> bool:
        """True when replicas and budget are within their limits."""
        if sum(counts) > self.ask.most:
            return False
        budget = self.ask.budget_per_hour
        return budget is None or self.expect(counts).per_hour <= budget * (1 + _TIES)

    def addable(self, index: int, counts: Counts) -> int:
        """Most instances that one pool can add to an allocation, such that gangs are whole.

        Args:
            index: Of the pool in ``pools``.
            counts: Instances of each pool.
        """
        pool, ask = self.pools[index], self.ask
        if not pool.available or not pool.speed or not allowed(pool, ask):
            return 0
        room = ask.most - sum(counts)
        if pool.most is not None:
            room = min(room, pool.most - counts[index])
        return max(0, room - (sum(counts) + room) % ask.gang)

    def _within_limits(self) -> Counts:
        """The instances held, cut to the limits by the least valuable gangs."""
        counts = tuple(
            min(count, count if pool.most is None else pool.most) if allowed(pool, self.ask) else 0
            for pool, count in zip(self.pools, self.held, strict=True)
        )
        # a gang that lost a member is smaller than a whole one
        short = sum(counts) % self.ask.gang
        while sum(counts) and (short or not self.fits(counts)):
            step = short or self.ask.gang
            short = 0
            counts = min(self._without(counts, step), key=self.rank)
        return counts

    def _without(self, counts: Counts, step: int) -> list[Counts]:
        """All allocations with a given number of instances fewer."""
        neighbours = []
        for index, count in enumerate(counts):
            if count >= step:
                neighbours.append(_with(counts, index, -step))
        if neighbours:
            return neighbours
        # spread thinner than a step: from the largest pools
        left, reduced = step, list(counts)
        for index in sorted(range(len(counts)), key=lambda at: -counts[at]):
            taken = min(left, reduced[index])
            reduced[index] -= taken
            left -= taken
        return [tuple(reduced)]

    def _grow(self, best: Counts) -> Counts:
        """Add the best step while it gains, and in any case up to the minimum of replicas."""
        while True:
            steps = [counts for counts in self._additions(best) if self.fits(counts)]
            if not steps:
                return best
            step = min(steps, key=self.rank)
            if sum(best) >= self.ask.least and not self.gains(step, best):
                return best
            best, self.rivals = step, steps

    def _additions(self, best: Counts) -> Iterator[Counts]:
        """Steps of whole gangs in one pool; below the minimum, the steps that reach it first."""
        rooms = [self.addable(index, best) for index in range(len(best))]
        missing = max(0, self.ask.least - sum(best))
        first = -(-missing // self.ask.gang) * self.ask.gang
        reach = max(rooms, default=0) >= first
        for index, room in enumerate(rooms):
            start = max(self.ask.gang, first) if reach else room
            for step in self._sizes(start, room) if start else ():
                yield _with(best, index, step)

    def _sizes(self, least: int, most: int) -> Iterator[int]:
        """Whole gangs from the least to the most; of many sizes a sample with both ends."""
        sizes = range(least, most + 1, self.ask.gang)
        some = sizes[:: max(1, -(-len(sizes) // MOST_SIZES))]
        yield from some
        if some and some[-1] != sizes[-1]:
            yield sizes[-1]

    def _release(self, best: Counts) -> Counts:
        """Release pools that cost more than they yield, one after the other."""
        for index, count in enumerate(self.held):
            if not count or not best[index]:
                continue
            fewer = _with(best, index, -best[index])
            # a gang may be spread over pools
            if sum(fewer) < max(1, self.ask.least) or sum(fewer) % self.ask.gang:
                continue
            if not self.gains(fewer, best):
                continue
            if self._settled(index):
                best, self.rivals = fewer, [best]
        return best

    def _shrink(self, best: Counts) -> Counts:
        """Release a part of one pool where a smaller size costs less per work (derived).

        Without a price of delay the minimum would always win, so nothing is released.
        """
        if self.terms.delay_per_hour is None:
            return best
        gang = self.ask.gang
        fewer = [
            (index, _with(best, index, -step))
            for index, count in enumerate(best)
            if self.held[index]
            for step in self._sizes(gang, count - 1)
            if sum(best) - step >= self.ask.least
        ]
        gaining = [option for option in fewer if self.gains(option[1], best)]
        settled = [counts for index, counts in gaining if self._settled(index)]
        if not settled:
            return best
        self.rivals = [best, *settled]
        return min(settled, key=self.rank)

    def _move(self, best: Counts) -> Counts:
        """Move one pool's instances to another where that gains: full jobs cannot add first.

        Otherwise, a job on on-demand at its most replicas would never return to spot (derived).
        """
        moves = []
        for index, count in enumerate(best):
            if not count or not self.held[index]:
                continue
            fewer = _with(best, index, -count)
            for other in range(len(best)):
                room = self.addable(other, fewer) if other != index else 0
                if room and room + sum(fewer) >= self.ask.least:
                    moves.append((index, _with(fewer, other, min(room, count))))
        gaining = [move for move in moves if self.fits(move[1]) and self.gains(move[1], best)]
        settled = [counts for index, counts in gaining if self._settled(index)]
        if not settled:
            return best
        self.rivals = [best, *settled]
        return min(settled, key=self.rank)

    def _settled(self, index: int) -> bool:
        """True if a pool is held long enough to be released; records a pool that is not."""
        old = self.held_s[index] >= self.settings.min_hold_s
        self.waited = self.waited or not old
        return old


def allowed(pool: Pool, ask: Ask) -> bool:
    """True if a job may use a pool at all.

    Args:
        pool: The pool.
        ask: Of the job.
    """
    if pool.capacity_type is CapacityType.SPOT:
        return ask.allow_spot
    return ask.allow_on_demand


def _with(counts: Counts, index: int, more: int) -> Counts:
    return (*counts[:index], counts[index] + more, *counts[index + 1 :])


def _rounded(value: float) -> float:
    """Twelve digits: sums in a different order are ties."""
    return value if math.isinf(value) else float(f"{value:.12g}")
