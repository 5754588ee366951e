# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tenants of workloads, and the namespaces that may use a tenant.

A name in a workload alone grants nothing. Naming none, or an unknown one, does not avoid the quota
of the namespace.
"""

from __future__ import annotations

from bisect import bisect_left

from ullage.api.schedulingpolicy import EVERY_NAMESPACE, Tenant
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.workload import WorkloadRecord


def tenant_of(policy: PolicyRecord, workload: WorkloadRecord) -> str:
    """The tenant that a workload counts for, in quota, time, bills and metrics; may be empty.

    It is the named one, if its namespace may use it, else that of its namespace.
    """
    if workload.tenant and is_bound(policy, workload):
        return workload.tenant
    return default_tenant(policy, workload.ref.namespace)


def default_tenant(policy: PolicyRecord, namespace: str) -> str:
    """The tenant of workloads that name none: the first by name that lists their namespace.

    Tenants with a wildcard come after those that list this namespace; empty = there is none.
    """
    for listed in (namespace, EVERY_NAMESPACE):
        for tenant in policy.tenants:  # sorted by name
            if listed in tenant.namespaces:
                return tenant.name
    return ""


def is_listed(policy: PolicyRecord, name: str) -> bool:
    """True when the policy lists a tenant with this name."""
    return _listed(policy, name) is not None


def is_bound(policy: PolicyRecord, workload: WorkloadRecord) -> bool:
    """True when the namespace of a workload may use the named tenant, if any.

    A tenant that lists no namespaces is open to all. One that the policy does not list is open to
    namespaces without a tenant.
    """
    if not workload.tenant:
        return True
    namespace = workload.ref.namespace
    tenant = _listed(policy, workload.tenant)
    if tenant is None:
        return not default_tenant(policy, namespace)
    if not tenant.namespaces:
        return True
    return namespace in tenant.namespaces or EVERY_NAMESPACE in tenant.namespaces


def not_bound(policy: PolicyRecord, workload: WorkloadRecord) -> str:
    """Reason why a workload may not use the named tenant; empty = it may."""
    if is_bound(policy, workload):
        return ""
    if _listed(policy, workload.tenant) is None:
        default = default_tenant(policy, workload.ref.namespace)
        return (
            f"the SchedulingPolicy lists no tenant {workload.tenant}, and namespace"
            f" {workload.ref.namespace} belongs to {default}"
        )
    return f"tenant {workload.tenant} is not open to namespace {workload.ref.namespace}"


def _listed(policy: PolicyRecord, name: str) -> Tenant | None:
    tenants = policy.tenants
    at = bisect_left(tenants, name, key=lambda tenant: tenant.name)
    return tenants[at] if at < len(tenants) and tenants[at].name == name else None
