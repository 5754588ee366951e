# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Choice of pools for one job: the engine's answer, if it is worth a restart.

A job without devices gets the engine's choice at once. A running job is moved for a deadline, for a
limit, or when prices are compared and the saving pays for the restart; without a checkpoint never.
Missing data must never stop running work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ullage.api.spot import SpotTerms
from ullage.api.words import CostObjective, SpendMode
from ullage.cluster.records.status import SpendDecision
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.capacity import deadline
from ullage.engines.capacity.cost import CostTerms, ScalingCurve, expected
from ullage.engines.capacity.decide import Due, decide
from ullage.engines.capacity.pricing import PricedOffer, PriceWhy, SwitchingTerms, choose_offer
from ullage.engines.capacity.records import (
    OBJECTIVES,
    Ask,
    CapacityDecision,
    CapacityOption,
    CapacitySettings,
    CapacityType,
    CapacityWhy,
    Expected,
    Pool,
    PoolHolding,
    PoolInstances,
)
from ullage.scheduling.capacity.market import SuitedPools, affordable, may_use_on_demand
from ullage.scheduling.capacity.remaining_work import Work, fallback_speed, spare_s
from ullage.scheduling.model.gang_speed import PHI
from ullage.scheduling.times import DEADLINE_LOOK_S, GANG_ROOM_LASTS_IN_PLACE_S, UNRECORDED_HOLD_S

MOST_LOST: Final = 0.9
"""Maximum fraction of the time lost, so that every pool has a positive speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityFacts:
    """Inputs of one job's choice.

    Attributes:
        job: The job.
        members: Number of members to place.
        suited: Suitable pools.
        work: Its work; `None` = unknown.
        due: Its state against the line to its deadline, if any.
        held: Members by pool, of all that are placed; empty = none.
        terms: Terms of the policy.
        now: Seconds since the epoch.
    """

    job: WorkloadRecord
    members: int
    suited: SuitedPools
    work: Work | None
    due: Due | None
    held: Mapping[str, int]
    terms: SpotTerms
    now: float

    @property
    def before(self) -> SpendDecision | None:
        """The decision in force."""
        spend = self.job.status.spend
        return spend.decision if spend is not None else None

    @property
    def sized(self) -> bool:
        """True when the number of members is chosen together with the pools."""
        cost = self.job.cost
        return (
            self.job.elasticity is not None
            and cost is not None
            and cost.delay_cost_per_hour is not None
        )

    @property
    def held_s(self) -> float:
        """Seconds since its pools were chosen."""
        before = self.before
        return self.now - before.since if before is not None and before.since else UNRECORDED_HOLD_S

    @property
    def restart_h(self) -> float:
        """Hours that a restart costs."""
        return self.terms.restart_cost_s / 3600


def choose(facts: CapacityFacts) -> CapacityDecision:
    """The engine's decision from the job's current capacity."""
    job, cost = facts.job, facts.job.cost
    if cost is None:
        raise ValueError(f"{job.ref.name} has no spec.cost")
    # an interruption without a checkpoint loses all work, so spot cannot meet a deadline
    spot = cost.allow_spot and (facts.due is None or job.checkpoint)
    objective, due = CostObjective(cost.objective), facts.due
    kinds = {candidate.pool.capacity_type for candidate in facts.suited.by_name.values()}
    if due is not None and not (spot and CapacityType.SPOT in kinds):
        objective, due = CostObjective.COST_PER_WORK, None  # waiting has no benefit
    least = most = facts.members
    if facts.sized and job.elasticity is not None:
        least, most = job.elasticity.min_replicas, job.elasticity.max_replicas
    ask = Ask(
        objective=objective,
        least=least,
        most=most,
        budget_per_hour=cost.budget_per_hour,
        allow_spot=spot,
        allow_on_demand=may_use_on_demand(job),
        held=tuple(
            PoolHolding(pool=pool, instances=count, held_s=facts.held_s)
            for pool, count in sorted(facts.held.items())
        ),
    )
    # a loss and a move both cost one restart; from nothing a start costs the same everywhere
    change_h = facts.restart_h if facts.held else 0.0
    terms = replace(_terms(facts), change_h=change_h)
    settings = CapacitySettings(
        min_gain=facts.terms.min_gain_percent / 100,
        min_hold_s=facts.terms.min_hold_s,
        period_s=facts.terms.decision_period_s,
    )
    decision = decide(ask, _with_held(facts), terms, due=due, settings=settings)
    return _net_on_spot(facts, decision)


def _terms(facts: CapacityFacts) -> CostTerms:
    """Costs of a loss and an hour, and the scaling of a job with a chosen size."""
    cost = facts.job.cost
    if cost is None or not facts.sized:
        return CostTerms(eviction_h=facts.restart_h)
    return CostTerms(
        scaling=ScalingCurve(per_doubling=PHI),
        eviction_h=facts.restart_h,
        meet_h=GANG_ROOM_LASTS_IN_PLACE_S / 3600 if facts.job.in_place else None,
        delay_per_hour=cost.delay_cost_per_hour,
    )


def _with_held(facts: CapacityFacts) -> list[Pool]:
    """The pools, with the room of the job's own members added."""
    return [
        pool
        if pool.most is None or not facts.held.get(pool.name)
        else replace(pool, most=pool.most + facts.held[pool.name])
        for pool in facts.suited.pools()
    ]


