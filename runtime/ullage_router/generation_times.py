# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Learns how long requests hold a place of a generative server, and makes the chooser of it.

Three things are learned: tokens of answers by application and model, which hold on any device; and
on one device at one share the time to the first token by the length of the prompt, and the time
between tokens by the number of requests that a replica runs.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from ullage.engines.batching.chooser import BatchRules
from ullage.engines.batching.generative_order import GenerativeChooser, Prospect
from ullage.engines.batching.histogram import LEAST_SAMPLES, TimeHistogram
from ullage.engines.batching.output_tokens import MOST_TOKENS, OutputTokens, TokenCount, TokenWindow
from ullage_router.generation import GenerationKey

MODELS: Final = 32
"""Models, by application, whose answers are kept apart; later ones share those of all."""
ALL: Final = ("", "")
PROMPTS: Final = 32
"""Powers of two of prompts' bytes that are kept apart."""
SAMPLES: Final = 1024
UNKNOWN_TOKENS: Final = 256
"""Tokens of an answer while none was seen and the request names no bound."""
LEAST_TOKENS: Final = 4
"""An answer with fewer says little of the time between tokens."""
FORGET: Final = 0.99
"""Weight that what was seen of the time between tokens keeps with each new answer."""
PARTS: Final = 200
"""Quantiles of a distribution of tokens that a distribution of times is made of."""
FIRST_RATE: Final = 1.0
"""b of the score, per second, while no place was held yet."""


@dataclass(slots=True)
class AnswerLengths:
    """Tokens of answers by application and model, by application, and of all."""

    known: Mapping[tuple[str, str], OutputTokens] = field(default_factory=dict)
    _windows: dict[tuple[str, str], TokenWindow] = field(default_factory=dict)
    _new: int = 0

    def add(self, key: GenerationKey, tokens: int, *, cut: bool) -> None:
        """Take an answer in; ``cut`` where it would have gone on."""
        self._new += 1
        for name in ((key.app, key.model), (key.app, ""), ALL):
            if name in self._windows or len(self._windows) < MODELS or name == ALL:
                self._windows.setdefault(name, TokenWindow()).add(tokens, cut=cut)

    def named(self, key: GenerationKey) -> GenerationKey:
        """The key without its model, unless answers of that model were seen."""
        return key if (key.app, key.model) in self._windows else replace(key, model="")

    def of(self, key: GenerationKey) -> OutputTokens | None:
        """The distribution of those that are most alike; ``None`` = too few were seen."""
        known = self.known
        return known.get((key.app, key.model)) or known.get((key.app, "")) or known.get(ALL)

    def seen(self) -> dict[tuple[str, str], tuple[TokenCount, ...]] | None:
        """All that was seen, where there is enough of it and some of it is new."""
        if not self._new:
            return None
        self._new = 0
        windows = self._windows.items()
        return {
            name: tuple(window.seen)
            for name, window in windows
            if len(window.seen) >= LEAST_SAMPLES
        }


@dataclass(slots=True)
class TokenPace:
    """The time between tokens as a + b * r of r requests: least squares, the newest weigh most."""

    _sums: list[float] = field(default_factory=lambda: [0.0] * 5)
    most_seen: int = 0
    """Requests that a replica ran at most, of those that were seen."""

    def add(self, running: int, between_s: float) -> None:
        """Take in the mean time between tokens of an answer beside ``running - 1`` others."""
        if not 0 < between_s < math.inf:
            return
        new = (1.0, running, running * running, between_s, running * between_s)
        self._sums = [FORGET * old + term for old, term in zip(self._sums, new, strict=True)]
        self.most_seen = max(self.most_seen, running)

    @property
    def known(self) -> bool:
        """True if anything was seen."""
        return self._sums[0] > 0

    def line(self) -> tuple[float, float]:
        """Both, neither below 0; flat while only one number of requests was seen."""
        count, r, rr, s, rs = self._sums
        if not count:
            return 0.0, 0.0
        spread = rr - r * r / count
        slope = (rs - r * s / count) / spread if spread > 1e-6 * rr else 0.0
        slope = min(max(slope, 0.0), s / r)
        return (s - slope * r) / count, slope

    def between_s(self, running: int) -> float:
        """Predicted time between tokens, seconds; 0 while nothing is known."""
        fixed, each = self.line()
        return fixed + each * running

    def most_within(self, limit_s: float, most: int) -> int:
        """Requests that a replica may run so that a token comes within a limit; 1 at least.

        Beyond what was seen the line is trusted for one request more only.
        """
        if not self.known:
            return most
        fixed, each = self.line()
        if fixed + each * self.most_seen <= limit_s:
            fits = self.most_seen + 1
            if each > 0:
                fits = min(fits, int((limit_s - fixed) / each))
        else:
            fits = int((limit_s - fixed) / each) if each > 0 else 1
        return max(1, min(most, fits))


