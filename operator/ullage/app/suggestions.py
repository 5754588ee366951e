# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests the points of trials from a separate process, one search at a time, with a deadline.

It never decides and never writes: the next step of a search makes trials of its points. A search
whose suggestions fail gets random points, so that a library that hangs or raises costs that search
quality, never time. Other searches are unaffected.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from ullage.app.separate_process import ProcessRefused, end_at_once, separate_process, submit
from ullage.app.suggestion_worker import Suggested, settle_in, suggest_in_worker
from ullage.app.times import (
    BACKGROUND_BACKOFF_FIRST_S,
    BACKGROUND_BACKOFF_MOST_S,
    BACKGROUND_LOOK_S,
    SUGGESTION_IDLE_S,
    SUGGESTION_REST_MOST_S,
    SUGGESTION_S,
)
from ullage.engines.tuning.suggestions import (
    ObservedTrial,
    Suggestion,
    SuggestionRequest,
    at_random,
    suggest,
)
from ullage.metrics.suggestions import SuggestionFigures
from ullage.ports import Clock
from ullage.process.doubling import doubled_s

log = structlog.get_logger("ullage.suggestions")

REST: Final = 4.0
"""Pause of the process after an answer, as a multiple of its time: a fifth of a core at most."""
AT_ONCE: Final = 16
"""Trials of a search that get a point before the next search has its turn."""

Search = str
"""Uid of a TuningJob."""
Requests = Mapping[Search, SuggestionRequest]
PointsBySearch = Mapping[Search, tuple[Suggestion, ...]]


def own_process() -> Executor:
    """One process with the lowest CPU priority."""
    return separate_process(settle_in)


class SuggestionFailed(Exception):
    """An answer was late or raised, or its process died; the text has the reason."""


@dataclass(slots=True)
class SuggestionStats:
    """Figures, read by the metrics collector."""

    suggested: int = 0
    seconds: float = 0.0
    """Total work of the process, seconds."""
    repeated: int = 0
    """Drawn points that duplicate another trial's."""
    at_random: int = 0
    """Random points, where the sampler had no new one or failed."""
    late: int = 0
    crashes: int = 0
    refused: int = 0
    """Requests that raised."""


@dataclass(slots=True)
class _Search:
    """Points of a search that no trial uses yet, and its failures."""

    points: dict[int, Suggestion] = field(default_factory=dict)
    failures: int = 0
    until: float = 0.0
    """Earliest time of the next request, monotonic seconds."""


