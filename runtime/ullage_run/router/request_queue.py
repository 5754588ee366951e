# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What waits, in groups of requests that may share a batch; bounded by count and bytes.

The group of the earliest deadline is served first; inside a group the chooser decides.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

from ullage.engines.batching.chooser import Choice
from ullage.engines.batching.waiting import Waiting
from ullage_run.router.calls import Call

CALL_BYTES: Final = 16 * 1024
"""What a waiting call takes beside its body: records, a task, buffers of its connection."""
LOOKED_AT: Final = 256
STALE: Final = 64
"""Marks of calls that left, beyond as many as wait, before they are swept."""


class ChoosesNext(Protocol):
    """Decides among the requests of one group."""

    def choose(self, waiting: Waiting, now_s: float) -> Choice:
        """What runs now, and what is refused."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """What runs together, and what is refused."""

    run: tuple[Call, ...] = ()
    dropped: tuple[Call, ...] = ()


@dataclass(slots=True, kw_only=True)
class RequestQueue:
    """Calls that wait; neither reads a clock nor knows a connection."""

    most_calls: int
    most_bytes: int
    held_bytes: int = field(init=False, default=0)
    """Bytes of calls that wait or run, and of bodies that are being read."""
    _groups: dict[Hashable, Waiting] = field(init=False, default_factory=dict)
    _calls: dict[int, Call] = field(init=False, default_factory=dict)
    _heap: list[tuple[float, int]] = field(init=False, default_factory=list)

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

    def offer(self, call: Call) -> bool:
        """Take a call in; ``False`` when too many wait."""
        if len(self._calls) >= self.most_calls:
            return False
        self.put(call)
        return True

    def put(self, call: Call) -> None:
        """Take a call in that was in before, whatever waits."""
        group = self._groups.setdefault(_group(call), Waiting())
        group.add(call.request)
        self._calls[call.number] = call
        if len(self._heap) > 2 * len(self._calls) + STALE:
            self._sweep()
        heapq.heappush(self._heap, (call.request.deadline_s, call.number))

    def remove(self, call: Call) -> bool:
        """Take a call out whose client has gone; ``False`` = it does not wait."""
        if self._calls.get(call.number) is not call:
            return False
        group = self._groups[_group(call)]
        first = int(group.deadline_s.searchsorted(call.request.deadline_s, side="left"))
        while group[first].number != call.number:
            first += 1
        group.take([first])
        self._left((call,))
        return True

    def pick(self, chooser: ChoosesNext, now_s: float, replica: int) -> Picked | None:
        """What a replica runs now; ``None`` when nothing waits that it may run."""
        passed: list[tuple[float, int]] = []
        found = None
        while self._heap and found is None:
            mark = self._heap[0]
            call = self._calls.get(mark[1])
            if call is not None and call.avoid != replica:
                found = call
            else:
                heapq.heappop(self._heap)
                if call is not None:
                    passed.append(mark)
        for mark in passed:
            heapq.heappush(self._heap, mark)
        return None if found is None else self._choose(_group(found), chooser, now_s)

    def expired(self, now_s: float) -> tuple[Call, ...]:
        """Take out what is past its deadline."""
        gone: list[Call] = []
        while self._heap and self._heap[0][0] <= now_s:
            call = self._calls.get(heapq.heappop(self._heap)[1])
            if call is not None:
                group = self._groups[_group(call)]
                past = int(group.deadline_s.searchsorted(now_s, side="right"))
                calls = tuple(self._calls[taken.number] for taken in group.take(range(past)))
                self._left(calls)
                gone += calls
        return tuple(gone)

    def apps(self) -> set[str]:
        """Names under which the times of what waits are learned, of some groups at most."""
        groups = islice(self._groups.values(), LOOKED_AT)
        return {name for group in groups for name in group.apps}

    def _choose(self, key: Hashable, chooser: ChoosesNext, now_s: float) -> Picked:
        group = self._groups[key]
        choice = chooser.choose(group, now_s)
        taken = group.take([*choice.run, *choice.dropped])
        calls = tuple(self._calls[request.number] for request in taken)
        self._left(calls)
        return Picked(run=calls[: len(choice.run)], dropped=calls[len(choice.run) :])

    def _left(self, calls: tuple[Call, ...]) -> None:
        for call in calls:
            del self._calls[call.number]
            key = _group(call)
            if key in self._groups and not self._groups[key]:
                del self._groups[key]

    def _sweep(self) -> None:
        self._heap = [mark for mark in self._heap if mark[1] in self._calls]
        heapq.heapify(self._heap)


def _group(call: Call) -> Hashable:
    """A call alone is a group of its own."""
    return call.number if call.group is None else (call.group, call.avoid)
