# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The choice of devices for a job, as a value for placement, time slicing and sizing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ullage.engines.admission.records import Refusal

BEST: Final = 100
"""Preference of the best type for a job."""


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """The preference of a job for each type of device.

    Attributes:
        values: By accelerator, percent of the best type, sorted by name. Empty = all equal.
        rest: The same for types without any data.
        by_cost: True if costs are compared, not speeds.
        refused: Types that would break a bound of the job, by accelerator, sorted by name.
        others: The reason why types outside of ``compared`` may not be used; ``None`` = they may.
        compared: Types in the comparison.
        members: Best number of members of an elastic job; 0 = as many as fit.
        undecided: That number is not known yet, but will be soon.
        across: Percent of its speed that a gang keeps on several nodes.
    """

    values: tuple[tuple[str, int], ...] = ()
    rest: int = BEST
    by_cost: bool = False
    refused: tuple[tuple[str, Refusal], ...] = ()
    others: Refusal | None = None
    compared: frozenset[str] = frozenset()
    members: int = 0
    undecided: bool = False
    across: int = BEST

    def refusal(self, accelerator: str) -> Refusal | None:
        """The reason why a type may not be used; ``None`` = it may."""
        for name, why in self.refused:
            if name == accelerator:
                return why
        return None if accelerator in self.compared else self.others

    def worth(self, speeds: Mapping[str, float]) -> Mapping[str, float]:
        """Value of a second on each type, in steps on the best type.

        For a job that compares costs it follows from the cost of its work on the type, for others
        from the steps per second.

        Args:
            speeds: Steps/s by type.
        """
        known = {name: value for name, value in self.values if name in speeds}
        if not self.by_cost or not known:
            return speeds
        best = max(known, key=lambda name: known[name])
        return {name: speeds[best] * known.get(name, self.rest) / known[best] for name in speeds}


NO_CHOICE: Final = DeviceChoice()
