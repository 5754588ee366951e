# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One trial of a search for a good network: ``python -m digits.tune``.

An epoch is a hundred batches. A trial that goes on resumes from its checkpoint, and one that was
killed after its last epoch reports that epoch again; batches depend on the epoch alone, so a trial
that begins again reaches the same values.

Exit codes: 0 the epoch was reached; 143 told to stop, checkpoint saved; 1 anything else.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

import ullage_run
from digits import data
from digits.checkpoint import read, write
from digits.data import Digits, Floats
from digits.network import Network
from ullage_run import tuning

BATCHES: Final = 100
BATCH: Final = 32
MOMENTUM: Final = 0.9
STOPPED: Final = 143


@dataclass(slots=True, kw_only=True)
class Trial:
    """What a trial remembers: epochs done, weights (size,), velocity (size,), accuracy."""

    epoch: int
    theta: Floats
    velocity: Floats
    accuracy: float

    @classmethod
    def fresh(cls, network: Network) -> Trial:
        """A trial before its first epoch."""
        theta = network.initial(seed=1)
        return cls(epoch=0, theta=theta, velocity=np.zeros_like(theta), accuracy=0.0)

    def train(self, network: Network, digits: Digits, rate: float) -> None:
        """Train one epoch more.

        Args:
            network: Of these weights.
            digits: To learn from, and to be judged by.
            rate: Step size of the gradient.
        """
        random = np.random.default_rng(self.epoch)
        for _ in range(BATCHES):
            chosen = random.integers(len(digits.train_labels), size=BATCH)
            _, gradient = network.loss_and_gradient(
                self.theta, digits.train_images[chosen], digits.train_labels[chosen]
            )
            self.velocity = MOMENTUM * self.velocity - rate * gradient / BATCH
            self.theta = self.theta + self.velocity
            ullage_run.step(items=BATCH)
        self.epoch += 1
        self.accuracy = network.accuracy(self.theta, digits.test_images, digits.test_labels)


def main() -> int:
    """Train to the epoch that is asked for, and report what it brought.

    Returns:
        The exit code.
    """
    ullage_run.watch_sigterm()
    network = Network(tuning.whole("hidden", 32))
    rate = tuning.number("rate", 0.1)
    file = Path(os.environ.get("CHECKPOINT_DIR", "/tmp")) / f"{tuning.trial() or 'alone'}.npz"
    digits = data.load()
    trial = resumed(file, network)
    while trial.epoch < tuning.epochs(9):
        if ullage_run.stopping():
            return STOPPED
        trial.train(network, digits, rate)
        save(file, trial)
        ullage_run.checkpointed()
        print(f"epoch {trial.epoch}: {trial.accuracy:.4f}", flush=True)
    tuning.report(trial.epoch, {"accuracy": trial.accuracy})
    return 0


def resumed(file: Path, network: Network) -> Trial:
    """The trial of a checkpoint; a fresh one where there is none.

    Args:
        file: The checkpoint.
        network: Of its weights.

    Raises:
        CheckpointUnusable: the file is damaged.
    """
    if not file.exists():
        return Trial.fresh(network)
    saved = read(file, "epoch", "theta", "velocity", "accuracy")
    ullage_run.resumed(int(saved["epoch"]) * BATCHES)
    return Trial(
        epoch=int(saved["epoch"]),
        theta=saved["theta"],
        velocity=saved["velocity"],
        accuracy=float(saved["accuracy"]),
    )


def save(file: Path, trial: Trial) -> None:
    """Write a checkpoint, at once or not at all.

    Raises:
        OSError: the folder cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    write(
        file,
        epoch=np.int64(trial.epoch),
        theta=trial.theta,
        velocity=trial.velocity,
        accuracy=np.float64(trial.accuracy),
    )


if __name__ == "__main__":
    sys.exit(main())
