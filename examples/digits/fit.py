# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a trainer to its end, through checkpoints, stops and restarts.

This is where a training program meets Ullage: one line counts the steps, two more turn SIGTERM
into a checkpoint and a clean end, and two take turns with others where the job asks for a lane.
Who loads a checkpoint says where it resumes.
"""

from __future__ import annotations

import hashlib
from typing import Final

import ullage_run
from digits import checkpoint
from digits.checkpoint import Store
from digits.training import Trainer
from ullage_run import lanes

FINISHED: Final = 0
INTERRUPTED: Final = 143
"""What a shell reports for a program that SIGTERM ended: 128 + 15."""
REPORTS: Final = 20


def fit(trainer: Trainer, store: Store) -> int:
    """Train until the plan is done or a rank is told to stop.

    Returns:
        The exit code: finished, or interrupted with the checkpoint saved.

    Raises:
        OSError: the checkpoint cannot be written.
    """
    plan, state, first = trainer.plan, trainer.state, trainer.group.rank == 0
    lane = lanes.join()
    while not trainer.finished:
        with lane.step():
            progress = trainer.advance(stop=ullage_run.stopping())
        ullage_run.step(items=plan.batch // trainer.group.world)
        if state.step % max(1, plan.steps // REPORTS) == 0:
            print(f"step {state.step}/{plan.steps} loss {progress.loss:.4f}", flush=True)
        due = progress.stop or state.step % plan.checkpoint_every == 0
        if due and first and not trainer.finished:
            store.save(state)
            ullage_run.checkpointed()
        if progress.stop and not trainer.finished:
            saved = f", checkpoint saved at step {state.step}" if first else ""
            print(f"interrupted{saved}", flush=True)
            return INTERRUPTED
    return FINISHED


def report(trainer: Trainer) -> None:
    """Print the digest of the weights and, last, the accuracy; keep the weights if asked."""
    plan = trainer.plan
    if plan.weights is not None and trainer.group.rank == 0:
        checkpoint.write(plan.weights, theta=trainer.state.theta)
        print(f"weights in {plan.weights}")
    print(f"weights sha256 {digest(trainer)}")
    print(f"test accuracy {trainer.accuracy():.4f}", flush=True)


def digest(trainer: Trainer) -> str:
    """Short name of the exact weights: equal bits, equal digests."""
    return hashlib.sha256(trainer.state.theta.tobytes()).hexdigest()[:16]
