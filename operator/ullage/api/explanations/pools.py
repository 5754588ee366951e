# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the reasons of a CapacityPool's conditions mean. Standard library only; decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

POOLS: Final[Mapping[Reason, Explanation]] = {
    Reason.PRICE_READ: say(
        "The pool's price source answered lately and its price is believed.", "Nothing."
    ),
    Reason.NEVER_PRICED: say(
        "The pool's price source has not said a price yet, so no job chooses the pool by cost.",
        "Wait a minute for a new pool; else look at spec.priceSource and at the message.",
    ),
    Reason.PRICE_STALE: say(
        "The last price is more than six hours old; it still counts until a new one comes.",
        "Look whether whatever writes the price still runs.",
    ),
    Reason.PRICE_OUTLIER: say(
        "The source says more than three times the price that was believed. Price feeds are known "
        "to show such values for weeks, so the price before stands.",
        "If the new price is true, delete and create the pool again, or give it another "
        "priceSource; else nothing.",
    ),
    Reason.PRICE_UNREADABLE: say(
        "The price source answered something that is no price, or not the one that was asked for; "
        "the message says what is wrong. The price before stands.",
        "Correct spec.priceSource, or what it names.",
    ),
    Reason.PRICE_UNREACHABLE: say(
        "The price source does not answer. It is asked again, ever less often, and the price "
        "before stands.",
        "See the message: the address, the network policy and the rights of the operator's pod.",
    ),
    Reason.HAZARD_LEARNED: say(
        "The pool's hazard comes from what was seen of it, more than from the prior.", "Nothing."
    ),
    Reason.HAZARD_FROM_PRIOR: say(
        "Little was seen of the pool so far, so its hazard is mostly the prior's.",
        "Nothing; it is learned while the pool has nodes. spec.prior.advisorBand makes the prior "
        "better.",
    ),
}
