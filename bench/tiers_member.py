# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A member of the job that the bench trains, as a user would write it.

The model is a sparse logistic regression with momentum, cut by features: a shard's weights exist in
one member only, so a lost owner is a real loss. Every sum runs in the order of shards, whichever
member owns them: the loss must be equal to the last bit.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage_run.frames import Buffer, Ending
from ullage_run.group import Group
from ullage_run.orders import Identity

SHARDS: Final = 6
STATE_BYTES: Final = 50_000_000
FEATURES: Final = STATE_BYTES // 8 // SHARDS
"""Of one shard: a weight and a momentum of 4 bytes each."""
BATCH: Final = 64
PER_SAMPLE: Final = 48
RATE: Final = 0.2
DECAY: Final = 0.9

Floats = NDArray[np.float32]


def sample(step: int) -> tuple[NDArray[np.int64], Floats]:
    """Features and labels of a step's batch: the same whenever it is done."""
    draw = np.random.default_rng(step)
    features = (SHARDS * FEATURES * draw.random((BATCH, PER_SAMPLE)) ** 6).astype(np.int64)
    planted = np.cos(features * 0.37).sum(axis=1) > 0
    return features, planted.astype(np.float32)


@dataclass(slots=True)
class Shard:
    """Weights and momentum of a range of features, in one piece of memory."""

    number: int
    values: Floats = field(default_factory=lambda: np.zeros((2, FEATURES), np.float32))

    def mine(self, features: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Samples and local features that fall into this shard."""
        rows, columns = np.nonzero(features // FEATURES == self.number)
        return rows, features[rows, columns] - self.number * FEATURES

    def logits(self, step: int) -> Floats:
        """This shard's part of the sums of a batch."""
        rows, local = self.mine(sample(step)[0])
        found = np.zeros(BATCH, np.float32)
        np.add.at(found, rows, self.values[0, local])
        return found

    def apply(self, step: int, residual: Floats) -> None:
        """One step of momentum: every value changes."""
        rows, local = self.mine(sample(step)[0])
        self.values[1] *= DECAY
        np.add.at(self.values[1], local, residual[rows] / BATCH)
        self.values[0] -= RATE * self.values[1]


class Model:
    """The shards that this member owns."""

    def __init__(self, saved: Path | None) -> None:
        self.shards: dict[int, Shard] = {}
        self._saved = saved

    def values(self, shard: int) -> Buffer:
        """Bytes of an owned shard."""
        return self.shards[shard].values.data

    def take(self, shard: int, data: Buffer | None) -> None:
        """Own a shard: with these values, those of the checkpoint, or zeros."""
        self.shards[shard] = Shard(shard)
        if data is not None:
            self.shards[shard].values = np.frombuffer(data, np.float32).reshape(2, FEATURES).copy()
        elif self._saved is not None:
            self.shards[shard].values = np.load(self._saved / f"{shard}.npy")

    def drop(self, shard: int) -> None:
        """Own it no more."""
        del self.shards[shard]

    def logits(self, step: int) -> bytes:
        """Its part of the sums of a batch, shard by shard."""
        return b"".join(
            number.to_bytes(4, "big") + shard.logits(step).tobytes()
            for number, shard in sorted(self.shards.items())
        )


def total(parts: Mapping[str, bytes]) -> Floats:
    """All members' parts in the order of shards."""
    size = 4 + BATCH * 4
    pieces = [part[at : at + size] for part in parts.values() for at in range(0, len(part), size)]
    found = np.zeros(BATCH, np.float32)
    for piece in sorted(pieces, key=lambda one: one[:4]):
        found += np.frombuffer(piece, np.float32, offset=4)
    return found


class Program:
    """What a user would write.

    Args:
        given: The arguments.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self._step_s = float(given.step_seconds)
        self._folder: Path | None = given.folder
        self._save_every = int(given.save_every)
        self._tells = Identity.from_environment().reliable
        self.model = Model(
            None if given.folder is None or not given.at else given.folder / str(given.at)
        )

    def train(self, group: Group, step: int) -> None:
        """One step; what it does not need of its time stands for an accelerator."""
        began = time.monotonic()
        sums = total(group.gather(self.model.logits(step)))
        labels = sample(step)[1]
        chance = 1 / (1 + np.exp(-sums.astype(np.float64)))
        time.sleep(max(0.0, began + self._step_s - time.monotonic()))
        # no one begins to change anything before all are through the time of the step
        group.gather(b"")
        for shard in self.model.shards.values():
            shard.apply(step, (chance - labels).astype(np.float32))
        if self._folder is not None and step % self._save_every == 0:
            self._save(step, self._folder)
        if self._tells:
            right = np.where(labels > 0, chance, 1 - chance)
            loss = float(-np.log(np.maximum(right, 1e-12)).mean())
            print(json.dumps({"step": step, "began": began, "loss": loss}), flush=True)

    def _save(self, step: int, folder: Path) -> None:
        (folder / str(step)).mkdir(exist_ok=True)
        for number, shard in self.model.shards.items():
            np.save(folder / str(step) / f"{number}.npy", shard.values)


def main() -> int:
    """A member as a process; the environment says who it is."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--step-seconds", type=float, required=True)
    parser.add_argument("--bytes-per-second", type=float)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--save-every", type=int, default=1)
    parser.add_argument("--at", type=int, default=0)
    given = parser.parse_args()
    program = Program(given)
    group = Group.join(program.model, at_step=given.at, bytes_per_s=given.bytes_per_second)
    ending = group.run(lambda step: program.train(group, step), until=given.steps)
    group.close()
    return 0 if ending in (Ending.FINISHED, Ending.MOVED) else 75


if __name__ == "__main__":
    sys.exit(main())
