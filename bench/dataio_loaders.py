# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A stock torch loop over a data set on a drawn device, run by an interpreter with torch.

The device is made in user space: a latency and a bandwidth that all workers share, and a number of
readers above which it collapses. Prints the seconds of a step of each epoch, as JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

BATCH = 8


class Device(Dataset):
    """Samples of equal size; requests wait for the latency, then for their turn on the wire."""

    def __init__(self, terms: dict[str, float], samples: int) -> None:
        self.terms, self.samples = terms, samples
        self.free_at = multiprocessing.Value("d", 0.0)
        self.readers = multiprocessing.Value("i", 0)

    def __len__(self) -> int:
        """Number of samples."""
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        """One sample, after its time."""
        with self.readers.get_lock():
            self.readers.value += 1
            crowd = self.readers.value
        slow = 4.0 if crowd > self.terms["cliff"] else 1.0
        with self.free_at.get_lock():
            now = time.monotonic()
            self.free_at.value = max(now, self.free_at.value) + slow * self.terms["wire_s"]
            until = max(self.free_at.value, now + self.terms["latency_s"])
        time.sleep(max(0.0, until - time.monotonic()))
        with self.readers.get_lock():
            self.readers.value -= 1
        return torch.full((16,), float(index))


def main() -> None:
    """Run the epochs that the arguments ask for."""
    terms = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    parameter = torch.nn.Parameter(torch.zeros(16))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    loader = DataLoader(
        Device(terms, terms["batches"] * BATCH), batch_size=BATCH, num_workers=terms["workers"]
    )
    epochs = []
    for _ in range(terms["epochs"]):
        first = began = 0.0
        for number, batch in enumerate(loader):
            if number == 0:
                began = time.monotonic()  # the start of workers is not a step
            time.sleep(terms["compute_s"])
            parameter.grad = batch.mean(0)
            optimizer.step()
        first = time.monotonic() - began
        epochs.append([loader.num_workers, first / max(1, terms["batches"] - 1)])
    print(json.dumps(epochs))


if __name__ == "__main__":
    main()
