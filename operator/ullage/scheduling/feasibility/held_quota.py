# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Usage of tenants' quotas, updated with every change of an occupancy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.quota.records import NO_TENANT
from ullage.engines.quota.usage import QuotaUsage
from ullage.scheduling.inventory.inventory import Inventory
from ullage.scheduling.inventory.tenant_quotas import TenantQuotas, quotas_of


@dataclass(frozen=True, slots=True)
class HeldQuota:
    """The quota usage of one occupancy.

    Attributes:
        tenants: Maps workloads to quotas.
        usage: Percent of devices held, by tenant and accelerator type.
        workloads: By uid; slices of other workloads count against no quota.
        kinds: Accelerator type of each device, by its number.
    """

    tenants: TenantQuotas
    usage: QuotaUsage
    workloads: Mapping[str, WorkloadRecord]
    kinds: Sequence[str]

    def number_of(self, uid: str) -> int:
        """The tenant with quota that a workload counts against, or ``NO_TENANT``."""
        workload = self.workloads.get(uid)
        return NO_TENANT if workload is None else self.tenants.number_of(workload)

    def count(self, site: int, uid: str, percent: int) -> None:
        """Charge a slice of a workload, or refund it where ``percent`` is below 0."""
        self.usage.add(self.number_of(uid), self.kinds[site], percent)

    def copy(self) -> HeldQuota:
        """An independent copy."""
        return replace(self, usage=self.usage.copy())


def held_quota(
    snapshot: Snapshot, inventory: Inventory, slices: Iterable[tuple[int, str, int]]
) -> HeldQuota | None:
    """Usage at the start of a cycle; ``None`` where the policy has no quota.

    Args:
        snapshot: The snapshot with the policy and the workloads.
        inventory: The devices.
        slices: Device, uid of the workload and percent of each.
    """
    tenants = quotas_of(snapshot.policy)
    if tenants is None:
        return None
    names = inventory.model_names
    kinds = [names[model] for model in inventory.model.tolist()]
    quota = HeldQuota(tenants, QuotaUsage(tenants.quotas), snapshot.workloads, kinds)
    for site, uid, percent in slices:
        quota.count(site, uid, percent)
    return quota
