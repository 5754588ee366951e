# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of cost, from the accounts in the statuses: spent, saved and lost, by tenant.

Accounts end with their workload, counters must not: new entries since the last scrape are added to
sums that only grow. Entries from before this process started are not counted again, and assumed
losses wait until the next start has reported its resume step. The label is a tenant, or a namespace
of work without one, never a job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ullage.cluster.records.workload import WorkloadRecord
from ullage.metrics.currency import CURRENCY, DEFAULT_CURRENCY, in_currency
from ullage.metrics.tenants import TenantLabels
from ullage.process.metric_families import counter, gauge
from ullage.scheduling.accounting.bills import Bill, bill_of, total
from ullage.scheduling.model.phases import OVER

Entered = tuple[float, float, float]
"""Cost, evictions, seconds of lost work."""
_NOTHING: Entered = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFigures:
    """Figures of cost, by tenant; empty without prices."""

    cost: Mapping[tuple[str, str], float] = counter(
        "ullage_job_cost",
        "Cost that was entered into the books of workloads since this process looks on.",
        "tenant",
        CURRENCY,
    )
    evictions: Mapping[str, float] = counter(
        "ullage_job_evictions",
        "Starts of jobs that ended because devices were taken away.",
        "tenant",
    )
    lost_seconds: Mapping[str, float] = counter(
        "ullage_job_lost_work_seconds",
        "Work of jobs that losses took, entered once the next start has told where it resumed;"
        " where it does not say so, at most: since the last checkpoint told of.",
        "tenant",
    )
    per_hour: Mapping[tuple[str, str], float] = gauge(
        "ullage_job_cost_per_hour",
        "Cost per hour of the devices that workloads hold now.",
        "tenant",
        CURRENCY,
    )
    savings: Mapping[str, float] = gauge(
        "ullage_job_savings_ratio",
        "Part of the on-demand cost that the workloads which exist have saved so far.",
        "tenant",
    )


@dataclass(slots=True)
class CostSums:
    """Sums by tenant since the start of this process; bounded by workloads and by labels."""

    began: float
    currency: str = DEFAULT_CURRENCY
    parties: TenantLabels = field(default_factory=TenantLabels)
    sums: dict[str, Entered] = field(default_factory=dict)
    _seen: dict[str, Entered] = field(default_factory=dict)

    def figures(self, workloads: Iterable[WorkloadRecord], now: float) -> CostFigures:
        """Add new entries, and export the current figures."""
        parties: dict[str, list[Bill]] = defaultdict(list)
        seen: dict[str, Entered] = {}
        for workload in workloads:
            bill = bill_of(workload, now)
            if bill is None:
                continue
            party = self.parties.label(workload)
            parties[party].append(bill)
            stands = _entered(workload, bill)
            before = self._seen.get(workload.ref.uid)
            if before is None:
                before = _NOTHING if workload.created >= self.began else stands
            seen[workload.ref.uid] = self._add(party, before, stands)
        self._seen = seen
        bills = {party: total(party_bills) for party, party_bills in parties.items()}
        return CostFigures(
            cost=in_currency({party: sums[0] for party, sums in self.sums.items()}, self.currency),
            evictions={party: sums[1] for party, sums in self.sums.items()},
            lost_seconds={party: sums[2] for party, sums in self.sums.items()},
            per_hour=in_currency(
                {party: float(bill.per_hour) for party, bill in bills.items()}, self.currency
            ),
            savings={
                party: bill.savings_ratio
                for party, bill in bills.items()
                if bill.savings_ratio is not None
            },
        )

    def _add(self, party: str, before: Entered, stands: Entered) -> Entered:
        """Add new entries; returns the total added for this workload.

        A status that is read late may have less than an earlier one: nothing is subtracted, and
        nothing is added twice when the newer one returns.
        """
        old = self.sums.get(party, _NOTHING)
        most = max(before[0], stands[0]), max(before[1], stands[1]), max(before[2], stands[2])
        more = [new - known for new, known in zip(most, before, strict=True)]
        self.sums[party] = (old[0] + more[0], old[1] + more[1], old[2] + more[2])
        return most


def _entered(workload: WorkloadRecord, bill: Bill) -> Entered:
    """The final sums in the accounts, without the growth since."""
    spend = workload.status.spend
    account = spend.account if spend is not None else None
    if account is None:
        return _NOTHING
    # the next start may report a smaller loss; an ended job has none
    open_s = 0 if workload.status.phase in OVER else account.assumed_seconds
    lost_s = max(0, bill.lost_seconds - open_s)
    return float(account.total or 0), float(bill.evictions), float(lost_s)
