# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A network with one hidden layer, its loss and the gradient of the loss, by hand.

All parameters lie in one flat vector, so that everything done to them as a whole (averaging over
ranks, saving, momentum) is one line. Nothing here keeps state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from digits.data import CLASSES, PIXELS, Floats, Labels

INIT_SEED_STREAM: Final = 1


class Layers(NamedTuple):
    """Views into a flat vector: weights and biases of both layers."""

    w1: Floats
    b1: Floats
    w2: Floats
    b2: Floats


@dataclass(frozen=True, slots=True)
class Network:
    """pixels -> ``hidden`` rectified units -> one score per digit."""

    hidden: int

    @property
    def size(self) -> int:
        """Number of parameters."""
        return PIXELS * self.hidden + self.hidden + self.hidden * CLASSES + CLASSES

    def layers(self, theta: Floats) -> Layers:
        """The parameters in ``theta`` (size,) by layer; writing to them writes to ``theta``."""
        ends = np.cumsum([PIXELS * self.hidden, self.hidden, self.hidden * CLASSES])
        w1, b1, w2, b2 = np.split(theta, ends)
        return Layers(w1.reshape(PIXELS, self.hidden), b1, w2.reshape(self.hidden, CLASSES), b2)

    def initial(self, seed: int) -> Floats:
        """Random weights with the variance 2 / inputs that suits rectified units (He et al.)."""
        random = np.random.default_rng((seed, INIT_SEED_STREAM))
        theta = np.zeros(self.size)
        layers = self.layers(theta)
        layers.w1[:] = random.normal(0.0, np.sqrt(2 / PIXELS), layers.w1.shape)
        layers.w2[:] = random.normal(0.0, np.sqrt(2 / self.hidden), layers.w2.shape)
        return theta

    def scores(self, theta: Floats, images: Floats) -> Floats:
        """Log-probability of each digit: images (n, 64) -> (n, 10)."""
        w1, b1, w2, b2 = self.layers(theta)
        return _log_softmax(np.maximum(images @ w1 + b1, 0.0) @ w2 + b2)

    def loss_and_gradient(
        self, theta: Floats, images: Floats, labels: Labels
    ) -> tuple[float, Floats]:
        """Cross-entropy *summed* over the images, and its gradient (size,).

        A sum, because sums over parts of a batch add up to that of the whole batch.
        """
        w1, b1, w2, b2 = self.layers(theta)
        active = np.maximum(images @ w1 + b1, 0.0)
        scores = _log_softmax(active @ w2 + b2)
        rows = np.arange(len(labels))
        loss = -float(scores[rows, labels].sum())

        error = np.exp(scores)
        error[rows, labels] -= 1.0  # d loss / d logits
        hidden_error = (error @ w2.T) * (active > 0.0)
        gradient = np.empty(self.size)
        slots = self.layers(gradient)
        np.matmul(images.T, hidden_error, out=slots.w1)
        slots.b1[:] = hidden_error.sum(axis=0)
        np.matmul(active.T, error, out=slots.w2)
        slots.b2[:] = error.sum(axis=0)
        return loss, gradient

    def accuracy(self, theta: Floats, images: Floats, labels: Labels) -> float:
        """Fraction of the images that are read right."""
        return float((self.scores(theta, images).argmax(axis=1) == labels).mean())


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=1, keepdims=True)  # against overflow; changes nothing else
    result: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result