@dataclass(slots=True, kw_only=True)
class GenerationTimes:
    """Measurements of a model on one device at one share; ``chooser`` is replaced as a whole."""

    rules: BatchRules
    lengths: AnswerLengths
    places: int
    """Requests that a replica runs at most."""
    chooser: GenerativeChooser = field(init=False)
    pace: TokenPace = field(init=False, default_factory=TokenPace)
    single_s: float = field(init=False, default=0.0)
    """Mean time that a place is held, seconds; 0 while it is not known."""
    _first: dict[int, deque[float]] = field(init=False, default_factory=dict)
    _known: dict[int, TimeHistogram] = field(init=False, default_factory=dict)
    """Times to the first token by the power of two of the prompt's bytes; -1 = of all."""
    _prospects: dict[str, Prospect | None] = field(init=False, default_factory=dict)
    _new: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.chooser = self._made(FIRST_RATE)

    def knows(self, key: str) -> bool:
        """Nothing need run alone to be learned."""
        return True

    def add(self, keys: Sequence[str], batch_s: float) -> None:
        """Other requests than for text hold their places too briefly to be learned."""

    def first(self, key: GenerationKey, seconds: float) -> None:
        """Take in the time from start to first token of a request."""
        if 0 < seconds < math.inf:
            self._new += 1
            for bits in (min(key.prompt_bits, PROMPTS), -1):
                self._first.setdefault(bits, deque(maxlen=SAMPLES)).append(seconds)

    def pace_of(self, tokens: int, beside: int, still: int, between_s: float) -> None:
        """Take in the mean time between the tokens of an answer, by what its replica ran.

        Args:
            tokens: Of the answer.
            beside: Requests that the replica ran when it began, itself among them.
            still: The same when it ended.
            between_s: Mean time between tokens, seconds.
        """
        if tokens >= LEAST_TOKENS:
            self.pace.add(max(1, round((beside + still) / 2)), between_s)

    def prospect(self, text: str) -> Prospect | None:
        """The expectation of requests of this key; ``None`` = too little was seen."""
        if text not in self._prospects:
            key = GenerationKey.read(text)
            self._prospects[text] = None if key is None else self._prospect(key)
        return self._prospects[text]

    def remaining_s(self, key: GenerationKey, had: int) -> float:
        """Predicted time that a place is still held by an answer of so many tokens, seconds."""
        most = key.most_tokens or MOST_TOKENS
        known = self.lengths.of(key)
        if known is None:
            left: float = max(1, (key.most_tokens or max(UNKNOWN_TOKENS, 2 * had)) - had)
        else:
            left = known.remaining(had, most)
        return left * (self.pace.between_s(self.places) or 1.0)

    def predicted_s(self, keys: Sequence[str]) -> float | None:
        """Predicted time that a place is held, seconds."""
        key = GenerationKey.read(keys[0])
        return None if key is None else self.remaining_s(key, 0)

    def worst_s(self, keys: Sequence[str]) -> float | None:
        """No answer is so long that it must be hanging."""
        return None

    def rate_per_s(self) -> float:
        """Requests per second of a replica, roughly; 0 while nothing is known."""
        return self.places / self.single_s if self.single_s else 0.0

    async def learn(self, waiting: Collection[str]) -> None:
        """Make a chooser of what was seen; what takes time is done in a thread."""
        seen = self.lengths.seen()
        if seen:
            self.lengths.known = await asyncio.to_thread(_distributions, seen)
        if seen or self._new:
            self._new = 0
            samples = {bits: tuple(window) for bits, window in self._first.items()}
            self._known = await asyncio.to_thread(_histograms, samples)
            self.single_s = self._mean_place_s()
            # A request that is passed over waits for about as long as a place is held.
            self.chooser = self._made(1.0 / self.single_s if self.single_s else FIRST_RATE)
        self._prospects = {}

    def _made(self, rate_per_s: float) -> GenerativeChooser:
        return GenerativeChooser(
            policy=self.rules.policy,
            prospect=self.prospect,
            rate_per_s=rate_per_s,
            drop_threshold=self.rules.drop_threshold,
        )

    def _mean_place_s(self) -> float:
        tokens, first = self.lengths.known.get(ALL), self._known.get(-1)
        if tokens is None or first is None:
            return 0.0
        return first.mean_s + (tokens.mean() - 1) * self.pace.between_s(self.places)

    def _prospect(self, key: GenerationKey) -> Prospect | None:
        first = self._known.get(min(key.prompt_bits, PROMPTS)) or self._known.get(-1)
        tokens = self.lengths.of(key)
        if first is None or tokens is None:
            return None
        tokens = tokens.capped(key.most_tokens) if key.most_tokens else tokens
        between_s = self.pace.between_s(self.places)
        place_s = first.mean_s + (tokens.mean() - 1) * between_s
        due = _ends(first, tokens, between_s) if key.whole else first
        return Prospect(due=due, place_s=place_s)


def _ends(first: TimeHistogram, tokens: OutputTokens, between_s: float) -> TimeHistogram:
    """Times to the end of an answer: the mean time to its first token, and its other tokens."""
    at = (np.arange(PARTS) + 0.5) / PARTS
    place = np.searchsorted(np.cumsum(tokens.parts), at).clip(max=tokens.counts.size - 1)
    return TimeHistogram.of(first.mean_s + (tokens.counts[place] - 1) * between_s)


def _distributions(
    seen: Mapping[tuple[str, str], Sequence[TokenCount]],
) -> dict[tuple[str, str], OutputTokens]:
    return {name: OutputTokens.of(counts) for name, counts in seen.items()}


def _histograms(samples: Mapping[int, Sequence[float]]) -> dict[int, TimeHistogram]:
    enough = {bits: times for bits, times in samples.items() if len(times) >= LEAST_SAMPLES}
    return {bits: TimeHistogram.of(times) for bits, times in enough.items()}
