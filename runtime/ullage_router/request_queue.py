# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The queue, in groups of requests that may share a batch; bounded by count and bytes.

The group of the earliest deadline is served first; inside a group the chooser decides.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

from ullage.engines.batching.chooser import BatchChoice
from ullage.engines.batching.waiting import WaitingRequests
from ullage_router.calls import RouterCall

CALL_BYTES: Final = 16 * 1024
"""Memory of a waiting call beside its body: records, a task, buffers of its connection."""
LOOKED_AT: Final = 256
STALE: Final = 64
"""Stale heap entries, beyond the number of waiting calls, before a sweep."""


class ChoosesNext(Protocol):
    """Decides among the requests of one group."""

    def choose(self, waiting: WaitingRequests, now_s: float) -> BatchChoice:
        """The requests that run now, and those refused."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """Requests that run together, and those refused."""

    run: tuple[RouterCall, ...] = ()
    dropped: tuple[RouterCall, ...] = ()


@dataclass(slots=True, kw_only=True)
class RequestQueue:
    """Waiting calls; uses no clock and no connection."""

    most_calls: int
    most_bytes: int
    held_bytes: int = field(init=False, default=0)
    """Bytes of calls that wait or run, and of bodies that are being read."""
    _groups: dict[Hashable, WaitingRequests] = field(init=False, default_factory=dict)
    _calls: dict[int, RouterCall] = field(init=False, default_factory=dict)
    _heap: list[tuple[float, int]] = field(init=False, default_factory=list)
    _aside: dict[str, list[tuple[float, int]]] = field(init=False, default_factory=dict)
    """Heaps of calls whose model was not ready at some replica."""

    def __len__(self) -> int:
        return len(self._calls)

    def reserve(self, size: int) -> bool:
        """Take bytes of the budget; ``False`` when it is spent."""
        if self.held_bytes + size > self.most_bytes:
            return False
        self.held_bytes += size
        return True

    def free(self, size: int) -> None:
        """Give bytes back."""
        self.held_bytes -= size

    def offer(self, call: RouterCall) -> bool:
        """Queue a call; ``False`` when too many wait."""
        if len(self._calls) >= self.most_calls:
            return False
        self.put(call)
        return True

    def put(self, call: RouterCall) -> None:
        """Requeue a call, regardless of the limit."""
        group = self._groups.setdefault(_group(call), WaitingRequests())
        group.add(call.request)
        self._calls[call.number] = call
        marks = len(self._heap) + sum(map(len, self._aside.values()))
        if marks > 2 * len(self._calls) + STALE:
            for heap in (self._heap, *self._aside.values()):
                heap[:] = [mark for mark in heap if mark[1] in self._calls]
                heapq.heapify(heap)
        heapq.heappush(self._heap, (call.request.deadline_s, call.number))

    def remove(self, call: RouterCall) -> bool:
        """Remove a call whose client has disconnected; ``False`` = it does not wait."""
        if self._calls.get(call.number) is not call:
            return False
        group = self._groups[_group(call)]
        first = int(group.deadline_s.searchsorted(call.request.deadline_s, side="left"))
        while group[first].number != call.number:
            first += 1
        group.take([first])
        self._left((call,))
        return True

    def pick(
        self,
        chooser: ChoosesNext,
        now_s: float,
        replica: int,
        unready: Collection[str] = (),
    ) -> Picked | None:
        """The requests that a replica runs now; ``None`` when it may run none of the waiting ones.

        Args:
            chooser: Decides among the requests of one group.
            now_s: On the router's clock.
            replica: Its number.
            unready: Models for which it is not ready, by their readiness paths.
        """
        passed: list[tuple[float, int]] = []
        first = None
        while first is None:
            heap = min(self._open_heaps(unready), default=None)
            if heap is None:
                break
            mark = heap[0]
            call = self._calls.get(mark[1])
            if call is None:
                heapq.heappop(heap)
            elif unready and heap is self._heap and call.ready_path in unready:
                # moved once, so that a queue of one model does not keep blocking others
                heapq.heappush(self._aside.setdefault(call.ready_path, []), heapq.heappop(heap))
            elif call.avoid == replica:
                passed.append(heapq.heappop(heap))
            else:
                first = call
        for mark in passed:
            heapq.heappush(self._heap, mark)
        return None if first is None else self._choose(_group(first), chooser, now_s)

    def _open_heaps(self, unready: Collection[str]) -> Iterator[list[tuple[float, int]]]:
        """Heaps with calls that a replica may run; ordered by their earliest mark.

        Those of a list compare by their first marks.
        """
        if self._heap:
            yield self._heap
        for model, heap in self._aside.items():
            if heap and model not in unready:
                yield heap

    def expired(self, now_s: float) -> tuple[RouterCall, ...]:
        """Remove expired calls."""
        gone: list[RouterCall] = []
        for heap in (self._heap, *self._aside.values()):
            while heap and heap[0][0] <= now_s:
                call = self._calls.get(heapq.heappop(heap)[1])
                if call is not None:
                    group = self._groups[_group(call)]
                    past = int(group.deadline_s.searchsorted(now_s, side="right"))
                    calls = tuple(self._calls[taken.number] for taken in group.take(range(past)))
                    self._left(calls)
                    gone += calls
        self._aside = {model: heap for model, heap in self._aside.items() if heap}
        return tuple(gone)

    def apps(self) -> set[str]:
        """Learning names of the waiting calls, of a limited number of groups."""
        groups = islice(self._groups.values(), LOOKED_AT)
        return {name for group in groups for name in group.apps}

    def _choose(self, key: Hashable, chooser: ChoosesNext, now_s: float) -> Picked:
        group = self._groups[key]
        choice = chooser.choose(group, now_s)
        taken = group.take([*choice.run, *choice.dropped])
        calls = tuple(self._calls[request.number] for request in taken)
        self._left(calls)
        return Picked(run=calls[: len(choice.run)], dropped=calls[len(choice.run) :])

    def _left(self, calls: tuple[RouterCall, ...]) -> None:
        for call in calls:
            del self._calls[call.number]
            key = _group(call)
            if key in self._groups and not self._groups[key]:
                del self._groups[key]


def _group(call: RouterCall) -> Hashable:
    """The group of a call; a call that runs alone has its own."""
    if call.group is None:
        return call.number
    return call.group, call.avoid, call.raw_apart
