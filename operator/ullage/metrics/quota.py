# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics of quota: limits, usage and remaining quota of tenants.

Labels are the tenants of the SchedulingPolicy and their types with quota; other work has no series.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.process.metric_families import gauge
from ullage.scheduling.inventory.tenant_quotas import usages_of


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


def quota_figures(snapshot: Snapshot) -> QuotaFigures:
    """The current figures; none without quota."""
    usages = {(usage.tenant, usage.accelerator): usage for usage in usages_of(snapshot)}
    return QuotaFigures(
        nominal={key: usage.nominal_quota / WHOLE_PERCENT for key, usage in usages.items()},
        used={key: usage.used / WHOLE_PERCENT for key, usage in usages.items()},
        available={key: usage.available / WHOLE_PERCENT for key, usage in usages.items()},
    )
