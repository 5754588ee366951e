# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tells in the SchedulingPolicy's status what tenants hold of their quota.

Quiet: nothing is written as long as nothing changes, and a change within some seconds of the last
one waits, so that a cluster in which much begins and ends writes a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.snapshot import ObjectRef, PolicyRecord, Snapshot
from ullage.cluster.records.status import MOST_USAGES, QuotaStatus, TenantUsage
from ullage.scheduling.inventory.tenant_quotas import usages_of
from ullage.scheduling.model.plan import SetQuotaStatus
from ullage.scheduling.times import QUOTA_WRITE_S


def quota_news(
    snapshot: Snapshot, slices: Mapping[str, Sequence[DesiredSlice]], now: float, epoch: int
) -> tuple[list[SetQuotaStatus], float]:
    """The write that is due, if one is, and when the next one is; 0 = when something changes.

    Args:
        snapshot: Policy, nodes, pods and workloads.
        slices: Slices that nodes are to have by this plan.
        now: Seconds since the epoch.
        epoch: Of this leader.
    """
    policy, before = snapshot.policy, snapshot.policy.quota_status
    if not policy.uid:
        return [], 0.0
    status = _status(usages_of(snapshot, slices), now)
    if _says(before) == _says(status):
        return [], 0.0
    if before is not None and status is not None and 0.0 <= now - before.time < QUOTA_WRITE_S:
        return [], before.time + QUOTA_WRITE_S
    return [_write(policy, status, epoch)], 0.0


def _status(usages: Sequence[TenantUsage], now: float) -> QuotaStatus | None:
    if not usages:
        return None
    kept = usages
    if len(usages) > MOST_USAGES:
        by_use = sorted(usages, key=lambda one: (not one.used, one.tenant, one.accelerator))
        kept = sorted(by_use[:MOST_USAGES], key=lambda one: (one.tenant, one.accelerator))
    return QuotaStatus(
        time=whole_second(now),
        borrowing_tenants=len({one.tenant for one in usages if one.borrowed}),
        left_out=len(usages) - len(kept),
        usage=tuple(kept),
    )


def _says(status: QuotaStatus | None) -> tuple[object, ...]:
    """What a status tells, but for the moment."""
    if status is None:
        return ()
    return status.borrowing_tenants, status.left_out, status.usage


def _write(policy: PolicyRecord, status: QuotaStatus | None, epoch: int) -> SetQuotaStatus:
    said = "no tenant has quota"
    if status is not None:
        said = f"{status.borrowing_tenants} tenants borrow"
    return SetQuotaStatus(
        target=ObjectRef(kind="SchedulingPolicy", namespace="", name=policy.name, uid=policy.uid),
        status=status,
        epoch=epoch,
        reason=Reason.MEASURED,
        text=said,
    )
