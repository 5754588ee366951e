# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the books of every workload that holds devices: its status with what it cost so far.

It changes figures alone and never what is held. A cluster without any price keeps no books.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from ullage.api.words import SpendMode
from ullage.cluster.records.snapshot import Snapshot, WorkloadRecord
from ullage.cluster.records.status import Account, SpendRecord, WorkloadStatus
from ullage.scheduling.accounting import cost_records
from ullage.scheduling.accounting.losses import ending_of
from ullage.scheduling.accounting.rates import Rates, Slices


@dataclass(frozen=True, slots=True)
class Accountant:
    """Enters what was spent."""

    rates: Rates
    now: float
    period_s: float
    """Least time between two entries that only prices or the clock ask for."""

    @classmethod
    def of(cls, snapshot: Snapshot, slices: Slices, now: float) -> Self:
        """For one cycle.

        Args:
            snapshot: The snapshot.
            slices: What every node holds by the plan.
            now: The moment of the decision.
        """
        return cls(Rates.of(snapshot, slices), now, cost_records.period_s(len(snapshot.workloads)))

    def booked(self, workload: WorkloadRecord, status: WorkloadStatus) -> WorkloadStatus:
        """The status with the books; the very status where no entry is due."""
        spend = workload.status.spend
        before = spend.account if spend is not None else None
        held = status.placement
        if before is None and not (held and self.rates.any_price):
            return status
        same = status is workload.status
        if same and before is not None and 0 <= self.now - before.as_of < self.period_s:
            return status
        moved = held is not workload.status.placement and held != workload.status.placement
        rate = self.rates.held(held)
        ending = ending_of(self.rates.snapshot, workload, status, self.now, before)
        if before is not None:
            # an entry that comes with a status that is written anyway costs nothing
            rides = not same and bool(held) and self.now - before.as_of >= self.period_s
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
