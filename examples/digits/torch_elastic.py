# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Trains under elastic torchrun: ``torchrun -m digits.torch_elastic``.

torchrun ends and begins this program again, with another rank among another number, whenever a
member comes, goes or is lost. What it needs for that stands here and nowhere else: it begins from
the newest checkpoint, it gives up on a silent member after a while, and who is told to leave says
so to all, so that they save first and no step is lost. The batch is that of all members together:
a step means the same in every size.

Exit codes: 0 finished; 143 told to stop, checkpoint saved; 75 another member leaves, begin again
with the others; 2 a setting cannot be used; 1 anything else, a member that was lost among them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final, TypedDict

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import ullage_run
from digits import data
from digits.data import CLASSES, PIXELS, Digits
from digits.plan import LEARNING_RATE, MOMENTUM, NOISE, WEIGHT_DECAY, BadSetting, Plan

FINISHED: Final = 0
ANEW: Final = 75
INTERRUPTED: Final = 143
REPORTS: Final = 20
PEER_SECONDS: Final = 30
"""How long a step waits for a member that does not answer; torch's own default is 30 minutes."""
KEPT: Final = 2
"""Checkpoints that are kept."""


class Saved(TypedDict):
    """A checkpoint."""

    step: int
    network: dict[str, torch.Tensor]
    optimizer: dict[str, object]


class Run:
    """A network, its optimiser and the steps that are done, on this and all other members."""

    def __init__(self, plan: Plan, digits: Digits) -> None:
        self.plan, self.digits = plan, digits
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(plan.seed)
        self.network = torch.nn.Sequential(
            torch.nn.Linear(PIXELS, plan.hidden),
            torch.nn.ReLU(),
            torch.nn.Linear(plan.hidden, CLASSES),
        )
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), LEARNING_RATE, MOMENTUM, weight_decay=WEIGHT_DECAY
        )
        self.step = 0

    def resume(self) -> None:
        """Begin where rank 0 finds the newest checkpoint; the others need not see the volume."""
        saved = [load(self.plan.checkpoint_dir) if self.rank == 0 else None]
        dist.broadcast_object_list(saved)
        state = saved[0]
        if state is not None:
            self.step = state["step"]
            self.network.load_state_dict(state["network"])
            self.optimizer.load_state_dict(state["optimizer"])
            ullage_run.resumed(self.step)
        print(f"rank {self.rank} of {self.world} begins at step {self.step}", flush=True)

    def save(self) -> None:
        """Write a checkpoint, whole or not at all, under a name that says the step."""
        if self.rank == 0:
            folder = self.plan.checkpoint_dir
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"torch-{self.step:09}.pt"
            partial = file.with_suffix(".partial")
            state = Saved(
                step=self.step,
                network=self.network.state_dict(),
                optimizer=self.optimizer.state_dict(),
            )
            torch.save(state, partial)
            partial.replace(file)
            for old in checkpoints(folder)[:-KEPT]:
                old.unlink(missing_ok=True)
        ullage_run.checkpointed()

    def train(self) -> int:
        """Train until the last step, or until a member is told to leave; returns the exit code."""
        plan, model = self.plan, DistributedDataParallel(self.network)
        leaves = torch.zeros(1)
        while self.step < plan.steps:
            images, labels = self._part_of_batch()
            # DDP divides by the number of members; the sum over the whole batch is wanted
            loss = cross_entropy(model(images), labels, reduction="sum") * self.world / plan.batch
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.step += 1
            ullage_run.step(items=len(labels))
            if self.step % max(1, plan.steps // REPORTS) == 0 and self.rank == 0:
                print(f"step {self.step}/{plan.steps} loss {loss.item():.4f}", flush=True)
            leaves.fill_(ullage_run.stopping())
            dist.all_reduce(leaves, dist.ReduceOp.MAX)  # all learn of it after the same step
            if leaves.item() or self.step % plan.checkpoint_every == 0:
                self.save()
            if leaves.item() and self.step < plan.steps:
                mine = ullage_run.stopping()
                print(f"{'told to stop' if mine else 'a member leaves'}, step {self.step} saved")
                return INTERRUPTED if mine else ANEW
        return FINISHED

    def accuracy(self) -> float:
        """Fraction of the held-out images that are read right."""
        with torch.no_grad():
            scores = self.network(torch.from_numpy(self.digits.test_images).float())
        return float((scores.argmax(dim=1).numpy() == self.digits.test_labels).mean())

    def _part_of_batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Every ``world``-th image of this step's batch, which seed and step alone decide."""
        random = np.random.default_rng((self.plan.seed, self.step))
        chosen = random.integers(len(self.digits.train_labels), size=self.plan.batch)
        images = self.digits.train_images[chosen]
        images += random.normal(0.0, NOISE, images.shape)
        mine = slice(self.rank, None, self.world)
        labels = self.digits.train_labels[chosen[mine]]
        return torch.from_numpy(images[mine]).float(), torch.from_numpy(labels)


def checkpoints(folder: Path) -> list[Path]:
    """All checkpoints, the newest last."""
    return sorted(folder.glob("torch-*.pt"))


def load(folder: Path) -> Saved | None:
    """The newest checkpoint; ``None`` when there is none."""
    found = checkpoints(folder)
    return torch.load(found[-1], weights_only=True) if found else None


def train(environment: Mapping[str, str]) -> int:
    """Meet the other members and train with them; returns the exit code.

    Raises:
        BadSetting, DataMissing: this member cannot begin.
    """
    plan = Plan.from_environment(environment)
    digits = data.load()
    dist.init_process_group("gloo", timeout=timedelta(seconds=PEER_SECONDS))
    run = Run(plan, digits)
    run.resume()
    # not sooner: nothing is to be saved yet, and a handler would only run when torch has met all
    ullage_run.watch_sigterm()
    code = run.train()
    if code == FINISHED:
        print(f"test accuracy {run.accuracy():.4f}", flush=True)
        dist.barrier()  # no one removes what another could still begin from
        for file in checkpoints(plan.checkpoint_dir) if run.rank == 0 else ():
            file.unlink(missing_ok=True)
    dist.destroy_process_group()
    return code


def main() -> int:
    """Train and turn what went wrong into an exit code."""
    try:
        return train(os.environ)
    except (BadSetting, data.DataMissing) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
