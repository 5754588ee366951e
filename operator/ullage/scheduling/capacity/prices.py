# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Price of a pool: the believed one, and the condition whether it is fresh.

A believed price stands until a better one comes; doubts are stated, never priced in.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.records.pool import PoolStatus
from ullage.engines.capacity.price import LARGEST_RISE, Doubt, PriceRecord, Quote
from ullage.engines.capacity.times import PRICE_FRESH_S
from ullage.scheduling.model.conditions import Said

_REASONS: Final = {
    Doubt.NEVER: Reason.NEVER_PRICED,
    Doubt.STALE: Reason.PRICE_STALE,
    Doubt.OUTLIER: Reason.PRICE_OUTLIER,
    Doubt.UNREADABLE: Reason.PRICE_UNREADABLE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceNews:
    """Answers of a pool's price source so far."""

    record: PriceRecord = field(default_factory=PriceRecord)
    failure: str = ""
    """Reason why the last try brought no price; empty = it brought one."""
    reached: bool = True
    """The source answered the last try, whatever the answer."""


def remembered(status: PoolStatus) -> PriceRecord:
    """The believed price that a status remembers."""
    if status.price is None or status.priced_at_s is None:
        return PriceRecord()
    return PriceRecord(quote=Quote(price_per_hour=status.price, at_s=status.priced_at_s))


def priced(status: PoolStatus, news: PriceNews | None) -> PoolStatus:
    """The status with the price that is believed now."""
    quote = news.record.quote if news is not None else None
    if quote is None:
        return status
    return replace(status, price=quote.price_per_hour, priced_at_s=quote.at_s)


def price_fresh(status: PoolStatus, news: PriceNews | None, now: float) -> Said | None:
    """The condition ``PriceFresh``; ``None`` = the source was not asked yet.

    Args:
        status: The pool's status, with its price.
        news: Answers of the source; ``None`` = this process has not asked yet.
        now: Seconds since the epoch.
    """
    if news is None:
        stale = remembered(status).why_not_fresh(now)
        if stale is not Doubt.STALE:
            return None
        news = PriceNews(record=remembered(status))
    doubt = news.record.why_not_fresh(now)
    if doubt is None:
        return Said(ConditionType.PRICE_FRESH, True, Reason.PRICE_READ, "the source answers")
    if doubt in (Doubt.NEVER, Doubt.STALE) and news.failure:
        reason = Reason.PRICE_UNREADABLE if news.reached else Reason.PRICE_UNREACHABLE
        return Said(ConditionType.PRICE_FRESH, False, reason, news.failure)
    return Said(ConditionType.PRICE_FRESH, False, _REASONS[doubt], _why(doubt, news.record))


def _why(doubt: Doubt, record: PriceRecord) -> str:
    believed = "" if record.quote is None else f"{record.quote.price_per_hour:g} an hour stands"
    match doubt:
        case Doubt.NEVER:
            return "the source was not read yet"
        case Doubt.STALE:
            return f"no price for {PRICE_FRESH_S / 3600:g} hours; {believed}"
        case Doubt.OUTLIER | Doubt.UNREADABLE:
            said = "" if record.refused is None else f"{record.refused.price_per_hour:g}"
            limit = f", more than {LARGEST_RISE:g} times the price before"
            return f"the source says {said}{limit if doubt is Doubt.OUTLIER else ''}; {believed}"
