# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses an offer as prices change: once per period, and a move must pay for itself.

After "Dynamic spot pricing" (DISPA 2020), with whole-instance charging: an offer is the whole
instances that a gang fills, and a move costs the restart. It must never move for less than the move
costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class PriceWhy(StrEnum):
    """Reason for the choice of an offer."""

    STARTED = "CheapestOffer"
    """The cheapest per work at the start."""
    SWITCHED = "OfferSwitched"
    """The saving until the next decision exceeds what moving costs."""
    IN_TIME = "OnlyInTime"
    """The current offer would end too late: the cheapest that ends in time, else the fastest."""
    KEPT = "SavingTooSmall"
    """No other offer saves enough."""
    GONE = "OfferGone"
    """The current offer is no longer available."""
    NOTHING = "NoOffer"
    """There is no offer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedOffer:
    """Instances of a pool for the whole gang.

    Attributes:
        name: Unique.
        price_per_hour: Dollars for all of them.
        speed: Work per hour of the gang on them; above 0.
    """

    name: str
    price_per_hour: float
    speed: float

    def __post_init__(self) -> None:
        """Reject offers that cannot be compared.

        Raises:
            ValueError: no speed, or a price below 0.
        """
        if not (self.speed > 0 and self.price_per_hour >= 0):
            raise ValueError(f"offer {self.name} needs a speed above 0 and a price, not {self}")

    @property
    def per_work(self) -> float:
        """Dollars per unit of work."""
        return self.price_per_hour / self.speed


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchingTerms:
    """Settings from ``SchedulingPolicy.spec``.

    Attributes:
        period_h: Hours between decisions.
        restart_h: Hours lost per move, the usual age of a checkpoint included.
        min_savings: Minimum saving of a move, as a fraction of the cost of staying.
    """

    period_h: float = 24.0
    restart_h: float = 0.25
    min_savings: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceDecision:
    """The offer to run on until the next decision.

    Attributes:
        chosen: The offer; ``None`` = there is none.
        runner_up: The best other one.
        saving: Dollars saved over the horizon against staying, before the cost of the move.
        move_cost: Dollars that the move costs.
        reason: Reason of the choice.
        text: The reason with figures.
        next_in_s: Seconds until the next decision.
    """

    chosen: PricedOffer | None
    runner_up: PricedOffer | None
    saving: float
    move_cost: float
    reason: PriceWhy
    text: str
    next_in_s: float


DEFAULT: Final = SwitchingTerms()


def choose_offer(
    offers: Sequence[PricedOffer],
    current: str | None,
    work_left: float,
    *,
    hours_left: float | None = None,
    settings: SwitchingTerms = DEFAULT,
) -> PriceDecision:
    """Stay or move.

    Args:
        offers: Current offers, that of the job included; names are unique.
        current: Current offer; ``None`` = not started.
        work_left: Remaining work, in the offers' unit.
        hours_left: Hours to the deadline; ``None`` = no deadline.
        settings: Of the policy.
    """
    ranked = _in_time(offers, current, work_left, hours_left, settings)
    here = next((offer for offer in ranked if offer.name == current), None)
    if here is None:
        offered = any(offer.name == current for offer in offers)
        why = PriceWhy.IN_TIME if offered else PriceWhy.GONE
        why = PriceWhy.STARTED if current is None else why
        first = ranked[0] if ranked else None
        return _decided(ranked, first, PriceWhy.NOTHING if first is None else why, settings)
    hours = min(settings.period_h, work_left / here.speed)
    stay = here.price_per_hour * hours
    work = here.speed * hours
    best, saving, cost = here, 0.0, 0.0
    for offer in ranked:
        if offer is here:
            continue
        saved = stay - offer.per_work * work
        move = settings.restart_h * offer.price_per_hour
        if saved > max(move, settings.min_savings * stay) and saved - move > saving - cost:
            best, saving, cost = offer, saved, move
    why = PriceWhy.KEPT if best is here else PriceWhy.SWITCHED
    return _decided(ranked, best, why, settings, here=here, saving=saving, cost=cost)


def _in_time(
    offers: Sequence[PricedOffer],
    current: str | None,
    work_left: float,
    hours_left: float | None,
    settings: SwitchingTerms,
) -> list[PricedOffer]:
    """Offers that end in time, the cheapest per work first; the fastest where none does."""
    restart_h = 0.0 if current is None else settings.restart_h
    timely = [
        offer
        for offer in offers
        if hours_left is None
        or work_left / offer.speed + (0.0 if offer.name == current else restart_h) <= hours_left
    ]
    fastest = sorted(offers, key=lambda offer: (-offer.speed, offer.per_work, offer.name))[:1]
    return sorted(timely or fastest, key=lambda offer: (offer.per_work, offer.name))


def _decided(
    ranked: Sequence[PricedOffer],
    chosen: PricedOffer | None,
    why: PriceWhy,
    settings: SwitchingTerms,
    *,
    here: PricedOffer | None = None,
    saving: float = 0.0,
    cost: float = 0.0,
) -> PriceDecision:
    other = next((offer for offer in ranked if offer is not chosen), None)
    return PriceDecision(
        chosen=chosen,
        runner_up=other,
        saving=saving,
        move_cost=cost,
        reason=why,
        text=_text(why, chosen, other, here, saving, cost),
        next_in_s=settings.period_h * 3600,
    )


def _text(
    why: PriceWhy,
    chosen: PricedOffer | None,
    other: PricedOffer | None,
    here: PricedOffer | None,
    saving: float,
    cost: float,
) -> str:
    if chosen is None:
        return "nothing is offered"
    second = f"; next {_line(other)}" if other is not None else ""
    if why is PriceWhy.SWITCHED and here is not None:
        return (
            f"move to {_line(chosen)} from {_line(here)}: saves {saving:.2f} $ until the next "
            f"decision, moving costs {cost:.2f} ${second}"
        )
    reason = {
        PriceWhy.STARTED: "start on",
        PriceWhy.KEPT: "stay on",
        PriceWhy.GONE: "what it ran on is gone: run on",
        PriceWhy.IN_TIME: "what it ran on ends too late: run on",
    }[why]
    return f"{reason} {_line(chosen)}{second}"


def _line(offer: PricedOffer) -> str:
    per = offer.per_work
    return f"{offer.name} ({offer.price_per_hour:.3f} $/h" + (
        f", {per:.4g} $ per unit of work)" if math.isfinite(per) else ")"
    )
