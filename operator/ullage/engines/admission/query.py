# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The one question of admission: who would join whom on a device, and between which shares.

Memory, contexts and trust are no part of it: the hard limits are judged before. Values only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ullage.engines.admission.limits import WHOLE_PERCENT
from ullage.engines.admission.records import Tenant

SHARE_STEP_PERCENT: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Cost of a class in trials so far, on one kind of accelerator.

    ``rows`` is how many rows it had after the trial that was booked last; ``faults`` how often its
    programs faulted a device lately: as long as there are any, it joins others on trial only,
    whatever its rows certify.
    """

    workload_class: str
    spent_s: float = 0.0
    rows: int = 0
    faults: int = 0

    def left_s(self, budget_s: float, rows: int) -> float:
        """Seconds of trial left to the class; a new row refills the budget.

        Args:
            budget_s: What a class may cost in trials, seconds.
            rows: Rows of the class now.
        """
        spent = 0.0 if rows > self.rows else self.spent_s
        return max(0.0, budget_s - spent)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionQuery:
    """All that a prediction is asked, and what it is worth to others depends on."""

    place: str = "the device"
    """What the device is called."""
    accelerator: str
    residents: tuple[Tenant, ...] = ()
    newcomer: Tenant
    """Its own percent does not count."""
    least: int
    most: int
    steps: tuple[int, ...] = ()
    """Shares that the hardware tells apart; none = every percent."""
    percent_limit: int = WHOLE_PERCENT
    account: Account | None = None
    """What trials of the newcomer's class have cost; ``None`` = it may not be tried out."""
    domain: str = ""

    @property
    def shares(self) -> tuple[int, ...]:
        """Shares to try, as the hardware rounds them: percent, rising; none where none is left."""
        wanted = shares_between(self.least, self.most)
        if not self.steps:
            return wanted
        inside = sorted(step for step in set(self.steps) if self.least <= step <= self.most)
        snapped = {max((step for step in inside if step <= p), default=None) for p in wanted}
        return tuple(sorted({*(p for p in snapped if p is not None), *inside[:1]}))

    def mixture(self, percent: int) -> tuple[Tenant, ...]:
        """Everyone on the device once the newcomer has this share; it comes last."""
        return (*self.residents, self.newcomer.at(percent))

    def beside(self, residents: tuple[Tenant, ...]) -> AdmissionQuery:
        """The same question on a device with these tenants."""
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
