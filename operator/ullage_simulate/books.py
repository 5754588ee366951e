# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Promised and owed time of every job on every type, as arrays, and the head of their queue.

A round gives devices to few of the waiting jobs. Time is booked for all of them at once, and
``fill_round`` evaluates only those with the most urgent claims: the others change nothing where the
head fills the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.allocation.model import Floats, Ints, JobView
from ullage.engines.allocation.round_records import Cell, Members, RoundSettings, RoundState
from ullage.engines.allocation.rounds import DIGITS, NOTHING, most_owed_s
from ullage.scheduling.timeslicing.division import SAME
from ullage.scheduling.timeslicing.round_records import as_text

_CLOSE_S: Final = 1e-3
"""Seconds of urgency beyond any rounding error."""


@dataclass(slots=True)
class Books:
    """The accounts of jobs that run alone: a row for each job by arrival, a column for each type.

    Attributes:
        kinds: Types, sorted.
        settings: Of the rounds.
        names: Jobs by arrival.
        gang: Devices of each, as policies count them.
        weight: Of its fair share.
        rates: Steps/s of each on each type; 0 = it cannot run there.
        written: Fractions of time in the jobs' statuses, rounded.
        promised: The same, without negligible ones.
        owed_s: Promised minus received time.
        at_s: Time up to which everything is booked.
    """

    kinds: tuple[str, ...]
    settings: RoundSettings
    names: list[str] = field(default_factory=list)
    gang: Floats = field(default_factory=lambda: np.zeros(0))
    weight: Floats = field(default_factory=lambda: np.zeros(0))
    rates: Floats = field(init=False)
    written: Floats = field(init=False)
    promised: Floats = field(init=False)
    owed_s: Floats = field(init=False)
    at_s: float = 0.0
    _number: dict[str, int] = field(default_factory=dict)
    """Index of each job among all arrivals."""
    _numbers: Ints = field(default_factory=lambda: np.zeros(0, np.intp))
    """The same of each row."""
    _labels: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, np.str_))
    _rank: Ints | None = None
    _came: dict[str, tuple[float, float, tuple[float, ...]]] = field(default_factory=dict)
    _left: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        empty = np.zeros((0, len(self.kinds)))
        self.rates = self.written = self.promised = self.owed_s = empty

    def arrive(self, view: JobView, rates: tuple[float, ...]) -> None:
        """Add a job; nothing is promised to it yet."""
        self._came[view.name] = view.gang, view.weight, rates
        self._number[view.name] = len(self._number)

    def leave(self, name: str) -> None:
        """Remove a job, and its debt."""
        if self._came.pop(name, None) is None:
            self._left.append(name)

    def gather(self) -> None:
        """Add rows of new jobs, and drop those of removed ones."""
        if not self._came and not self._left:
            return
        gone = self._rows(self._left)
        stays = np.ones(len(self.names), bool)
        stays[gone] = False
        for row in sorted(gone.tolist(), reverse=True):
            del self.names[row]
        self.names.extend(self._came)
        gangs, weights, rates = zip(*self._came.values(), strict=True) if self._came else ((),) * 3
        fresh = np.zeros((len(self._came), len(self.kinds)))
        self.gang = np.concatenate([self.gang[stays], gangs])
        self.weight = np.concatenate([self.weight[stays], weights])
        self.rates = np.concatenate([self.rates[stays], np.reshape(rates, fresh.shape)])
        self.written = np.concatenate([self.written[stays], fresh])
        self.promised = np.concatenate([self.promised[stays], fresh])
        self.owed_s = np.concatenate([self.owed_s[stays], fresh])
        numbers = np.array([self._number[name] for name in self._came], np.intp)
        self._numbers = np.concatenate([self._numbers[stays], numbers])
        self._labels = np.concatenate([self._labels[stays], np.array(list(self._came), np.str_)])
        self._rank, self._came, self._left = None, {}, []

    def by_arrival(self, names: Iterable[str]) -> list[str]:
        """Jobs in the order of their rows."""
        return sorted(names, key=self._number.__getitem__)

    def _rows(self, names: Iterable[str]) -> Ints:
        return self._numbers.searchsorted([self._number[name] for name in names])

    def tell(self, fresh: Floats) -> Floats:
        """Fractions as written for jobs; nearly unchanged ones keep their value.

        Args:
            fresh: Fractions of each job on each type.
        """
        known = (self.written > 0).any(axis=1)
        same = known & (np.abs(self.written - fresh) <= SAME).all(axis=1)
        values, which = np.unique(fresh, return_inverse=True)
        written = [float(dict(as_text({"": value})).get("", "0")) for value in values.tolist()]
        fractions = np.array(written, float)[which.reshape(-1)].reshape(fresh.shape)
        self.written = np.where(np.expand_dims(same, 1), self.written, fractions)
        return self.written

    def book(self, now: float, running: Mapping[Members, str]) -> None:
        """Book the time since the last round, then use the fractions as written for jobs."""
        elapsed = max(0.0, now - self.at_s)
        owed = self.owed_s + self.promised * elapsed
        columns = [self.kinds.index(kind) for kind in running.values()]
        owed[self._rows(name for (name,) in running), columns] -= elapsed
        most = most_owed_s(self.settings)
        self.promised = np.where((self.written > NOTHING) & (self.rates > 0), self.written, 0.0)
        owed = np.minimum(most, np.maximum(-most, owed))
        self.owed_s = np.where(self.promised > 0, owed, 0.0)
        self.at_s = max(now, self.at_s)

    def head(self, count: int, stays_s: Mapping[Cell, float]) -> list[Cell]:
        """The claims that the next round evaluates first, in no order.

        Args:
            count: Number of claims.
            stays_s: Bonus of running jobs, in seconds.
        """
        width = len(self.kinds)
        urgency = (self.owed_s + self.promised * self.settings.round_s).ravel()
        columns = [self.kinds.index(kind) for _, kind in stays_s]
        at = self._rows(name for (name,), _ in stays_s) * width + np.array(columns, np.intp)
        urgency[at] += list(stays_s.values())
        cells = np.flatnonzero(self.promised.ravel())
        if len(cells) > count:
            urgency = urgency[cells]
            least = np.partition(urgency, -count)[-count]
            near = urgency >= least - _CLOSE_S
            cells, urgency = cells[near], urgency[near]
        if len(cells) > count:
            fractions = self.promised.ravel()[cells]
            rows, kinds = np.divmod(cells, width)
            order = np.lexsort(
                (kinds, self._ranks()[rows], -_rounded(fractions, 9), -_rounded(urgency, DIGITS))
            )
            cells = cells[order[:count]]
        return [((self.names[at // width],), self.kinds[at % width]) for at in cells.tolist()]

    def most_owed(self, count: int) -> set[str]:
        """The jobs with precedence for idle devices."""
        owed = np.zeros(len(self.names))
        for column in range(len(self.kinds)):
            owed = owed + self.owed_s[:, column]
        if len(owed) <= count:
            return set(self.names)
        rows = np.flatnonzero(owed >= np.partition(owed, -count)[-count])
        rows = rows[np.lexsort((self._ranks()[rows], -owed[rows]))[:count]]
        return {self.names[row] for row in rows.tolist()}

    def of(
        self, names: Sequence[str], running: Mapping[Members, str], skipped: Mapping[str, int]
    ) -> RoundState:
        """The accounts of some jobs, for ``fill_round``."""
        rows = self._rows(names)
        promised, owed = self.promised[rows], self.owed_s[rows]
        at, columns = np.nonzero(promised)
        cells = [
            ((names[row],), self.kinds[column])
            for row, column in zip(at.tolist(), columns.tolist(), strict=True)
        ]
        return RoundState(
            at_s=self.at_s,
            promised=dict(zip(cells, promised[at, columns].tolist(), strict=True)),
            owed_s=dict(zip(cells, owed[at, columns].tolist(), strict=True)),
            running=running,
            skipped=skipped,
        )

    def _ranks(self) -> Ints:
        """Index of each job among all by name."""
        if self._rank is None:
            self._rank = np.argsort(np.argsort(self._labels))
        return self._rank


def _rounded(values: Floats, digits: int) -> Floats:
    """Round each like ``round``, unlike numpy's own."""
    different, which = np.unique(values, return_inverse=True)
    return np.array([round(value, digits) for value in different.tolist()])[which.reshape(-1)]
