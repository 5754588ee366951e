# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One optimiser step after the other, alone or as one of several ranks.

Batches and noise are drawn from the seed and the number of the step, never from a generator that
lives on: so a resumed run does exactly what an uninterrupted one does, and every rank knows the
whole batch of which it computes its part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from digits.data import Digits, Floats, Labels
from digits.network import Network
from digits.plan import LEARNING_RATE, MOMENTUM, NOISE, WEIGHT_DECAY, Plan

BATCH_SEED_STREAM: Final = 2


class Group(Protocol):
    """The ranks that train one network together."""

    @property
    def rank(self) -> int:
        """Which one this is; 0 writes checkpoints."""
        ...

    @property
    def world(self) -> int:
        """How many there are."""
        ...

    def sum(self, vector: Floats) -> Floats:
        """Sum over all ranks, the same bits on each."""
        ...


@dataclass(frozen=True, slots=True)
class Alone:
    """A group of one."""

    rank: int = 0
    world: int = 1

    def sum(self, vector: Floats) -> Floats:
        """The vector itself."""
        return vector


@dataclass(slots=True, kw_only=True)
class State:
    """All that a run must remember: ``step`` steps are done, both vectors have (size,)."""

    step: int
    theta: Floats
    velocity: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What one step says: mean loss of its batch, and whether any rank was told to stop."""

    loss: float
    stop: bool


class Trainer:
    """Carries a state through the steps of a plan."""

    def __init__(self, plan: Plan, digits: Digits, group: Group | None = None) -> None:
        self.plan = plan
        self.digits = digits
        self.group = group or Alone()
        self.network = Network(plan.hidden)
        theta = self.network.initial(plan.seed)
        self.state = State(step=0, theta=theta, velocity=np.zeros_like(theta))

    @property
    def finished(self) -> bool:
        """Whether every step of the plan is done."""
        return self.state.step >= self.plan.steps

    def advance(self, *, stop: bool = False) -> Progress:
        """Do one step: own part of the batch, sum over the ranks, momentum, decaying rate.

        Args:
            stop: Whether this rank was told to stop. It travels with the gradient, so that all
                ranks learn of it after the same step.
        """
        state, size = self.state, self.network.size
        images, labels = self._part_of_batch()
        message = np.empty(size + 2)
        message[size], message[:size] = self.network.loss_and_gradient(state.theta, images, labels)
        message[size + 1] = stop
        total = self.group.sum(message)

        gradient = total[:size] / self.plan.batch + WEIGHT_DECAY * state.theta
        rate = LEARNING_RATE * (1.0 - state.step / self.plan.steps)
        state.velocity *= MOMENTUM
        state.velocity -= rate * gradient
        state.theta += state.velocity
        state.step += 1
        return Progress(loss=float(total[size]) / self.plan.batch, stop=bool(total[size + 1] > 0))

    def accuracy(self) -> float:
        """Fraction of the held-out images that are read right."""
        digits = self.digits
        return self.network.accuracy(self.state.theta, digits.test_images, digits.test_labels)

    def _part_of_batch(self) -> tuple[Floats, Labels]:
        """Every ``world``-th image of this step's batch, with noise."""
        random = np.random.default_rng((self.plan.seed, BATCH_SEED_STREAM, self.state.step))
        chosen = random.integers(len(self.digits.train_labels), size=self.plan.batch)
        images = self.digits.train_images[chosen]
        images += random.normal(0.0, NOISE, images.shape)
        mine = slice(self.group.rank, None, self.group.world)
        return images[mine], self.digits.train_labels[chosen[mine]]
