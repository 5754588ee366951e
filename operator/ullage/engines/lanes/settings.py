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
    """Use of memory: for residents that take turns, or for steps that run side by side."""

    RESIDENTS = "Residents"
    """Jobs join lanes, and lanes merge for the first that waits, as soon as that makes room."""
    THROUGHPUT = "Throughput"
    """Jobs join a lane that has time for them, and lanes merge where no throughput is lost."""
    RULES_ALONE = "RulesAlone"
    """Jobs join lanes, which never merge or split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Margins:
    """Reserves beyond what is declared. Defaults: Salus @7b7f5e0, `lanemgr.cpp`.

    ``persistent`` multiplies persistent memory, ``peak`` the sum of both; ``free_mib`` of the
    device are given to no one.
    """

    persistent: float = 1.1
    peak: float = 1.05
    free_mib: int = 300

    def __post_init__(self) -> None:
        mib(self.free_mib, "memory kept free")
        if not (1 <= self.persistent <= 10 and 1 <= self.peak <= 10):
            raise ValueError("margins are factors from 1 to 10")

    def persistent_mib(self, persistent_mib: int) -> int:
        """Memory that is reserved for good."""
        return math.ceil(persistent_mib * self.persistent)

    def ephemeral_mib(self, persistent_mib: int, ephemeral_mib: int) -> int:
        """Memory of its lane that a step needs; never less than declared.

        Args:
            persistent_mib: As declared, MiB.
            ephemeral_mib: As declared or observed, MiB.
        """
        peak = math.ceil((persistent_mib + ephemeral_mib) * self.peak)
        return max(ephemeral_mib, peak - self.persistent_mib(persistent_mib))


EXACT = Margins(persistent=1.0, peak=1.0, free_mib=0)
"""Nothing more than declared: for memory that is counted and not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSettings:
    """A device and its rules.

    ``deadline_factor`` times the expected step is a grant's deadline, ``first_step_s`` the expected
    step of a job of which nothing is known. ``aging`` is for SRTF: a job that has waited so many
    times the time it has left is the first. ``credit_s`` and ``credit_steps`` bound what a job that
    did not ask for a while may catch up under FAIR and RR. ``early_release`` permits a lane to be
    granted while the last step still gives its memory back: only where every process is capped.

    Residents that may be suspended make room for the first job of the queue once they did nothing
    for ``idle_s``; when that job has waited for ``busy_s``, those that work do, too. None is
    suspended within ``least_resident_s`` of its coming, or ``spare_s`` after that has failed.

    Raises:
        ValueError: a figure is out of range.
    """

    capacity_mib: int
    policy: IterationPolicy = IterationPolicy.FAIR
    margins: Margins = Margins()
    aim: LaneAim = LaneAim.RESIDENTS
    early_release: bool = False
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
        """Memory that persistent parts and lanes may take together."""
        return max(0, self.capacity_mib - self.margins.free_mib)
