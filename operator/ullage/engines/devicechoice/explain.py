# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The text of a recommendation: the table, the terms of the winner, and what would change it.

It must never state more than the records contain: an estimate is called one.
"""

from __future__ import annotations

from typing import assert_never

from ullage.api.reasons import Reason
from ullage.engines.devicechoice.offers import Priced, Recommendation
from ullage.engines.devicechoice.predict import S_PER_HOUR


def summary(recommendation: Recommendation) -> str:
    """One sentence, with the numbers of the first two offers."""
    first = recommendation.rows[0] if recommendation.rows else None
    if recommendation.outcome is Reason.NO_FEASIBLE_ACCELERATOR or first is None:
        reasons = "; ".join(offer_line(row) for row in recommendation.rows)
        return f"no offer is feasible: {reasons or 'there are no offers'}"
    feasible = [row for row in recommendation.rows if row.infeasible is None]
    second = f"; next {offer_line(feasible[1])}" if len(feasible) > 1 else ""
    match recommendation.outcome:
        case Reason.INSTANCE_SELECTED:
            verb = "take"
        case Reason.ADVICE_ONLY:
            verb = "advice only:"
        case Reason.CAPACITY_DECIDES:
            verb = "capacity decides; fastest is"
        case _:
            assert_never(recommendation.outcome)
    return f"{verb} {offer_line(first)}{second}"


def offer_line(row: Priced) -> str:
    """One offer: devices, time with bounds, cost, source, and obstacles."""
    offer = row.offer
    placement = f" ({offer.placement})" if offer.placement else ""
    parts = [f"{offer.gpus} x {offer.accelerator}{placement}"]
    if row.total is not None:
        low, value, high = (
            seconds / S_PER_HOUR
            for seconds in (row.total.low_s, row.total.value_s, row.total.high_s)
        )
        bounds = "" if low == high else f" ({low:.2f} to {high:.2f})"
        parts.append(f"{value:.2f} h{bounds}")
    if row.cost is not None:
        parts.append(f"cost {row.cost:.2f}")
    if row.source is not None:
        parts.append(row.source.value.lower())
    if row.text:
        parts.append(row.text)
    return ", ".join(parts)
