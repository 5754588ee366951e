# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which waiting requests run now, in which batch size, and which are refused at once.

The chooser reads no clock and knows no connection; router and simulator call it alike.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.batching.batch_time import BatchCosts
from ullage.engines.batching.histogram import Floats, Histogram, mixture
from ullage.engines.batching.score import ScoreRow, score_table

SIZES: Final = (1, 2, 4, 8, 16)
MIX_STEPS: Final = 8
"""Weights of applications are rounded to this part before a table is made for them."""
LEAST_S: Final = 1e-9
"""An estimate of nothing is taken for so many seconds."""
TABLES: Final = 64
"""Mixtures whose tables are kept."""


class Policy(StrEnum):
    """How requests are ordered and batched."""

    ORLOJ = "Orloj"
    EDF = "EDF"
    FIFO = "FIFO"


class SizeRule(StrEnum):
    """How a batch size is chosen.

    EDF by ``FinishesPerTime`` takes the earliest of those whose slack allows the estimate of the
    size; by ``LargestFeasible`` it never passes the earliest request over.
    """

    FINISHES_PER_TIME = "FinishesPerTime"
    LARGEST_FEASIBLE = "LargestFeasible"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A waiting request; times in seconds on one monotonic clock."""

    number: int
    arrival_s: float
    deadline_s: float
    app: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What an owner sets.

    ``drop_threshold`` is the least probability to finish alone that keeps a request; with 0 only
    hopeless requests are refused. ``rate_per_s`` is b of the score, by default one over the mean
    batch time. ``quantile`` is the estimate of EDF, ``None`` for the mean.

    Raises:
        ValueError: sizes are not sorted, not unique or below 1, or a figure is out of range.
    """

    policy: Policy = Policy.ORLOJ
    sizes: tuple[int, ...] = SIZES
    drop_threshold: float = 0.0
    size_rule: SizeRule = SizeRule.FINISHES_PER_TIME
    rate_per_s: float | None = None
    quantile: float | None = None

    def __post_init__(self) -> None:
        if not self.sizes or self.sizes[0] < 1 or list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError("batch sizes are sorted, unique and at least 1")
        if not 0 <= self.drop_threshold < 1:
            raise ValueError("the drop threshold is a probability below 1")
        if self.rate_per_s is not None and not self.rate_per_s > 0:
            raise ValueError("the rate of waiting is positive")
        if self.quantile is not None and not 0 < self.quantile < 1:
            raise ValueError("a quantile lies between 0 and 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Positions in the waiting requests: what runs as one batch and what is refused."""

    run: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()


@dataclass(slots=True, kw_only=True)
class Chooser:
    """Chooses by the distributions it was given; they are replaced as a whole.

    A chooser without the histogram of a waiting application falls back to EDF with the mean.
    """

    rules: Rules
    costs: BatchCosts
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    _rows: OrderedDict[tuple[tuple[str, int], ...], tuple[ScoreRow, ...]] = field(
        init=False, default_factory=OrderedDict
    )

    _alone: dict[str, Histogram] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if not set(self.rules.sizes) <= set(self.costs.factors):
            raise ValueError("a batch size has no cost")

    def learn(self, costs: BatchCosts, histograms: Mapping[str, Histogram]) -> None:
        """Replace costs and histograms; later choices see both or neither."""
        self.costs, self.histograms = costs, histograms
        self._rows.clear()
        self._alone.clear()

    def choose(self, waiting: Sequence[Request], now_s: float) -> Choice:
        """What one idle worker runs.

        Args:
            waiting: Requests, by earlier deadline first.
            now_s: The present on the requests' clock.
        """
        if not waiting:
            return Choice()
        slack = np.fromiter((r.deadline_s for r in waiting), np.float64, len(waiting)) - now_s
        match self.rules.policy:
            case Policy.FIFO:
                return self._first_come(waiting, slack)
            case Policy.ORLOJ if all(r.app in self.histograms for r in waiting):
                return self._by_distribution(waiting, slack)
            case _:
                return self._by_deadline(waiting, slack)

    def _first_come(self, waiting: Sequence[Request], slack: Floats) -> Choice:
        """In order of arrival, the largest size that is full; only what is past is refused."""
        alive = np.flatnonzero(slack > 0)
        order = sorted(alive.tolist(), key=lambda at: waiting[at].arrival_s)
        size = max((k for k in self.rules.sizes if k <= len(order)), default=len(order))
        return _chosen(order[:size], slack <= 0)

    def _by_deadline(self, waiting: Sequence[Request], slack: Floats) -> Choice:
        """Earliest deadline first, by the estimate of the longest application that waits."""
        by_app = {app: self._estimate(app) for app in {r.app for r in waiting}}
        lone = np.array([self.costs.batch_s(1, by_app[r.app]) for r in waiting])
        hopeless = slack < lone
        order = np.flatnonzero(~hopeless)
        if order.size == 0:
            return _chosen([], hopeless)
        if len(by_app) == 1:
            longest = next(iter(by_app.values()))
        else:
            longest = max(by_app[waiting[at].app] for at in order.tolist())
        best, best_value = order[:1], 0.0
        for size in self.rules.sizes:
            estimate = self.costs.batch_s(size, longest)
            if self.rules.size_rule is SizeRule.LARGEST_FEASIBLE:
                fit, value = order if slack[order[0]] >= estimate else order[:0], float(size)
            else:
                fit, value = order[slack[order] >= estimate], size / max(estimate, LEAST_S)
            if fit.size >= size and value > best_value:
                best, best_value = fit[:size], value
        return _chosen(best.tolist(), hopeless)

    def _estimate(self, app: str) -> float:
        known = self.histograms.get(app)
        if known is None:
            return 0.0
        part = self.rules.quantile
        return known.mean_s if part is None else known.quantile_s(part)

    def _by_distribution(self, waiting: Sequence[Request], slack: Floats) -> Choice:
        hopeless = self._hopeless(waiting, slack)
        kept = np.flatnonzero(~hopeless)
        if kept.size == 0:
            return _chosen([], hopeless)
        left = slack[kept]
        best, best_value = kept[:1], -1.0
        for row in self._table(waiting, kept):
            found = _candidates(row, left)
            if found is None:
                continue
            value = self._value(row, left[found])
            if value > best_value:
                best, best_value = kept[found], value
        return _chosen(best.tolist(), hopeless)

    def _value(self, row: ScoreRow, slack: Floats) -> float:
        """Expected finishes per second, or the size itself."""
        if self.rules.size_rule is SizeRule.LARGEST_FEASIBLE:
            return float(row.size)
        return float(row.in_time(slack).sum()) / row.mean_s

    def _hopeless(self, waiting: Sequence[Request], slack: Floats) -> NDArray[np.bool_]:
        """Cannot finish even alone, or only with less than the probability that is asked for."""
        apps = [request.app for request in waiting]
        found = np.zeros(slack.size, dtype=np.bool_)
        for app in set(apps):
            places = (
                slice(None)
                if apps.count(app) == len(apps)
                else [at for at, other in enumerate(apps) if other == app]
            )
            if app not in self._alone:
                self._alone[app] = self.costs.batch(1, self.histograms[app])
            lone, left = self._alone[app], slack[places]
            found[places] = (left <= lone.least_s) | (lone.below(left) < self.rules.drop_threshold)
        return found

    def _table(self, waiting: Sequence[Request], kept: NDArray[np.intp]) -> tuple[ScoreRow, ...]:
        """The rows of the queue's mixture; made once for each rounded composition."""
        counts = Counter([waiting[at].app for at in kept.tolist()])
        parts = {app: max(1, round(MIX_STEPS * n / kept.size)) for app, n in counts.items()}
        key = tuple(sorted(parts.items()))
        rows = self._rows.get(key)
        if rows is None:
            single = mixture(self.histograms, dict(key))
            rows = score_table(single, self.costs, self.rules.sizes, self.rules.rate_per_s)
            self._rows[key] = rows
            if len(self._rows) > TABLES:
                self._rows.popitem(last=False)
        return rows


def _candidates(row: ScoreRow, slack: Floats) -> NDArray[np.intp] | None:
    """The best positions by score, ties by earlier deadline; ``None`` if a batch is not full."""
    feasible: NDArray[np.intp] = np.flatnonzero(slack > row.batch.least_s)
    if feasible.size < row.size:
        return None
    scores = row.score(slack[feasible])
    limit = np.partition(scores, scores.size - row.size)[scores.size - row.size]
    above = np.flatnonzero(scores > limit)
    ties = np.flatnonzero(scores == limit)[: row.size - above.size]
    best: NDArray[np.intp] = feasible[np.sort(np.concatenate([above, ties]))]
    return best


def _chosen(run: Sequence[int], dropped: NDArray[np.bool_]) -> Choice:
    return Choice(run=tuple(run), dropped=tuple(np.flatnonzero(dropped).tolist()))