class SuggestionService:
    """Owns the process and answers requests in turn."""

    def __init__(
        self,
        *,
        requests: Callable[[], Requests | None],
        publish: Callable[[PointsBySearch], None],
        clock: Clock,
        deadline_s: float = SUGGESTION_S,
        work: Callable[[bytes], bytes] = suggest_in_worker,
        executor: Callable[[], Executor] = own_process,
    ) -> None:
        """``requests`` returns trials that need points, ``None`` where this replica must not ask.

        ``publish`` gets all points whenever these change.
        """
        self._requests = requests
        self._publish = publish
        self._clock = clock
        self._deadline_s = deadline_s
        self._work = work
        self._executor = executor
        self._pool: Executor | None = None
        self._searches: dict[Search, _Search] = {}
        self._asked_at = 0.0
        self._woken = asyncio.Event()
        self.stats = SuggestionStats()

    def wake(self) -> None:
        """Check at once."""
        self._woken.set()

    async def run(self) -> None:
        """Answer until cancelled."""
        while True:
            rest_s = await self.step()
            if rest_s is None:
                self._woken.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(BACKGROUND_LOOK_S):
                        await self._woken.wait()
            else:
                await asyncio.sleep(min(SUGGESTION_REST_MOST_S, rest_s))

    async def step(self) -> float | None:
        """Answer at most one request; returns seconds of pause, ``None`` = nothing is requested."""
        requests = self._requests()
        if requests is None:
            return None
        self._keep(requests)
        key, now = self._next(requests), self._clock.monotonic()
        if key is None:
            if now - self._asked_at >= SUGGESTION_IDLE_S:
                self.close()
            return None
        search = self._searches.pop(key)
        self._searches[key] = search  # the last in the next turn
        request = _missing(requests[key], search.points)
        if now < search.until:
            self._take(search, suggest(request, at_random), failed=True)
            rest_s = 0.0
        else:
            rest_s = await self._ask(key, search, request)
        self._publish(self.points())
        return rest_s

    async def _ask(self, key: Search, search: _Search, request: SuggestionRequest) -> float:
        """Query the process; random points where it fails. Returns seconds of pause."""
        try:
            answer = await self._call(request)
        except SuggestionFailed as error:
            wait_s = doubled_s(
                BACKGROUND_BACKOFF_FIRST_S, search.failures, BACKGROUND_BACKOFF_MOST_S
            )
            search.failures += 1
            search.until = self._clock.monotonic() + wait_s
            log.warning(
                "suggestions failed; trials get random points",
                tuning_job=key,
                error=str(error),
                seconds=wait_s,
            )
            self._take(search, suggest(request, at_random), failed=True)
            return 0.0
        search.failures, search.until = 0, 0.0
        self.stats.seconds += answer.seconds
        self._take(search, answer.suggestions)
        return REST * answer.seconds

    def points(self) -> PointsBySearch:
        """Points of every search that has some."""
        return {
            key: tuple(search.points.values())
            for key, search in self._searches.items()
            if search.points
        }

    def figures(self) -> SuggestionFigures:
        """Figures of the metrics."""
        stats = self.stats
        return SuggestionFigures(
            points={
                "new": stats.suggested - stats.at_random,
                "random": stats.at_random,
                "repeated": stats.repeated,
            },
            failures={"late": stats.late, "crashed": stats.crashes, "refused": stats.refused},
            seconds=stats.seconds,
        )

    def forget(self) -> None:
        """Reset to the initial state."""
        self._searches.clear()
        self.close()

    def close(self) -> None:
        """Kill the process."""
        if self._pool is None:
            return
        end_at_once(self._pool)
        self._pool = None

    def _keep(self, requests: Requests) -> None:
        """Drop points that are no longer requested."""
        for key in self._searches.keys() - requests.keys():
            del self._searches[key]
        for key, request in requests.items():
            search = self._searches.setdefault(key, _Search())
            wanted = set(request.trials)
            search.points = {at: point for at, point in search.points.items() if at in wanted}

    def _next(self, requests: Requests) -> Search | None:
        """The search that waited longest among those that lack a point."""
        for key, search in self._searches.items():
            if any(trial not in search.points for trial in requests[key].trials):
                return key
        return None

    def _take(
        self, search: _Search, suggestions: tuple[Suggestion, ...], *, failed: bool = False
    ) -> None:
        for suggestion in suggestions:
            self.stats.suggested += 1
            self.stats.repeated += suggestion.repeats
            self.stats.at_random += failed or suggestion.at_random
            search.points[suggestion.trial] = suggestion

    async def _call(self, request: SuggestionRequest) -> Suggested:
        """Query the process.

        Raises:
            SuggestionFailed: see its text.
        """
        payload = pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL)
        self._asked_at = self._clock.monotonic()
        try:
            if self._pool is None:
                self._pool = self._executor()
            future = submit(self._pool, self._work, payload)
            async with asyncio.timeout(self._deadline_s):
                reply = await asyncio.wrap_future(future)
        except TimeoutError:
            self.stats.late += 1
            self.close()
            raise SuggestionFailed(f"no suggestion within {self._deadline_s:g} s") from None
        except ProcessRefused as error:
            self.stats.crashes += 1
            self.close()
            raise SuggestionFailed(str(error)) from error
        except BrokenProcessPool as error:
            self.stats.crashes += 1
            self.close()
            raise SuggestionFailed(f"the process died: {error}") from error
        except asyncio.CancelledError:
            self.close()
            raise
        except Exception as error:  # whatever the library raised, in the child
            self.stats.refused += 1
            raise SuggestionFailed(f"{type(error).__name__}: {error}") from error
        answer: Suggested = pickle.loads(reply)
        if {suggestion.trial for suggestion in answer.suggestions} != set(request.trials):
            self.stats.refused += 1
            raise SuggestionFailed("the answer is for other trials")
        return answer


def _missing(request: SuggestionRequest, points: Mapping[int, Suggestion]) -> SuggestionRequest:
    """The request for the first trials without a point; those that have one count as running."""
    answered = tuple(
        ObservedTrial(trial=at, point=suggestion.point) for at, suggestion in points.items()
    )
    trials = tuple(trial for trial in request.trials if trial not in points)[:AT_ONCE]
    return replace(request, trials=trials, observed=(*request.observed, *answered))
