# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One bounded queue of a model and its workers; each idle worker runs the chooser's loop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ullage.engines.batching.chooser import Chooser
from ullage.engines.batching.waiting import Request, Waiting

CAPACITY: Final = 10_000
"""Requests that wait at most; beyond it a request is refused at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Requests that one worker runs together."""

    worker: int
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """Batches to start and requests to refuse, at one moment."""

    batches: tuple[Batch, ...]
    dropped: tuple[Request, ...]


@dataclass(slots=True, kw_only=True)
class WorkerPool:
    """Waiting requests by deadline, and workers that are idle."""

    chooser: Chooser
    workers: Iterable[int]
    capacity: int = CAPACITY
    waiting: Waiting = field(init=False, default_factory=Waiting)
    _idle: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self._idle = set(self.workers)

    def offer(self, request: Request) -> bool:
        """Take a request in; ``False`` when the queue is full."""
        if len(self.waiting) >= self.capacity:
            return False
        self.waiting.add(request)
        return True

    def release(self, worker: int) -> None:
        """The worker is idle again."""
        self._idle.add(worker)

    def dispatch(self, now_s: float) -> Dispatch:
        """Run the loop for each idle worker until none is idle or nothing waits."""
        batches: list[Batch] = []
        dropped: list[Request] = []
        while self._idle and self.waiting:
            choice = self.chooser.choose(self.waiting, now_s)
            gone = self.waiting.take([*choice.run, *choice.dropped])
            run = gone[: len(choice.run)]
            dropped += gone[len(run) :]
            if not run:
                break
            worker = min(self._idle)
            self._idle.remove(worker)
            batches.append(Batch(worker=worker, requests=run))
        return Dispatch(batches=tuple(batches), dropped=tuple(dropped))
