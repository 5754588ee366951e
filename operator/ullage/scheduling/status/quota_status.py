# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Quota usage of tenants in the SchedulingPolicy's status.

It is written only on a change, and at most every ``EVERY_S``, so that the number of writes is
bounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ullage.api.reasons import Reason
from ullage.api.slices import DesiredSlice
from ullage.cluster.codecs.status import whole_second
from ullage.cluster.records.object_ref import ObjectRef
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import MOST_USAGES, QuotaStatus, TenantUsage
from ullage.scheduling.inventory.tenant_quotas import usages_of
from ullage.scheduling.model.plan import SetQuotaStatus
from ullage.scheduling.times import QUOTA_WRITE_S


def quota_news(
    snapshot: Snapshot, slices: Mapping[str, Sequence[DesiredSlice]], now: float, epoch: int
) -> tuple[list[SetQuotaStatus], float]:
    """The write that is due, if any, and the time of the next one; 0 = on the next change.

    Args:
        snapshot: Policy, nodes, pods and workloads.
        slices: Slices that nodes are to have by this plan.
        now: Seconds since the epoch.
        epoch: Epoch of this leader.
    """
    policy, before = snapshot.policy, snapshot.policy.quota_status
    if not policy.uid:
        return [], 0.0
    status = _status(usages_of(snapshot, slices), now)
    if _content(before) == _content(status):
        return [], 0.0
    if before is not None and status is not None and 0.0 <= now - before.time < QUOTA_WRITE_S:
        return [], before.time + QUOTA_WRITE_S
    text = "no tenant has quota"
    if status is not None:
        text = f"{status.borrowing_tenants} tenants borrow"
    write = SetQuotaStatus(
        target=ObjectRef(kind="SchedulingPolicy", namespace="", name=policy.name, uid=policy.uid),
        status=status,
        epoch=epoch,
        reason=Reason.MEASURED,
        text=text,
    )
    return [write], 0.0


def _status(usages: Sequence[TenantUsage], now: float) -> QuotaStatus | None:
    if not usages:
        return None
    shown = usages
    if len(usages) > MOST_USAGES:
        by_use = sorted(usages, key=lambda usage: (not usage.used, usage.tenant, usage.accelerator))
        shown = sorted(by_use[:MOST_USAGES], key=lambda usage: (usage.tenant, usage.accelerator))
    return QuotaStatus(
        time=whole_second(now),
        borrowing_tenants=len({usage.tenant for usage in usages if usage.borrowed}),
        left_out=len(usages) - len(shown),
        usage=tuple(shown),
    )


def _content(status: QuotaStatus | None) -> tuple[object, ...]:
    """The fields of a status without its time."""
    if status is None:
        return ()
    return status.borrowing_tenants, status.left_out, status.usage
