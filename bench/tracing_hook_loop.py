# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A training loop with and without the hooks, in turns; for an interpreter with torch.

Prints CPU nanoseconds of the loop's thread for each pair of blocks, as JSON. A step computes far
less than a real one and sleeps for the rest of its 10 ms, so that what the hooks add stands out.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any

STEPS = 100
STEP_S = 0.010


def main(blocks: int) -> None:
    """Run ``blocks`` pairs of blocks."""
    torch: Any = import_module("torch")
    data: Any = import_module("torch.utils.data")
    loader_module: Any = import_module("torch.utils.data.dataloader")
    optimizer_module: Any = import_module("torch.optim.optimizer")
    ranks: Any = import_module("ullage_run.rank_hook")
    torch.set_num_threads(1)
    network = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    rows = data.TensorDataset(torch.randn(8 * STEPS, 16), torch.randint(0, 4, (8 * STEPS,)))
    loader = data.DataLoader(rows, batch_size=8)

    def block() -> int:
        batches = iter(loader)
        began = time.thread_time_ns()
        for inputs, labels in batches:
            loss = torch.nn.functional.cross_entropy(network(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(STEP_S)
        return time.thread_time_ns() - began

    iterator = loader_module._BaseDataLoaderIter
    advance, backward = iterator.__next__, torch.autograd.backward
    hooks = (
        optimizer_module._global_optimizer_pre_hooks,
        optimizer_module._global_optimizer_post_hooks,
    )

    def with_hooks() -> int:
        ranks.register(optimizer_module)
        ranks.register_loader(loader_module)
        try:
            return block()
        finally:
            iterator.__next__, torch.autograd.backward = advance, backward
            for registered in hooks:
                registered.clear()

    for _ in range(2):  # warm up
        block()
        with_hooks()
    pairs: list[tuple[int, int]] = []
    for number in range(blocks):
        if number % 2:
            on = with_hooks()
            pairs.append((on, block()))
        else:
            off = block()
            pairs.append((with_hooks(), off))
    json.dump({"pairs": pairs, "steps": ranks._ranks.steps}, sys.stdout)


if __name__ == "__main__":
    main(int(sys.argv[1]))
