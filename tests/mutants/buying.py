# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of capacity: prices, hazards, the cost of work, which pools are held, deadlines."""

from __future__ import annotations

from typing import Final

from mutants.mutant import Mutant

ENGINE: Final = "operator/ullage/engines/capacity"
UNIT: Final = "tests/unit/engines/capacity"

PRICES: Final = (f"{UNIT}/test_prices_are_doubted.py",)
COST: Final = (f"{UNIT}/test_cost_per_work_counts_losses.py",)
HAZARDS: Final = (f"{UNIT}/test_hazards_are_learned.py",)
OFFERS: Final = (f"{UNIT}/test_offers_are_switched_when_it_pays.py",)
POOLS: Final = (f"{UNIT}/test_pools_are_chosen_for_a_gain.py",)
DEADLINES: Final = (f"{UNIT}/test_deadlines_are_kept.py",)

MUTANTS: Final = (
    Mutant(
        "a price that jumps is doubted",
        f"{ENGINE}/price.py",
        "if price > LARGEST_RISE * self.quote.price_per_hour:",
        "if price > 1000 * LARGEST_RISE * self.quote.price_per_hour:",
        PRICES,
    ),
    Mutant(
        "a price without a new quote is stale",
        f"{ENGINE}/price.py",
        "Doubt.STALE if now_s - self.quote.at_s > fresh_s else None",
        "Doubt.STALE if now_s < self.quote.at_s else None",
        PRICES,
    ),
    Mutant(
        "an older quote changes nothing",
        f"{ENGINE}/price.py",
        "if quote.at_s < self.quote.at_s:",
        "if quote.at_s < 0:",
        PRICES,
    ),
    Mutant(
        "a price of 0 is none",
        f"{ENGINE}/price.py",
        "if not (math.isfinite(price) and price > 0):",
        "if not math.isfinite(price):",
        PRICES,
    ),
    Mutant(
        "an hour of machines that are gone costs nothing",
        f"{ENGINE}/cost.py",
        "cost += pool.price_per_hour * count * life_h(pool.hazard_per_hour, horizon_h)",
        "cost += pool.price_per_hour * count * horizon_h",
        COST,
    ),
    Mutant(
        "a loss costs work",
        f"{ENGINE}/cost.py",
        "over = -math.expm1(-horizon_h * hazard) * terms.eviction_h",
        "over = 0.0 * hazard",
        COST,
    ),
    Mutant(
        "a pool loses its instances in bulk",
        f"{ENGINE}/cost.py",
        "hazard += pool.hazard_per_hour",
        "hazard += count * pool.hazard_per_hour",
        COST,
    ),
    Mutant(
        "more instances do less work each",
        f"{ENGINE}/cost.py",
        "work = terms.scaling.at(working) * sum(",
        "work = sum(",
        COST,
    ),
    Mutant(
        "a change costs the part that changes",
        f"{ENGINE}/cost.py",
        "over += terms.change_h * changed",
        "over += terms.change_h",
        COST,
    ),
    Mutant(
        "what is lost soon after is the same event",
        f"{ENGINE}/hazard.py",
        "same = self.draining_h is not None and self.draining_h <= BULK_LOSS_H",
        "same = False",
        HAZARDS,
    ),
    Mutant(
        "losses are forgotten",
        f"{ENGINE}/hazard.py",
        "            events=self.events * kept,",
        "            events=self.events,",
        HAZARDS,
    ),
    Mutant(
        "only hours with instances count",
        f"{ENGINE}/hazard.py",
        "hours=self.hours * kept + (hours if held else 0.0),",
        "hours=self.hours * kept + hours,",
        HAZARDS,
    ),
    Mutant(
        "a recommendation is no event",
        f"{ENGINE}/hazard.py",
        "events=self.events + weight,",
        "events=self.events + 1,",
        HAZARDS,
    ),
    Mutant(
        "failures in a row double the wait",
        f"{ENGINE}/hazard.py",
        "first_s * 2.0 ** min(",
        "first_s * 1.0 ** min(",
        HAZARDS,
    ),
    Mutant(
        "what is saved counts until the work ends",
        f"{ENGINE}/pricing.py",
        "hours = min(settings.period_h, work_left / here.speed)",
        "hours = settings.period_h",
        OFFERS,
    ),
    Mutant(
        "a move takes time before a deadline",
        f"{ENGINE}/pricing.py",
        "(0.0 if offer.name == current else restart_h) <= hours_left",
        "(0.0 if offer.name else restart_h) <= hours_left",
        OFFERS,
    ),
    Mutant(
        "the least part that a move saves holds",
        f"{ENGINE}/pricing.py",
        "if saved > max(move, settings.min_savings * stay) and",
        "if saved > move and",
        OFFERS,
    ),
    Mutant(
        "a part of a gang is no gang",
        f"{ENGINE}/decide.py",
        "enough = ask.least <= sum(search.held) <= ask.most",
        "enough = sum(search.held) <= ask.most",
        DEADLINES,
    ),
    Mutant(
        "a decision is due when a hold ends",
        f"{ENGINE}/decide.py",
        "return min(period_s, *left) if left else period_s",
        "return period_s",
        POOLS,
    ),
    Mutant(
        "the fallback of spot is on demand",
        f"{ENGINE}/decide.py",
        "allow_on_demand=not spot and search.ask.allow_on_demand",
        "allow_on_demand=search.ask.allow_on_demand",
        DEADLINES,
    ),
    Mutant(
        "a deadline comes with its objective",
        f"{ENGINE}/decide.py",
        "if (due is None) == OBJECTIVES[ask.objective].due:",
        "if due is None and OBJECTIVES[ask.objective].due:",
        POOLS,
    ),
    Mutant(
        "a change gains by a part of what stands",
        f"{ENGINE}/search.py",
        "return after.per_work < before.per_work * (1 - least)",
        "return after.per_work < before.per_work",
        POOLS,
    ),
    Mutant(
        "a budget holds",
        f"{ENGINE}/search.py",
        "return budget is None or self.expect(counts).per_hour <= budget * (1 + _TIES)",
        "return True",
        POOLS,
    ),
    Mutant(
        "instances are added in whole gangs",
        f"{ENGINE}/search.py",
        "return max(0, room - (sum(counts) + room) % ask.gang)",
        "return max(0, room)",
        POOLS,
    ),
    Mutant(
        "what was bought is kept a while",
        f"{ENGINE}/search.py",
        "old = self.held_s[index] >= self.settings.min_hold_s",
        "old = True",
        POOLS,
    ),
    Mutant(
        "without a price of delay nothing is given back for its sake",
        f"{ENGINE}/search.py",
        "if self.terms.delay_per_hour is None:",
        "if self.terms.change_h < 0:",
        POOLS,
    ),
    Mutant(
        "a pool that gives none is not asked",
        f"{ENGINE}/search.py",
        "if not pool.available or not pool.speed or not allowed(pool, ask):",
        "if not pool.speed or not allowed(pool, ask):",
        POOLS,
    ),
    Mutant(
        "two starts fit before a deadline",
        f"{ENGINE}/deadline.py",
        "needed = line.work_s + 2 * line.changeover_s",
        "needed = line.work_s + line.changeover_s",
        DEADLINES,
    ),
    Mutant(
        "the reserve is never spent on waiting",
        f"{ENGINE}/deadline.py",
        "    if at.running is SpendMode.IDLE:\n        if spare_s < line.reserve_s:",
        "    if at.running is SpendMode.IDLE:\n        if False:",
        DEADLINES,
    ),
    Mutant(
        "on demand is held where leaving may not pay",
        f"{ENGINE}/deadline.py",
        "        or spare_s < line.reserve_s\n",
        "",
        DEADLINES,
    ),
    Mutant(
        "who is behind the line buys on demand",
        f"{ENGINE}/deadline.py",
        "        if _behind(line, at, ahead_s=0):",
        "        if False:",
        DEADLINES,
    ),
)
