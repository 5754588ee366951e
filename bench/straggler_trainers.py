# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The program of ``bench/straggler_program.py`` as users of other trainers write it.

``--kind accelerate``, ``--kind trainer`` (of transformers) and ``--kind lightning``; it takes and
writes the same.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from straggler_program import Network, Rows  # the program stands beside this file
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Short texts of different lengths, padded; each follows from its number."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        random = torch.Generator().manual_seed(index)
        ids = torch.randint(0, 32, (12,), generator=random)
        labels = torch.where(torch.arange(12) < 4 + index % 8, ids, -100)
        return {"input_ids": ids, "labels": labels, "number": torch.tensor(index)}


class Slow(nn.Module):
    """Notes samples, and sleeps as long as the rank takes for them."""

    def __init__(self, sample_s: float) -> None:
        super().__init__()
        self.sample_s = sample_s
        self.sizes: list[int] = []
        self.seen: list[int] = []

    def forward(self, numbers: torch.Tensor) -> None:
        """Take the time of a batch."""
        self.sizes.append(len(numbers))
        self.seen += numbers.tolist()
        time.sleep(self.sample_s * len(numbers))


class Writer(nn.Module):
    """A language model whose loss is divided by the number of tokens that the trainer counts."""

    def __init__(self, slow: Slow) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(32, 16), nn.Linear(16, 32)
        self.slow = slow

    def forward(
        self,
        input_ids: torch.Tensor,
        labels: torch.Tensor,
        number: torch.Tensor,
        num_items_in_batch: Any = None,
        **_: object,
    ) -> dict[str, torch.Tensor]:
        """Loss and scores."""
        self.slow(number)
        scores = self.out(self.embed(input_ids))
        reduction = "mean" if num_items_in_batch is None else "sum"
        loss = nn.functional.cross_entropy(
            scores.flatten(0, 1), labels.flatten(), reduction=reduction
        )
        if num_items_in_batch is not None:
            loss = loss / num_items_in_batch
        return {"loss": loss, "logits": scores}


def accelerated(stated: argparse.Namespace, slow: Slow) -> nn.Module:
    """Train by accelerate."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    network = Network("plain")
    data = Rows(stated.length)
    plain: DataLoader[Any] = DataLoader(data, batch_size=stated.batch, shuffle=True)
    model, optimizer, loader = accelerator.prepare(
        network, torch.optim.AdamW(network.parameters(), lr=0.01), plain
    )
    steps = 0
    while steps < stated.steps:
        for inputs, labels, mask, numbers in loader:
            slow(numbers)
            loss = nn.functional.cross_entropy(model(inputs, mask), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
    return network


def trained(stated: argparse.Namespace, slow: Slow) -> nn.Module:
    """Train by the Trainer of transformers."""
    from transformers import Trainer, TrainingArguments

    network = Writer(slow)
    arguments = TrainingArguments(
        output_dir=str(stated.out / "trainer"),
        per_device_train_batch_size=stated.batch,
        max_steps=stated.steps,
        learning_rate=0.01,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
    )
    Trainer(model=network, args=arguments, train_dataset=Tokens(stated.length)).train()
    return network


def by_lightning(stated: argparse.Namespace, slow: Slow) -> nn.Module:
    """Train by Lightning."""
    import lightning

    network = Network("plain")

    class Task(lightning.LightningModule):
        """The network and its optimizer."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def training_step(self, batch: Any, index: int) -> Any:
            """Loss of a batch."""
            inputs, labels, mask, numbers = batch
            slow(numbers)
            return nn.functional.cross_entropy(self.network(inputs, mask), labels)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            """The optimizer."""
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    loader: DataLoader[Any] = DataLoader(
        Rows(stated.length), batch_size=stated.batch, shuffle=True, num_workers=stated.workers
    )
    lightning.Trainer(
        accelerator="cpu",
        devices=dist.get_world_size(),
        strategy="ddp",
        max_steps=stated.steps,
        accumulate_grad_batches=stated.accumulate,
        enable_checkpointing=False,
        enable_progress_bar=False,
        logger=False,
    ).fit(Task(), loader)
    return network


KINDS: Final = {"accelerate": accelerated, "trainer": trained, "lightning": by_lightning}


def main() -> None:
    """Train, and say what was done."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kind", choices=tuple(KINDS), required=True)
    parser.add_argument("--steps", type=int, default=75)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=590)
    parser.add_argument("--sample-s", type=float, default=0.006)
    parser.add_argument("--slow", type=float, default=3.0)
    parser.add_argument("--slow-rank", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--accumulate", type=int, default=1)
    stated = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    slow = Slow(stated.sample_s * (stated.slow if rank == stated.slow_rank else 1.0))
    network = KINDS[stated.kind](stated, slow)
    weights = torch.cat([weight.detach().flatten() for weight in network.parameters()]).tolist()
    report = {"epochs": [slow.seen], "times": [], "sizes": slow.sizes, "weights": weights}
    (stated.out / f"rank-{rank}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
