# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the pools that were chosen for a job should still save against on-demand.

A forecast for people: nothing is decided by it. It moves with every step that is done, so it must
never be the reason to write a status; it goes along when another figure is written.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Final

from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import Offer, WorkloadStatus
from ullage.scheduling.capacity.capacity_choice import CapacityChoices
from ullage.scheduling.capacity.choice import MOST_LOST, Facts
from ullage.scheduling.capacity.market import Market, member_price
from ullage.scheduling.model.phases import OVER

_CENT: Final = Decimal("0.0001")
_MOST: Final = 999_999_999.0


def with_savings(
    capacity_choices: CapacityChoices, workload: WorkloadRecord, status: WorkloadStatus
) -> WorkloadStatus:
    """The status with the forecast as of now; the very status where nothing else is new in it.

    Args:
        capacity_choices: What this cycle decided about pools.
        workload: With the status of before.
        status: What is to be written.
    """
    spend = status.spend
    if spend is None or status is workload.status:
        return status
    said = _said(capacity_choices, workload, status)
    if said == spend.expected_savings:
        return status
    return replace(status, spend=replace(spend, expected_savings=said))


def _said(
    capacity_choices: CapacityChoices, workload: WorkloadRecord, status: WorkloadStatus
) -> str:
    pool_choice, spend = capacity_choices.said(workload.ref.uid), status.spend
    if spend is None or spend.decision is None or status.phase in OVER:
        return ""
    if pool_choice is None:
        return spend.expected_savings  # a suspended job: its pools are those of before
    if pool_choice.facts is None or capacity_choices.market is None:
        return ""
    return expected_savings(capacity_choices.market, pool_choice.facts, spend.decision.chosen)


def expected_savings(market: Market, facts: Facts, chosen: Offer) -> str:
    """Dollars that the rest of the work should save in some pools; "" = no one can tell.

    The rest at the speed of the slowest pool, stretched by the restarts that their hazards cost,
    against the same rest undisturbed on on-demand capacity of the same types (derived).
    """
    if facts.work is None or not chosen.pools:
        return ""
    paid = reliable = hazard = 0.0
    speeds: list[float] = []
    for share in chosen.pools:
        stall = facts.stalls.stalls.get(share.pool)
        if stall is None:
            return ""
        there = market.on_demand(stall.record)
        record = replace(stall.record, status=replace(stall.record.status, price=there))
        price = member_price(record, facts.job, facts.members)
        if price is None or stall.pool.price_per_hour is None:
            return ""
        paid += stall.pool.price_per_hour * share.replicas
        reliable += price * share.replicas
        hazard += stall.pool.hazard_per_hour
        speeds.append(stall.pool.speed)
    if not min(speeds) or (hazard and not facts.job.checkpoint):
        return ""
    left_h = facts.work.left_h / min(speeds)
    lost = min(MOST_LOST, hazard * facts.restart_h)
    return _signed(left_h * reliable - left_h / (1 - lost) * paid)


def _signed(value: float) -> str:
    """Dollars as decimal text with at most four digits behind the point."""
    exact = Decimal(max(-_MOST, min(_MOST, value))).quantize(_CENT)
    return f"{exact:f}".rstrip("0").rstrip(".") if exact else "0"
