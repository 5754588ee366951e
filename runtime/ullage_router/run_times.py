# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Learns run times on one device at one share, and builds the chooser that uses them.

The time of a single request is only seen in a batch of one; larger batches give the batch cost
c1(k), relative to their expected longest member. c0 stays as in the profile: times of single
requests alone cannot separate it from their own length.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ullage.engines.batching.batch_time import BatchCosts
from ullage.engines.batching.chooser import BatchChooser, BatchRules
from ullage.engines.batching.cost_fit import CostFit
from ullage.engines.batching.histogram import LEAST_SAMPLES, SlidingWindow, TimeHistogram
from ullage.engines.batching.waiting import BatchRequest, WaitingRequests
from ullage_router.times import RUN_LEAST_S

WINDOWS: Final = 64
"""Most applications, and applications by size, whose times are kept."""
SAMPLES: Final = 1024
LEAST_NEW: Final = 16
MOST_NEW: Final = 4096
"""Upper limit of new batches before learning again: a quarter of those seen."""
PRIOR_BATCHES: Final = 20.0
"""Weight of the prior of c1(k), since only the expected longest member is known."""
MIXTURES: Final = 1024
WARM_KEYS: Final = 8
GROWTH: Final = 0.1
"""Growth of a batch's time per member until measured: small, so that batches are tried."""


def first_costs(sizes: Sequence[int], fixed_s: float) -> BatchCosts:
    """Costs before any batch ran."""
    factors = {size: 1 + GROWTH * (size - 1) for size in {1, *sizes}}
    return BatchCosts(fixed_s=fixed_s, factors=factors)


def key_of(app: str, elements: int) -> str:
    """The learning name: an application and a power of two of the size."""
    return f"{app}/{max(0, elements).bit_length()}"


def app_of(key: str) -> str:
    """The application of a key."""
    return key.rpartition("/")[0]


@dataclass(slots=True, kw_only=True)
class RunTimes:
    """Measurements of a model on one device at one share; ``chooser`` is replaced as a whole."""

    rules: BatchRules
    prior: BatchCosts
    chooser: BatchChooser = field(init=False)
    single_s: float = field(init=False, default=0.0)
    """Mean time of a request alone over all applications, seconds; 0 = unknown."""
    _known: dict[str, TimeHistogram] = field(init=False, default_factory=dict)
    _fit: CostFit = field(init=False)
    _windows: OrderedDict[str, SlidingWindow] = field(init=False, default_factory=OrderedDict)
    _seen: int = field(init=False, default=0)
    _new: int = field(init=False, default=0)
    _longest: dict[tuple[str, ...], float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._fit = CostFit(prior=self.prior, prior_batches=PRIOR_BATCHES, fixed_known=True)
        self.chooser = BatchChooser(rules=self.rules, costs=self.prior, histograms=self._known)

    def knows(self, key: str) -> bool:
        """True if a key has a histogram: its own, or else its application's."""
        if key not in self._known and app_of(key) in self._known:
            self._known[key] = self._known[app_of(key)]
        return key in self._known

    def add(self, keys: Sequence[str], batch_s: float) -> None:
        """Add a finished batch: the keys of its members, and its time in seconds."""
        self._seen += 1
        self._new += 1
        if len(keys) == 1:
            single = max(batch_s - self.prior.fixed_s, RUN_LEAST_S)
            for name in (keys[0], app_of(keys[0])):
                self._window(name).add(single)
            return
        longest = self.longest_s(keys)
        if longest is not None:
            self._fit.add(len(keys), longest, batch_s)

    def predicted_s(self, keys: Sequence[str]) -> float | None:
        """Mean time of a batch, seconds; ``None`` while a member's times are unknown."""
        longest = self.longest_s(keys)
        return None if longest is None else self._batch_s(len(keys), longest)

    def worst_s(self, keys: Sequence[str]) -> float | None:
        """The longest time of a batch from the observations, seconds; ``None`` as above."""
        if not all(map(self.knows, keys)):
            return None
        longest = max(float(self._known[key].edges[-1]) for key in keys)
        return self._batch_s(len(keys), longest)

    def longest_s(self, keys: Sequence[str]) -> float | None:
        """The expected time of the longest member alone, seconds; ``None`` as above."""
        members = tuple(sorted(keys))
        longest = self._longest.get(members)
        if longest is None and all(map(self.knows, keys)):
            if len(self._longest) >= MIXTURES:
                self._longest.clear()
            counts = tuple(sorted(Counter(keys).items()))
            longest = self._longest[members] = expected_longest_s(self._known, counts)
        return longest

    def rate_per_s(self) -> float:
        """Approximate requests per second at the best batch size; 0 = unknown."""
        single = self.single_s
        sizes = self.rules.sizes
        return max(size / self._batch_s(size, single) for size in sizes) if single else 0.0

    async def learn(self, waiting: Collection[str]) -> None:
        """Build a chooser from the observations, in a thread; it makes later choices.

        Args:
            waiting: Waiting keys; their tables are built before the chooser is used.
        """
        enough = self._new >= min(max(LEAST_NEW, self._seen // 4), MOST_NEW)
        if not enough and not any(
            len(window.samples) >= LEAST_SAMPLES and name not in self._known
            for name, window in self._windows.items()
        ):
            return
        self._new = 0
        samples = {name: tuple(window.samples) for name, window in self._windows.items()}
        rules, costs = self.rules, self._fit.costs()
        self.chooser, self._known = await asyncio.to_thread(made, rules, costs, samples, waiting)
        self._longest.clear()
        means = [known.mean_s for name, known in self._known.items() if "/" not in name]
        self.single_s = sum(means) / len(means) + self.prior.fixed_s if means else 0.0

    def _window(self, name: str) -> SlidingWindow:
        window = self._windows.setdefault(name, SlidingWindow(size=SAMPLES))
        self._windows.move_to_end(name)
        if len(self._windows) > WINDOWS:
            self._windows.popitem(last=False)
        return window

    def _batch_s(self, size: int, longest_s: float) -> float:
        costs = self.chooser.costs
        return costs.batch_s(min(size, costs.sizes[-1]), longest_s)


def expected_longest_s(
    histograms: Mapping[str, TimeHistogram], counts: Sequence[tuple[str, int]]
) -> float:
    """Mean of the maximum of independent times: F_max is the product of F_r over the members."""
    edges = np.unique(np.concatenate([histograms[key].edges for key, _ in counts]))
    cdf = np.ones_like(edges)
    for key, count in counts:
        cdf *= histograms[key].below(edges) ** count
    cdf[0], cdf[-1] = 0.0, 1.0
    return TimeHistogram(edges=edges, cdf=cdf).mean_s


def made(
    rules: BatchRules,
    costs: BatchCosts,
    samples: Mapping[str, Sequence[float]],
    waiting: Collection[str],
) -> tuple[BatchChooser, dict[str, TimeHistogram]]:
    """A chooser with its histograms, with the tables for these keys."""
    known = {
        name: TimeHistogram.of(times)
        for name, times in samples.items()
        if len(times) >= LEAST_SAMPLES
    }
    chooser = BatchChooser(rules=rules, costs=costs, histograms=known)
    for key in sorted(set(waiting))[:WARM_KEYS]:
        if key not in known and app_of(key) in known:
            known[key] = known[app_of(key)]
        if key in known:
            later = known[key].mean_s + costs.fixed_s
            request = BatchRequest(number=0, arrival_s=0.0, deadline_s=later, app=key)
            chooser.choose(WaitingRequests.of([request]), 0.0)
    return chooser, known
