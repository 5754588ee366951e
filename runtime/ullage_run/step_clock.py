# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Divides the time of a training step: data wait, own compute, wait for other ranks.

::

    data loader | forward, backward | last gradients of other ranks | optimizer
    data wait   | compute           | wait                          |

A step ends with the optimizer that stepped first: with several of them (GANs), and with several
batches a step (gradient accumulation), a window from one of its steps to the next holds the rest.
Only the thread that steps counts; a loader that prefetches in another one takes none of its time.

Timing costs some ten microseconds, so of short steps only every few are timed, one in 40 ms.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from threading import get_ident
from time import monotonic_ns
from typing import Any, Final

from ullage_run.rank_record import RankWriter, StepTimes
from ullage_run.times import TIMED_APART_NS

FOREIGN_STEPS_MOST: Final = 100
"""Steps of other optimizers after which the first one counts as abandoned."""
SKIPPED_MOST: Final = 63
BATCH_PARTS_MOST: Final = 64
"""Tensors of a batch that are counted."""
BATCH_DEPTH_MOST: Final = 4


class StepClock:
    """Times the steps of this process; its calls come from hooks.

    Args:
        writer: Receives the times.
        listener: Receives them, too, before the step is said to have ended.
    """

    def __init__(
        self, writer: RankWriter, listener: Callable[[StepTimes], None] | None = None
    ) -> None:
        self.writer = writer
        self.listener = listener
        self.timing = True
        """This step is timed: other calls than :meth:`optimizer_ended` matter."""
        self._skip = 0
        self._leader: weakref.ref[object] | None = None
        self._thread = 0
        self._foreign = 0
        self._ended_ns = 0
        self._new_window()

    def _new_window(self) -> None:
        self._batch_ns = 0
        """Arrival of the first batch of the window."""
        self._ready_ns = 0
        self._begun_ns = 0
        self._data_wait_ns = 0
        self._later_wait_ns = 0
        """Part of the data wait after the first batch."""
        self._samples = 0
        self._bytes = 0

    def batch(self, began_ns: int, batch: object) -> None:
        """The loader returned a batch that the program asked for at ``began_ns``."""
        if self._thread and self._thread != get_ident():
            return
        now = monotonic_ns()
        self._data_wait_ns += now - began_ns
        if self._batch_ns:
            self._later_wait_ns += now - began_ns
        else:
            self._batch_ns = now
        samples, size = contents(batch)
        self._samples += samples
        self._bytes += size

    def gradients_ready(self) -> None:
        """All gradients of this rank are there; what follows waits for those of others."""
        self._ready_ns = monotonic_ns()

    def optimizer_begins(self, optimizer: object) -> None:
        """An optimizer begins its step."""
        leader = self._leader
        if leader is None or leader() is optimizer:
            self._begun_ns = monotonic_ns()

    def optimizer_ended(self, optimizer: object) -> bool:
        """An optimizer has stepped; true if that was a step."""
        leader = self._leader
        if (leader is None or leader() is not optimizer) and not self._leads(optimizer):
            return False
        now = monotonic_ns()
        self._foreign = 0
        times = self._times(now) if self.timing and self._ended_ns else None
        self.writer.step(now, times)
        if times is not None:
            if self.listener is not None:
                self.listener(times)
            self._skip = min(TIMED_APART_NS // max(times.step_ns, 1), SKIPPED_MOST)
        elif self._skip:
            self._skip -= 1
        self.timing = not self._skip
        self._ended_ns = now
        self._new_window()
        return True

    def _leads(self, optimizer: object) -> bool:
        """True if this optimizer counts from now on: the first is not there, or not used."""
        leader = self._leader() if self._leader is not None else None
        self._foreign += 1
        if leader is not None and self._foreign <= FOREIGN_STEPS_MOST:
            return False
        self._leader = weakref.ref(optimizer)
        self._thread = get_ident()
        return True

    def _times(self, now: int) -> StepTimes:
        begun = self._begun_ns or now
        # inside of a closure the gradients come after the optimizer has begun
        ready = self._ready_ns or begun
        batch = self._batch_ns or self._ended_ns
        return StepTimes(
            step_ns=now - self._ended_ns,
            compute_ns=max(ready - batch - self._later_wait_ns, 0),
            wait_ns=max(begun - ready, 0),
            data_wait_ns=self._data_wait_ns,
            samples=self._samples,
            batch_bytes=self._bytes,
        )


def contents(batch: object) -> tuple[int, int]:
    """Samples and bytes of a batch: length of its first tensor, bytes of all in its containers."""
    samples = size = 0
    left: list[tuple[Any, int]] = [(batch, 0)]
    for _ in range(BATCH_PARTS_MOST):
        if not left:
            break
        part, depth = left.pop()
        shape = getattr(part, "shape", None)
        if shape is not None:
            size += int(part.nbytes)
            samples = samples or (int(shape[0]) if len(shape) else 1)
        elif depth < BATCH_DEPTH_MOST:
            if isinstance(part, Mapping):
                part = list(part.values())
            if isinstance(part, list | tuple):
                left += [(inner, depth + 1) for inner in reversed(part[:BATCH_PARTS_MOST])]
    return samples, size