def _net_on_spot(facts: CapacityFacts, decision: CapacityDecision) -> CapacityDecision:
    """The safety net for spot that is slower than the capacity that the deadline was planned on.

    On spot of equal speed the time in reserve does not shrink, so the rules let it run; where it
    shrinks, the job leaves while a restart still fits.
    """
    due = facts.due
    if due is None or decision.reason is not CapacityWhy.STAYS_ON_SPOT:
        return decision
    slowest = min(
        (facts.suited.by_name[share.pool].pool.speed for share in decision.chosen.shares),
        default=1.0,
    )
    slower = slowest < fallback_speed(facts.suited) * (1 - 1e-6)
    reserve_s = due.line.changeover_s + (2 * DEADLINE_LOOK_S if slower else 0)
    if spare_s(due) >= reserve_s:
        return decision
    committed = replace(due, committed=True)
    return choose(replace(facts, due=committed))


def refused(facts: CapacityFacts) -> str:
    """Reason why the deadline cannot be met from the start; empty = it can, or there is none."""
    if facts.due is None:
        return ""
    return (
        deadline.infeasible(
            facts.due.line,
            allow_spot=facts.job.cost is not None and facts.job.cost.allow_spot,
            allow_on_demand=may_use_on_demand(facts.job),
        )
        or ""
    )


def stays(facts: CapacityFacts, decision: CapacityDecision) -> bool:
    """True when running work stays, although the engine would move it."""
    pools = {share.pool for share in decision.chosen.shares}
    if not facts.held or facts.held.keys() <= pools:
        return False
    if not facts.job.checkpoint:
        return True
    if not facts.held.keys() <= facts.suited.by_name.keys():
        return not pools  # they no longer suit it, but a stop gains nothing
    if any(_price(facts, pool) is None for pool in facts.held):
        return True
    if over_budget(facts):
        return not pools and gives_up_members(facts)
    if facts.sized and facts.job.in_place:
        return not pools  # members leave one pool at a time, and the others continue
    # the engine plans one hour ahead: for moves by cost the longer view decides
    return not pools or facts.due is None


def over_budget(facts: CapacityFacts) -> bool:
    """True when the held capacity exceeds the job's budget per hour."""
    cost = facts.job.cost
    if cost is None or cost.budget_per_hour is None:
        return False
    return held_option(facts).expected.per_hour > cost.budget_per_hour * (1 + 1e-9)


def gives_up_members(facts: CapacityFacts) -> bool:
    """True when an elastic gang can continue in place within its budget, with fewer members.

    Its size is changed elsewhere.
    """
    bounds = facts.job.elasticity
    if bounds is None:
        return False
    affordable_members = [
        affordable(facts.suited.by_name[pool].record, facts.job) for pool in facts.held
    ]
    return all(
        members is not None and members >= bounds.min_replicas for members in affordable_members
    )


