# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The decoder: bytes in, bytes out, one token a step. Weights are random; only their cost matters.

Keys and values of all sequences lie in one pool of blocks, as in vLLM (Kwon et al. 2023, section
4), so a sequence takes memory as it grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

WIDTH: Final = 128
HEADS: Final = 4
LAYERS: Final = 3
INNER: Final = 4 * WIDTH
END: Final = 256
"""The token that ends an answer; the others are bytes."""
TOKENS: Final = END + 1
LONGEST: Final = 1024
"""Tokens of a prompt and its answer at most."""
BLOCK: Final = 16
"""Tokens of a block of the pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Weights of one block: attention, with queries, keys and values in one, and feed-forward."""

    attend: Floats
    out: Floats
    up: Floats
    down: Floats


@dataclass(slots=True, eq=False)
class Cache:
    """A pool of blocks of keys and values, shape (LAYERS, 2, blocks, BLOCK, WIDTH)."""

    blocks: int
    pool: Floats = field(init=False)
    free: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.pool = np.zeros((LAYERS, 2, self.blocks, BLOCK, WIDTH), dtype=np.float32)
        self.free = list(range(self.blocks))

    @property
    def used(self) -> float:
        """The part that is used, 0 to 1."""
        return 1 - len(self.free) / self.blocks


@dataclass(slots=True, eq=False)
class TokenSequence:
    """Tokens of a prompt and its answer so far, and the blocks that hold those that were seen."""

    tokens: list[int]
    blocks: list[int] = field(default_factory=list)
    seen: int = 0

    def grow(self, cache: Cache) -> bool:
        """Take the blocks that its tokens need; ``False`` = the pool has too few."""
        need = -(-len(self.tokens) // BLOCK) - len(self.blocks)
        if need > len(cache.free):
            return False
        self.blocks += [cache.free.pop() for _ in range(need)]
        return True

    def give_back(self, cache: Cache) -> None:
        """Free its blocks: what was seen must be computed again."""
        cache.free += self.blocks
        self.blocks, self.seen = [], 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Weights; ``tokens`` of shape (TOKENS, WIDTH), ``places`` of shape (LONGEST, WIDTH)."""

    tokens: Floats
    places: Floats
    layers: tuple[Layer, ...]

    def read(self, cache: Cache, one: TokenSequence) -> Floats:
        """See all tokens of one sequence that it has not seen; logits of the next, (TOKENS,)."""
        first, last = one.seen, len(one.tokens)
        rows = (np.array(one.blocks)[:, None] * BLOCK + np.arange(BLOCK)).ravel()[:last]
        x = self.tokens[one.tokens[first:]] + self.places[first:last]
        mask = np.arange(last)[None, :] > np.arange(first, last)[:, None]
        for number, layer in enumerate(self.layers):
            flat = cache.pool[number].reshape(2, -1, WIDTH)
            queries, keys, values = np.split(_normal(x) @ layer.attend, 3, axis=-1)
            flat[0, rows[first:]], flat[1, rows[first:]] = keys, values
            x = x + _attention(queries, flat[0, rows], flat[1, rows], mask) @ layer.out
            x = x + _gelu(_normal(x) @ layer.up) @ layer.down
        one.seen = last
        found: Floats = _normal(x[-1]) @ self.tokens.T
        return found

    def step(self, cache: Cache, many: Sequence[TokenSequence]) -> Floats:
        """See the newest token of each sequence; logits of the next, shape (sequences, TOKENS)."""
        places = np.array([len(one.tokens) - 1 for one in many])
        x = self.tokens[[one.tokens[-1] for one in many]] + self.places[places]
        rows = [
            (np.array(one.blocks)[:, None] * BLOCK + np.arange(BLOCK)).ravel()[: len(one.tokens)]
            for one in many
        ]
        newest = np.array([row[-1] for row in rows])
        for number, layer in enumerate(self.layers):
            flat = cache.pool[number].reshape(2, -1, WIDTH)
            queries, keys, values = np.split(_normal(x) @ layer.attend, 3, axis=-1)
            flat[0, newest], flat[1, newest] = keys, values
            mixed = [
                _attention(queries[at][None], flat[0, row], flat[1, row], None)[0]
                for at, row in enumerate(rows)
            ]
            x = x + np.stack(mixed) @ layer.out
            x = x + _gelu(_normal(x) @ layer.up) @ layer.down
        for one in many:
            one.seen = len(one.tokens)
        found: Floats = _normal(x) @ self.tokens.T
        return found


def made(seed: int) -> Decoder:
    """A decoder; the same seed gives the same weights."""
    random = np.random.default_rng(seed)

    def weights(rows: int, columns: int) -> Floats:
        drawn: Floats = (random.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)
        return drawn

    return Decoder(
        tokens=weights(TOKENS, WIDTH) * np.float32(np.sqrt(TOKENS / WIDTH)),
        places=weights(LONGEST, WIDTH),
        layers=tuple(
            Layer(
                attend=weights(WIDTH, 3 * WIDTH),
                out=weights(WIDTH, WIDTH),
                up=weights(WIDTH, INNER),
                down=weights(INNER, WIDTH),
            )
            for _ in range(LAYERS)
        ),
    )


def _attention(
    queries: Floats, keys: Floats, values: Floats, mask: NDArray[np.bool_] | None
) -> Floats:
    """Multi-head attention (Vaswani et al. 2017, section 3.2); where ``mask`` is, nothing is seen.

    Queries of shape (asked, WIDTH), keys and values of shape (seen, WIDTH).
    """
    per_head = WIDTH // HEADS
    asked = queries.reshape(-1, HEADS, per_head).swapaxes(0, 1)
    held = keys.reshape(-1, HEADS, per_head).transpose(1, 2, 0)
    scores = asked @ held / np.float32(np.sqrt(per_head))
    if mask is not None:
        scores = np.where(mask, np.float32(-1e9), scores)
    chances = np.exp(scores - scores.max(axis=-1, keepdims=True))
    chances /= chances.sum(axis=-1, keepdims=True)
    joined: Floats = (chances @ values.reshape(-1, HEADS, per_head).swapaxes(0, 1)).swapaxes(0, 1)
    return joined.reshape(-1, WIDTH)


def _normal(x: Floats) -> Floats:
    """Layer normalisation without learned scale."""
    centred = x - x.mean(axis=-1, keepdims=True)
    found: Floats = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(1e-5))
    return found


def _gelu(x: Floats) -> Floats:
    """The tanh form of GELU (Hendrycks and Gimpel 2016, section 2)."""
    found: Floats = 0.5 * x * (1 + np.tanh(np.float32(0.79788456) * (x + 0.044715 * x**3)))
    return found
