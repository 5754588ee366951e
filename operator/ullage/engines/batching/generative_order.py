# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Choice of the request that takes a free slot of a generative server, and of those refused.

Such a server batches continuously: a request holds its slot for as many steps as its answer has
tokens, whatever others do. So the score of ``score.py`` is divided by the time that the slot is
held, not by that of a batch: the gain is first tokens in time per second of a slot.

    value(u) = (P(T <= u) - P(T + tau <= u)) / E[place],  tau ~ Exp(b)

with slack u, and T the time from start to the event of the deadline: the first token, or the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.batching.chooser import BatchChoice, BatchPolicy
from ullage.engines.batching.histogram import Floats, TimeHistogram
from ullage.engines.batching.score import ScoreRow
from ullage.engines.batching.waiting import Places, WaitingRequests

ROWS: Final = 256
"""Distributions with cached scores."""
DISTRIBUTIONS: Final = 128
"""Most distributions of waiting requests; beyond it the order is by deadline."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prospect:
    """Expectation of a request once it has a slot.

    ``due`` is the distribution of the time to the event of its deadline, ``place_s`` the expected
    time that it holds its slot, seconds.
    """

    due: TimeHistogram
    place_s: float

    def __post_init__(self) -> None:
        if not self.place_s > 0:
            raise ValueError("a place is held for some time")


@dataclass(slots=True, kw_only=True)
class GenerativeChooser:
    """Chooses one request for one free slot; reads no clock and knows no connection.

    ``prospect`` returns the expectation of an application's requests; while that of a waiting
    request is unknown, the earliest deadline goes first and none is refused before it.
    ``rate_per_s`` is b: one over the time that a request waits if it is not chosen now.
    """

    policy: BatchPolicy
    prospect: Callable[[str], Prospect | None]
    rate_per_s: float
    drop_threshold: float = 0.0
    _rows: dict[int, ScoreRow] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if not self.rate_per_s > 0:
            raise ValueError("the rate of waiting is positive")

    def choose(self, waiting: WaitingRequests, now_s: float) -> BatchChoice:
        """Choose at most one request for the slot, and the requests to refuse.

        Args:
            waiting: Requests, by earlier deadline first.
            now_s: The current time on the requests' clock.
        """
        if not waiting:
            return BatchChoice()
        slack = waiting.deadline_s - now_s
        past = slack <= 0
        if self.policy is BatchPolicy.FIFO:
            return _best(-waiting.arrival_s, past)
        prospects = self._prospects(waiting)
        if prospects is None:
            return _best(-waiting.deadline_s, past)
        dues, due_of, place_s = prospects
        value = -waiting.deadline_s
        for number, due in enumerate(dues):
            places = slice(None) if len(dues) == 1 else due_of == number
            left = slack[places]
            if self.policy is BatchPolicy.EDF:
                past[places] |= left < due.mean_s
                continue
            past[places] |= left <= due.least_s
            if self.drop_threshold:
                past[places] |= due.below(left) < self.drop_threshold
            row = self._row(due)
            value[places] = row.score(left) * row.mean_s / place_s[places]
        return _best(value, past)

    def _prospects(
        self, waiting: WaitingRequests
    ) -> tuple[list[TimeHistogram], Places, Floats] | None:
        """Distributions, and the distribution and slot time of each request.

        ``None`` while those of a request are unknown, or with too many distributions.
        """
        count = 1 + max(waiting.apps.values())
        due_of, place_s = np.zeros(count, dtype=np.intp), np.ones(count)
        dues: dict[int, tuple[int, TimeHistogram]] = {}
        for app, number in waiting.apps.items():
            prospect = self.prospect(app)
            if prospect is None:
                return None
            due_of[number] = dues.setdefault(id(prospect.due), (len(dues), prospect.due))[0]
            place_s[number] = prospect.place_s
        if len(dues) > DISTRIBUTIONS:
            return None
        return [due for _, due in dues.values()], due_of[waiting.app], place_s[waiting.app]

    def _row(self, due: TimeHistogram) -> ScoreRow:
        row = self._rows.get(id(due))
        if row is None or row.batch is not due:
            if len(self._rows) >= ROWS:
                self._rows.clear()
            row = self._rows[id(due)] = ScoreRow.of(1, due, self.rate_per_s)
        return row


def _best(value: Floats, refused: NDArray[np.bool_]) -> BatchChoice:
    """The most valuable request that is not refused; ties by earliest deadline."""
    dropped = tuple(np.flatnonzero(refused).tolist())
    kept = np.flatnonzero(~refused)
    if kept.size == 0:
        return BatchChoice(dropped=dropped)
    return BatchChoice(run=(int(kept[np.argmax(value[kept])]),), dropped=dropped)
