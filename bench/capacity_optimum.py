# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The cheapest way through known prices: the limit that a policy without foresight is held to.

Exact dynamic program over days and candidates. Work done depends on the path, so each (day,
candidate) keeps the Pareto set of (dollars, work done). Moving costs the restart's hours at the new
offer's price; the first start is free for everyone. It must never be used to decide: it knows the
future.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
IDLE: Final = -1
"""Waiting: no offer is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """Known prices.

    Attributes:
        prices: Dollars per hour, periods x candidates; NaN = not offered. The last row lasts.
        speeds: Work per hour of each candidate.
        period_h: Hours of a period.
        restart_h: Hours lost per move.
    """

    prices: Floats
    speeds: Floats
    period_h: float = 24.0
    restart_h: float = 0.25

    def row(self, period: int) -> Floats:
        """Prices of a period."""
        return np.asarray(self.prices[min(period, len(self.prices) - 1)])

    def run(self, period: int, offer: int, work_left: float, *, moved: bool) -> tuple[float, float]:
        """Dollars of one period on an offer and the work done in it.

        Args:
            period: Index of the period.
            offer: Index of the candidate.
            work_left: Work still to do, in the unit of ``speeds``.
            moved: The restart is lost first.

        Returns:
            Dollars, and work.
        """
        price, speed = float(self.row(period)[offer]), float(self.speeds[offer])
        lost = self.restart_h if moved else 0.0
        able = speed * max(0.0, self.period_h - lost)
        if work_left <= able:
            return price * (lost + work_left / speed), work_left
        return price * self.period_h, able


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The cheapest path.

    Attributes:
        cost: Dollars.
        path: Candidate of each period; ``IDLE`` = waiting.
    """

    cost: float
    path: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _State:
    cost: float
    done: float
    path: tuple[int, ...]


def cheapest(
    market: Market, work: float, *, may_wait: bool = True, periods: int | None = None
) -> Best:
    """The cheapest way to do some work.

    Args:
        market: Known prices.
        work: Work to do, in the unit of the market's ``speeds``.
        may_wait: Periods may pass without an offer.
        periods: It has to be done within so many; ``None`` = as many as there are prices, and
            beyond them for as long as the work runs on.

    Raises:
        ValueError: no candidate can do it.
    """
    last = len(market.prices) if periods is None else periods
    cheapest_left = _cheapest_left(market)
    level: dict[int, list[_State]] = {IDLE: [_State(0.0, 0.0, ())]}
    best = Best(cost=math.inf, path=())
    for period in range(last if periods is not None else 100 * last):
        idle = may_wait and period + 1 < last
        following, best = _step(market, work, period, level, best, idle=idle)
        floor = cheapest_left[min(period + 1, len(cheapest_left) - 1)]
        level = {
            held: pareto(
                [one for one in states if one.cost + (work - one.done) * floor < best.cost]
            )
            for held, states in following.items()
        }
        if not any(level.values()):
            break
    if not math.isfinite(best.cost):
        raise ValueError("no candidate is offered long enough to do the work")
    return best


def _step(
    market: Market,
    work: float,
    period: int,
    level: dict[int, list[_State]],
    best: Best,
    *,
    idle: bool,
) -> tuple[dict[int, list[_State]], Best]:
    """All states one period later, and the best of those that are done."""
    following: dict[int, list[_State]] = {}
    offered = np.flatnonzero(~np.isnan(market.row(period))).tolist()
    for held, states in level.items():
        for state in states:
            if idle:
                waited = _State(state.cost, state.done, (*state.path, IDLE))
                following.setdefault(IDLE, []).append(waited)
            for offer in offered:
                moved = state.done > 0 and offer != held
                paid, more = market.run(period, offer, work - state.done, moved=moved)
                cost, done = state.cost + paid, state.done + more
                path = (*state.path, offer)
                if done < work * (1 - 1e-12):
                    following.setdefault(offer, []).append(_State(cost, done, path))
                elif cost < best.cost:
                    best = Best(cost=cost, path=path)
    return following, best


def pareto(states: Sequence[_State]) -> list[_State]:
    """Those that no other beats in dollars and work."""
    kept: list[_State] = []
    most = -math.inf
    for state in sorted(states, key=lambda one: (one.cost, -one.done, one.path)):
        if state.done > most:
            kept.append(state)
            most = state.done
    return kept


def _cheapest_left(market: Market) -> list[float]:
    """Least dollars per work from each period on: a bound for what is left."""
    with np.errstate(divide="ignore"):
        per_work = np.where(np.isnan(market.prices), np.inf, market.prices / market.speeds)
    least = np.minimum.accumulate(per_work.min(axis=1)[::-1])[::-1]
    return [float(value) for value in least]
