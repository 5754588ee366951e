# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests trials from a suggestion service until a TuningJob has all of them.

Its state beside the TuningJob affects only the messages to the service, so it may be killed at any
time. Both sides may fail: every failure has a bound, and the search keeps its trials.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import structlog

from ullage.api.readers import WireError
from ullage.ports import (
    TUNING_JOB,
    ApiError,
    ClusterPort,
    Conflict,
    Forbidden,
    Invalid,
    JsonPatch,
    NotFound,
    Throttled,
)
from ullage.process.doubling import doubled_s
from ullage.scheduling.tuning.search import Texts
from ullage_katib.messages import (
    KatibAlgorithm,
    UnsupportedAlgorithm,
    UnusableAnswer,
    experiment_of,
    points_of,
    request_of,
)
from ullage_katib.points import Assignments, SortedPoints, sort_points
from ullage_katib.search import (
    KatibSearch,
    ReportedTrial,
    end_patch,
    read_search,
    suggestions_patch,
)
from ullage_katib.service import ServiceError, SettingsRefused, SuggestionCalls
from ullage_katib.times import KATIB_RETRY_FIRST_S, KATIB_RETRY_MOST_S

log = structlog.get_logger("ullage_katib")

WRITE_TRIES: Final = 4
"""Attempts after another client changed the spec."""
REFUSALS_BEFORE_FORGETTING: Final = 2
"""Consecutive refusals before a request leaves out trials unknown to the service."""
MOST_SHOWN: Final = 3
"""Maximum rejected points in a log line."""


class NoMoreTries(Exception):
    """Too many consecutive failures; another start may help. The text has the last one."""


class Unusable(Exception):
    """The search and the service are incompatible; no restart helps. The text has the reason."""


class SearchGone(Exception):
    """The TuningJob was deleted, and possibly recreated."""


class Fruitless(Exception):
    """An answer without a new point."""


class Step(Enum):
    """Next step after a check of the search."""

    DONE = "done"
    AGAIN = "look again at once"
    WAIT = "look again in a while"


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeOptions:
    """Options of the user, and time limits.

    Attributes:
        allow_repeats: Run repeated points again.
        tries: Consecutive failures after which it gives up.
        look_s: Seconds between two checks of the TuningJob.
    """

    namespace: str
    name: str
    algorithm: KatibAlgorithm
    allow_repeats: bool = False
    tries: int = 10
    look_s: float = 2.0


