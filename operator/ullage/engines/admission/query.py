# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The query of admission: a newcomer, the residents of a device, and a range of shares.

Memory, contexts and trust are not included: the hard limits are checked before. Values only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.admission.records import Tenant

SHARE_STEP_PERCENT: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Cost of a class's trials so far, on one type of accelerator.

    Attributes:
        spent_s: Seconds of trial.
        rows: Rows of the class after the last trial that was booked.
        faults: Recent device faults by its programs. With any, the class joins others on trial
            only, whatever its rows certify.
    """

    workload_class: str
    spent_s: float = 0.0
    rows: int = 0
    faults: int = 0

    def left_s(self, budget_s: float, rows: int) -> float:
        """Seconds of trial left to the class; a new row refills the budget.

        Args:
            budget_s: Trial budget of a class, seconds.
            rows: Rows of the class now.
        """
        spent = 0.0 if rows > self.rows else self.spent_s
        return max(0.0, budget_s - spent)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionQuery:
    """The inputs of a prediction, and of its price for others."""

    accelerator: str
    residents: tuple[Tenant, ...] = ()
    newcomer: Tenant
    """The newcomer; its own percent does not count."""
    least: int
    most: int
    percent_limit: int = WHOLE_PERCENT
    account: Account | None = None
    """Cost of the trials of the newcomer's class; ``None`` = no trials."""
    domain: str = ""

    @property
    def shares(self) -> tuple[int, ...]:
        """Shares to try, percent, rising; may be empty."""
        return shares_between(self.least, self.most)

    def mixture(self, percent: int) -> tuple[Tenant, ...]:
        """All tenants of the device with the newcomer, last, at this share."""
        return (*self.residents, self.newcomer.at(percent))

    def beside(self, residents: tuple[Tenant, ...]) -> AdmissionQuery:
        """The query for a device with these residents."""
        return replace(self, residents=residents)


def shares_between(least: int, most: int) -> tuple[int, ...]:
    """Shares to try: every tenth percent, least and most.

    Args:
        least: Percent of the device.
        most: Percent of the device.

    Returns:
        Percent, rising; none where ``most`` is below ``least``.
    """
    if most < least:
        return ()
    tenths = range(SHARE_STEP_PERCENT, WHOLE_PERCENT + 1, SHARE_STEP_PERCENT)
    return tuple(sorted({least, most, *(p for p in tenths if least < p < most)}))
