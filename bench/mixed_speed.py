# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Measures how fast each processor core is at the moment, whatever else runs on it.

On a machine that others share, the same step takes up to 1.7 times as long a minute later. A short
fixed piece of work, once a second and before everything else on its core, tells the difference
between that and a neighbour.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Final

import numpy as np

from bench.apart import run_apart
from bench.mixed_record import Speed

EVERY_S: Final = 1.0
SIZE: Final = 512
"""Rows and columns of the matrices, as wide as the network of the heaviest class."""
PRODUCTS: Final = 3
"""After one that warms the caches: some 10 ms in all, 1 % of the core."""


async def measure_apart(cores: Mapping[str, int], started: float, into: list[Speed]) -> None:
    """Measure until cancelled, one process a core.

    Args:
        cores: Core of each node's device.
        started: On the clock of the event loop.
        into: Where measurements are put.
    """
    # Read when a process loads numpy: a second thread would have neither its core nor its priority.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    async with asyncio.TaskGroup() as tasks:
        for node, core in cores.items():
            tasks.create_task(run_apart(_measure, (node, core, started), into))


def _measure(node: str, core: int, started: float, sender: Connection) -> None:
    """Body of a process."""
    try:
        os.sched_setaffinity(0, {core})
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError as error:
        print(f"the speed of core {core} is not measured: {error}", file=sys.stderr)
        return
    with suppress(BrokenPipeError):
        _every_second(node, started, sender)


def _every_second(node: str, started: float, sender: Connection) -> None:
    matrix = np.random.default_rng(0).random((SIZE, SIZE), dtype=np.float32)
    while True:
        matrix @ matrix  # warms the caches
        begun = time.monotonic()
        for _ in range(PRODUCTS):
            matrix @ matrix
        ended = time.monotonic()
        taken = Speed(at_s=round(ended - started, 3), node=node, unit_s=(ended - begun) / PRODUCTS)
        sender.send(taken)
        time.sleep(EVERY_S)
