# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Trains in tiers, one member of several: ``python -m digits.tiered``.

Ten linear models, one for each digit, are the shards of the state: the owner of a shard computes
with it and changes it, and all add up what they have in every step. Members come and go; the result
is the same to the last bit, because every sum runs in the order of the digits.

Exit codes: 0 finished, or its part has moved; 75 the state is lost, begin from the checkpoint; 2 a
setting cannot be used; 1 anything else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

import ullage_run
from digits import data
from digits.checkpoint import CheckpointUnusable, read, write
from digits.data import CLASSES, PIXELS, Floats
from digits.plan import LEARNING_RATE, BadSetting, Plan
from ullage_run.frames import Buffer, Ending
from ullage_run.group import Group

TRY_AGAIN: Final = 75
_STEM: Final = "tiered"
_ONE: Final = 1 + PIXELS
"""Weights of one digit: a constant and one for each pixel."""

Gather = Callable[[bytes], Mapping[str, bytes]]


class Model:
    """The digits whose weights this member owns; the state that a group keeps."""

    def __init__(self, plan: Plan, digits: data.Digits) -> None:
        self._plan = plan
        self._digits = digits
        self._weights: dict[int, Floats] = {}
        self.at_step = newest(plan.checkpoint_dir)
        """After which the weights hold that a program begins with."""

    def values(self, shard: int) -> Buffer:
        """Bytes of a digit's weights."""
        return self._weights[shard].tobytes()

    def take(self, shard: int, given: Buffer | None) -> None:
        """Own a digit: with these weights, those of the checkpoint, or zeros."""
        if given is not None:
            self._weights[shard] = np.frombuffer(given, np.float64).copy()
        elif self.at_step:
            file = _file(self._plan.checkpoint_dir, self.at_step, shard)
            self._weights[shard] = read(file, "weights")["weights"]
        else:
            self._weights[shard] = np.zeros(_ONE)

    def drop(self, shard: int) -> None:
        """Own a digit no more."""
        del self._weights[shard]

    def train(self, step: int, gather: Gather) -> float:
        """One step of all members; returns the loss. Nothing changes before all have given."""
        rows = np.random.default_rng((self._plan.seed, step)).integers(
            0, len(self._digits.train_labels), self._plan.batch
        )
        images, labels = self._digits.train_images[rows], self._digits.train_labels[rows]
        chances = _chances(self._scores(images, gather))
        for digit, weights in self._weights.items():
            wrong = (chances[digit] - (labels == digit)) / len(labels)
            weights[0] -= LEARNING_RATE * wrong.sum()
            weights[1:] -= LEARNING_RATE * (wrong @ images)
        right = chances[labels, np.arange(len(labels))]
        return float(-np.log(np.maximum(right, 1e-12)).mean())

    def accuracy(self, gather: Gather) -> float:
        """Part of the held-out images that all members together read right."""
        read_as = self._scores(self._digits.test_images, gather).argmax(axis=0)
        return float((read_as == self._digits.test_labels).mean())

    def save(self, step: int) -> None:
        """Write what this member owns; a checkpoint is whole when all have."""
        self._plan.checkpoint_dir.mkdir(parents=True, exist_ok=True)
        folder, before = self._plan.checkpoint_dir, step - 2 * self._plan.checkpoint_every
        for digit, weights in self._weights.items():
            write(_file(folder, step, digit), weights=weights)
            _file(folder, before, digit).unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove the checkpoints of a finished run, so that the next one starts afresh."""
        for file in self._plan.checkpoint_dir.glob(f"{_STEM}-*-*.npz"):
            file.unlink(missing_ok=True)

    def _scores(self, images: Floats, gather: Gather) -> Floats:
        """One row for each digit, from its owner."""
        mine = b"".join(
            bytes([digit]) + (images @ weights[1:] + weights[0]).tobytes()
            for digit, weights in sorted(self._weights.items())
        )
        size = 1 + 8 * len(images)
        found = np.zeros((CLASSES, len(images)))
        for part in gather(mine).values():
            for at in range(0, len(part), size):
                found[part[at]] = np.frombuffer(part[at + 1 : at + size], np.float64)
        return found


def newest(folder: Path) -> int:
    """The last step of which a checkpoint has all digits; 0 = none."""
    steps: dict[int, int] = {}
    for file in folder.glob(f"{_STEM}-*-*.npz"):
        step = int(file.name.split("-")[1])
        steps[step] = steps.get(step, 0) + 1
    return max((step for step, count in steps.items() if count == CLASSES), default=0)


def main() -> int:
    """Train until the last step, or until others have this member's part."""
    ullage_run.watch_sigterm()
    try:
        plan = Plan.from_environment(os.environ)
        if os.environ.get("ULLAGE_SHARDS") != str(CLASSES):
            raise BadSetting(f"elasticity.backup.shards must be {CLASSES}: one for each digit")
        model = Model(plan, data.load())
        group = Group.join(model, at_step=model.at_step)
    except (BadSetting, CheckpointUnusable, data.DataMissing, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    told = False

    def train(step: int) -> None:
        nonlocal told
        if not told:  # who joins later begins where the others are
            print(f"begins at step {step}", flush=True)
            told = True
        # what nothing may change before the last gathering comes first
        accuracy = model.accuracy(group.gather) if step == plan.steps else None
        loss = model.train(step, group.gather)
        ullage_run.step()
        if step % plan.checkpoint_every == 0:
            model.save(step)
            print(
                f"step {step} loss {loss:.6f} members {len(group.assignment.members)}", flush=True
            )
        if accuracy is not None:
            print(f"test accuracy {accuracy:.4f}", flush=True)

    ending = group.run(train, until=plan.steps)
    group.close()
    if ending is Ending.FINISHED:
        model.discard()
    if ending is Ending.MOVED and group.shards:  # all go: what each owns is of one step
        model.save(group.step)
        print(f"saved at step {group.step}", flush=True)
    print(f"ended: {ending.name}", flush=True)
    return TRY_AGAIN if ending is Ending.STATE_LOST else 0


def _file(folder: Path, step: int, digit: int) -> Path:
    return folder / f"{_STEM}-{step}-{digit}.npz"


def _chances(scores: Floats) -> Floats:
    raised: Floats = np.exp(scores - scores.max(axis=0))
    chances: Floats = raised / raised.sum(axis=0)
    return chances


if __name__ == "__main__":
    sys.exit(main())