def _price(facts: CapacityFacts, pool: str) -> float | None:
    candidate = facts.suited.by_name.get(pool)
    return candidate.pool.price_per_hour if candidate is not None else None


def held_option(facts: CapacityFacts) -> CapacityOption:
    """The held capacity as an allocation with its price."""
    shares = tuple(PoolInstances(pool=pool, instances=n) for pool, n in sorted(facts.held.items()))
    per_hour = sum((_price(facts, pool) or 0.0) * n for pool, n in facts.held.items())
    speeds = [
        facts.suited.by_name[pool].pool.speed for pool in facts.held if pool in facts.suited.by_name
    ]
    work = min(speeds, default=0.0) * sum(facts.held.values())
    return CapacityOption(
        shares=shares, expected=Expected(cost=per_hour, work=work, per_hour=per_hour)
    )


def settled(facts: CapacityFacts, decision: CapacityDecision) -> CapacityDecision:
    """The choice of a job without devices: the last pool, unless another is clearly better.

    Otherwise, noise in prices and hazards would move it from pool to pool while it waits.
    """
    before = facts.before
    if before is None or not decision.chosen.shares or len(before.chosen.pools) != 1:
        return decision
    last_pool = before.chosen.pools[0].pool
    candidate = facts.suited.by_name.get(last_pool)
    if candidate is None or decision.chosen.shares[0].pool == last_pool:
        return decision
    pool = candidate.pool
    if pool.price_per_hour is None or not pool.speed:
        return decision
    members = sum(share.instances for share in decision.chosen.shares)
    if pool.most is not None and pool.most < members:
        return decision
    budget = facts.job.cost.budget_per_hour if facts.job.cost is not None else None
    if budget is not None and pool.price_per_hour * members > budget:
        return decision
    old = expected([pool], [members], _terms(facts), changed=False)
    option = CapacityOption(
        shares=(PoolInstances(pool=last_pool, instances=members),), expected=old
    )
    if mode_of(facts, option) != mode_of(facts, decision.chosen):
        return decision
    gain, new = facts.terms.min_gain_percent / 100, decision.chosen.expected
    cost = facts.job.cost
    fastest = cost is not None and OBJECTIVES[CostObjective(cost.objective)].fastest
    better = (
        new.work > old.work * (1 + gain) if fastest else new.per_work < old.per_work * (1 - gain)
    )
    if better:
        return decision
    return replace(decision, chosen=option, runner_up=decision.chosen)


def staying(facts: CapacityFacts, decision: CapacityDecision) -> CapacityDecision:
    """The decision to keep the held capacity; the engine's choice is the runner-up."""
    option = held_option(facts)
    if facts.sized:  # the best size in its present pools
        pools = facts.suited.by_name
        held = {name: pools[name] for name in facts.held if name in pools}
        best = choose(replace(facts, suited=replace(facts.suited, by_name=held))).chosen
        option = best if best.shares else option
    reason = CapacityWhy.HOLDING if facts.held_s < facts.terms.min_hold_s else CapacityWhy.KEPT
    names = " and ".join(sorted(facts.held))
    why = "" if facts.job.checkpoint else " (without spec.checkpoint it is never moved)"
    return replace(
        decision,
        chosen=option,
        runner_up=decision.chosen if decision.chosen.shares else decision.runner_up,
        reason=reason,
        text=f"stay on {names}{why}; otherwise: {decision.text}",
    )


