# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Accounts of cost: a workload's spending, the same on on-demand capacity, and losses.

An account is part of the workload's status. Between two entries everything follows from the rates
and the clock, so an entry is made when the rates change, at the end, or when a figure moved by more
than 1 %; a new leader continues from it. A second is never counted twice, and a jump of the clock
is bounded.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Final

from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.status import Account, WorkloadStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.accounting.losses import Ending
from ullage.scheduling.accounting.rates import Rate
from ullage.scheduling.times import (
    COST_COUNTED_MOST_S,
    COST_ENTRY_MOST_S,
    COST_ENTRY_PER_WORKLOAD_S,
    COST_ENTRY_S,
)

MOVED: Final = 0.01
"""Minimum relative change of a figure for an entry."""
_HOUR: Final = 3600
_MOST: Final = Decimal("999999999")
_SIX: Final = Decimal("0.000001")


def money(value: float | Decimal) -> str:
    """Decimal text for the API: seven digits, at most six of them decimals."""
    exact = min(_MOST, Decimal(value)) if value > 0 else Decimal(0)
    digits = max(0, min(6, 6 - exact.adjusted())) if exact else 0
    text = f"{exact.quantize(_SIX):.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def elapsed_s(account: Account, now: float) -> float:
    """Seconds since the last sums; a clock that went back or far ahead is not trusted."""
    return max(0.0, min(COST_COUNTED_MOST_S, now - account.as_of))


def spent(account: Account, now: float) -> Decimal | None:
    """Dollars until a time while the rates hold; ``None`` = unknown."""
    return _grown(account.total, account.per_hour, elapsed_s(account, now))


def on_demand(account: Account, now: float) -> Decimal | None:
    """Dollars on on-demand until a time; ``None`` = unknown."""
    passed_s = elapsed_s(account, now)
    if account.on_demand_per_hour:
        # time before the first on-demand price counts at the paid price
        before = account.on_demand_total or account.total
        return _grown(before, account.on_demand_per_hour, passed_s)
    if not account.on_demand_total:
        return None
    return _grown(account.on_demand_total, account.per_hour, passed_s)


def period_s(workloads: int) -> float:
    """Minimum time between two entries of one workload caused only by prices or the clock."""
    return max(COST_ENTRY_S, COST_ENTRY_PER_WORKLOAD_S * workloads)


def due(
    before: Account,
    rate: Rate,
    ending: Ending,
    now: float,
    *,
    moved: bool,
    period_s: float = COST_ENTRY_S,
) -> bool:
    """True when an entry is due.

    Args:
        before: The account.
        rate: Rate of the current slices.
        ending: End of a start, if any.
        now: Seconds since the epoch.
        moved: The devices have changed.
        period_s: Minimum time between two entries without another cause.
    """
    if ending.matters:
        return True
    paid = float(before.per_hour or 0)
    drifted = not (
        _same(before.per_hour, rate.per_hour, moved)
        and _same(before.on_demand_per_hour, rate.on_demand, moved)
    )
    turned = (bool(paid), bool(before.message)) != (bool(rate.per_hour), bool(rate.message))
    if turned or (drifted and moved):
        return True
    passed_s = now - before.as_of
    if passed_s < -COST_ENTRY_S:
        return True  # the clock was ahead: count from now on
    if passed_s < period_s or not (paid or before.message):
        return False
    grown = paid * passed_s / _HOUR
    settled = grown <= MOVED * float(before.total or 0) and passed_s < COST_ENTRY_MOST_S
    return drifted or before.message != rate.message or (bool(paid) and not settled)


def entered(
    before: Account | None, rate: Rate, ending: Ending, now: float, *, off_spot: bool = False
) -> Account:
    """The account with all costs until now, and the rates that hold from now on.

    Args:
        before: The account; ``None`` = there is none yet.
        rate: Rate of the slices from now on.
        ending: End of a start, if any.
        now: Seconds since the epoch.
        off_spot: The capacity until now is on-demand or reserved.
    """
    moment = whole_second(now)
    old = before or Account(since=moment, as_of=moment)
    total, reliable = spent(old, moment), on_demand(old, moment)
    passed_s = int(elapsed_s(old, moment))
    waited_s = passed_s if old.message and not old.per_hour else 0
    priced = bool(old.message or old.per_hour)
    spent_text = money(total) if total is not None else ""
    on_demand_text = money(reliable) if reliable is not None else ""
    ratio = ""
    if spent_text and on_demand_text and Decimal(on_demand_text):
        ratio = f"{min(_MOST, Decimal(spent_text) / Decimal(on_demand_text)):.4f}"
    open_ = ending.reached is None  # nothing was settled, and nothing needs to be
    return replace(
        old,
        as_of=moment,
        total=spent_text,
        on_demand_total=on_demand_text,
        per_hour=money(rate.per_hour) if rate.per_hour else "",
        on_demand_per_hour=money(rate.on_demand) if rate.on_demand else "",
        vs_on_demand=ratio,
        first_step=old.first_step + ending.first_step,
        earlier_steps=old.earlier_steps + ending.steps,
        reached_steps=old.reached_steps if open_ else ending.reached or 0,
        lost_steps=max(0, old.lost_steps + ending.lost_steps),
        lost_seconds=max(0, old.lost_seconds + ending.lost_seconds),
        assumed_steps=old.assumed_steps if open_ else ending.assumed[0],
        assumed_seconds=old.assumed_seconds if open_ else ending.assumed[1],
        evictions=old.evictions + ending.evicted,
        on_demand_seconds=old.on_demand_seconds + (passed_s if priced and off_spot else 0),
        unpriced_seconds=old.unpriced_seconds + waited_s,
        message=rate.message,
    )


def per_thousand_steps(account: Account, workload: WorkloadRecord, status: WorkloadStatus) -> str:
    """Dollars per thousand steps that count; "" where steps or costs are unknown."""
    done = useful_steps(account, workload, status)
    if not account.total or done <= 0:
        return ""
    return money(Decimal(account.total) * 1000 / done)


def useful_steps(account: Account, workload: WorkloadRecord, status: WorkloadStatus) -> int:
    """Steps of all starts, without lost ones; of a finished job the declared ones.

    A job that reports its resume step counts repeated steps itself, so nothing is added.
    """
    progress = status.progress
    if progress is not None and progress.percent >= 100 and workload.work_steps:
        return workload.work_steps - account.first_step
    if progress is not None and progress.resumed_at:
        return progress.steps - account.first_step - account.assumed_steps
    steps = progress.steps if progress is not None else 0
    return account.earlier_steps + steps - account.lost_steps


def _grown(before: str, per_hour: str, passed_s: float) -> Decimal | None:
    """A sum that grows at a rate."""
    if not before and not per_hour:
        return None
    more = Decimal(per_hour) * Decimal(passed_s) / _HOUR if per_hour else Decimal(0)
    return Decimal(before or 0) + more


def _same(before: str, now: float | None, exactly: bool) -> bool:
    """True when a rate is unchanged, or close enough to wait for the next entry."""
    if not before or not now:
        return not before and not now
    old = float(before)
    return abs(old - now) <= (1e-6 * old + 1e-6 if exactly else MOVED * old)
