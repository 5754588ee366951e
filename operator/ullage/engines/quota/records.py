# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Quotas as the engine sees them: tenants by number, accelerator types by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

NO_TENANT: Final = -1
"""Work that counts against no quota."""


class Reclaim(Enum):
    """Whom a tenant may preempt in its cohort to use its own nominal quota."""

    NEVER = 0
    LOWER_PRIORITY = 1
    ANY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLimits:
    """Percent of devices of one type that one tenant may hold.

    Attributes:
        nominal: Without borrowing.
        borrowing: Most above that; ``None`` = as much as the cohort has unused.
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
"""A type that a tenant with quota has no entry of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaTenant:
    """A tenant with quota.

    Attributes:
        name: As people read it.
        limits: By accelerator type; of a type without an entry it holds nothing.
        cohort: Those of one name borrow from each other; empty = it neither borrows nor lends.
        reclaim: Whom it may preempt.
    """

    name: str
    limits: Mapping[str, QuotaLimits] = field(default_factory=dict)
    cohort: str = ""
    reclaim: Reclaim = Reclaim.NEVER


@dataclass(frozen=True, slots=True)
class Quotas:
    """All tenants with quota, by number, and what each cohort may use together.

    Args:
        tenants: Their place is their number.
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
        """Bounds of what a tenant may hold of a type."""
        return self.tenants[tenant].limits.get(kind, NOTHING)
