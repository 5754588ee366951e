# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ways to buy: on-demand alone, spot while available, Uniform Progress, cost per work.

The engine's own functions decide; this module converts a run to their inputs and their answers to
instances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ullage.api.words import CostObjective, SpendMode
from ullage.engines.capacity.cost import CostTerms
from ullage.engines.capacity.deadline import DeadlineProgress, DeadlineVerdict, ProgressLine
from ullage.engines.capacity.decide import Due, decide
from ullage.engines.capacity.records import Ask, CapacityType, PoolHolding
from ullage_simulate.spot.market import SpotMarket
from ullage_simulate.spot.play import Counts, Rule, SpotRun

Deadline = Callable[[ProgressLine, DeadlineProgress], DeadlineVerdict]


def on_demand_only(gang: int) -> Rule:
    """The whole gang on the cheapest pool other than spot, from the first tick to the last."""

    def rule(market: SpotMarket, run: SpotRun, tick: int) -> Counts:
        return run.held if any(run.held) else _whole(market, gang, tick, spot=False) or run.held

    return rule


def by_deadline(deadline: Deadline, line: ProgressLine, gang: int) -> Rule:
    """A rule on spot or on-demand, the whole gang on the cheapest pool of the kind.

    Args:
        deadline: Chooses the kind.
        line: Work, in seconds of the whole gang, and deadline.
        gang: Instances.
    """

    def rule(market: SpotMarket, run: SpotRun, tick: int) -> Counts:
        running = mode_of(market, run.held)
        spot = run.held if running is SpendMode.SPOT else _whole(market, gang, tick, spot=True)
        verdict = deadline(
            line,
            DeadlineProgress(
                elapsed_s=(tick - run.first) * market.tick_s,
                done_s=int(run.done),
                running=running,
                spot_available=spot is not None,
                committed=run.committed,
                changeover_left_s=int(run.stall_s),
            ),
        )
        run.committed = verdict.committed
        if verdict.mode is running:
            return run.held
        if verdict.mode is SpendMode.IDLE:
            return (0,) * len(run.held)
        holding = spot if verdict.mode is SpendMode.SPOT else _whole(market, gang, tick, spot=False)
        return run.held if holding is None else holding

    return rule


def by_engine(ask: Ask, terms: CostTerms, line: ProgressLine | None = None) -> Rule:
    """The operator's decision on the same pools.

    Args:
        ask: Objective and limits; the held capacity is filled in.
        terms: Of the job.
        line: Work and deadline, of objective ``Deadline``.
    """

    def rule(market: SpotMarket, run: SpotRun, tick: int) -> Counts:
        held = tuple(
            PoolHolding(pool=name, instances=count, held_s=(tick - since) * market.tick_s)
            for name, count, since in zip(market.names, run.held, run.since, strict=True)
            if count
        )
        due = None
        if line is not None:
            due = Due(
                line=line,
                elapsed_s=(tick - run.first) * market.tick_s,
                done_s=int(run.done),
                committed=run.committed,
            )
        decision = decide(replace(ask, held=held), market.pools(tick), terms, due=due)
        run.committed = decision.committed
        counts = {share.pool: share.instances for share in decision.chosen.shares}
        return tuple(counts.get(name, 0) for name in market.names)

    return rule


def deadline_ask(gang: int) -> Ask:
    """A gang that runs whole or not at all, under a deadline."""
    return Ask(objective=CostObjective.DEADLINE, least=gang, most=gang, gang=gang)


def elastic_ask(least: int, most: int) -> Ask:
    """A job that grows and shrinks by single instances, by cost per work."""
    return Ask(objective=CostObjective.COST_PER_WORK, least=least, most=most)


def mode_of(market: SpotMarket, held: Counts) -> SpendMode:
    """Kind of capacity that a gang runs on."""
    for count, kind in zip(held, market.kinds, strict=True):
        if count:
            return SpendMode.SPOT if kind is CapacityType.SPOT else SpendMode.ON_DEMAND
    return SpendMode.IDLE


def _whole(market: SpotMarket, gang: int, tick: int, *, spot: bool) -> Counts | None:
    """The gang on the cheapest available pool of a kind; ``None`` = none is."""
    gives, prices = market.gives(tick), market.prices(tick)
    offers = [
        (prices[pool], pool)
        for pool, kind in enumerate(market.kinds)
        if gives[pool] and (kind is CapacityType.SPOT) is spot
    ]
    if not offers:
        return None
    best = min(offers)[1]
    return tuple(gang if pool == best else 0 for pool in range(len(gives)))
