# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Policies of a long comparison, each in a separate process."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing.queues import SimpleQueue

from ullage_simulate.events import TraceSettings, run
from ullage_simulate.outcome import PolicyOutcome
from ullage_simulate.policies import POLICIES
from ullage_simulate.progress import Tell
from ullage_simulate.times import PROGRESS_LOOK_S, PROGRESS_S
from ullage_simulate.trace import Fleet, JobTrace, in_parts

News = SimpleQueue[tuple[str, int]]
_news: News | None = None
"""A worker's queue for the number of ended jobs of a policy."""


def run_side_by_side(
    names: Sequence[str],
    trace: JobTrace,
    fleet: Fleet,
    settings: TraceSettings,
    tell: Mapping[str, Tell],
) -> list[PolicyOutcome]:
    """Outcomes of policies in the order of their names, as :func:`~ullage_simulate.events.run`.

    Args:
        names: Names of the policies.
        trace: The trace.
        fleet: The cluster.
        settings: The same for all.
        tell: Called with the number of ended jobs, by policy.

    Raises:
        ValueError: a policy cannot run this.
        BrokenProcessPool: a process was killed, possibly for lack of memory.
    """
    context = multiprocessing.get_context("spawn")
    news: News = context.SimpleQueue()
    workers = min(len(names), len(os.sched_getaffinity(0)))
    pool = ProcessPoolExecutor(workers, context, _hear, (news,))
    try:
        futures = [pool.submit(_run, name, trace, fleet, settings) for name in names]
        _follow(futures, news, tell)
        return [future.result() for future in futures]
    finally:
        pool.shutdown(cancel_futures=True)


def _follow(futures: Sequence[Future[PolicyOutcome]], news: News, tell: Mapping[str, Tell]) -> None:
    """Forward progress until all are done or one has failed."""
    while True:
        ended = wait(futures, timeout=PROGRESS_LOOK_S)
        while not news.empty():
            name, count = news.get()
            tell[name](count)
        if not ended.not_done or any(future.exception() for future in ended.done):
            return


def _hear(news: News) -> None:
    global _news
    _news = news


def _run(name: str, trace: JobTrace, fleet: Fleet, settings: TraceSettings) -> PolicyOutcome:
    """Run a policy in a worker."""
    due = 0.0

    def tell(count: int) -> None:
        nonlocal due
        if time.monotonic() >= due or count == len(trace.jobs):
            due = time.monotonic() + PROGRESS_S
            assert _news is not None
            _news.put((name, count))

    return run(*in_parts(trace, fleet), POLICIES[name], settings, tell)
