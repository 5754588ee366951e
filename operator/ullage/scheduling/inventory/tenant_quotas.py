# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The quotas of a SchedulingPolicy, and against which of them a workload counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ullage.api.words import ReclaimWithinCohort
from ullage.cluster.records.snapshot import PolicyRecord, Snapshot, WorkloadRecord
from ullage.cluster.records.spec_fields import Quota, Tenant
from ullage.engines.quota.records import NO_TENANT, Limits, Quotas, QuotaTenant, Reclaim
from ullage.engines.quota.usage import QuotaUsage
from ullage.scheduling.inventory.tenant_bindings import tenant_of

_RECLAIM: Final = {
    ReclaimWithinCohort.NEVER: Reclaim.NEVER,
    ReclaimWithinCohort.LOWER_PRIORITY: Reclaim.LOWER_PRIORITY,
    ReclaimWithinCohort.ANY: Reclaim.ANY,
}


@dataclass(slots=True)
class TenantQuotas:
    """Tenants with quota by number; asked once for each namespace and tenant of a cycle."""

    policy: PolicyRecord
    quotas: Quotas
    _numbers: dict[str, int] = field(init=False)
    _known: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = {tenant.name: at for at, tenant in enumerate(self.quotas.tenants)}

    def number_of(self, workload: WorkloadRecord) -> int:
        """The number of the tenant that a workload counts against, or ``NO_TENANT``."""
        key = workload.ref.namespace, workload.tenant
        known = self._known.get(key)
        if known is None:
            name = tenant_of(self.policy, workload)
            known = self._known[key] = self._numbers.get(name, NO_TENANT)
        return known


def quotas_of(policy: PolicyRecord) -> TenantQuotas | None:
    """The tenants of a policy that have quota; ``None`` = no tenant has."""
    tenants = [_tenant(tenant) for tenant in policy.tenants if tenant.quota]
    return TenantQuotas(policy, Quotas(tenants)) if tenants else None


def desired_usage(snapshot: Snapshot, tenants: TenantQuotas) -> QuotaUsage:
    """What tenants hold by the slices that nodes are to have, for people and metrics.

    Args:
        snapshot: Nodes, pods and workloads.
        tenants: The quotas of its policy.
    """
    usage = QuotaUsage(tenants.quotas)
    for node in snapshot.gpu_nodes.values():
        kinds = {device.uuid: device.model for device in node.devices}
        for held in node.desired:
            pod = snapshot.pods.get(held.key.pod_uid)
            workload = snapshot.workloads.get(pod.owner.uid) if pod is not None else None
            if workload is not None and held.gpu in kinds:
                usage.add(tenants.number_of(workload), kinds[held.gpu], held.percent)
    return usage


def _tenant(tenant: Tenant) -> QuotaTenant:
    return QuotaTenant(
        name=tenant.name,
        limits={quota.accelerator: _limits(quota) for quota in tenant.quota},
        cohort=tenant.cohort,
        reclaim=_RECLAIM[tenant.reclaim_within_cohort],
    )


def _limits(quota: Quota) -> Limits:
    return Limits(
        nominal=quota.nominal_quota,
        borrowing=quota.borrowing_limit,
        lending=quota.lending_limit,
    )
