# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A separate process for work that must not block the event loop."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


class ProcessRefused(Exception):
    """The kernel starts no process, thread or pipe now; a later attempt may succeed."""


def separate_process(settle_in: Callable[[], None] | None = None) -> ProcessPoolExecutor:
    """One process, started with the first task, after ``settle_in`` has run in it.

    Raises:
        ProcessRefused: its pipes cannot be created.
    """
    # spawn: a fork would copy the threads' locks of this process in an unknown state
    context = multiprocessing.get_context("spawn")
    try:
        return ProcessPoolExecutor(1, mp_context=context, initializer=settle_in)
    except OSError as error:
        raise ProcessRefused(_text(error)) from error


def submit(
    pool: Executor, work: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs
) -> Future[Result]:
    """Give the process a task; the first one starts it.

    Raises:
        BrokenExecutor: the process has died.
        ProcessRefused: it could not be started; the pool was closed, since it may be incomplete.
    """
    try:
        return pool.submit(work, *args, **kwargs)
    except BrokenExecutor:
        raise
    except (OSError, RuntimeError) as error:  # a process or pipe, a thread
        end_at_once(pool)
        raise ProcessRefused(_text(error)) from error


def end_at_once(pool: Executor) -> None:
    """Kill the process, at any work, and cancel waiting tasks."""
    if isinstance(pool, ProcessPoolExecutor):
        for process in list((pool._processes or {}).values()):
            process.kill()
    pool.shutdown(wait=False, cancel_futures=True)


def _text(error: Exception) -> str:
    return f"no process can be started, tried again later: {error}"
