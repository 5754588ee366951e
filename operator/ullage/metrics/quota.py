# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of quota: what tenants may hold, hold and can still get.

Labels are the tenants of the SchedulingPolicy and the types that it gives them quota of; work of no
such tenant makes no series.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.process.metric_families import gauge
from ullage.scheduling.inventory.tenant_quotas import desired_usage, quotas_of


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFigures:
    """Figures of quota in devices, half a device as 0.5."""

    nominal: Mapping[tuple[str, str], float] = gauge(
        "ullage_tenant_quota_devices",
        "Nominal quota of a tenant, in devices.",
        "tenant",
        "accelerator",
    )
    used: Mapping[tuple[str, str], float] = gauge(
        "ullage_tenant_quota_used_devices",
        "Devices that workloads of a tenant hold; above its nominal quota it borrows.",
        "tenant",
        "accelerator",
    )
    available: Mapping[tuple[str, str], float] = gauge(
        "ullage_tenant_quota_available_devices",
        "Devices that quota lets a tenant get now, those included that it can borrow.",
        "tenant",
        "accelerator",
    )


@dataclass(frozen=True, slots=True)
class _Told:
    nominal: dict[tuple[str, str], float] = field(default_factory=dict)
    used: dict[tuple[str, str], float] = field(default_factory=dict)
    available: dict[tuple[str, str], float] = field(default_factory=dict)


def quota_figures(snapshot: Snapshot) -> QuotaFigures:
    """The figures as of now; none where no tenant has quota."""
    tenants = quotas_of(snapshot.policy)
    if tenants is None:
        return QuotaFigures()
    usage = desired_usage(snapshot, tenants)
    told = _Told()
    for at, tenant_quota in enumerate(tenants.quotas.tenants):
        for kind, limits in tenant_quota.limits.items():
            key = tenant_quota.name, kind
            told.nominal[key] = limits.nominal / WHOLE_PERCENT
            told.used[key] = usage.used(at, kind) / WHOLE_PERCENT
            told.available[key] = usage.available(at, kind) / WHOLE_PERCENT
    return QuotaFigures(nominal=told.nominal, used=told.used, available=told.available)
