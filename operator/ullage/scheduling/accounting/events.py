# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The Event that tells what a job has cost, once, when it has ended."""

from __future__ import annotations

from decimal import Decimal

from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.cluster.records.status import Account, WorkloadStatus
from ullage.scheduling.model.plan import Emit


def cost_news(workload: WorkloadRecord, status: WorkloadStatus, epoch: int) -> tuple[Emit, ...]:
    """The Event for a job that ended now and whose cost is known."""
    ended = status.condition(ConditionType.FINISHED)
    account = status.spend.account if status.spend is not None else None
    if ended is None or account is None or not account.total:
        return ()
    if workload.status.condition(ConditionType.FINISHED) is not None:
        return ()
    return (
        Emit(
            target=workload.ref,
            warning=False,
            epoch=epoch,
            reason=Reason.COST_SETTLED,
            text=_text(account),
        ),
    )


def _text(account: Account) -> str:
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
    return "; ".join(parts)