def compare_prices(facts: CapacityFacts, kept: CapacityDecision) -> CapacityDecision:
    """The decision of running work when prices are compared: stay, or move for a saving that pays.

    Args:
        facts: Facts of a job in one pool, within its limits.
        kept: The decision to stay.
    """
    current = next(iter(facts.held), "")
    if len(facts.held) != 1 or not facts.job.checkpoint or current not in facts.suited.by_name:
        return kept
    if facts.due is not None and spare_s(facts.due) < (
        facts.due.line.reserve_s + facts.due.line.changeover_s
    ):
        return kept  # a move is a restart, and the deadline leaves no time for one
    if facts.held_s < facts.terms.min_hold_s:
        return replace(kept, reason=CapacityWhy.HOLDING)
    offers = {offer.name: offer for offer in _offers(facts, current)}
    if current not in offers:
        return kept
    cost = facts.job.cost
    if cost is not None and OBJECTIVES[CostObjective(cost.objective)].fastest:
        best = _fastest(facts, offers, current)
        text = f"move to {best}: the rest is done sooner by more than the restart takes"
    else:
        least = max(facts.terms.min_gain_percent, facts.terms.min_savings_percent) / 100
        answer = choose_offer(
            list(offers.values()),
            current,
            facts.work.left_h if facts.work is not None else math.inf,
            hours_left=None
            if facts.due is None
            else (facts.due.line.deadline_s - facts.due.elapsed_s) / 3600,
            settings=SwitchingTerms(
                period_h=facts.terms.decision_period_s / 3600,
                restart_h=facts.restart_h,
                min_savings=least,
            ),
        )
        best = current
        if answer.reason is PriceWhy.SWITCHED and answer.chosen is not None:
            best = answer.chosen.name
        text = answer.text
    if best == current:
        return kept
    return replace(
        kept,
        chosen=_option(facts, best),
        runner_up=kept.chosen,
        reason=CapacityWhy.SWITCHED,
        text=text,
    )


def _offers(facts: CapacityFacts, current: str) -> list[PricedOffer]:
    """Pools with room for the whole gang, of its present kind, within its budget."""
    kind = facts.suited.by_name[current].pool.capacity_type
    cost = facts.job.cost
    offers = []
    for name, candidate in facts.suited.by_name.items():
        pool = candidate.pool
        if pool.price_per_hour is None or not pool.speed:
            continue
        per_hour = pool.price_per_hour * facts.members
        if name != current:
            if facts.due is not None and pool.capacity_type is not kind:
                continue
            if pool.most is not None and pool.most < facts.members:
                continue
            if (
                cost is not None
                and cost.budget_per_hour is not None
                and per_hour > cost.budget_per_hour
            ):
                continue
        # every loss costs a restart, so the time between losses limits the speed of a pool
        lost = min(MOST_LOST, pool.hazard_per_hour * facts.restart_h)
        offers.append(
            PricedOffer(name=name, price_per_hour=per_hour, speed=pool.speed * (1 - lost))
        )
    return offers


def _fastest(facts: CapacityFacts, offers: Mapping[str, PricedOffer], current: str) -> str:
    """The offer that ends the job soonest, restart included, by more than the minimum gain."""
    left_h = min(
        facts.work.left_h if facts.work is not None else math.inf,
        facts.terms.decision_period_s / 3600,
    )
    stay_h = left_h / offers[current].speed
    moved_h = {
        name: left_h / offer.speed + facts.restart_h
        for name, offer in offers.items()
        if name != current
    }
    best = min(
        moved_h,
        key=lambda name: (moved_h[name], offers[name].price_per_hour, name),
        default=current,
    )
    gain = 1 - facts.terms.min_gain_percent / 100
    return best if moved_h and moved_h[best] < stay_h * gain else current


def _option(facts: CapacityFacts, pool: str) -> CapacityOption:
    candidate = facts.suited.by_name[pool].pool
    per_hour = (candidate.price_per_hour or 0.0) * facts.members
    return CapacityOption(
        shares=(PoolInstances(pool=pool, instances=facts.members),),
        expected=Expected(cost=per_hour, work=candidate.speed * facts.members, per_hour=per_hour),
    )


def mode_of(facts: CapacityFacts, option: CapacityOption) -> str:
    """The kind of capacity: spot, on-demand or nothing."""
    kinds = {
        facts.suited.by_name[share.pool].pool.capacity_type is CapacityType.SPOT
        for share in option.shares
        if share.pool in facts.suited.by_name
    }
    if not option.shares:
        return SpendMode.IDLE.value
    return SpendMode.SPOT.value if kinds == {True} else SpendMode.ON_DEMAND.value
