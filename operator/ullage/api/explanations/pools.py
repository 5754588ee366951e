# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Explains the reasons of a CapacityPool's conditions. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.explanations.explained import Explanation, say
from ullage.api.reasons import Reason

POOLS: Final[Mapping[Reason, Explanation]] = {
    Reason.PRICE_READ: say(
        "The pool's price source answered recently, and its price is accepted.", "Nothing."
    ),
    Reason.NEVER_PRICED: say(
        "The pool's price source has returned no price yet, so no job chooses the pool by cost.",
        "For a new pool, wait a minute. Otherwise check spec.priceSource and the message.",
    ),
    Reason.PRICE_STALE: say(
        "The last price is more than six hours old; it stays in force until a new one arrives.",
        "Check that the writer of the price still runs.",
    ),
    Reason.PRICE_OUTLIER: say(
        "The source returns more than three times the accepted price. Price feeds can show such "
        "values for weeks, so the previous price stays in force.",
        "If the new price is right, delete the pool and create it again, or give it another "
        "priceSource. Otherwise nothing.",
    ),
    Reason.PRICE_UNREADABLE: say(
        "The price source returned no price, or not the requested one; the message says what is "
        "wrong. The previous price stays in force.",
        "Correct spec.priceSource, or the object that it names.",
    ),
    Reason.PRICE_UNREACHABLE: say(
        "The price source does not answer. The operator retries with increasing delays, and the "
        "previous price stays in force.",
        "Check what the message names: the address, the network policy and the rights of the "
        "operator's pod.",
    ),
    Reason.HAZARD_LEARNED: say(
        "The pool's hazard rests on observations more than on the prior.", "Nothing."
    ),
    Reason.HAZARD_FROM_PRIOR: say(
        "The pool has few observations, so its hazard rests mostly on the prior.",
        "Nothing; Ullage learns the hazard while the pool has nodes. spec.prior.advisorBand "
        "improves the prior.",
    ),
}
