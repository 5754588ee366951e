# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Quotas as the engine sees them: tenants by number, accelerator types by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

NO_TENANT: Final = -1
"""Work without a quota."""


class Reclaim(Enum):
    """Tenants that a tenant may preempt in its cohort to use its own nominal quota."""

    NEVER = 0
    LOWER_PRIORITY = 1
    ANY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLimits:
    """Percent of devices of one type that one tenant may use.

    Attributes:
        nominal: Amount without borrowing.
        borrowing: Most above that; ``None`` = all unused quota of the cohort.
        lending: Most of ``nominal`` that others of the cohort may borrow; ``None`` = all.
    """

    nominal: int = 0
    borrowing: int | None = 0
    lending: int | None = None

    @property
    def lendable(self) -> int:
        """Quota that the cohort may use while the tenant does not."""
        return self.nominal if self.lending is None else min(self.lending, self.nominal)

    @property
    def guaranteed(self) -> int:
        """Quota that is never lent."""
        return self.nominal - self.lendable


NOTHING: Final = QuotaLimits()
"""A type without an entry for a tenant with quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaTenant:
    """A tenant with quota.

    Attributes:
        name: Human-readable name.
        limits: By accelerator type; it gets nothing of a type without an entry.
        cohort: Tenants of one cohort borrow from each other; empty = it neither borrows nor lends.
        reclaim: Tenants that it may preempt.
    """

    name: str
    limits: Mapping[str, QuotaLimits] = field(default_factory=dict)
    cohort: str = ""
    reclaim: Reclaim = Reclaim.NEVER


@dataclass(frozen=True, slots=True)
class Quotas:
    """All tenants with quota, by number, and the shared pool of each cohort.

    Args:
        tenants: Their index is their number.
    """

    tenants: Sequence[QuotaTenant]
    pools: Mapping[tuple[str, str], int] = field(init=False)
    """Sum of what tenants lend, by cohort and type."""

    def __post_init__(self) -> None:
        pools: dict[tuple[str, str], int] = {}
        for tenant in self.tenants:
            if tenant.cohort:
                for kind, limits in tenant.limits.items():
                    key = tenant.cohort, kind
                    pools[key] = pools.get(key, 0) + limits.lendable
        object.__setattr__(self, "pools", pools)

    def limits(self, tenant: int, kind: str) -> QuotaLimits:
        """Limits of a tenant for a type."""
        return self.tenants[tenant].limits.get(kind, NOTHING)
