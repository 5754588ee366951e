# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A stock data-parallel torch program of which one rank may be slow; it knows nothing of Ullage.

Run by torchrun. It writes ids of samples, times of steps and the final weights to ``--out``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, DistributedSampler

WIDTH: Final = 32
CLASSES: Final = 10


class Rows(Dataset[tuple[torch.Tensor, ...]]):
    """Samples that follow from their number, each with the mask of its own dropout."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        random = torch.Generator().manual_seed(index)
        inputs = torch.randn(WIDTH, generator=random)
        mask = (torch.rand(64, generator=random) > 0.2).float() / 0.8
        return inputs, torch.tensor(index % CLASSES), mask, torch.tensor(index)


class Network(nn.Module):
    """Two layers; dropout by the masks of the samples, or torch's own."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.second = nn.Linear(WIDTH, 64), nn.Linear(64, CLASSES)
        norms = {"batchnorm": nn.BatchNorm1d, "syncbatchnorm": nn.SyncBatchNorm}
        self.norm = norms[kind](64) if kind in norms else nn.Identity()

    def forward(self, inputs: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Scores of the classes."""
        hidden = torch.relu(self.norm(self.first(inputs)))
        if self.kind == "recomputed":
            return torch.as_tensor(checkpoint(self.second, hidden, use_reentrant=True))
        if self.kind == "dropout":
            hidden = hidden * mask
        return torch.as_tensor(self.second(hidden))


def loss_of(kind: str, outputs: torch.Tensor, labels: torch.Tensor, model: nn.Module) -> Any:
    """Losses by the kind of program."""
    entropy = nn.functional.cross_entropy
    if kind == "sum":
        return entropy(outputs, labels, reduction="sum")
    if kind == "contrastive":
        unit = nn.functional.normalize(outputs, dim=1)
        return entropy(unit @ unit.flip(1).T, torch.arange(len(labels)))
    if kind == "penalty":
        weights = sum(weight.pow(2).sum() for weight in model.parameters())
        return entropy(outputs, labels) + 1e-3 * weights
    return entropy(outputs, labels)


def parallel(kind: str, network: nn.Module) -> nn.Module:
    """The network on all ranks."""
    if kind == "single":
        return network
    if kind == "sharded":
        from torch.distributed.fsdp import fully_shard

        return fully_shard(network)
    return DistributedDataParallel(network)


def main() -> None:
    """Train, and say what was done."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kind", default="plain")
    parser.add_argument("--optimizer", default="SGD")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--drop-last", action="store_true")
    parser.add_argument("--sample-s", type=float, default=0.001, help="time of a sample")
    parser.add_argument("--slow", type=float, default=1.0, help="of the slow rank over it")
    parser.add_argument("--slow-rank", type=int, default=1)
    parser.add_argument("--slow-from", type=int, default=0, help="first slow step")
    parser.add_argument("--burn", type=int, default=0, help="products of matrices a sample")
    stated = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank = dist.get_rank()
    network: nn.Module = Network(stated.kind)
    model = parallel(stated.kind, network)
    make = getattr(torch.optim, stated.optimizer)
    parameters = list(model.parameters())
    half = len(parameters) // 2 if stated.kind == "two" else len(parameters)
    optimizers = [make(parameters[:half], lr=0.01)]
    if stated.kind == "two":
        optimizers.append(make(parameters[half:], lr=0.02))
    data = Rows(stated.length)
    sampler: Any = DistributedSampler(data, seed=3)
    loader: DataLoader[Any] = DataLoader(
        data,
        batch_size=stated.batch,
        sampler=sampler,
        num_workers=stated.workers,
        drop_last=stated.drop_last,
    )
    matrix = torch.randn(96, 96)
    steps = batches = epoch = 0
    epochs: list[list[int]] = []
    times: list[float] = []
    sizes: list[int] = []
    began = time.monotonic()
    while steps < stated.steps:
        sampler.set_epoch(epoch)
        epoch += 1
        seen: list[int] = []
        whole = True
        for inputs, labels, mask, numbers in loader:
            seen += numbers.tolist()
            slow = stated.slow if rank == stated.slow_rank and steps >= stated.slow_from else 1.0
            for _ in range(int(stated.burn * len(inputs) * slow)):
                matrix @ matrix
            if not stated.burn:
                time.sleep(stated.sample_s * len(inputs) * slow)
            cast = torch.autocast("cpu", torch.bfloat16, enabled=stated.kind == "bf16")
            batches += 1
            last = batches % stated.accumulate == 0
            if not last and isinstance(model, DistributedDataParallel):
                with model.no_sync(), cast:
                    loss = loss_of(stated.kind, model(inputs, mask), labels, model)
                    (loss / stated.accumulate).backward()
                continue
            with cast:
                loss = loss_of(stated.kind, model(inputs, mask), labels, model)
            if stated.accumulate > 1:
                loss = loss / stated.accumulate
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            steps += 1
            sizes.append(len(inputs))
            times.append(time.monotonic() - began)
            if stated.kind == "gather":
                parts = [torch.zeros(len(labels)) for _ in range(dist.get_world_size())]
                dist.all_gather(parts, labels.float())
            if steps >= stated.steps:
                whole = False
                break
        if whole:
            epochs.append(seen)
    whole_weights = [
        weight.full_tensor() if stated.kind == "sharded" else weight
        for weight in network.parameters()
    ]
    weights = torch.cat([weight.detach().flatten() for weight in whole_weights]).tolist()
    report = {"epochs": epochs, "times": times, "sizes": sizes, "weights": weights}
    (stated.out / f"rank-{rank}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
