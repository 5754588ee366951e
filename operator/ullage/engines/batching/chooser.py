# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Choice of the waiting requests that run now, of the batch size, and of those refused at once.

The chooser reads no clock and knows no connection; router and simulator call it alike.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage.engines.batching.batch_time import BatchCosts
from ullage.engines.batching.histogram import Floats, TimeHistogram, mixture
from ullage.engines.batching.score import ScoreRow, score_table
from ullage.engines.batching.waiting import Places, WaitingRequests

SIZES: Final = (1, 2, 4, 8, 16)
MIX_STEPS: Final = 8
"""Weights of applications are rounded to this fraction before a table is made for them."""
LEAST_S: Final = 1e-9
"""Seconds that an estimate of zero counts as."""
TABLES: Final = 64
"""Mixtures with cached tables."""


class BatchPolicy(StrEnum):
    """Order and batching of requests."""

    ORLOJ = "Orloj"
    EDF = "EDF"
    FIFO = "FIFO"


class SizeRule(StrEnum):
    """Rule for the batch size.

    EDF by ``FinishesPerTime`` takes the earliest of those whose slack allows the estimate of the
    size; by ``LargestFeasible`` it never skips the earliest request.
    """

    FINISHES_PER_TIME = "FinishesPerTime"
    LARGEST_FEASIBLE = "LargestFeasible"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRules:
    """Settings of an owner.

    ``drop_threshold`` is the minimum probability to finish alone that keeps a request; with 0 only
    hopeless requests are refused. ``rate_per_s`` is b of the score, by default one over the mean
    batch time. ``quantile`` is the estimate of EDF, ``None`` for the mean.

    Raises:
        ValueError: sizes are not sorted, not unique or below 1, or a figure is out of range.
    """

    policy: BatchPolicy = BatchPolicy.ORLOJ
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
class BatchChoice:
    """Positions among the waiting requests: the batch that runs, and the refused ones."""

    run: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()


