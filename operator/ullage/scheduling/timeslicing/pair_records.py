# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Records of jobs that may share a device in their turn, with their forecasts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ullage.cluster.records.status import PartedRecord


class Together(NamedTuple):
    """Two jobs side by side on a device of one type.

    Attributes:
        percents: Share of the device of each job.
        slowdowns: Predicted slowdown of each against the whole device alone; on a grid.
    """

    percents: tuple[int, int]
    slowdowns: tuple[float, float]

    @property
    def turned(self) -> Together:
        """The same with the other job first."""
        return Together(self.percents[::-1], self.slowdowns[::-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """The pairs that may get time.

    Attributes:
        kinds: Kind of the jobs that may share, by uid; jobs of a kind are interchangeable here.
        forecasts: By two kinds in order, then by type; without an entry they are no pair.
        ended: By uid, a pair that missed its forecast in this cycle.
    """

    kinds: Mapping[str, str] = field(default_factory=dict)
    forecasts: Mapping[tuple[str, str], Mapping[str, Together]] = field(default_factory=dict)
    ended: Mapping[str, PartedRecord] = field(default_factory=dict)

    def together(self, uid: str, other: str, accelerator: str) -> Together | None:
        """Forecast of two jobs on a type, in this order; ``None`` = they are no pair there."""
        first, second = self.kinds.get(uid), self.kinds.get(other)
        if first is None or second is None:
            return None
        if first <= second:
            return self.forecasts.get((first, second), {}).get(accelerator)
        together = self.forecasts.get((second, first), {}).get(accelerator)
        return together.turned if together is not None else None
