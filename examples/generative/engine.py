# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Continuous batching (Yu et al. 2022, section 4): answers join and leave between two steps.

When the pool of keys and values is spent, the answer that joined last gives its blocks back and
waits again; what it had computed is lost, which is what a full cache costs.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from generative.metrics import Metrics
from generative.network import END, TOKENS, Cache, Decoder, Floats, TokenSequence

MOST_WAITING: Final = 256
STOP: Final = "stop"
LENGTH: Final = "length"


class Busy(Exception):
    """Too many requests wait."""


@dataclass(slots=True, eq=False)
class Answer:
    """An answer on its way; ``tokens`` brings each token and then why there is no more."""

    prompt: int
    """Tokens of the prompt."""
    most: int
    bias: Mapping[int, float]
    sequence: TokenSequence
    random: np.random.Generator
    began_s: float = field(default_factory=time.monotonic)
    last_s: float = 0.0
    tokens: asyncio.Queue[int | str] = field(default_factory=asyncio.Queue)
    left: bool = False
    """No client waits for it."""

    @property
    def made(self) -> int:
        """Tokens of the answer so far."""
        return len(self.sequence.tokens) - self.prompt

    def draw(self, logits: Floats) -> int:
        """The next token, at temperature 1."""
        scores = logits.astype(np.float64)
        for token, more in self.bias.items():
            scores[token] += more
        chances = np.exp(scores - scores.max())
        return int(self.random.choice(TOKENS, p=chances / chances.sum()))


@dataclass(slots=True)
class Engine:
    """Runs ``places`` answers at once; others wait in the order in which they came."""

    decoder: Decoder
    cache: Cache
    places: int
    metrics: Metrics
    running: list[Answer] = field(default_factory=list)
    waiting: deque[Answer] = field(default_factory=deque)
    _work: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self, answer: Answer) -> None:
        """Take a request in.

        Raises:
            Busy: too many wait.
        """
        if len(self.waiting) >= MOST_WAITING:
            raise Busy
        self.waiting.append(answer)
        self._work.set()

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._work.wait()
            for answer in [one for one in self.running if one.left]:
                self._end(answer)
            await self._join()
            if self.running:
                await self._step()
            self.metrics.look(len(self.running), len(self.waiting), self.cache.used)
            if not self.running and not self.waiting:
                self._work.clear()

    async def _join(self) -> None:
        """Read the prompts of those for whom there is a place and room."""
        while self.waiting and len(self.running) < self.places:
            answer = self.waiting[0]
            if not answer.left and not answer.sequence.grow(self.cache):
                return
            self.waiting.popleft()
            if answer.left:
                continue
            self.running.append(answer)
            logits = await asyncio.to_thread(self.decoder.read, self.cache, answer.sequence)
            self._take(answer, logits)

    async def _step(self) -> None:
        """One token for each."""
        for answer in list(self.running):
            while answer in self.running and not answer.sequence.grow(self.cache):
                last = self.running.pop()
                last.sequence.give_back(self.cache)
                self.waiting.appendleft(last)
        if self.running:
            now = list(self.running)
            sequences = [one.sequence for one in now]
            logits = await asyncio.to_thread(self.decoder.step, self.cache, sequences)
            for answer, row in zip(now, logits, strict=True):
                self._take(answer, row)

    def _take(self, answer: Answer, logits: Floats) -> None:
        token, now = answer.draw(logits), time.monotonic()
        if token == END and answer.made:
            self._end(answer, STOP)
            return
        answer.sequence.tokens.append(token % END)
        answer.tokens.put_nowait(token % END)
        if answer.last_s:
            self.metrics.between.observe(now - answer.last_s)
        else:
            self.metrics.first.observe(now - answer.began_s)
        answer.last_s = now
        if answer.made >= answer.most:
            self._end(answer, LENGTH)

    def _end(self, answer: Answer, why: str = STOP) -> None:
        self.running.remove(answer)
        answer.sequence.give_back(self.cache)
        answer.tokens.put_nowait(why)
        if not answer.left:
            self.metrics.whole.observe(time.monotonic() - answer.began_s)
