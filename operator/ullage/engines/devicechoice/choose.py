# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks offers and picks one for an aim of cost or time under caps.

Every offer is evaluated: tables are small and an exact answer can be checked. It must never choose
an offer that failed, does not fit, or has no evidence of its memory fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from ullage.api.reasons import Reason
from ullage.api.words import CostObjective
from ullage.engines.devicechoice.intervals import Interval
from ullage.engines.devicechoice.memory import MemoryFit
from ullage.engines.devicechoice.offers import (
    ChoiceAim,
    ChoiceGoal,
    OfferCandidate,
    Priced,
    Recommendation,
    RecommendationOutcome,
    Source,
)
from ullage.engines.devicechoice.predict import TrainingWork, cost_of, training_interval

MARGIN: Final = 0.05
"""Offers this close to the best, with overlapping intervals, count as equal to it."""
HYSTERESIS: Final = 0.1
"""Minimum saving of a move, as a fraction of the cost in place."""

Refused = tuple[Reason, str]
Check = Callable[[OfferCandidate, ChoiceGoal, Interval | None, float | None], Refused | None]


def choose(
    candidates: Sequence[OfferCandidate],
    goal: ChoiceGoal,
    work: TrainingWork,
    *,
    margin: float = MARGIN,
    input_bound: bool = False,
) -> Recommendation:
    """Rank the offers and pick one.

    Args:
        candidates: Offers with forecasts and memory verdicts.
        goal: Aim and caps.
        work: The training.
        margin: Part of the best offer's figure within which offers count as equal.
        input_bound: The job's first window showed idle multiprocessors: estimates are advice.
    """
    aim = goal.aim()
    priced = [_priced(candidate, goal, work, input_bound=input_bound) for candidate in candidates]
    takeable = [row for row in priced if row.infeasible is None]
    by = aim or _advice_aim(goal, takeable)
    feasible = sorted(takeable, key=_rank(by))
    refused = sorted((row for row in priced if row.infeasible is not None), key=_name)
    acts = aim is not None and len({row.offer.accelerator for row in priced}) > 1
    best = _pick(feasible, by, margin)
    sure = [row for row in feasible if row.hold is None]
    chosen = _pick(sure, by, margin) if acts else None
    first = chosen or best
    rows = ([first] if first else []) + [row for row in feasible if row is not first] + refused
    return Recommendation(
        outcome=_outcome(goal, chosen, best),
        aim=aim,
        rows=tuple(rows),
        chosen=chosen,
        best=best,
        acts=acts,
    )


def _advice_aim(goal: ChoiceGoal, rows: Sequence[Priced]) -> ChoiceAim:
    """Aim of advice without a requested one: cost, if all offers have one."""
    priced = all(row.cost is not None for row in rows)
    return (
        ChoiceAim.COST
        if priced and goal.objective is not CostObjective.DEADLINE
        else ChoiceAim.TIME
    )


def _outcome(goal: ChoiceGoal, chosen: Priced | None, best: Priced | None) -> RecommendationOutcome:
    if best is None:
        return Reason.NO_FEASIBLE_ACCELERATOR
    if goal.objective is CostObjective.DEADLINE:
        return Reason.CAPACITY_DECIDES
    return Reason.INSTANCE_SELECTED if chosen is not None else Reason.ADVICE_ONLY


def _priced(
    candidate: OfferCandidate, goal: ChoiceGoal, work: TrainingWork, *, input_bound: bool
) -> Priced:
    offer, forecast = candidate.offer, candidate.forecast
    total: Interval | None = None
    if forecast is not None and forecast.step is not None and forecast.step.value_s > 0:
        total = training_interval(forecast.step, work, offer.gpus)
    price = offer.price_per_hour
    cost = None if total is None or price is None else cost_of(total.value_s, price)
    refused = next(
        (refusal for check in CHECKS if (refusal := check(candidate, goal, total, cost))), None
    )
    row = Priced(
        offer=offer,
        total=total,
        cost=cost,
        source=forecast.source if forecast else None,
        memory=candidate.memory,
        delay_per_hour=goal.delay_per_hour,
    )
    if refused is not None:
        return replace(row, infeasible=refused[0], text=refused[1])
    held = _held(candidate, goal, input_bound=input_bound)
    return row if held is None else replace(row, hold=held[0], text=held[1])


def _memory_fits(
    c: OfferCandidate, _: ChoiceGoal, __: Interval | None, ___: float | None
) -> Refused | None:
    """Refusal of offers known to need more memory than the device has."""
    if c.memory.verdict is not MemoryFit.TOO_LARGE:
        return None
    if c.memory.need_bytes is None:
        return Reason.MEMORY_TOO_LARGE, "it ran out of memory on a device of this size"
    need, there = c.memory.need_bytes / 2**20, c.memory.device_bytes / 2**20
    return Reason.MEMORY_TOO_LARGE, f"needs {need:.0f} MiB of {there:.0f} MiB"


