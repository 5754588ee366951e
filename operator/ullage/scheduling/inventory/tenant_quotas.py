# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The quotas of a SchedulingPolicy, and the tenants that workloads count against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ullage.api.slices import DesiredSlice
from ullage.api.words import ReclaimWithinCohort
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import TenantUsage
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.quota.records import NO_TENANT, QuotaLimits, Quotas, QuotaTenant, Reclaim
from ullage.engines.quota.usage import QuotaUsage
from ullage.scheduling.inventory.tenant_bindings import tenant_of

_RECLAIM: Final = {
    ReclaimWithinCohort.NEVER: Reclaim.NEVER,
    ReclaimWithinCohort.LOWER_PRIORITY: Reclaim.LOWER_PRIORITY,
    ReclaimWithinCohort.ANY: Reclaim.ANY,
}


@dataclass(slots=True)
class TenantQuotas:
    """Tenants with quota by number; resolved once per namespace and tenant of a cycle."""

    policy: PolicyRecord
    quotas: Quotas
    _numbers: dict[str, int] = field(init=False)
    _known: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = {tenant.name: at for at, tenant in enumerate(self.quotas.tenants)}

    def number_of(self, workload: WorkloadRecord) -> int:
        """The number of the tenant that a workload counts against, or ``NO_TENANT``."""
        key = workload.ref.namespace, workload.tenant
        number = self._known.get(key)
        if number is None:
            name = tenant_of(self.policy, workload)
            number = self._known[key] = self._numbers.get(name, NO_TENANT)
        return number


def quotas_of(policy: PolicyRecord) -> TenantQuotas | None:
    """The tenants of a policy with quota; ``None`` = no tenant has any."""
    tenants = [
        QuotaTenant(
            name=tenant.name,
            limits={
                quota.accelerator: QuotaLimits(
                    nominal=quota.nominal_quota,
                    borrowing=quota.borrowing_limit,
                    lending=quota.lending_limit,
                )
                for quota in tenant.quota
            },
            cohort=tenant.cohort,
            reclaim=_RECLAIM[tenant.reclaim_within_cohort],
        )
        for tenant in policy.tenants
        if tenant.quota
    ]
    return TenantQuotas(policy, Quotas(tenants)) if tenants else None


def usages_of(
    snapshot: Snapshot, slices: Mapping[str, Sequence[DesiredSlice]] | None = None
) -> tuple[TenantUsage, ...]:
    """Quota that tenants use and have available, by tenant and type.

    Args:
        snapshot: Policy, nodes, pods and workloads.
        slices: Desired slices, by node; ``None`` = those of the snapshot.
    """
    tenants = quotas_of(snapshot.policy)
    if tenants is None:
        return ()
    usage = _desired_usage(snapshot, tenants, slices)
    return tuple(
        TenantUsage(
            tenant=tenant.name,
            accelerator=kind,
            nominal_quota=limits.nominal,
            used=usage.used(at, kind),
            borrowed=max(0, -usage.nominal_left(at, kind)),
            available=usage.available(at, kind),
        )
        for at, tenant in enumerate(tenants.quotas.tenants)
        for kind, limits in sorted(tenant.limits.items())
    )


def _desired_usage(
    snapshot: Snapshot,
    tenants: TenantQuotas,
    slices: Mapping[str, Sequence[DesiredSlice]] | None,
) -> QuotaUsage:
    """Usage of tenants by the desired slices of nodes."""
    usage = QuotaUsage(tenants.quotas)
    for name, node in snapshot.gpu_nodes.items():
        kinds = {device.uuid: device.model for device in node.devices}
        for part in node.desired if slices is None else slices.get(name, ()):
            pod = snapshot.pods.get(part.key.pod_uid)
            workload = snapshot.workloads.get(pod.owner.uid) if pod is not None else None
            if workload is not None and part.gpu in kinds:
                usage.add(tenants.number_of(workload), kinds[part.gpu], part.percent)
    return usage
