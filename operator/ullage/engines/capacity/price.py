# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Accepted prices: separates stale ones and outliers from fresh ones.

Feeds flip: public ones have shown twelve times the price for weeks, with the low value the true
one, while spot prices move by less than a sixth per update. It must never accept a jump because it
persists.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from ullage.engines.capacity.times import PRICE_FRESH_S

LARGEST_RISE: Final = 3.0
"""Times the believed price above which a quote is an outlier."""


class Doubt(StrEnum):
    """Reason for a price that is not fresh."""

    NEVER = "NeverPriced"
    STALE = "PriceStale"
    OUTLIER = "PriceOutlier"
    UNREADABLE = "PriceUnreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A price as published by a source.

    Attributes:
        price_per_hour: Of one instance.
        at_s: Time of its validity, seconds since the epoch.
    """

    price_per_hour: float
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRecord:
    """The accepted price of a pool.

    Attributes:
        quote: The last accepted quote; ``None`` = none yet.
        refused: The last rejected quote, while it is newer than that.
        doubt: Reason of the rejection.
    """

    quote: Quote | None = None
    refused: Quote | None = None
    doubt: Doubt | None = None

    def quoted(self, quote: Quote) -> PriceRecord:
        """The record after a quote; quotes older than the accepted one change nothing."""
        price = quote.price_per_hour
        if not (math.isfinite(price) and price > 0):
            return replace(self, refused=quote, doubt=Doubt.UNREADABLE)
        if self.quote is None:
            return PriceRecord(quote=quote)
        if quote.at_s < self.quote.at_s:
            return self
        if price > LARGEST_RISE * self.quote.price_per_hour:
            return replace(self, refused=quote, doubt=Doubt.OUTLIER)
        return PriceRecord(quote=quote)

    def why_not_fresh(self, now_s: float, *, fresh_s: float = PRICE_FRESH_S) -> Doubt | None:
        """Reason of condition ``PriceFresh``; ``None`` = it is fresh.

        Args:
            now_s: Seconds since the epoch.
            fresh_s: Seconds after which a price is stale.
        """
        if self.doubt is not None:
            return self.doubt
        if self.quote is None:
            return Doubt.NEVER
        return Doubt.STALE if now_s - self.quote.at_s > fresh_s else None