@dataclass(slots=True, kw_only=True)
class BatchChooser:
    """Chooses by the given distributions; they are replaced as a whole.

    A chooser without the histogram of a waiting application falls back to EDF with the mean.
    """

    rules: BatchRules
    costs: BatchCosts
    histograms: Mapping[str, TimeHistogram] = field(default_factory=dict)
    _rows: OrderedDict[tuple[tuple[str, int], ...], tuple[ScoreRow, ...]] = field(
        init=False, default_factory=OrderedDict
    )

    _alone: dict[str, TimeHistogram] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        if not set(self.rules.sizes) <= set(self.costs.factors):
            raise ValueError("a batch size has no cost")

    def learn(self, costs: BatchCosts, histograms: Mapping[str, TimeHistogram]) -> None:
        """Replace costs and histograms; later choices see both or neither."""
        self.costs, self.histograms = costs, histograms
        self._rows.clear()
        self._alone.clear()

    def choose(self, waiting: WaitingRequests, now_s: float) -> BatchChoice:
        """Choose the batch of one idle worker.

        Args:
            waiting: Requests, by earlier deadline first.
            now_s: The current time on the requests' clock.
        """
        if not waiting:
            return BatchChoice()
        slack = waiting.deadline_s - now_s
        match self.rules.policy:
            case BatchPolicy.FIFO:
                return self._first_come(waiting, slack)
            case BatchPolicy.ORLOJ if waiting.apps.keys() <= self.histograms.keys():
                return self._by_distribution(waiting, slack)
            case _:
                return self._by_deadline(waiting, slack)

    def _first_come(self, waiting: WaitingRequests, slack: Floats) -> BatchChoice:
        """In order of arrival, the largest full size; only expired requests are refused."""
        alive = np.flatnonzero(slack > 0)
        order = alive[np.argsort(waiting.arrival_s[alive], kind="stable")]
        size = max((k for k in self.rules.sizes if k <= order.size), default=order.size)
        return _chosen(order[:size], slack <= 0)

    def _by_deadline(self, waiting: WaitingRequests, slack: Floats) -> BatchChoice:
        """Earliest deadline first, by the estimate of the longest waiting application."""
        by_app = np.zeros(1 + max(waiting.apps.values()))
        for app, number in waiting.apps.items():
            by_app[number] = self._estimate(app)
        alone = by_app[waiting.app]
        hopeless = slack < self.costs.fixed_s + self.costs.factors[1] * alone
        order = np.flatnonzero(~hopeless)
        if order.size == 0:
            return _chosen(order, hopeless)
        longest = float(alone[order].max())
        best, best_value = order[:1], 0.0
        for size in self.rules.sizes:
            estimate = self.costs.batch_s(size, longest)
            if self.rules.size_rule is SizeRule.LARGEST_FEASIBLE:
                fit, value = order if slack[order[0]] >= estimate else order[:0], float(size)
            else:
                fit, value = order[slack[order] >= estimate], size / max(estimate, LEAST_S)
            if fit.size >= size and value > best_value:
                best, best_value = fit[:size], value
        return _chosen(best, hopeless)

    def _estimate(self, app: str) -> float:
        known = self.histograms.get(app)
        if known is None:
            return 0.0
        part = self.rules.quantile
        return known.mean_s if part is None else known.quantile_s(part)

    def _by_distribution(self, waiting: WaitingRequests, slack: Floats) -> BatchChoice:
        hopeless = self._hopeless(waiting, slack)
        if slack.size == 1:  # if slack.size == 1:  # the only choice, without a table
            return BatchChoice(dropped=(0,)) if hopeless[0] else BatchChoice(run=(0,))
        kept = np.flatnonzero(~hopeless)
        if kept.size == 0:
            return _chosen(kept, hopeless)
        left = slack[kept]
        best, best_value = kept[:1], -1.0
        for row in self._table(waiting, kept):
            index = _candidates(row, left)
            if index is None:
                continue
            value = self._value(row, left[index])
            if value > best_value:
                best, best_value = kept[index], value
        return _chosen(best, hopeless)

    def _value(self, row: ScoreRow, slack: Floats) -> float:
        """Expected finishes per second, or the size itself."""
        if self.rules.size_rule is SizeRule.LARGEST_FEASIBLE:
            return float(row.size)
        return float(row.in_time(slack).sum()) / row.mean_s

    def _hopeless(self, waiting: WaitingRequests, slack: Floats) -> NDArray[np.bool_]:
        """Requests that cannot finish even alone, or only below the required probability."""
        hopeless = np.zeros(slack.size, dtype=np.bool_)
        for app, number in waiting.apps.items():
            places = slice(None) if len(waiting.apps) == 1 else waiting.app == number
            if app not in self._alone:
                self._alone[app] = self.costs.batch(1, self.histograms[app])
            lone, left = self._alone[app], slack[places]
            hopeless[places] = left <= lone.least_s
            if self.rules.drop_threshold:
                hopeless[places] |= lone.below(left) < self.rules.drop_threshold
        return hopeless

    def _table(self, waiting: WaitingRequests, kept: Places) -> tuple[ScoreRow, ...]:
        """The rows of the queue's mixture; made once for each rounded composition."""
        counts = np.bincount(waiting.app[kept], minlength=1 + max(waiting.apps.values())).tolist()
        parts = {app: counts[number] / kept.size for app, number in waiting.apps.items()}
        key = tuple(
            sorted((app, max(1, round(MIX_STEPS * part))) for app, part in parts.items() if part)
        )
        rows = self._rows.get(key)
        if rows is None:
            single = mixture(self.histograms, dict(key))
            rows = score_table(single, self.costs, self.rules.sizes, self.rules.rate_per_s)
            self._rows[key] = rows
            if len(self._rows) > TABLES:
                self._rows.popitem(last=False)
        return rows


def _candidates(row: ScoreRow, slack: Floats) -> Places | None:
    """The best positions by score, ties by earlier deadline; ``None`` if a batch is not full.

    ``slack`` never falls, so the feasible requests are its end.
    """
    first = int(np.searchsorted(slack, row.batch.least_s, side="right"))
    if slack.size - first < row.size:
        return None
    scores = row.score(slack[first:])
    limit = np.partition(scores, scores.size - row.size)[scores.size - row.size]
    above = np.flatnonzero(scores > limit)
    ties = np.flatnonzero(scores == limit)[: row.size - above.size]
    best: Places = first + np.sort(np.concatenate([above, ties]))
    return best


def _chosen(run: Places, dropped: NDArray[np.bool_]) -> BatchChoice:
    return BatchChoice(run=tuple(run.tolist()), dropped=tuple(np.flatnonzero(dropped).tolist()))