def _it_ran(
    c: OfferCandidate, _: ChoiceGoal, __: Interval | None, ___: float | None
) -> Refused | None:
    """Refusal of offers with a failed run: a step of zero seconds."""
    step = c.forecast.step if c.forecast else None
    if c.forecast is not None and (step is None or step.value_s <= 0):
        return Reason.DID_NOT_RUN, "it was tried there and did not run"
    return None


def _someone_can_say(
    c: OfferCandidate, _: ChoiceGoal, total: Interval | None, __: float | None
) -> Refused | None:
    """Refusal of offers without a forecast."""
    if total is None:
        return c.unknown or (
            Reason.NO_ESTIMATE,
            f"no step time is known for {c.offer.accelerator}",
        )
    return None


def _is_there(
    c: OfferCandidate, _: ChoiceGoal, __: Interval | None, ___: float | None
) -> Refused | None:
    """Refusal of offers that are not available now."""
    return None if c.offer.available else (Reason.NOT_AVAILABLE, "cannot be had now")


def _has_a_price(
    _: OfferCandidate, goal: ChoiceGoal, __: Interval | None, cost: float | None
) -> Refused | None:
    """Refusal of offers without a price for an aim or a cap of cost."""
    if cost is None and (goal.aim() is ChoiceAim.COST or goal.max_cost is not None):
        return Reason.PRICE_MISSING, "no price is known"
    return None


def _under_cost(
    _: OfferCandidate, goal: ChoiceGoal, __: Interval | None, cost: float | None
) -> Refused | None:
    """Refusal of offers above the cap of cost."""
    if goal.max_cost is not None and cost is not None and cost > goal.max_cost:
        return Reason.OVER_COST, f"costs {cost:.2f}, at most {goal.max_cost:.2f} allowed"
    return None


def _under_time(
    _: OfferCandidate, goal: ChoiceGoal, total: Interval | None, __: float | None
) -> Refused | None:
    """Refusal of offers above the cap of time."""
    if goal.max_time_s is not None and total is not None and total.value_s > goal.max_time_s:
        hours, cap = total.value_s / 3600, goal.max_time_s / 3600
        return Reason.OVER_TIME, f"takes {hours:.2f} h, at most {cap:.2f} h allowed"
    return None


CHECKS: Final[tuple[Check, ...]] = (
    _memory_fits,
    _it_ran,
    _someone_can_say,
    _has_a_price,
    _under_cost,
    _under_time,
    _is_there,
)


def _held(
    candidate: OfferCandidate, goal: ChoiceGoal, *, input_bound: bool
) -> tuple[Reason, str] | None:
    forecast = candidate.forecast
    if candidate.memory.verdict is not MemoryFit.FITS:
        return Reason.MEMORY_UNKNOWN, "memory is not known: a memory profile is needed"
    if forecast is not None and not forecast.anchored:
        return Reason.NOT_ANCHORED, "from peak rates alone: measure one type first"
    estimated = forecast is not None and forecast.source is Source.ESTIMATED
    if input_bound and estimated:
        return Reason.INPUT_BOUND, "the job waits for its input: a faster device may not help"
    if goal.gpus is not None and candidate.offer.gpus != goal.gpus:
        devices = "1 device" if goal.gpus == 1 else f"{goal.gpus} devices"
        return Reason.COUNT_CHANGES_BATCH, f"the batch was chosen for {devices}"
    return None


def _pick(ranked: Sequence[Priced], aim: ChoiceAim, margin: float) -> Priced | None:
    """The first offer, or an equally good one: a measured one, then the cheaper."""
    if not ranked:
        return None
    best = ranked[0]
    limit = best.value(aim) * (1 + margin)
    near = [
        row
        for row in ranked
        if row is best or (row.value(aim) <= limit and _overlap(row, best, aim))
    ]
    return min(
        near,
        key=lambda row: (
            row.source is not Source.MEASURED,
            row.value(ChoiceAim.COST),
            _rank(aim)(row),
        ),
    )


def _overlap(priced: Priced, other: Priced, aim: ChoiceAim) -> bool:
    """True if two values may be the same; a cost is as uncertain as its time."""
    left, right = _bounds(priced, aim), _bounds(other, aim)
    return left is not None and right is not None and left.overlaps(right)


def _bounds(row: Priced, aim: ChoiceAim) -> Interval | None:
    if row.total is None or aim is ChoiceAim.TIME:
        return row.total
    if row.offer.price_per_hour is None:
        return None
    return row.total.times(row.offer.price_per_hour + row.delay_per_hour)


def _name(row: Priced) -> tuple[str, int, str]:
    return row.offer.accelerator, row.offer.gpus, row.offer.placement


def _rank(aim: ChoiceAim) -> Callable[[Priced], tuple[float, bool, float, tuple[str, int, str]]]:
    """Value, then measured before estimated, then the other value, then the name."""
    other = ChoiceAim.TIME if aim is ChoiceAim.COST else ChoiceAim.COST
    return lambda row: (
        row.value(aim),
        row.source is not Source.MEASURED,
        row.value(other),
        _name(row),
    )
