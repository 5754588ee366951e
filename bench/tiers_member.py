# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A member of the job that the bench trains: owns shards of a model and does what it is told.

The model is a sparse logistic regression with momentum, cut by features: a shard's weights exist in
one member only, so a lost owner is a real loss. Every sum runs in the order of shards, whoever owns
them: the loss must be equal to the last bit.
"""

from __future__ import annotations

import queue
import signal
import threading
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ullage_run.backup import Backup, EpochChanged, KeeperLink

SHARDS: Final = 6
STATE_BYTES: Final = 50_000_000
FEATURES: Final = STATE_BYTES // 8 // SHARDS
"""Of one shard: a weight and a momentum of 4 bytes each."""
BATCH: Final = 64
PER_SAMPLE: Final = 48
RATE: Final = 0.2
DECAY: Final = 0.9

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Maps:
    """What a member is told when maps change.

    Attributes:
        epoch: Of the maps.
        shards: That it owns from now on.
        load: Of them, those to be taken from the keeper.
        files: Folder of checkpoints to take all shards from instead.
        push: It pushes after each step.
        committed: The keeper's step.
        last: The last finished step.
        bytes_per_s: Its share of the link to the keeper; ``None`` = it lives beside the keeper.
    """

    epoch: int
    shards: tuple[int, ...]
    load: tuple[int, ...] = ()
    files: Path | None = None
    push: bool = False
    committed: int | None = None
    last: int = 0
    bytes_per_s: float | None = None


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


class Member:
    """The loop of one process.

    Args:
        orders: Pipe from and to the controller.
        keeper: Its address.
    """

    def __init__(self, orders: Connection, keeper: tuple[str, int]) -> None:
        self._orders = orders
        self._keeper = keeper
        self._shards: dict[int, Shard] = {}
        self._backup: Backup | None = None
        self._epoch = 0
        self._inbox: queue.SimpleQueue[tuple[object, ...]] = queue.SimpleQueue()

    def run(self) -> None:
        """Obey until the pipe ends."""
        threading.Thread(target=self._listen, daemon=True).start()
        self._orders.send(("hello", 0, 0, None))
        while (order := self._inbox.get())[0] != "stop":
            try:
                self._obey(order)
            except EpochChanged:
                continue  # the controller knows: new maps follow

    def _listen(self) -> None:
        """Read orders; new maps break off a push that waits for owners that are gone."""
        while True:
            try:
                order = self._orders.recv()
            except EOFError:
                order = ("stop",)
            if order[0] == "maps" and self._backup is not None:
                self._backup.close()
            self._inbox.put(order)
            if order[0] == "stop":
                return

    def _obey(self, order: tuple[object, ...]) -> None:
        what, step = order[0], order[1]
        answer: object = None
        if isinstance(step, Maps):
            self._take(step)
            step = step.last
        assert isinstance(step, int)
        if what == "logits":
            answer = {number: shard.logits(step) for number, shard in self._shards.items()}
        elif what == "apply":
            residual = np.asarray(order[2], np.float32)
            for shard in self._shards.values():
                shard.apply(step, residual)
            self._push(step)
        elif what == "flush" and self._backup is not None:
            answer = self._backup.flush()
        elif what == "save":
            for number, shard in self._shards.items():
                np.save(Path(str(order[2])) / f"{number}.npy", shard.values)
        self._orders.send((what, self._epoch, step, answer))

    def _push(self, step: int) -> None:
        if self._backup is not None:
            values = {number: shard.values.data for number, shard in self._shards.items()}
            self._backup.push(step, values)

    def _take(self, maps: Maps) -> None:
        """Own what the maps say, with the values of the right step."""
        if self._backup is not None:
            self._backup.close()
        kept = {number: self._shards.get(number) or Shard(number) for number in maps.shards}
        self._shards, self._epoch, self._backup = kept, maps.epoch, None
        if maps.load:
            with KeeperLink(*self._keeper, bytes_per_s=maps.bytes_per_s) as link:
                for number in maps.load:
                    found = link.recover(number)
                    if found.step != maps.last:
                        raise RuntimeError(f"the cut is {found.step}, the maps say {maps.last}")
                    values = np.frombuffer(found.data, np.float32)
                    kept[number].values = values.reshape(2, FEATURES)
        if maps.files is not None:
            for number, shard in kept.items():
                shard.values = np.load(maps.files / f"{number}.npy")
        if maps.push and kept:
            link = KeeperLink(*self._keeper, bytes_per_s=maps.bytes_per_s)
            self._backup = Backup(link, epoch=maps.epoch, committed=maps.committed)
            if maps.last and maps.committed is not None and not maps.load:
                self._push(maps.last)


def main(orders: Connection, keeper: tuple[str, int]) -> None:
    """Entry of the process; SIGTERM ends it as it would any program."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Member(orders, keeper).run()
