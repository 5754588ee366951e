# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tenants as labels of metrics, bounded: `spec.tenant` is free text, and each makes new series."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from ullage.cluster.records.snapshot import WorkloadRecord
from ullage.scheduling.accounting.bills import party_of

MOST_OF_A_NAMESPACE: Final = 20
"""Tenants that work of one namespace may name; work of further ones counts for the namespace."""


@dataclass(slots=True)
class Parties:
    """Labels that were given; what one namespace names takes nothing from another."""

    _given: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def label(self, workload: WorkloadRecord) -> str:
        """The tenant that the figures of a workload count for."""
        namespace, party = workload.ref.namespace, party_of(workload)
        given = self._given[namespace]
        if party == namespace or party in given:
            return party
        if len(given) >= MOST_OF_A_NAMESPACE:
            return namespace
        given.add(party)
        return party
