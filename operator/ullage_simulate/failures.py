# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Failures and repairs of devices, at times drawn only from a seed.

The times are the same for every policy; the affected jobs depend on the policy.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage_simulate.trace import JobTraceError


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureLaw:
    """Rates of failures and repairs of devices.

    Attributes:
        mtbf_h: Mean hours between two failures of one device; 0 = they never fail.
        repair_s: Seconds until a failed device is back.
    """

    mtbf_h: float = 0.0
    repair_s: float = 1800.0

    def __post_init__(self) -> None:
        if self.mtbf_h < 0 or self.repair_s < 0:
            raise JobTraceError("times between failures and of repairs are 0 or more")


@dataclass(slots=True)
class Failures:
    """The failures of one run, in order; exponential gaps over all devices together."""

    devices: Mapping[str, int]
    law: FailureLaw
    chance: random.Random
    next_s: float = float("inf")
    down: dict[str, int] = field(default_factory=dict)
    _repairs: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.down = dict.fromkeys(self.devices, 0)
        self._draw(0.0)

    def up(self) -> dict[str, int]:
        """Working devices of each type."""
        return {kind: size - self.down[kind] for kind, size in self.devices.items()}

    @property
    def next_repair_s(self) -> float:
        """Time of the next repair; infinity where none is down."""
        return self._repairs[0][0] if self._repairs else float("inf")

    def repair(self, now: float) -> bool:
        """Apply due repairs; true if there were any."""
        repaired = False
        while self._repairs and self._repairs[0][0] <= now:
            _, kind = heapq.heappop(self._repairs)
            self.down[kind] -= 1
            repaired = True
        return repaired

    def strike(self) -> tuple[str, int] | None:
        """Apply the next failure: type and number of the device among working ones.

        ``None`` if the drawn device is already down.
        """
        at = self.next_s
        number = self.chance.randrange(sum(self.devices.values()))
        self._draw(at)
        for kind, size in self.devices.items():
            if number < size:
                if number >= size - self.down[kind]:
                    return None
                self.down[kind] += 1
                heapq.heappush(self._repairs, (at + self.law.repair_s, kind))
                return kind, number
            number -= size
        raise AssertionError("a device beyond the last")

    def _draw(self, since: float) -> None:
        if self.law.mtbf_h > 0:
            rate = sum(self.devices.values()) / (3600 * self.law.mtbf_h)
            self.next_s = since + self.chance.expovariate(rate)
