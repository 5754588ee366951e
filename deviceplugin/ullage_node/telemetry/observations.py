# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Queues the node's rows: each until the operator acknowledges it, never a flood.

The oldest ones are in the GPUNode's status, as many as it has room for; the others are queued here.
Acknowledged rows are removed, and a starting agent takes over those in the status. A row equal to a
recent one of the same mixture is dropped, so a node in a steady state writes nothing. Nothing here
waits or fails.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import orjson

from ullage.api.observations import MAX_OBSERVATIONS, Observation
from ullage_node.times import SAME_ROW_S

SAME_STEP: Final = 0.02
"""Relative difference of step times below which two rows are equal."""
SAME_LOAD: Final = 0.1
"""Relative difference of offered load below which two rows are equal."""
MIXTURE_MOST: Final = 8
"""Most rows of one mixture within :data:`SAME_ROW_S`, however much they differ."""
MOST_WAITING: Final = 512
"""Rows kept while no operator acknowledges them; the oldest are dropped first. About a quarter of
an hour at the highest rate, days at the usual one."""
STATUS_BYTES: Final = 3 * 1024
"""Most bytes of rows in one status; the API server stores the whole object at every heartbeat. At
ten seconds between writes, eight rows are more than the node makes."""
BURST: Final = 64
ROWS_PER_SECOND: Final = 0.5
"""Rate limit of the node's rows: burst, and refill per second."""

Mixture = tuple[object, ...]


@dataclass(slots=True)
class _Said:
    """Recent rows of one mixture."""

    last: Observation
    at: deque[float] = field(default_factory=lambda: deque(maxlen=MIXTURE_MOST))


class ObservationBook:
    """The rows not acknowledged yet, oldest first; also the sink of the guard.

    Args:
        clock: monotonic, seconds.
        most: rows kept.
        status_bytes: size of :attr:`rows` as JSON.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        most: int = MOST_WAITING,
        status_bytes: int = STATUS_BYTES,
    ) -> None:
        self._clock = clock
        self._most = most
        self._status_bytes = status_bytes
        self._shown: tuple[Observation, ...] | None = None
        self._rows: dict[str, Observation] = {}
        self._said: dict[Mixture, _Said] = {}
        self._room = float(BURST)
        self._filled_at = clock()
        self.left_out: Counter[str] = Counter()
        """Dropped rows: ``same``, ``flood``; ``unread`` = not acknowledged for too long."""
        self.taken = 0
        self.on_change: Callable[[], None] = lambda: None

    @property
    def rows(self) -> tuple[Observation, ...]:
        """Rows for the status: the oldest ones within the size limit, at least one."""
        if self._shown is None:
            shown: list[Observation] = []
            left = self._status_bytes
            for row in self._rows.values():
                left -= len(orjson.dumps(row.to_wire()))
                if shown and (left < 0 or len(shown) == MAX_OBSERVATIONS):
                    break
                shown.append(row)
            self._shown = tuple(shown)
        return self._shown

    def __len__(self) -> int:
        return len(self._rows)

    def taken_in(self, newest: str) -> None:
        """Forget the row of this id and all before it; an unknown id has no effect."""
        if newest not in self._rows:
            return
        for row in list(self._rows):
            del self._rows[row]
            if row == newest:
                break
        self._shown = None
        self.on_change()

    def restore(self, rows: Iterable[Observation]) -> None:
        """Restore an earlier agent's rows; this agent's own rows stay newest."""
        now = self._clock()
        earlier = {row.id: row for row in rows if row.id not in self._rows}
        for row in earlier.values():
            self._said.setdefault(_mixture(row), _Said(last=row)).at.append(now)
        self._rows = earlier | self._rows
        self._shown = None
        self._trim()

    def take(self, observation: Observation) -> None:
        """Keep a row unconditionally: the guard's, which come in pairs."""
        self._keep(observation)

    def offer(self, observation: Observation) -> bool:
        """Keep a row if it is new; true if it was kept."""
        now = self._clock()
        self._forget(now)
        known = self._said.get(_mixture(observation))
        if known is not None:
            if is_same(known.last, observation):
                self.left_out["same"] += 1
                return False
            if len(known.at) == MIXTURE_MOST:
                self.left_out["flood"] += 1
                return False
        if not self._keep(observation):
            return False
        known = known or _Said(last=observation)
        known.last = observation
        known.at.append(now)
        self._said[_mixture(observation)] = known
        return True

    def _keep(self, row: Observation) -> bool:
        now = self._clock()
        passed = max(now - self._filled_at, 0.0)
        self._room, self._filled_at = min(self._room + passed * ROWS_PER_SECOND, float(BURST)), now
        if self._room < 1:
            self.left_out["flood"] += 1
            return False
        if row.id in self._rows:  # a list in the API holds an id once
            self.left_out["same"] += 1
            return False
        self._room -= 1
        self._rows[row.id] = row
        self._shown = None
        self.taken += 1
        self._trim()
        self.on_change()
        return True

    def _trim(self) -> None:
        while len(self._rows) > self._most:
            del self._rows[next(iter(self._rows))]
            self.left_out["unread"] += 1

    def _forget(self, now: float) -> None:
        """Drop outdated entries."""
        for mixture, known in list(self._said.items()):
            while known.at and now - known.at[0] >= SAME_ROW_S:
                known.at.popleft()
            if not known.at:
                del self._said[mixture]


def is_same(first: Observation, second: Observation) -> bool:
    """True if two rows of one mixture are equal within the tolerances."""
    return (
        first.violated == second.violated
        and first.percentile == second.percentile
        and (first.fingerprint is None) == (second.fingerprint is None)
        and (first.solo_step_micros == 0) == (second.solo_step_micros == 0)
        and _close(first.step_micros, second.step_micros, SAME_STEP)
        and _close(first.requests_milli, second.requests_milli, SAME_LOAD)
    )


def _close(first: int, second: int, tolerance: float) -> bool:
    return abs(first - second) <= tolerance * max(first, second)


def _mixture(row: Observation) -> Mixture:
    """Key of a row: the class, its share, and its neighbours."""
    partners = tuple(sorted((partner.workload_class, partner.percent) for partner in row.partners))
    return (
        row.namespace,
        row.workload_class,
        row.accelerator,
        row.percent,
        partners,
        row.image,
        row.frozen,
        row.probation,
    )
