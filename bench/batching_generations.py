# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Plays requests for text through the router's own order and replicas that batch continuously.

A replica makes one token for each request that it runs in a step; a step takes a fixed time, more
for each request, and more for the prompts that begin in it. The order never sees how many tokens
an answer will have; only the simulated replicas do.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.batching_play import Outcome
from ullage.engines.batching.generative_order import GenerativeChooser
from ullage.engines.batching.waiting import BatchRequest, WaitingRequests


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """Seconds of a step: ``fixed_s`` + ``each_s`` * requests + ``prompt_s`` * new prompt tokens."""

    fixed_s: float
    each_s: float
    prompt_s: float

    def step_s(self, running: int, prompt_tokens: int = 0) -> float:
        """The time of one step."""
        return self.fixed_s + self.each_s * running + self.prompt_s * prompt_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A request as the replicas see it; its deadline is that of the first token."""

    request: BatchRequest
    prompt_tokens: int
    output_tokens: int


@dataclass(slots=True, kw_only=True)
class SimulatedReplica:
    """Runs ``places`` requests at once; others wait inside in the order in which they came."""

    places: int
    costs: StepCosts
    waiting: deque[int] = field(default_factory=deque)
    running: dict[int, int] = field(default_factory=dict)
    """Tokens that are still to come."""
    stepping: bool = False

    @property
    def held(self) -> int:
        """Requests that it has."""
        return len(self.waiting) + len(self.running)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedGenerations:
    """Outcomes by request, and when each had its first token; seconds, -1 where it had none."""

    outcomes: tuple[Outcome, ...]
    first_s: tuple[float, ...]

    @property
    def attainment(self) -> float:
        """The part of all requests whose first token was in time."""
        return sum(outcome is Outcome.MET for outcome in self.outcomes) / len(self.outcomes)


@dataclass(slots=True, kw_only=True)
class _Play:
    """The state of one run; ``step`` begins a replica's next step, ``end`` ends it."""

    requests: list[Generation]
    replicas: list[SimulatedReplica]
    ends: list[tuple[float, int]] = field(default_factory=list)
    first_s: dict[int, float] = field(default_factory=dict)

    def give(self, replica: int, request: int, now_s: float) -> None:
        self.replicas[replica].waiting.append(request)
        if not self.replicas[replica].stepping:
            self.step(replica, now_s)

    def step(self, number: int, now_s: float) -> None:
        replica, prompts = self.replicas[number], 0
        while replica.waiting and len(replica.running) < replica.places:
            request = replica.waiting.popleft()
            replica.running[request] = self.requests[request].output_tokens
            prompts += self.requests[request].prompt_tokens
        replica.stepping = bool(replica.running)
        if replica.stepping:
            took = replica.costs.step_s(len(replica.running), prompts)
            heapq.heappush(self.ends, (now_s + took, number))

    def end(self, number: int, now_s: float) -> None:
        running = self.replicas[number].running
        for request in list(running):
            self.first_s.setdefault(request, now_s)
            running[request] -= 1
            if not running[request]:
                del running[request]


def play_generations(
    requests: list[Generation],
    replicas: list[SimulatedReplica],
    chooser: GenerativeChooser | None,
) -> PlayedGenerations:
    """Play requests in order of arrival; their numbers are their places in the list.

    Args:
        requests: By arrival.
        replicas: All idle.
        chooser: Orders what waits before the replicas, each of which is given as many as it has
            places; ``None`` hands them out in turn as they come, as a plain proxy does.
    """
    play = _Play(requests=requests, replicas=replicas)
    waiting, dropped = WaitingRequests(), set[int]()

    def dispatch(now_s: float) -> None:
        while chooser is not None and waiting:
            free = [
                number for number, replica in enumerate(replicas) if replica.held < replica.places
            ]
            if not free:
                return
            choice = chooser.choose(waiting, now_s)
            gone = waiting.take([*choice.run, *choice.dropped])
            dropped.update(request.number for request in gone[len(choice.run) :])
            for request in gone[: len(choice.run)]:
                least = min(free, key=lambda number: replicas[number].held)
                play.give(least, request.number, now_s)
            if not choice.run:
                return

    for at, generation in enumerate(requests):
        now_s = generation.request.arrival_s
        while play.ends and play.ends[0][0] <= now_s:
            _ended(play, dispatch)
        if chooser is None:
            play.give(at % len(replicas), at, now_s)
        else:
            waiting.add(generation.request)
            dispatch(now_s)
    while play.ends:
        _ended(play, dispatch)
    dropped.update(request.number for request in waiting)
    return PlayedGenerations(
        outcomes=tuple(_outcome(generation, play.first_s, dropped) for generation in requests),
        first_s=tuple(play.first_s.get(generation.request.number, -1.0) for generation in requests),
    )


def _ended(play: _Play, dispatch: Callable[[float], None]) -> None:
    """End the step that ends first; what comes free is given away before the next one begins."""
    now_s, number = heapq.heappop(play.ends)
    play.end(number, now_s)
    dispatch(now_s)
    play.step(number, now_s)


def _outcome(generation: Generation, first_s: dict[int, float], dropped: set[int]) -> Outcome:
    if generation.request.number in dropped:
        return Outcome.DROPPED
    late = first_s[generation.request.number] > generation.request.deadline_s
    return Outcome.LATE if late else Outcome.MET
