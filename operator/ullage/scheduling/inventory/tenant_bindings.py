# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which namespaces may use a tenant: a name that a workload merely states takes no one's part."""

from __future__ import annotations

from bisect import bisect_left

from ullage.cluster.records.snapshot import PolicyRecord, WorkloadRecord
from ullage.cluster.records.spec_fields import EVERY_NAMESPACE, Tenant


def is_bound(policy: PolicyRecord, workload: WorkloadRecord) -> bool:
    """Whether the namespace of a workload may use the tenant that it names, if it names one.

    A tenant that lists no namespaces, or that the policy does not list, is open to all.
    """
    tenant = _listed(policy, workload.tenant) if workload.tenant else None
    if tenant is None or not tenant.namespaces:
        return True
    return workload.ref.namespace in tenant.namespaces or EVERY_NAMESPACE in tenant.namespaces


def not_bound(policy: PolicyRecord, workload: WorkloadRecord) -> str:
    """What stands in the way of a workload that names a tenant; empty = nothing."""
    if is_bound(policy, workload):
        return ""
    return f"tenant {workload.tenant} is not open to namespace {workload.ref.namespace}"


def _listed(policy: PolicyRecord, name: str) -> Tenant | None:
    tenants = policy.tenants  # in order of their names
    at = bisect_left(tenants, name, key=lambda tenant: tenant.name)
    return tenants[at] if at < len(tenants) and tenants[at].name == name else None
