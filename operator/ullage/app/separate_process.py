# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A separate process for work that must not hold up the event loop."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor


def separate_process(settle_in: Callable[[], None] | None = None) -> ProcessPoolExecutor:
    """One process, started with the first task; ``settle_in`` runs in it before."""
    # spawn: a fork would copy the threads' locks of this process in an unknown state
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, mp_context=context, initializer=settle_in)


def end_at_once(pool: Executor) -> None:
    """Kill the process, whatever it works on, and cancel what waits for it."""
    if isinstance(pool, ProcessPoolExecutor):
        for process in list((pool._processes or {}).values()):
            process.kill()
    pool.shutdown(wait=False, cancel_futures=True)
