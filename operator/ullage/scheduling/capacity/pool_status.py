# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The status of a CapacityPool, and the test if it is worth a write.

Events are written at once, drifting figures every ten minutes at most and only if they moved. An
unchanged pool is not written. An accepted price stands until a better one arrives; doubts are
reported, never priced in.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.codecs.status import pool_as_stored
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.pool import PoolRecord, PoolStatus
from ullage.engines.capacity.price import LARGEST_RISE, Doubt, PriceRecord, Quote
from ullage.engines.capacity.times import PRICE_FRESH_S
from ullage.scheduling.capacity.hazard import Learning
from ullage.scheduling.model.conditions import DesiredCondition, merged
from ullage.scheduling.model.plan import SetPoolStatus
from ullage.scheduling.times import POOL_COUNT_S, POOL_DRIFT_S, POOL_LOOKED_S, POOL_PRICED_S

PRICE_MOVED: Final = 0.01
"""Relative change of a price that is written at once."""
HAZARD_MOVED: Final = 0.02
"""Minimum relative change of a drifting hazard that is worth a write."""
EXPOSURE_MOVED: Final = 0.05
"""The same of the exposure."""
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
    """Reason why the last attempt gave no price; empty = it gave one."""
    reached: bool = True
    """The source answered the last attempt, with any result."""


def current(
    pool: PoolRecord,
    known: PoolStatus,
    seen: PoolStatus,
    news: PriceNews | None,
    now: float,
    learning: Learning,
) -> PoolStatus:
    """The complete current status of a pool.

    Args:
        pool: The pool as the API shows it.
        known: Its last status: price and conditions.
        seen: The status by its instances, without prices and conditions.
        news: Answers of its price source; ``None`` = not queried yet.
        now: Seconds since the epoch.
        learning: Half-life and weight of the prior.
    """
    seen = replace(seen, price=known.price, priced_at_s=known.priced_at_s)
    status = priced(seen, news)
    price = price_fresh(status, news, now)
    kept = tuple(
        condition for condition in known.conditions if condition.type == ConditionType.PRICE_FRESH
    )
    desired = [_hazard_known(status, learning)]
    if price is not None:
        kept, desired = (), [price, *desired]
    conditions = merged(known.conditions, desired, float(int(now)), pool.generation)
    return replace(status, conditions=(*kept, *conditions), observed_generation=pool.generation)


def failed(pool: PoolRecord, known: PoolStatus, text: str, now: float) -> PoolStatus:
    """The last status, with the condition that the observation of the pool failed."""
    desired = DesiredCondition(
        ConditionType.HAZARD_KNOWN, False, Reason.DECISION_FAILED, f"the look at it failed: {text}"
    )
    kept = tuple(
        condition for condition in known.conditions if condition.type != ConditionType.HAZARD_KNOWN
    )
    conditions = merged(known.conditions, [desired], float(int(now)), pool.generation)
    return replace(known, conditions=(*kept, *conditions), observed_at_s=known.observed_at_s or now)


def _hazard_known(status: PoolStatus, learning: Learning) -> DesiredCondition:
    learned = status.exposure_hours >= learning.prior_hours
    return DesiredCondition(
        ConditionType.HAZARD_KNOWN,
        learned,
        Reason.HAZARD_LEARNED if learned else Reason.HAZARD_FROM_PRIOR,
        f"{'more' if learned else 'less'} was seen than the {learning.prior_hours:g} pool-hours"
        " that the prior counts",
    )


def worth_a_write(written: PoolStatus, status: PoolStatus) -> bool:
    """True when the current status differs enough from the written one.

    Args:
        written: As the API shows it.
        status: The current one.
    """
    passed_s = status.observed_at_s - written.observed_at_s
    if not written.observed_at_s or _happened(written, status):
        return True
    if written.nodes != status.nodes and passed_s >= POOL_COUNT_S:
        return True
    if passed_s < POOL_DRIFT_S:
        return False
    return (
        _moved(written.hazard_per_hour, status.hazard_per_hour, HAZARD_MOVED)
        or _moved(written.exposure_hours, status.exposure_hours, EXPOSURE_MOVED)
        or (status.nodes > 0 and passed_s >= POOL_LOOKED_S)
        or (status.priced_at_s or 0.0) - (written.priced_at_s or 0.0) >= POOL_PRICED_S
    )


