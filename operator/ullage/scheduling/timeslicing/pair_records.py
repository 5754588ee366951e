# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which jobs may share a device in their turn, and what is predicted of them there: values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ullage.cluster.records.status import PartedRecord


class Together(NamedTuple):
    """Two jobs side by side on a device of one type.

    Attributes:
        percents: Share of the device of each.
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
    """The pairs that time may be promised to.

    Attributes:
        kinds: Jobs that may share, by uid; those of one kind are alike in all that matters here.
        forecasts: By two kinds in order, then by type; what is missing is no pair.
        ended: By uid, a pair that was observed not to hold in this cycle.
    """

    kinds: Mapping[str, str] = field(default_factory=dict)
    forecasts: Mapping[tuple[str, str], Mapping[str, Together]] = field(default_factory=dict)
    ended: Mapping[str, PartedRecord] = field(default_factory=dict)

    def together(self, uid: str, other: str, accelerator: str) -> Together | None:
        """Two jobs on a type, the first one first; ``None`` = they are no pair there."""
        left, right = self.kinds.get(uid), self.kinds.get(other)
        if left is None or right is None:
            return None
        if left <= right:
            return self.forecasts.get((left, right), {}).get(accelerator)
        found = self.forecasts.get((right, left), {}).get(accelerator)
        return found.turned if found is not None else None
