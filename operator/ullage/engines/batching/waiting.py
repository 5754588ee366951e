# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Waiting requests, by earlier deadline, with the chooser's inputs as arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from ullage.engines.batching.histogram import Floats

Places = NDArray[np.intp]

_FIRST: Final = 64
"""Initial capacity of the arrays, in requests; they double."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """A waiting request; times in seconds on one monotonic clock."""

    number: int
    arrival_s: float
    deadline_s: float
    app: str = "default"


@dataclass(slots=True)
class WaitingRequests:
    """Requests in the order of their deadlines, ties in order of arrival.

    Only applications with a waiting request are numbered, so arbitrary names take no memory.
    """

    _requests: list[BatchRequest] = field(default_factory=list)
    _deadline_s: Floats = field(default_factory=lambda: np.empty(_FIRST))
    _arrival_s: Floats = field(default_factory=lambda: np.empty(_FIRST))
    _app: Places = field(default_factory=lambda: np.empty(_FIRST, dtype=np.intp))
    _numbers: dict[str, int] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)
    """Free numbers below the largest one in use."""

    @classmethod
    def of(cls, requests: Iterable[BatchRequest]) -> Self:
        """Number of requests."""
        made = cls()
        for request in requests:
            made.add(request)
        return made

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[BatchRequest]:
        return iter(self._requests)

    def __getitem__(self, at: int) -> BatchRequest:
        return self._requests[at]

    @property
    def deadline_s(self) -> Floats:
        """Deadlines in seconds, never falling."""
        return self._deadline_s[: len(self)]

    @property
    def arrival_s(self) -> Floats:
        """Arrival of each, seconds."""
        return self._arrival_s[: len(self)]

    @property
    def app(self) -> Places:
        """The number of each request's application, as in ``apps``."""
        return self._app[: len(self)]

    @property
    def apps(self) -> dict[str, int]:
        """Waiting applications, and their numbers."""
        return self._numbers

    def add(self, request: BatchRequest) -> None:
        """Insert a request at its position.

        Raises:
            ValueError: its deadline is not a number.
        """
        if math.isnan(request.deadline_s):
            raise ValueError("a deadline is a number of seconds")
        count = len(self)
        if count == self._app.size:
            self._deadline_s = np.resize(self._deadline_s, 2 * count)
            self._arrival_s = np.resize(self._arrival_s, 2 * count)
            self._app = np.resize(self._app, 2 * count)
        at = count
        if count and request.deadline_s < self._deadline_s[count - 1]:
            at = int(np.searchsorted(self.deadline_s, request.deadline_s, side="right"))
            for column in (self._deadline_s, self._arrival_s, self._app):
                column[at + 1 : count + 1] = column[at:count]
        self._deadline_s[at] = request.deadline_s
        self._arrival_s[at] = request.arrival_s
        self._app[at] = self._number(request.app)
        self._requests.insert(at, request)

    def take(self, places: Sequence[int]) -> tuple[BatchRequest, ...]:
        """Remove the requests at these positions and return them in the given order."""
        taken = tuple(self._requests[at] for at in places)
        left = len(self) - len(taken)
        if left:
            stays = np.ones(len(self), dtype=np.bool_)
            stays[list(places)] = False
            for column in (self._deadline_s, self._arrival_s, self._app):
                column[:left] = column[: len(self)][stays]
        for at in sorted(places, reverse=True):
            del self._requests[at]
        for request in taken:
            self._forget(request.app)
        return taken

    def _number(self, app: str) -> int:
        """The number of an application that gets one more waiting request."""
        self._counts[app] = self._counts.get(app, 0) + 1
        if app not in self._numbers:
            self._numbers[app] = self._free.pop() if self._free else len(self._numbers)
        return self._numbers[app]

    def _forget(self, app: str) -> None:
        self._counts[app] -= 1
        if not self._counts[app]:
            del self._counts[app]
            self._free.append(self._numbers.pop(app))