def _happened(written: PoolStatus, status: PoolStatus) -> bool:
    """True when more than a drifting figure changed."""
    status = pool_as_stored(status)

    def facts(pool_status: PoolStatus) -> tuple[object, ...]:
        return (
            pool_status.launch_failures,
            pool_status.available,
            pool_status.nodes == 0,
            pool_status.launching == 0,
            pool_status.launches.failed_at_s,
            pool_status.last_loss,
            pool_status.warned_at_s,
            pool_status.observed_generation,
            pool_status.conditions,
        )

    return facts(written) != facts(status) or _moved(written.price, status.price, PRICE_MOVED)


def _moved(before: float | None, after: float | None, part: float) -> bool:
    if before is None or after is None:
        return before is not after
    return abs(after - before) > part * max(before, 1e-12)


def write_of(pool: PoolRecord, status: PoolStatus, epoch: int) -> SetPoolStatus:
    """The action that writes a pool's status."""
    return SetPoolStatus(
        target=ObjectRef(kind="CapacityPool", namespace="", name=pool.name, uid=pool.uid),
        status=pool_as_stored(status),
        epoch=epoch,
        reason=Reason.MEASURED,
        text=(
            f"{status.nodes} instances, hazard {status.hazard_per_hour or 0.0:.4g} per hour, "
            f"price {'unknown' if status.price is None else format(status.price, 'g')}"
        ),
    )


def remembered(status: PoolStatus) -> PriceRecord:
    """The accepted price recorded in a status."""
    if status.price is None or status.priced_at_s is None:
        return PriceRecord()
    return PriceRecord(quote=Quote(price_per_hour=status.price, at_s=status.priced_at_s))


def priced(status: PoolStatus, news: PriceNews | None) -> PoolStatus:
    """The status with the accepted price."""
    quote = news.record.quote if news is not None else None
    if quote is None:
        return status
    return replace(status, price=quote.price_per_hour, priced_at_s=quote.at_s)


def price_fresh(status: PoolStatus, news: PriceNews | None, now: float) -> DesiredCondition | None:
    """The condition ``PriceFresh``; ``None`` = the source was not queried yet.

    Args:
        status: The pool's status, with its price.
        news: Answers of the source; ``None`` = this process has not queried it yet.
        now: Seconds since the epoch.
    """
    if news is None:
        stale = remembered(status).why_not_fresh(now)
        if stale is not Doubt.STALE:
            return None
        news = PriceNews(record=remembered(status))
    doubt = news.record.why_not_fresh(now)
    if doubt is None:
        return DesiredCondition(
            ConditionType.PRICE_FRESH, True, Reason.PRICE_READ, "the source answers"
        )
    if doubt in (Doubt.NEVER, Doubt.STALE) and news.failure:
        reason = Reason.PRICE_UNREADABLE if news.reached else Reason.PRICE_UNREACHABLE
        return DesiredCondition(ConditionType.PRICE_FRESH, False, reason, news.failure)
    return DesiredCondition(
        ConditionType.PRICE_FRESH, False, _REASONS[doubt], _why(doubt, news.record)
    )


def _why(doubt: Doubt, record: PriceRecord) -> str:
    believed = "" if record.quote is None else f"{record.quote.price_per_hour:g} an hour stands"
    match doubt:
        case Doubt.NEVER:
            return "the source was not read yet"
        case Doubt.STALE:
            return f"no price for {PRICE_FRESH_S / 3600:g} hours; {believed}"
        case Doubt.OUTLIER | Doubt.UNREADABLE:
            price = "" if record.refused is None else f"{record.refused.price_per_hour:g}"
            limit = f", more than {LARGEST_RISE:g} times the price before"
            return f"the source says {price}{limit if doubt is Doubt.OUTLIER else ''}; {believed}"
