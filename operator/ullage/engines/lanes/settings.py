# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of an owner for the lanes of a device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from ullage.api.lanes import IterationPolicy as IterationPolicy
from ullage.engines.lanes.records import MOST_MIB, mib


class LaneAim(StrEnum):
    """Use of memory: for residents that take turns, or for concurrent steps."""

    RESIDENTS = "Residents"
    """Jobs join lanes, and lanes merge for the first waiting job, as soon as that makes room."""
    THROUGHPUT = "Throughput"
    """Jobs join a lane with enough free time, and lanes merge where no throughput is lost."""
    RULES_ALONE = "RulesAlone"
    """Jobs join lanes, which never merge or split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margins:
    """Reserves beyond the declared memory. Defaults: Salus @7b7f5e0, `lanemgr.cpp`.

    ``persistent`` multiplies persistent memory, ``peak`` the sum of both; ``free_mib`` of the
    device are never granted.
    """

    persistent: float = 1.1
    peak: float = 1.05
    free_mib: int = 300

    def __post_init__(self) -> None:
        mib(self.free_mib, "memory kept free")
        if not (1 <= self.persistent <= 10 and 1 <= self.peak <= 10):
            raise ValueError("margins are factors from 1 to 10")

    def persistent_mib(self, persistent_mib: int) -> int:
        """Memory that is reserved persistently."""
        return math.ceil(persistent_mib * self.persistent)

    def ephemeral_mib(self, persistent_mib: int, ephemeral_mib: int) -> int:
        """Memory of its lane for a step; never less than declared.

        Args:
            persistent_mib: Declared, MiB.
            ephemeral_mib: Declared or observed, MiB.
        """
        peak = math.ceil((persistent_mib + ephemeral_mib) * self.peak)
        return max(ephemeral_mib, peak - self.persistent_mib(persistent_mib))


EXACT = Margins(persistent=1.0, peak=1.0, free_mib=0)
"""No reserve beyond the declaration: for memory that is counted and not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSettings:
    """A device and its rules.

    ``deadline_factor`` times the expected step is a grant's deadline, ``first_step_s`` the expected
    step of a job without observations. ``aging`` is for SRTF: a job is first once it has waited
    this multiple of its remaining time. ``credit_s`` and ``credit_steps`` bound the credit under
    FAIR and RR of a job without requests for a while.

    Residents that may be suspended are suspended for the first queued job once they were idle for
    ``idle_s``; when that job has waited for ``busy_s``, busy ones are, too. None is suspended
    within ``least_resident_s`` of its arrival, or ``spare_s`` after a failed suspension.

    Raises:
        ValueError: a figure is out of range.
    """

    capacity_mib: int
    policy: IterationPolicy = IterationPolicy.FAIR
    margins: Margins = Margins()
    aim: LaneAim = LaneAim.RESIDENTS
    deadline_factor: float = 2.0
    first_step_s: float = 60.0
    aging: float = 20.0
    credit_s: float = 2.0
    credit_steps: int = 8
    most_queued: int = 1000
    idle_s: float = 5.0
    busy_s: float = 60.0
    least_resident_s: float = 10.0
    spare_s: float = 300.0

    def __post_init__(self) -> None:
        mib(self.capacity_mib, "device memory")
        positive = (self.deadline_factor, self.first_step_s, self.aging)
        if not all(math.isfinite(value) and value > 0 for value in positive):
            raise ValueError("deadline, first step and aging are positive numbers")
        if not (math.isfinite(self.credit_s) and self.credit_s >= 0 and self.credit_steps >= 0):
            raise ValueError("a credit is at least 0")
        times = (self.idle_s, self.busy_s, self.least_resident_s, self.spare_s)
        if not all(math.isfinite(value) and value >= 0 for value in times):
            raise ValueError("times of suspended jobs are seconds from 0")
        if not 0 <= self.most_queued <= MOST_MIB:
            raise ValueError("as many jobs wait as 0 or more")

    @property
    def usable_mib(self) -> int:
        """Memory available to persistent parts and lanes together."""
        return max(0, self.capacity_mib - self.margins.free_mib)