class KatibBridge:
    """Between one TuningJob and one suggestion service.

    Args:
        cluster: The API, with the right to get and patch the TuningJob.
        service: The suggestion service.
        options: Options of both.
        pause: Waits for seconds; replaced in tests.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        service: SuggestionCalls,
        options: BridgeOptions,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cluster = cluster
        self._service = service
        self._options = options
        self._pause = pause
        self._uid = ""
        self._validated = False
        self._refusals = 0
        self._own: set[Texts] = set()
        """Points that the service has suggested to this process."""
        self._left_out: set[int] = set()
        """Trials unknown to the service."""
        self._asked_at: int | None = None
        """Number of results when the service had nothing new; another one may change that."""
        self._old_points = 0
        """Points that a restarted service may repeat first."""

    async def run(self) -> None:
        """Suggest trials until the search has all of them, or is over.

        Raises:
            NoMoreTries: too many consecutive failures.
            Unusable: the search, the algorithm or our rights are incompatible.
            SearchGone: the TuningJob was deleted.
        """
        failures = 0
        while True:
            try:
                step = await self._step()
                failures = 0
            except NotFound as error:
                raise SearchGone(f"TuningJob {self._where}: {error.message}") from error
            except (WireError, SettingsRefused, UnsupportedAlgorithm, Forbidden) as error:
                raise Unusable(f"TuningJob {self._where}: {error}") from error
            except (ServiceError, UnusableAnswer, Fruitless, ApiError) as error:
                failures += 1
                if failures >= self._options.tries:
                    raise NoMoreTries(
                        f"TuningJob {self._where}: {failures} failures in a row, the last one: "
                        f"{_text(error)}"
                    ) from error
                log.warning("failed", failures=failures, error=_text(error))
                await self._pause(_pause_s(failures, error))
                continue
            if step is Step.DONE:
                return
            if step is Step.WAIT:
                await self._pause(self._options.look_s)

    @property
    def _where(self) -> str:
        return f"{self._options.namespace}/{self._options.name}"

    async def _step(self) -> Step:
        """Check the search once and add the trials that it needs."""
        search = await self._read()
        if search.over:
            log.info("ended", phase=search.record.status.phase or "Pending")
            return Step.DONE
        if not self._validated:
            await self._service.validate(experiment_of(search, self._options.algorithm))
            self._validated = True
            self._old_points = len(search.points)
        if search.room == 0 or (search.used_up and not self._options.allow_repeats):
            return await self._end(search)
        awaits_result = search.running > 0 and self._asked_at == search.results
        if search.wanted == 0 or awaits_result:
            return Step.WAIT
        self._asked_at = None
        points = await self._ask(search)
        if points.new:
            await self._write(search, points.new)
            return Step.WAIT if len(points.new) == search.wanted else Step.AGAIN
        if points.refused:
            raise UnusableAnswer(points.refused[0])
        if points.repeated and self._old_points > 0:
            self._old_points -= points.repeated
            return Step.WAIT
        if search.running:
            self._asked_at = search.results
            return Step.WAIT
        raise Fruitless(
            f"no point is new ({points.repeated} suggested before); --allow-repeats runs points "
            "once more, spec.suggestionsEnded ends the search"
        )

    async def _read(self) -> KatibSearch:
        raw = await self._cluster.get(
            TUNING_JOB, self._options.name, namespace=self._options.namespace
        )
        search = read_search(raw)
        uid = search.record.ref.uid
        if self._uid and uid != self._uid:
            raise SearchGone(f"TuningJob {self._where} was deleted and made again")
        self._uid = uid
        return search

    async def _ask(self, search: KatibSearch) -> SortedPoints:
        """Report and skip points outside of the space."""
        trials = [trial for trial in search.trials if trial.trial not in self._left_out]
        ways = [trials]
        if self._refusals >= REFUSALS_BEFORE_FORGETTING:
            ways += _shorter(trials, self._own)
        points = sort_points(
            await self._first_answer(search, ways),
            search.record.terms.space,
            search.points,
            allow_repeats=self._options.allow_repeats,
        )
        self._own.update(points.new)
        if points.refused:
            shown = points.refused[:MOST_SHOWN]
            log.warning("points are left out", count=len(points.refused), why=shown)
        return points

    async def _first_answer(
        self, search: KatibSearch, ways: Sequence[Sequence[ReportedTrial]]
    ) -> tuple[Assignments, ...]:
        """Points from the first of these histories that the service accepts.

        Katib's services hold trials in memory, and most fail on unknown ones: after a restart, or
        where another client has suggested some.
        """
        *longer, last = ways
        for trials in longer:
            try:
                return await self._answer(search, trials)
            except ServiceError as error:
                if not error.refused:
                    raise
        return await self._answer(search, last)

    async def _answer(
        self, search: KatibSearch, trials: Sequence[ReportedTrial]
    ) -> tuple[Assignments, ...]:
        algorithm = self._options.algorithm
        try:
            reply = await self._service.suggest(request_of(search, algorithm, trials))
        except ServiceError as error:
            self._refusals += error.refused
            raise
        self._refusals = 0
        left_out = {trial.trial for trial in search.trials} - {trial.trial for trial in trials}
        if left_out - self._left_out:
            log.warning("the service does not know earlier trials", left_out=len(left_out))
            self._old_points = len(search.points)
        self._left_out |= left_out
        return points_of(reply, search.wanted, algorithm)

    async def _write(self, search: KatibSearch, points: Sequence[Texts]) -> None:
        """Add trials; if the spec has changed meanwhile, those for which there is still room."""
        for is_last in (*[False] * (WRITE_TRIES - 1), True):
            try:
                await self._patch(suggestions_patch(search, points))
            except (Invalid, Conflict):
                if is_last:
                    raise
            else:
                log.info("suggested", trials=len(points), running=search.running + len(points))
                return
            search = await self._read()
            if search.over:
                return
            left = sort_points(
                points,
                search.record.terms.space,
                search.points,
                allow_repeats=self._options.allow_repeats,
            )
            points = left.new[: search.wanted]
            if not points:
                return

    async def _end(self, search: KatibSearch) -> Step:
        """Report that no more trials follow; retried if the spec has changed meanwhile."""
        try:
            await self._patch(end_patch(search))
        except (Invalid, Conflict):
            return Step.WAIT
        log.info("no more trials", suggested=len(search.record.terms.stated))
        return Step.DONE

    async def _patch(self, patch: JsonPatch) -> None:
        await self._cluster.json_patch(
            TUNING_JOB, self._options.name, patch, namespace=self._options.namespace
        )


def _shorter(trials: Sequence[ReportedTrial], own: set[Texts]) -> list[list[ReportedTrial]]:
    """Histories that a service is more likely to know: its suggestions to this process, none."""
    known = [trial for trial in trials if trial.texts in own]
    return [way for way in (known, []) if len(way) < len(trials)]


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _pause_s(failures: int, error: Exception) -> float:
    """Seconds until the next attempt; longer if the API server requests it."""
    asked = error.retry_after_s if isinstance(error, Throttled) else 0.0
    return max(asked, doubled_s(KATIB_RETRY_FIRST_S, failures - 1, KATIB_RETRY_MOST_S))
