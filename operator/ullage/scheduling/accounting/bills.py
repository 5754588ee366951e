# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Bills: the cost of workloads as of a time, single or summed, for users and metrics.

Unknown costs stay unknown; a sum has the number of its missing parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.accounting import cost_records
from ullage.scheduling.inventory.tenant_bindings import tenant_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Cost of one workload or of several.

    Attributes:
        spent: Dollars; ``None`` = unknown price.
        on_demand: Dollars on on-demand for the same time; ``None`` = unknown.
        compared: Part of ``spent`` that is compared with ``on_demand``.
        per_hour: Dollars per hour now.
        steps: Steps that count; 0 = unknown.
        stepped: Part of ``spent`` for those steps.
        lost_seconds: Seconds of lost work.
        lost_steps: The same in steps, where known.
        evictions: Starts that ended by eviction.
        expected: Dollars that the rest of the work should save against on-demand in its chosen
            pools; ``None`` = unknown.
        unpriced: Number of workloads with unpriced time.
        workloads: Number of workloads with an account.
        message: Missing price, of the first workload that lacks one.
    """

    spent: Decimal | None = None
    on_demand: Decimal | None = None
    compared: Decimal = Decimal(0)
    per_hour: Decimal = Decimal(0)
    steps: int = 0
    stepped: Decimal = Decimal(0)
    lost_seconds: int = 0
    lost_steps: int = 0
    evictions: int = 0
    expected: Decimal | None = None
    unpriced: int = 0
    workloads: int = 0
    message: str = ""

    @property
    def saved(self) -> Decimal | None:
        """Additional dollars on on-demand; below 0 = it would have been cheaper."""
        return None if self.on_demand is None else self.on_demand - self.compared

    @property
    def savings_ratio(self) -> float | None:
        """Fraction of the on-demand cost that was saved; ``None`` = unknown."""
        if self.on_demand is None or not self.on_demand:
            return None
        return float(1 - self.compared / self.on_demand)

    @property
    def per_thousand_steps(self) -> Decimal | None:
        """Dollars per thousand steps that count; ``None`` = unknown."""
        return self.stepped * 1000 / self.steps if self.steps > 0 else None


def bill_of(workload: WorkloadRecord, now: float) -> Bill | None:
    """The bill of a workload as of a time; ``None`` = it has no account."""
    spend = workload.status.spend
    account = spend.account if spend is not None else None
    if spend is None or account is None:
        return None
    savings = spend.expected_savings
    spent, on_demand = cost_records.spent(account, now), cost_records.on_demand(account, now)
    steps = (
        cost_records.useful_steps(account, workload, workload.status) if spent is not None else 0
    )
    paid = spent or Decimal(0)
    return Bill(
        spent=spent,
        on_demand=on_demand,
        compared=paid if on_demand is not None else Decimal(0),
        per_hour=Decimal(account.per_hour or 0),
        steps=max(0, steps),
        stepped=paid if steps > 0 else Decimal(0),
        lost_seconds=account.lost_seconds,
        lost_steps=account.lost_steps,
        evictions=account.evictions,
        expected=Decimal(savings) if savings else None,
        unpriced=int(bool(account.message or account.unpriced_seconds)),
        workloads=1,
        message=account.message,
    )


def total(bills: Iterable[Bill]) -> Bill:
    """One bill for many."""
    combined = Bill()
    for bill in bills:
        combined = Bill(
            spent=_sum(combined.spent, bill.spent),
            on_demand=_sum(combined.on_demand, bill.on_demand),
            compared=combined.compared + bill.compared,
            per_hour=combined.per_hour + bill.per_hour,
            steps=combined.steps + bill.steps,
            stepped=combined.stepped + bill.stepped,
            lost_seconds=combined.lost_seconds + bill.lost_seconds,
            lost_steps=combined.lost_steps + bill.lost_steps,
            evictions=combined.evictions + bill.evictions,
            expected=_sum(combined.expected, bill.expected),
            unpriced=combined.unpriced + bill.unpriced,
            workloads=combined.workloads + bill.workloads,
            message=combined.message or bill.message,
        )
    return combined


def party_of(policy: PolicyRecord, workload: WorkloadRecord) -> str:
    """Name on a bill: the tenant of the work, or the namespace without one."""
    return tenant_of(policy, workload) or workload.ref.namespace


def _sum(total: Decimal | None, amount: Decimal | None) -> Decimal | None:
    if total is None or amount is None:
        return amount if total is None else total
    return total + amount
