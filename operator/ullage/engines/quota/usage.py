# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Use of quota by tenant, what each may still get, and who may make whom leave.

A tenant first uses what it never lends, then the cohort's pool, which is the sum of what all
tenants lend. So a tenant borrows exactly what others leave unused, and one that others borrowed
from gets its own back only when they leave. Every question is answered in constant time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ullage.engines.quota.records import NO_TENANT, Quotas, Reclaim


@dataclass(slots=True)
class QuotaUsage:
    """Percent of devices held, by tenant and type; changes with every slice that comes or goes."""

    quotas: Quotas
    _used: dict[tuple[int, str], int] = field(default_factory=dict)
    _pooled: dict[tuple[str, str], int] = field(default_factory=dict)
    """Used of the pool, by cohort and type."""

    def add(self, tenant: int, kind: str, percent: int) -> None:
        """Count what a tenant gets, or gives back where ``percent`` is below 0."""
        if tenant == NO_TENANT:
            return
        before = self._used.get((tenant, kind), 0)
        self._used[tenant, kind] = after = before + percent
        cohort = self.quotas.tenants[tenant].cohort
        if cohort:
            guaranteed = self.quotas.limits(tenant, kind).guaranteed
            more = max(0, after - guaranteed) - max(0, before - guaranteed)
            self._pooled[cohort, kind] = self._pooled.get((cohort, kind), 0) + more

    def copy(self) -> QuotaUsage:
        """The same, to be changed apart."""
        return QuotaUsage(self.quotas, dict(self._used), dict(self._pooled))

    def used(self, tenant: int, kind: str) -> int:
        """Percent of devices of a type that a tenant holds."""
        return self._used.get((tenant, kind), 0)

    def nominal_left(self, tenant: int, kind: str) -> int:
        """Quota of a type left before a tenant borrows; below 0 = so much it borrows."""
        return self.quotas.limits(tenant, kind).nominal - self.used(tenant, kind)

    def unused(self, tenant: int, kind: str) -> int:
        """Quota of a type that is left in the pool of a tenant's cohort."""
        key = self.quotas.tenants[tenant].cohort, kind
        return max(0, self.quotas.pools.get(key, 0) - self._pooled.get(key, 0))

    def available(self, tenant: int, kind: str) -> int:
        """Quota of a type that a tenant may get now, in percent of devices, borrowing included."""
        limits, used = self.quotas.limits(tenant, kind), self.used(tenant, kind)
        if not self.quotas.tenants[tenant].cohort or kind not in self.quotas.tenants[tenant].limits:
            return max(0, limits.nominal - used)
        room = max(0, limits.guaranteed - used) + self.unused(tenant, kind)
        if limits.borrowing is not None:
            room = min(room, limits.nominal + limits.borrowing - used)
        return max(0, room)

    def most(self, tenant: int, kind: str) -> int:
        """Quota of a type that a tenant could ever hold, if no one else held anything."""
        limits = self.quotas.limits(tenant, kind)
        cohort = self.quotas.tenants[tenant].cohort
        if not cohort or kind not in self.quotas.tenants[tenant].limits:
            return limits.nominal
        all_of_it = limits.guaranteed + self.quotas.pools[cohort, kind]
        if limits.borrowing is None:
            return all_of_it
        return min(all_of_it, limits.nominal + limits.borrowing)

    def is_borrowing(self, tenant: int, kind: str) -> bool:
        """True if a tenant holds more of a type than its nominal quota."""
        return self.nominal_left(tenant, kind) < 0

    def reclaims(
        self, tenant: int, percent: int, victim: int, kind: str, *, is_lower: bool
    ) -> bool:
        """True if a tenant may take back what another one borrowed.

        Args:
            tenant: It needs room inside its nominal quota.
            percent: How much it needs.
            victim: The tenant whose work would leave.
            kind: The type that this work holds.
            is_lower: Whether this work is of lower priority.
        """
        if NO_TENANT in (tenant, victim) or tenant == victim:
            return False
        owner, other = self.quotas.tenants[tenant], self.quotas.tenants[victim]
        allowed = owner.reclaim is Reclaim.ANY or (
            owner.reclaim is Reclaim.LOWER_PRIORITY and is_lower
        )
        return (
            allowed
            and bool(owner.cohort)
            and owner.cohort == other.cohort
            and percent <= self.nominal_left(tenant, kind)
            and self.is_borrowing(victim, kind)
        )

    def protects(self, tenant: int, victim: int, kind: str) -> bool:
        """True if the quota of a tenant keeps its work from leaving for another's, by priority.

        What a tenant holds inside its nominal quota is its own. What it borrowed goes back to its
        cohort by the rules of reclaim alone.
        """
        if victim == NO_TENANT or tenant == victim:
            return False
        cohort = self.quotas.tenants[victim].cohort
        of_one = tenant != NO_TENANT and cohort and self.quotas.tenants[tenant].cohort == cohort
        return bool(of_one) or not self.is_borrowing(victim, kind)
