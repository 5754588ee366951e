# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Use of quota by tenant, remaining quota, and permission to preempt.

A tenant first uses the quota that it never lends, then the cohort's pool, which is the sum of what
all tenants lend. So a tenant borrows exactly what others leave unused, and a lender gets its quota
back only when the borrowers leave. Every query takes constant time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ullage.engines.quota.records import NO_TENANT, Quotas, Reclaim


@dataclass(slots=True)
class QuotaUsage:
    """Percent of devices in use, by tenant and type; changes with every slice added or removed."""

    quotas: Quotas
    _used: dict[tuple[int, str], int] = field(default_factory=dict)
    _pooled: dict[tuple[str, str], int] = field(default_factory=dict)
    """Used quota of the pool, by cohort and type."""

    def add(self, tenant: int, kind: str, percent: int) -> None:
        """Charge a tenant, or refund it where ``percent`` is below 0."""
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
        """A copy that can be changed separately."""
        return QuotaUsage(self.quotas, dict(self._used), dict(self._pooled))

    def used(self, tenant: int, kind: str) -> int:
        """Percent of devices of a type in use by a tenant."""
        return self._used.get((tenant, kind), 0)

    def nominal_left(self, tenant: int, kind: str) -> int:
        """Quota of a type left before a tenant borrows; negative = the borrowed amount."""
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
        """Quota of a type that a tenant could use if no other tenant used any."""
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
        """True if a tenant may reclaim quota that another one borrowed.

        Args:
            tenant: The tenant that needs room inside its nominal quota.
            percent: Required percent.
            victim: The tenant whose work would be preempted.
            kind: The type of this work.
            is_lower: True when this work is of lower priority.
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
        """True if a tenant's quota protects its work from preemption by another's, by priority.

        Work inside the nominal quota is protected. Borrowed quota returns to the cohort by the
        rules of reclaim alone.
        """
        if victim == NO_TENANT or tenant == victim:
            return False
        cohort = self.quotas.tenants[victim].cohort
        of_one = tenant != NO_TENANT and cohort and self.quotas.tenants[tenant].cohort == cohort
        return bool(of_one) or not self.is_borrowing(victim, kind)
