# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Gathers what the metrics tell of cost from the books in the statuses.

Books end with their workload, counters must not: what was entered since the last look is added to
sums that only grow. What stood in the books before this process began is not counted again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ullage.adapters.metrics.cost import CostFigures
from ullage.decide.accounting.bills import Bill, bill_of, party_of, total
from ullage.state.records import WorkloadRecord

Entered = tuple[float, float, float]
"""Dollars, evictions, seconds of lost work."""
_NOTHING: Entered = (0.0, 0.0, 0.0)


@dataclass(slots=True)
class CostSums:
    """Sums by tenant since this process looks on; bounded by the workloads that exist."""

    began: float
    sums: dict[str, Entered] = field(default_factory=dict)
    _seen: dict[str, Entered] = field(default_factory=dict)

    def figures(self, workloads: Iterable[WorkloadRecord], now: float) -> CostFigures:
        """Add what is new, and tell everything as of now."""
        parties: dict[str, list[Bill]] = defaultdict(list)
        seen: dict[str, Entered] = {}
        for one in workloads:
            bill = bill_of(one, now)
            if bill is None:
                continue
            party = party_of(one)
            parties[party].append(bill)
            stands = _entered(one, bill)
            before = self._seen.get(one.ref.uid)
            if before is None:
                before = _NOTHING if one.created >= self.began else stands
            self._add(party, before, stands)
            seen[one.ref.uid] = stands
        self._seen = seen
        bills = {party: total(found) for party, found in parties.items()}
        return CostFigures(
            dollars={party: one[0] for party, one in self.sums.items()},
            evictions={party: one[1] for party, one in self.sums.items()},
            lost_seconds={party: one[2] for party, one in self.sums.items()},
            per_hour={party: float(one.per_hour) for party, one in bills.items()},
            savings={
                party: one.savings_ratio
                for party, one in bills.items()
                if one.savings_ratio is not None
            },
        )

    def _add(self, party: str, before: Entered, stands: Entered) -> None:
        old = self.sums.get(party, _NOTHING)
        # a status that is read late may say less than one before it: nothing is taken back
        more = [max(0.0, new - known) for new, known in zip(stands, before, strict=True)]
        self.sums[party] = (old[0] + more[0], old[1] + more[1], old[2] + more[2])


def _entered(workload: WorkloadRecord, bill: Bill) -> Entered:
    """What stands in the books, without what has grown since."""
    spend = workload.status.spend
    said = spend.account.total if spend is not None and spend.account is not None else ""
    return float(said or 0), float(bill.evictions), float(bill.lost_seconds)
