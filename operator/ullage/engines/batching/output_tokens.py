# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Length in tokens of an application's answers, learned from observed ones.

An answer that was cut off by its ``max_tokens`` gives only a lower bound: such counts are censored,
and the distribution is the product-limit estimate (Kaplan and Meier 1958).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np

from ullage.engines.batching.histogram import Floats

MOST_TOKENS: Final = 1_000_000
"""Upper bound of an answer's tokens, whatever a server or a client reports."""
WINDOW: Final = 1024
"""Answers kept per application."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCount:
    """Tokens of one answer; ``cut`` where its bound ended it, and not the model."""

    tokens: int
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutputTokens:
    """A distribution of token counts: ``counts`` rise, ``parts`` are their probabilities."""

    counts: Floats
    parts: Floats
    _below: Floats = field(init=False, repr=False)
    _mean_below: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.counts.size == 0 or self.counts.shape != self.parts.shape:
            raise ValueError("a distribution has a count at least, and a part for each")
        object.__setattr__(self, "_below", np.concatenate([[0.0], np.cumsum(self.parts)]))
        weighted = np.concatenate([[0.0], np.cumsum(self.parts * self.counts)])
        object.__setattr__(self, "_mean_below", weighted)

    @classmethod
    def of(cls, seen: Sequence[TokenCount]) -> Self:
        """The product-limit estimate.

        The tail beyond the longest answer, if that was cut, counts as if it ended there: a mean is
        a lower bound.

        Raises:
            ValueError: there is no answer.
        """
        if not seen:
            raise ValueError("a distribution needs an answer at least")
        tokens = np.array([output.tokens for output in seen], dtype=np.float64).clip(1, MOST_TOKENS)
        ended = np.array([not output.cut for output in seen])
        counts, place = np.unique(tokens, return_inverse=True)
        at = np.bincount(place, minlength=counts.size)
        ends = np.bincount(place[ended], minlength=counts.size)
        at_risk = at[::-1].cumsum()[::-1]
        survival = np.cumprod(1.0 - ends / at_risk)
        survival[-1] = 0.0
        parts = -np.diff(np.concatenate([[1.0], survival]))
        kept = parts > 0
        return cls(counts=counts[kept], parts=parts[kept])

    def mean(self, most: float = math.inf) -> float:
        """Expected tokens of an answer that ends at ``most`` at the latest."""
        return self._expected(0, most)

    def remaining(self, had: float, most: float = math.inf) -> float:
        """Expected remaining tokens of an answer that has ``had`` so many.

        An answer longer than all observed ones is expected to have as many again (the mean residual
        of a tail that falls as 1/n^2), up to its bound. Never below 1: a running answer holds its
        slot for one more step.
        """
        most = min(most, MOST_TOKENS)
        longer = int(np.searchsorted(self.counts, had, side="right"))
        alive = 1.0 - float(self._below[longer])
        if longer >= self.counts.size or alive <= 0:
            return max(1.0, min(2 * had, most) - had)
        return max(1.0, self._expected(longer, most) / alive - had)

    def capped(self, most: float) -> OutputTokens:
        """The distribution of answers that end at ``most`` at the latest."""
        whole = int(np.searchsorted(self.counts, most, side="left"))
        if whole >= self.counts.size:
            return self
        rest = 1.0 - float(self._below[whole])
        counts = np.append(self.counts[:whole], max(1.0, most))
        return OutputTokens(counts=counts, parts=np.append(self.parts[:whole], rest))

    def _expected(self, first: int, most: float) -> float:
        """The sum of min(count, most) by its probability, from an index on."""
        whole = max(first, int(np.searchsorted(self.counts, most, side="left")))
        inside = float(self._mean_below[whole] - self._mean_below[first])
        beyond = 1.0 - float(self._below[whole])
        return inside + (beyond * most if whole < self.counts.size else 0.0)


@dataclass(slots=True)
class TokenWindow:
    """The newest answers of one application."""

    seen: deque[TokenCount] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def add(self, tokens: int, *, cut: bool) -> None:
        """Add an answer; one without tokens is ignored."""
        if tokens > 0:
            self.seen.append(TokenCount(tokens=min(tokens, MOST_TOKENS), cut=cut))
