# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The capacity decision of one job, from its objective, limits and pools.

Every decision includes its alternatives, its reason, and the time of the next one. Pure and
deterministic: same inputs, same bytes. It must never leave a deadline to cost alone, which waits
too long because waiting is cheap.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.words import CostObjective, SpendMode
from ullage.engines.capacity import deadline
from ullage.engines.capacity.cost import CostTerms
from ullage.engines.capacity.deadline import DeadlineProgress, DeadlineVerdict, ProgressLine
from ullage.engines.capacity.explain import text
from ullage.engines.capacity.records import (
    OBJECTIVES,
    Ask,
    CapacityDecision,
    CapacityOption,
    CapacitySettings,
    CapacityType,
    CapacityWhy,
    Pool,
)
from ullage.engines.capacity.search import CapacitySearch, Counts, allowed

DEFAULT: Final = CapacitySettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A deadline with the state of the job.

    Attributes:
        line: Work and deadline.
        elapsed_s: Seconds since the job's start.
        done_s: Seconds of uninterrupted running that are done and saved.
        committed: As in the last decision.
    """

    line: ProgressLine
    elapsed_s: int
    done_s: int
    committed: bool = False


def decide(
    ask: Ask,
    pools: Sequence[Pool],
    terms: CostTerms,
    *,
    due: Due | None = None,
    settings: CapacitySettings = DEFAULT,
) -> CapacityDecision:
    """Decide the capacity that a job should hold from now on.

    Args:
        ask: Objective, limits and current holdings.
        pools: Pools as seen by this job; names are unique.
        terms: Measured for this job.
        due: Its deadline; required by, and only by, objective ``Deadline``.
        settings: Of the policy.

    Raises:
        ValueError: two pools of one name, or a deadline without its objective or the reverse.
    """
    if len({pool.name for pool in pools}) < len(pools):
        raise ValueError("two pools have one name")
    if (due is None) == OBJECTIVES[ask.objective].due:
        raise ValueError("objective Deadline, and no other, comes with a deadline")
    seen = (ask, tuple(sorted(pools, key=lambda pool: pool.name)), terms, due, settings)
    digest = hashlib.sha256(repr(seen).encode()).hexdigest()[:16]
    search = _search(ask, pools, terms, settings)
    if due is None:
        chosen = search.run()
        return _decision(search, chosen, _why(search, chosen, ask, pools), digest)
    return _due(search, pools, due, digest)


def _search(
    ask: Ask, pools: Sequence[Pool], terms: CostTerms, settings: CapacitySettings
) -> CapacitySearch:
    """A search over the pools with a price; holdings elsewhere do not count."""
    priced = sorted(
        (pool for pool in pools if pool.price_per_hour is not None), key=lambda pool: pool.name
    )
    held = {holding.pool: holding for holding in ask.held}
    mine = [held.get(pool.name) for pool in priced]
    return CapacitySearch(
        pools=priced,
        ask=ask,
        terms=terms,
        settings=settings,
        held=tuple(holding.instances if holding else 0 for holding in mine),
        held_s=tuple(holding.held_s if holding else 0.0 for holding in mine),
    )


def _why(search: CapacitySearch, chosen: Counts, ask: Ask, pools: Sequence[Pool]) -> CapacityWhy:
    if not sum(chosen):
        return _why_nothing(search, ask, pools)
    more = any(new > old for new, old in zip(chosen, search.held, strict=True))
    fewer = any(new < old for new, old in zip(chosen, search.held, strict=True))
    if more or fewer:
        if fewer and not more and not search.fits(search.held):
            return CapacityWhy.LIMITED
        return (
            CapacityWhy.SWITCHED
            if more and fewer
            else CapacityWhy.ACQUIRED
            if more
            else CapacityWhy.RELEASED
        )
    return CapacityWhy.HOLDING if search.waited else CapacityWhy.KEPT


def _why_nothing(search: CapacitySearch, ask: Ask, pools: Sequence[Pool]) -> CapacityWhy:
    if not search.pools and pools:
        return CapacityWhy.NOT_PRICED
    if ask.budget_per_hour is None:
        return CapacityWhy.NO_CAPACITY
    free = replace(ask, budget_per_hour=None)
    unlimited = replace(search, ask=free, seen={})
    return CapacityWhy.BUDGET if sum(unlimited.run()) else CapacityWhy.NO_CAPACITY


def _decision(
    search: CapacitySearch, chosen: Counts, why: CapacityWhy, digest: str
) -> CapacityDecision:
    best, current = search.option(chosen), search.option(search.held)
    other = search.runner_up(chosen)
    return CapacityDecision(
        chosen=best,
        runner_up=other,
        current=current,
        reason=why,
        text=text(why, best, current, other, search.ask),
        inputs_hash=digest,
        next_in_s=_next_s(search),
    )


def _next_s(search: CapacitySearch) -> float:
    """The usual period, or the end of the first minimum hold that blocks a change."""
    period_s = search.settings.period_s
    if not search.waited:
        return period_s
    left = [
        search.settings.min_hold_s - held_s
        for held_s, count in zip(search.held_s, search.held, strict=True)
        if count and held_s < search.settings.min_hold_s
    ]
    return min(period_s, *left) if left else period_s


def _due(search: CapacitySearch, pools: Sequence[Pool], due: Due, digest: str) -> CapacityDecision:
    """Choose spot or on-demand by Uniform Progress; cost ranks the pools of that kind."""
    ask = search.ask
    kinds = {pool.name: pool.capacity_type for pool in search.pools}
    kept = {
        SpendMode.SPOT: _whole_gang(search, kinds, spot=True),
        SpendMode.ON_DEMAND: _whole_gang(search, kinds, spot=False),
    }
    offers = {mode: kept[mode] or _fresh(search, spot=mode is SpendMode.SPOT) for mode in kept}
    running = next((mode for mode, counts in kept.items() if counts), SpendMode.IDLE)
    progress = DeadlineProgress(
        elapsed_s=due.elapsed_s,
        done_s=due.done_s,
        running=running,
        spot_available=offers[SpendMode.SPOT] is not None,
        committed=due.committed,
    )
    verdict = deadline.uniform_progress(due.line, progress)
    chosen, why = _carry_out(verdict, offers)
    nothing = (0,) * len(search.pools)
    counts = nothing if chosen is None else chosen
    best, current = search.option(counts), search.option(search.held)
    other = _other(search, offers, counts)
    return CapacityDecision(
        chosen=best,
        runner_up=other,
        current=current,
        reason=why,
        text=text(why, best, current, other, ask, line=due.line, at=progress),
        inputs_hash=digest,
        next_in_s=min(search.settings.period_s, deadline.next_in_s(due.line, progress, verdict)),
        committed=verdict.committed,
    )


def _whole_gang(
    search: CapacitySearch, kinds: dict[str, CapacityType], *, spot: bool
) -> Counts | None:
    """The instances held, if they are the whole gang on one kind of capacity still allowed."""
    ask = search.ask
    held = search.shares(search.held)
    alike = all((kinds[share.pool] is CapacityType.SPOT) is spot for share in held)
    fine = all(allowed(pool, ask) for pool, n in zip(search.pools, search.held, strict=True) if n)
    enough = ask.least <= sum(search.held) <= ask.most
    return search.held if held and alike and fine and enough and search.fits(search.held) else None


def _fresh(search: CapacitySearch, *, spot: bool) -> Counts | None:
    """The cheapest whole gang on one kind of capacity, from nothing; ``None`` = there is none."""
    ask = replace(
        search.ask,
        objective=CostObjective.COST_PER_WORK,
        allow_spot=spot and search.ask.allow_spot,
        allow_on_demand=not spot and search.ask.allow_on_demand,
        held=(),
    )
    nothing = (0,) * len(search.pools)
    counts = CapacitySearch(
        pools=search.pools,
        ask=ask,
        terms=search.terms,
        settings=search.settings,
        held=nothing,
        held_s=(0.0,) * len(nothing),
    ).run()
    return counts if sum(counts) else None


def _carry_out(
    verdict: DeadlineVerdict, offers: dict[SpendMode, Counts | None]
) -> tuple[Counts | None, CapacityWhy]:
    """The allocation of a verdict; spot, if available, where on-demand is not."""
    if verdict.mode is SpendMode.IDLE:
        return None, verdict.reason
    wanted = offers[verdict.mode]
    if wanted is None:
        return offers[SpendMode.SPOT], CapacityWhy.NO_ON_DEMAND
    return wanted, verdict.reason


def _other(
    search: CapacitySearch, offers: dict[SpendMode, Counts | None], chosen: Counts
) -> CapacityOption | None:
    """The other kind of capacity, which the verdict rejected."""
    others = [counts for counts in offers.values() if counts is not None and counts != chosen]
    return search.option(min(others, key=search.rank)) if others else None
