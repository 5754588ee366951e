# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The rows that the node has to tell: the newest, each once, never a flood of them.

They live in the status of the GPUNode and in memory, nowhere else: what an earlier agent said is
taken over from there. A row that says what was said of the same mixture a short while ago is left
out, so a node in a steady state writes nothing. Nothing here waits or fails.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from ullage.api.contract import MAX_OBSERVATIONS, Observation

SAME_SECONDS: Final = 600.0
"""How long a row keeps an equal one of its mixture away."""
SAME_STEP: Final = 0.02
"""Relative difference of step times below which two rows are equal."""
SAME_LOAD: Final = 0.1
"""Relative difference of offered load below which two rows are equal."""
MIXTURE_MOST: Final = 8
"""Most rows of one mixture within :data:`SAME_SECONDS`, however much they differ."""
BURST: Final = 64
REFILL_PER_S: Final = 0.5
"""The node as a whole: rows at once, and for how many there is room again every second."""

Mixture = tuple[object, ...]


@dataclass(slots=True)
class _Said:
    """What was said of one mixture lately."""

    last: Observation
    at: deque[float] = field(default_factory=lambda: deque(maxlen=MIXTURE_MOST))


class ObservationBook:
    """The newest rows, oldest first; also the sink of the guard.

    Args:
        clock: monotonic, seconds.
        most: rows kept.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, most: int = MAX_OBSERVATIONS
    ) -> None:
        self._clock = clock
        self._most = most
        self._rows: dict[str, Observation] = {}
        self._said: dict[Mixture, _Said] = {}
        self._room = float(BURST)
        self._filled_at = clock()
        self.left_out: Counter[str] = Counter()
        """Rows that were not kept: ``same``, ``flood``."""
        self.taken = 0
        self.on_change: Callable[[], None] = lambda: None

    @property
    def rows(self) -> tuple[Observation, ...]:
        """What the status says."""
        return tuple(self._rows.values())

    def restore(self, rows: Iterable[Observation]) -> None:
        """Take over what an earlier agent has said; what this one said already stays newest."""
        now = self._clock()
        earlier = {row.id: row for row in rows if row.id not in self._rows}
        for row in earlier.values():
            self._said.setdefault(_mixture(row), _Said(last=row)).at.append(now)
        self._rows = earlier | self._rows
        self._trim()

    def take(self, observation: Observation) -> None:
        """Keep a row whatever was said before: the guard's, which come in pairs."""
        self._keep(observation)

    def offer(self, observation: Observation) -> bool:
        """Keep a row unless it says nothing new; whether it was kept."""
        now = self._clock()
        self._forget(now)
        said = self._said.get(_mixture(observation))
        if said is not None:
            if is_same(said.last, observation):
                self.left_out["same"] += 1
                return False
            if len(said.at) == MIXTURE_MOST:
                self.left_out["flood"] += 1
                return False
        if not self._keep(observation):
            return False
        said = said or _Said(last=observation)
        said.last = observation
        said.at.append(now)
        self._said[_mixture(observation)] = said
        return True

    def _keep(self, row: Observation) -> bool:
        now = self._clock()
        passed = max(now - self._filled_at, 0.0)
        self._room, self._filled_at = min(self._room + passed * REFILL_PER_S, float(BURST)), now
        if self._room < 1:
            self.left_out["flood"] += 1
            return False
        if row.id in self._rows:  # a list in the API holds an id once
            self.left_out["same"] += 1
            return False
        self._room -= 1
        self._rows[row.id] = row
        self.taken += 1
        self._trim()
        self.on_change()
        return True

    def _trim(self) -> None:
        while len(self._rows) > self._most:
            del self._rows[next(iter(self._rows))]

    def _forget(self, now: float) -> None:
        """Drop what was said too long ago."""
        for mixture, said in list(self._said.items()):
            while said.at and now - said.at[0] >= SAME_SECONDS:
                said.at.popleft()
            if not said.at:
                del self._said[mixture]


def is_same(one: Observation, other: Observation) -> bool:
    """Whether two rows of one mixture teach the same."""
    return (
        one.violated == other.violated
        and one.percentile == other.percentile
        and (one.fingerprint is None) == (other.fingerprint is None)
        and (one.solo_step_micros == 0) == (other.solo_step_micros == 0)
        and _close(one.step_micros, other.step_micros, SAME_STEP)
        and _close(one.requests_milli, other.requests_milli, SAME_LOAD)
    )


def _close(one: int, other: int, tolerance: float) -> bool:
    return abs(one - other) <= tolerance * max(one, other)


def _mixture(row: Observation) -> Mixture:
    """What a row is of: the class, its share, and who was beside it."""
    partners = tuple(sorted((one.klass, one.percent) for one in row.partners))
    return (
        row.namespace,
        row.klass,
        row.accelerator,
        row.percent,
        partners,
        row.image,
        row.frozen,
        row.probation,
    )
