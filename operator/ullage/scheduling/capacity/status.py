# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What users read of the pools that were chosen: the record, conditions, Events.

Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator

from ullage.api.reasons import ConditionType, Reason, Standing
from ullage.api.words import SpendMode
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import SpendDecision, SpendRecord, WorkloadStatus
from ullage.scheduling.capacity.capacity_choice import PoolChoice
from ullage.scheduling.model.conditions import Said
from ullage.scheduling.model.plan import Emit


def spend_of(workload: WorkloadRecord, pool_choice: PoolChoice | None) -> SpendRecord | None:
    """`status.spend` of a job; what stood there stays where nothing is decided any more."""
    if pool_choice is None:
        spend = workload.status.spend
        if spend is None or spend.decision is None or workload.cost is not None:
            return spend
        # what it cost stays, even if something else chooses its pools from now on
        return SpendRecord(account=spend.account) if spend.account is not None else None
    return pool_choice.spend if pool_choice.spend.decision is not None else workload.status.spend


def says_already(workload: WorkloadRecord, pool_choice: PoolChoice | None) -> bool:
    """Whether the status says all that was decided of the pools."""
    return spend_of(workload, pool_choice) is workload.status.spend


def deadline_said(pool_choice: PoolChoice | None) -> Iterator[Said]:
    """The conditions of a job with a deadline."""
    decision = pool_choice.spend.decision if pool_choice is not None else None
    if pool_choice is None or decision is None:
        return
    if pool_choice.safe is not None:
        reason = Reason.DEADLINE_KEPT if pool_choice.safe else Reason.DEADLINE_AT_RISK
        yield Said(ConditionType.DEADLINE_SAFE, pool_choice.safe, reason, decision.message)
    if decision.reason is Reason.DEADLINE_INFEASIBLE:
        yield Said(
            ConditionType.DEADLINE_INFEASIBLE, True, Reason.DEADLINE_INFEASIBLE, decision.message
        )


def spend_news(workload: WorkloadRecord, status: WorkloadStatus, epoch: int) -> Iterator[Emit]:
    """Events for a change of pools, of the kind of capacity, or for what stands in the way."""
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
    """The one thing that is new, if anything is."""
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
