# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Accounts of workloads: their status with the cost so far, and the Event at their end.

Only figures change, never what a workload holds. A cluster without prices keeps no accounts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Self

from ullage.api.reasons import ConditionType, Reason
from ullage.api.words import SpendMode
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Account, SpendRecord, WorkloadStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.accounting import cost_records
from ullage.scheduling.accounting.losses import ending_of
from ullage.scheduling.accounting.rates import Rates, Slices
from ullage.scheduling.model.plan import Emit


@dataclass(frozen=True, slots=True)
class Accountant:
    """Books costs."""

    rates: Rates
    now: float
    period_s: float
    """Minimum time between two entries caused only by prices or the clock."""

    @classmethod
    def of(cls, snapshot: Snapshot, slices: Slices, now: float) -> Self:
        """Set up for one cycle.

        Args:
            snapshot: The snapshot.
            slices: Slices of every node by the plan.
            now: The time of the decision, seconds since the epoch.
        """
        return cls(Rates.of(snapshot, slices), now, cost_records.period_s(len(snapshot.workloads)))

    def booked(self, workload: WorkloadRecord, status: WorkloadStatus) -> WorkloadStatus:
        """The status with the account; the same object where no entry is due."""
        spend = workload.status.spend
        before = spend.account if spend is not None else None
        placement = status.placement
        if before is None and not (placement and self.rates.any_price):
            return status
        same = status is workload.status
        if same and before is not None and 0 <= self.now - before.as_of < self.period_s:
            return status
        moved = (
            placement is not workload.status.placement and placement != workload.status.placement
        )
        rate = self.rates.held(placement)
        ending = ending_of(self.rates.snapshot, workload, status, self.now, before)
        if before is not None:
            # an entry in a status that is written anyway is free
            rides = not same and bool(placement) and self.now - before.as_of >= self.period_s
            asked = cost_records.due(
                before, rate, ending, self.now, moved=moved, period_s=self.period_s
            )
            if not rides and not asked:
                return _with(status, before)
        off_spot = (
            spend is not None
            and spend.decision is not None
            and spend.decision.mode == SpendMode.ON_DEMAND
        )
        account = cost_records.entered(before, rate, ending, self.now, off_spot=off_spot)
        unit = cost_records.per_thousand_steps(account, workload, status)
        return _with(status, replace(account, per_thousand_steps=unit))


def _with(status: WorkloadStatus, account: Account) -> WorkloadStatus:
    spend = status.spend or SpendRecord()
    if spend.account is account:
        return status
    return replace(status, spend=replace(spend, account=account))


def cost_news(workload: WorkloadRecord, status: WorkloadStatus, epoch: int) -> tuple[Emit, ...]:
    """The Event for a job that ended now with a known cost."""
    ended = status.condition(ConditionType.FINISHED)
    account = status.spend.account if status.spend is not None else None
    if ended is None or account is None or not account.total:
        return ()
    if workload.status.condition(ConditionType.FINISHED) is not None:
        return ()
    parts = [f"spent {Decimal(account.total):.2f}"]
    if account.on_demand_total and account.vs_on_demand:
        saved = 1 - Decimal(account.vs_on_demand)
        parts.append(
            f"on-demand would have taken {Decimal(account.on_demand_total):.2f} ({saved:.0%} saved)"
        )
    if account.lost_seconds:
        steps = f" ({account.lost_steps} steps)" if account.lost_steps else ""
        parts.append(f"losses took up to {account.lost_seconds} s of work{steps}")
    if account.unpriced_seconds:
        parts.append(f"{account.unpriced_seconds} s had no price and are in no sum")
    return (
        Emit(
            target=workload.ref,
            warning=False,
            epoch=epoch,
            reason=Reason.COST_SETTLED,
            text="; ".join(parts),
        ),
    )
