# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The encoder: texts in, one vector each out. Weights are random, for only their cost matters here.

Rows of a batch are padded to the longest, and padding is masked, so that a text gets the same
vector in any company.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

WIDTH: Final = 256
"""Numbers of a vector."""
HEADS: Final = 8
LAYERS: Final = 4
INNER: Final = 4 * WIDTH
"""Width of the feed-forward layers."""
WORDS: Final = 4096
"""A token is a word, by its hash."""
LONGEST: Final = 128
"""Words of a text; the rest of a longer one is cut off."""
NOTHING: Final = np.float32(-1e9)
"""Score of a place that is masked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Weights of one block: attention, with queries, keys and values in one, and feed-forward."""

    attend: Floats
    out: Floats
    up: Floats
    down: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Weights; ``tokens`` of shape (WORDS, WIDTH), ``places`` of shape (LONGEST, WIDTH)."""

    tokens: Floats
    places: Floats
    layers: tuple[Layer, ...]

    def encode(self, texts: list[str]) -> Floats:
        """Vectors of length 1, shape (texts, WIDTH).

        Args:
            texts: of any length; an empty one has one empty word.
        """
        rows = [[_token(word) for word in text.split()[:LONGEST] or [""]] for text in texts]
        longest = max(map(len, rows))
        real = np.array([[place < len(row) for place in range(longest)] for row in rows])
        padded = np.array([row + [0] * (longest - len(row)) for row in rows])
        x = self.tokens[padded] + self.places[:longest]
        for layer in self.layers:
            x = x + _attention(layer, _normal(x), real)
            x = x + _gelu(_normal(x) @ layer.up) @ layer.down
        pooled = (x * real[..., None]).sum(axis=1) / real.sum(axis=1, keepdims=True)
        found: Floats = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return found


def made(seed: int) -> Encoder:
    """An encoder; the same seed gives the same weights."""
    random = np.random.default_rng(seed)

    def weights(rows: int, columns: int) -> Floats:
        drawn: Floats = (random.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)
        return drawn

    return Encoder(
        tokens=weights(WORDS, WIDTH) * np.float32(np.sqrt(WORDS)),
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


def _token(word: str) -> int:
    return zlib.crc32(word.encode(errors="replace")) % WORDS


def _attention(layer: Layer, x: Floats, real: NDArray[np.bool_]) -> Floats:
    """Multi-head attention (Vaswani et al. 2017, section 3.2) among the real places of each row."""
    rows, length, _ = x.shape
    parts = (x @ layer.attend).reshape(rows, length, 3, HEADS, WIDTH // HEADS)
    queries, keys, values = parts.transpose(2, 0, 3, 1, 4)
    scores = queries @ keys.swapaxes(-1, -2) / np.float32(np.sqrt(WIDTH // HEADS))
    scores = np.where(real[:, None, None, :], scores, NOTHING)
    chances = np.exp(scores - scores.max(axis=-1, keepdims=True))
    chances /= chances.sum(axis=-1, keepdims=True)
    joined: Floats = (chances @ values).swapaxes(1, 2).reshape(rows, length, WIDTH) @ layer.out
    return joined


def _normal(x: Floats) -> Floats:
    """Layer normalisation without learned scale."""
    centred = x - x.mean(axis=-1, keepdims=True)
    found: Floats = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + np.float32(1e-5))
    return found


def _gelu(x: Floats) -> Floats:
    """The tanh form of GELU (Hendrycks and Gimpel 2016, section 2)."""
    found: Floats = 0.5 * x * (1 + np.tanh(np.float32(0.79788456) * (x + 0.044715 * x**3)))
    return found
