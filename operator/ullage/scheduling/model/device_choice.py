# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the choice of devices says of one job: a value, for all who place, divide and size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ullage.engines.admission.records import Refusal

BEST: Final = 100
"""Value of the type that serves a job best."""


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """How the types of device serve a job.

    Attributes:
        values: By accelerator, percent of what the best one is worth, sorted by name. Empty = all
            alike.
        rest: The same of types that nothing is known of.
        by_cost: They compare costs; speeds otherwise.
        refused: Types that would break a bound of the job, by accelerator, sorted by name.
        others: Why types may not be used that are not in ``compared``; ``None`` = they may.
        compared: Types that were looked at.
        members: Number of members that serves an elastic job best; 0 = as many as there is room
            for.
        undecided: That number is not known yet and is about to be.
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
        """Why a type may not be used; ``None`` = it may."""
        for name, why in self.refused:
            if name == accelerator:
                return why
        return None if accelerator in self.compared else self.others

    def worth(self, speeds: Mapping[str, float]) -> Mapping[str, float]:
        """What a second on each type is worth to the job, in steps of the one that serves it best.

        Of a job that counts costs a second on a type counts by the cost of the work on it; of
        others by the steps that are done in it.

        Args:
            speeds: Steps/s by type.
        """
        known = {name: value for name, value in self.values if name in speeds}
        if not self.by_cost or not known:
            return speeds
        best = max(known, key=lambda name: known[name])
        return {name: speeds[best] * known.get(name, self.rest) / known[best] for name in speeds}


NO_CHOICE: Final = DeviceChoice()
