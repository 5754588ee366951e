# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Learns the times for which requests hold a place of a generative server; builds the chooser.

Three things are learned: tokens of answers by application and model, which are valid on any device;
and for one device at one share the time to the first token by the length of the prompt, and the
time between tokens by the number of requests that a replica runs.
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
"""Most models, by application, with their own statistics; later ones share a common one."""
ALL: Final = ("", "")
PROMPTS: Final = 32
"""Powers of two of prompts' bytes with their own statistics."""
SAMPLES: Final = 1024
UNKNOWN_TOKENS: Final = 256
"""Assumed tokens of an answer while none was seen and the request has no bound."""
LEAST_TOKENS: Final = 4
"""Minimum tokens of an answer for the time between tokens."""
FORGET: Final = 0.99
"""Factor on the weight of old times between tokens with each new answer."""
PARTS: Final = 200
"""Quantiles of a token distribution from which a time distribution is computed."""
FIRST_RATE: Final = 1.0
"""b of the score, per second, before any place was held."""


@dataclass(slots=True)
class AnswerLengths:
    """Tokens of answers by application and model, by application, and of all."""

    known: Mapping[tuple[str, str], OutputTokens] = field(default_factory=dict)
    _windows: dict[tuple[str, str], TokenWindow] = field(default_factory=dict)
    _new: int = 0

    def add(self, key: GenerationKey, tokens: int, *, cut: bool) -> None:
        """Add an answer; ``cut`` = it was truncated."""
        self._new += 1
        for name in ((key.app, key.model), (key.app, ""), ALL):
            if name in self._windows or len(self._windows) < MODELS or name == ALL:
                self._windows.setdefault(name, TokenWindow()).add(tokens, cut=cut)

    def named(self, key: GenerationKey) -> GenerationKey:
        """The key without its model, unless answers of that model were seen."""
        return key if (key.app, key.model) in self._windows else replace(key, model="")

    def of(self, key: GenerationKey) -> OutputTokens | None:
        """The distribution of the most similar answers; ``None`` = too few were seen."""
        known = self.known
        return known.get((key.app, key.model)) or known.get((key.app, "")) or known.get(ALL)

    def seen(self) -> dict[tuple[str, str], tuple[TokenCount, ...]] | None:
        """All observations, if there are enough and some are new."""
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
    """Most concurrent requests of a replica seen so far."""

    def add(self, running: int, between_s: float) -> None:
        """Add the mean time between tokens of an answer beside ``running - 1`` others."""
        if not 0 < between_s < math.inf:
            return
        new = (1.0, running, running * running, between_s, running * between_s)
        self._sums = [FORGET * old + term for old, term in zip(self._sums, new, strict=True)]
        self.most_seen = max(self.most_seen, running)

    @property
    def known(self) -> bool:
        """True if there are observations."""
        return self._sums[0] > 0

    def line(self) -> tuple[float, float]:
        """Coefficients a and b, at least 0; flat while only one number of requests was seen."""
        count, r, rr, s, rs = self._sums
        if not count:
            return 0.0, 0.0
        spread = rr - r * r / count
        slope = (rs - r * s / count) / spread if spread > 1e-6 * rr else 0.0
        slope = min(max(slope, 0.0), s / r)
        return (s - slope * r) / count, slope

    def between_s(self, running: int) -> float:
        """Predicted time between tokens, seconds; 0 = unknown."""
        fixed, each = self.line()
        return fixed + each * running

    def most_within(self, limit_s: float, most: int) -> int:
        """Most requests of a replica that keep the time between tokens within a limit; at least 1.

        The line is extrapolated by one request only.
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
    """Most concurrent requests of a replica."""
    chooser: GenerativeChooser = field(init=False)
    pace: TokenPace = field(init=False, default_factory=TokenPace)
    single_s: float = field(init=False, default=0.0)
    """Mean time that a place is held, seconds; 0 = unknown."""
    _first: dict[int, deque[float]] = field(init=False, default_factory=dict)
    _known: dict[int, TimeHistogram] = field(init=False, default_factory=dict)
    """Times to the first token by the power of two of the prompt's bytes; -1 = all."""
    _prospects: dict[str, Prospect | None] = field(init=False, default_factory=dict)
    _new: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.chooser = self._made(FIRST_RATE)

    def knows(self, key: str) -> bool:
        """True: no request needs to run alone to be measured."""
        return True

    def add(self, keys: Sequence[str], batch_s: float) -> None:
        """Do nothing: other requests hold their places too briefly to be measured."""

    def first(self, key: GenerationKey, seconds: float) -> None:
        """Add the time from start to first token of a request."""
        if 0 < seconds < math.inf:
            self._new += 1
            for bits in (min(key.prompt_bits, PROMPTS), -1):
                self._first.setdefault(bits, deque(maxlen=SAMPLES)).append(seconds)

    def pace_of(self, tokens: int, beside: int, still: int, between_s: float) -> None:
        """Add the mean time between the tokens of an answer, by its replica's load.

        Args:
            tokens: Tokens of the answer.
            beside: Requests that the replica ran when it began, itself included.
            still: The same when it ended.
            between_s: Mean time between tokens, seconds.
        """
        if tokens >= LEAST_TOKENS:
            self.pace.add(max(1, round((beside + still) / 2)), between_s)

    def prospect(self, text: str) -> Prospect | None:
        """The expectation of requests of this key; ``None`` = too few observations."""
        if text not in self._prospects:
            key = GenerationKey.read(text)
            self._prospects[text] = None if key is None else self._prospect(key)
        return self._prospects[text]

    def remaining_s(self, key: GenerationKey, had: int) -> float:
        """Predicted remaining time of a place for an answer with so many tokens, seconds."""
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
        """None: no answer is long enough to count as hanging."""
        return None

    def rate_per_s(self) -> float:
        """Approximate requests per second of a replica; 0 = unknown."""
        return self.places / self.single_s if self.single_s else 0.0

    async def learn(self, waiting: Collection[str]) -> None:
        """Build a chooser from the observations; slow parts run in a thread."""
        seen = self.lengths.seen()
        if seen:
            self.lengths.known = await asyncio.to_thread(_distributions, seen)
        if seen or self._new:
            self._new = 0
            samples = {bits: tuple(window) for bits, window in self._first.items()}
            self._known = await asyncio.to_thread(_histograms, samples)
            self.single_s = self._mean_place_s()
            # A skipped request waits about as long as a place is held.
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
    """Times to the end of an answer: the mean time to its first token, plus its other tokens."""
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
