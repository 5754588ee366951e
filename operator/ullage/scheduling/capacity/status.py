# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Chosen pools in the API: the record, expected savings, conditions, Events.

Nothing is decided here. The expected savings change with every finished step, so they must never
cause a status write; they are included when another figure is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Final

from ullage.api.reasons import ConditionType, Reason, Standing
from ullage.api.words import SpendMode
from ullage.cluster.records.status import Offer, SpendDecision, SpendRecord, WorkloadStatus
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.capacity.capacity_choice import CapacityChoices, PoolChoice
from ullage.scheduling.capacity.choice import MOST_LOST, CapacityFacts
from ullage.scheduling.capacity.market import Market, member_price
from ullage.scheduling.model.conditions import DesiredCondition
from ullage.scheduling.model.phases import OVER
from ullage.scheduling.model.plan import Emit

_CENT: Final = Decimal("0.0001")
_MOST: Final = 999_999_999.0


def spend_of(workload: WorkloadRecord, pool_choice: PoolChoice | None) -> SpendRecord | None:
    """`status.spend` of a job; the last one where nothing is decided any more."""
    if pool_choice is None:
        spend = workload.status.spend
        if spend is None or spend.decision is None or workload.cost is not None:
            return spend
        # its account stays, even if its pools are chosen elsewhere from now on
        return SpendRecord(account=spend.account) if spend.account is not None else None
    return pool_choice.spend if pool_choice.spend.decision is not None else workload.status.spend


def says_already(workload: WorkloadRecord, pool_choice: PoolChoice | None) -> bool:
    """True when the status has the complete choice of pools."""
    return spend_of(workload, pool_choice) is workload.status.spend


def deadline_conditions(pool_choice: PoolChoice | None) -> Iterator[DesiredCondition]:
    """The conditions of a job with a deadline."""
    decision = pool_choice.spend.decision if pool_choice is not None else None
    if pool_choice is None or decision is None:
        return
    if pool_choice.safe is not None:
        reason = Reason.DEADLINE_KEPT if pool_choice.safe else Reason.DEADLINE_AT_RISK
        yield DesiredCondition(
            ConditionType.DEADLINE_SAFE, pool_choice.safe, reason, decision.message
        )
    if decision.reason is Reason.DEADLINE_INFEASIBLE:
        yield DesiredCondition(
            ConditionType.DEADLINE_INFEASIBLE, True, Reason.DEADLINE_INFEASIBLE, decision.message
        )


def spend_news(workload: WorkloadRecord, status: WorkloadStatus, epoch: int) -> Iterator[Emit]:
    """Events for a change of pools, of the kind of capacity, or for an obstacle."""
    before = workload.status.spend.decision if workload.status.spend is not None else None
    after = status.spend.decision if status.spend is not None else None
    if after is None or after is before:
        return
    reason = _news(before, after)
    if reason is not None:
        yield Emit(
            target=workload.ref,
            warning=Standing.OWNER_ACTS in reason.standing,
            epoch=epoch,
            reason=reason,
            text=after.message,
        )


def _news(before: SpendDecision | None, after: SpendDecision) -> Reason | None:
    """Reason of the Event; ``None`` = no change."""
    if Standing.OWNER_ACTS in after.reason.standing:
        return None if before is not None and before.reason is after.reason else after.reason
    old = {pool_share.pool for pool_share in before.chosen.pools} if before is not None else set()
    new = {pool.pool for pool in after.chosen.pools}
    to_on_demand = after.mode == SpendMode.ON_DEMAND and (
        before is None
        or before.mode != SpendMode.ON_DEMAND
        or (after.committed and not before.committed)
    )
    if to_on_demand and Standing.TURNS_FROM_SPOT in after.reason.standing:
        return Reason.FALLBACK_TO_ON_DEMAND
    if old == new:
        return None
    if old and new:
        return Reason.OFFER_SWITCHED
    return Reason.POOL_ACQUIRED if new else Reason.POOL_RELEASED


def with_savings(
    capacity_choices: CapacityChoices, workload: WorkloadRecord, status: WorkloadStatus
) -> WorkloadStatus:
    """The status with the current forecast; the same object if nothing else changed.

    Args:
        capacity_choices: Choices of pools of this cycle.
        workload: The workload with the last status.
        status: The new status.
    """
    spend = status.spend
    if spend is None or status is workload.status:
        return status
    pool_choice = capacity_choices.recorded_for(workload.ref.uid)
    if spend.decision is None or status.phase in OVER:
        savings = ""
    elif pool_choice is None:
        return status  # a suspended job: its pools are the last ones
    elif pool_choice.facts is None or capacity_choices.market is None:
        savings = ""
    else:
        savings = expected_savings(
            capacity_choices.market, pool_choice.facts, spend.decision.chosen
        )
    if savings == spend.expected_savings:
        return status
    return replace(status, spend=replace(spend, expected_savings=savings))


def expected_savings(market: Market, facts: CapacityFacts, chosen: Offer) -> str:
    """Dollars that the rest of the work should save in some pools; "" = unknown.

    The rest at the speed of the slowest pool, stretched by the restarts that their hazards cost,
    against the same rest uninterrupted on on-demand capacity of the same types (derived).
    """
    if facts.work is None or not chosen.pools:
        return ""
    paid = reliable = hazard = 0.0
    speeds: list[float] = []
    for share in chosen.pools:
        candidate = facts.suited.by_name.get(share.pool)
        if candidate is None:
            return ""
        on_demand = market.on_demand(candidate.record)
        record = replace(candidate.record, status=replace(candidate.record.status, price=on_demand))
        price = member_price(record, facts.job, facts.members)
        if price is None or candidate.pool.price_per_hour is None:
            return ""
        paid += candidate.pool.price_per_hour * share.replicas
        reliable += price * share.replicas
        hazard += candidate.pool.hazard_per_hour
        speeds.append(candidate.pool.speed)
    if not min(speeds) or (hazard and not facts.job.checkpoint):
        return ""
    left_h = facts.work.left_h / min(speeds)
    lost = min(MOST_LOST, hazard * facts.restart_h)
    savings = left_h * reliable - left_h / (1 - lost) * paid
    exact = Decimal(max(-_MOST, min(_MOST, savings))).quantize(_CENT)
    return f"{exact:f}".rstrip("0").rstrip(".") if exact else "0"
