# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a CapacityPool's status says now, and whether that is worth a write.

Quiet: what happens is told at once, figures that only drift every ten minutes at most and only if
they moved, and a pool to which nothing happens is not written to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.codecs.pool import pool_as_stored
from ullage.cluster.records.pool import PoolRecord, PoolStatus
from ullage.cluster.records.snapshot import ObjectRef
from ullage.scheduling.capacity.hazard import Learning
from ullage.scheduling.capacity.prices import PriceNews, price_fresh, priced
from ullage.scheduling.model.conditions import Said, merged
from ullage.scheduling.model.plan import SetPoolStatus
from ullage.scheduling.times import POOL_COUNT_S, POOL_DRIFT_S, POOL_LOOKED_S, POOL_PRICED_S

PRICE_MOVED: Final = 0.01
"""A price that moves by more than this part is told at once."""
HAZARD_MOVED: Final = 0.02
EXPOSURE_MOVED: Final = 0.05
"""... and only if one moved by more than this part ..."""


def current(
    pool: PoolRecord,
    known: PoolStatus,
    seen: PoolStatus,
    news: PriceNews | None,
    now: float,
    learning: Learning,
) -> PoolStatus:
    """Everything that is known of a pool now.

    Args:
        pool: The pool as the API shows it.
        known: What was last said of it: price and conditions.
        seen: What its instances did, prices and conditions aside.
        news: What asking its price source has brought; ``None`` = not asked yet.
        now: Seconds since the epoch.
        learning: How fast is forgotten, how much the prior weighs.
    """
    seen = replace(seen, price=known.price, priced_at_s=known.priced_at_s)
    status = priced(seen, news)
    price = price_fresh(status, news, now)
    kept = tuple(
        condition for condition in known.conditions if condition.type == ConditionType.PRICE_FRESH
    )
    said = [_hazard_known(status, learning)]
    if price is not None:
        kept, said = (), [price, *said]
    conditions = merged(known.conditions, said, float(int(now)), pool.generation)
    return replace(status, conditions=(*kept, *conditions), observed_generation=pool.generation)


def failed(pool: PoolRecord, known: PoolStatus, text: str, now: float) -> PoolStatus:
    """The status of before, and that nothing new can be said of the pool."""
    said = Said(
        ConditionType.HAZARD_KNOWN, False, Reason.DECISION_FAILED, f"the look at it failed: {text}"
    )
    kept = tuple(
        condition for condition in known.conditions if condition.type != ConditionType.HAZARD_KNOWN
    )
    conditions = merged(known.conditions, [said], float(int(now)), pool.generation)
    return replace(known, conditions=(*kept, *conditions), observed_at_s=known.observed_at_s or now)


def _hazard_known(status: PoolStatus, learning: Learning) -> Said:
    if status.exposure_hours >= learning.prior_hours:
        return Said(
            ConditionType.HAZARD_KNOWN,
            True,
            Reason.HAZARD_LEARNED,
            f"more was seen than the {learning.prior_hours:g} pool-hours that the prior counts",
        )
    return Said(
        ConditionType.HAZARD_KNOWN,
        False,
        Reason.HAZARD_FROM_PRIOR,
        f"less was seen than the {learning.prior_hours:g} pool-hours that the prior counts",
    )


def worth_a_write(written: PoolStatus, status: PoolStatus) -> bool:
    """Whether what is known differs enough from what the API shows.

    Args:
        written: As the API shows it.
        status: As it is known.
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
    """Whether something changed that is more than a figure that drifts."""
    status = pool_as_stored(status)

    def facts(one: PoolStatus) -> tuple[object, ...]:
        return (
            one.launch_failures,
            one.available,
            one.nodes == 0,
            one.launching == 0,
            one.launches.failed_at_s,
            one.last_loss,
            one.warned_at_s,
            one.observed_generation,
            one.conditions,
        )

    return facts(written) != facts(status) or _moved(written.price, status.price, PRICE_MOVED)


def _moved(before: float | None, after: float | None, part: float) -> bool:
    if before is None or after is None:
        return before is not after
    return abs(after - before) > part * max(before, 1e-12)


def write_of(pool: PoolRecord, status: PoolStatus, epoch: int) -> SetPoolStatus:
    """The action that tells a pool what is known of it."""
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
