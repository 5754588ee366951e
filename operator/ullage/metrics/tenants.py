# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tenants as labels of metrics, bounded: `spec.tenant` is free text, and each value adds series."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.workload import WorkloadRecord
from ullage.scheduling.accounting.bills import party_of
from ullage.scheduling.inventory.tenant_bindings import is_listed, tenant_of

MOST_OF_A_NAMESPACE: Final = 20
"""Maximum of unlisted tenants per namespace; further work counts for the namespace.
"""


@dataclass(slots=True)
class TenantLabels:
    """Labels in use; a namespace's names do not displace those of another."""

    policy: PolicyRecord = field(default_factory=PolicyRecord)
    """The policy in force, with the permitted tenants."""
    _given: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def label(self, workload: WorkloadRecord) -> str:
        """The tenant that the figures of a workload count for, or its namespace."""
        namespace, party = workload.ref.namespace, party_of(self.policy, workload)
        given = self._given[namespace]
        if party == namespace or party in given or is_listed(self.policy, party):
            return party
        if len(given) >= MOST_OF_A_NAMESPACE:
            return namespace
        given.add(party)
        return party

    def tenant(self, workload: WorkloadRecord) -> str:
        """The same; empty where the workload counts for no tenant."""
        return self.label(workload) if tenant_of(self.policy, workload) else ""
