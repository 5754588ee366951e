# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A suggestion that hangs, dies, raises or repeats costs its own search quality, never time."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

import pytest

from fakes.lesson_rig import Inline, die, hang
from ullage.app.suggestion_worker import Suggested
from ullage.app.suggestions import AT_ONCE, REST, PointsBySearch, SuggestionService, own_process
from ullage.app.times import BACKGROUND_BACKOFF_FIRST_S, SUGGESTION_IDLE_S
from ullage.engines.tuning.search_space import FloatRange, Point, SearchSpace
from ullage.engines.tuning.suggestions import MOST_REPEATS, SuggestionRequest, suggest

SPACE = SearchSpace(parameters={"rate": FloatRange(low=0.0, high=1.0)})


def wanted(*trials: int, seed: int = 0) -> SuggestionRequest:
    return SuggestionRequest(space=SPACE, seed=seed, trials=trials)


def answered(request: SuggestionRequest, draw: Callable[[int], float], seconds: float) -> bytes:
    def sampler(request: SuggestionRequest, trial: int, attempt: int) -> Point:
        return {"rate": draw(trial)}

    return pickle.dumps(Suggested(suggestions=suggest(request, sampler), seconds=seconds))


def points_in_order(payload: bytes) -> bytes:
    return answered(pickle.loads(payload), lambda trial: trial / 1000, seconds=0.5)


def the_same_point(payload: bytes) -> bytes:
    return answered(pickle.loads(payload), lambda trial: 0.5, seconds=0.5)


def raises_for_seed_7(payload: bytes) -> bytes:
    request: SuggestionRequest = pickle.loads(payload)
    if request.seed == 7:
        raise ValueError("no such space")
    return points_in_order(payload)


def of_other_trials(payload: bytes) -> bytes:
    return answered(wanted(900), lambda trial: 0.0, seconds=0.5)


@dataclass
class Searches:
    """What searches want, the time, and what was published last."""

    requests: dict[str, SuggestionRequest] | None = field(default_factory=dict)
    time_s: float = 1000.0
    found: PointsBySearch = field(default_factory=dict)

    def now(self) -> float:
        return self.time_s

    def monotonic(self) -> float:
        return self.time_s

    def take(self, found: PointsBySearch) -> None:
        self.found = found

    def service(
        self,
        work: Callable[[bytes], bytes],
        executor: Callable[[], Executor] = Inline,
        deadline_s: float = 60.0,
    ) -> SuggestionService:
        return SuggestionService(
            requests=lambda: self.requests,
            publish=self.take,
            clock=self,
            deadline_s=deadline_s,
            work=work,
            executor=executor,
        )

    def rates(self, key: str = "a") -> dict[int, object]:
        return {one.trial: one.point["rate"] for one in self.found.get(key, ())}


async def test_points_are_published_and_then_nothing_is_asked() -> None:
    searches = Searches({"a": wanted(3, 4)})
    service = searches.service(points_in_order)
    assert await service.step() == REST * 0.5
    assert searches.rates() == {3: 0.003, 4: 0.004}
    assert await service.step() is None
    assert (service.stats.suggested, service.stats.at_random) == (2, 0)


async def test_a_point_that_is_held_stays_until_its_trial_has_it() -> None:
    searches = Searches({"a": wanted(3)})
    service = searches.service(points_in_order)
    await service.step()
    searches.requests = {"a": wanted(3, 4)}
    await service.step()
    assert searches.rates() == {3: 0.003, 4: 0.004}
    assert service.stats.suggested == 2
    searches.requests = {"a": wanted(4)}
    assert await service.step() is None
    assert [one.trial for one in service.points()["a"]] == [4]
    searches.requests = {}
    await service.step()
    assert service.points() == {}


async def test_a_replica_that_does_not_lead_asks_nothing() -> None:
    searches = Searches(None)
    assert await searches.service(die).step() is None


async def test_searches_take_turns() -> None:
    searches = Searches({key: wanted(0) for key in "abc"})
    service = searches.service(points_in_order)
    order: list[str] = []
    for _ in range(6):
        await service.step()
        order += [key for key in "abc" if key in searches.found and key not in order]
        searches.requests = {key: wanted(0, 1) for key in "abc"}
    assert order == ["a", "b", "c"]
    assert all(len(searches.rates(key)) == 2 for key in "abc")


async def test_one_that_wants_many_points_gets_some_at_each_turn() -> None:
    searches = Searches({"a": wanted(*range(3 * AT_ONCE)), "b": wanted(0)})
    service = searches.service(points_in_order)
    await service.step()
    await service.step()
    assert len(searches.rates("a")) == AT_ONCE
    assert len(searches.rates("b")) == 1
    for _ in range(2):
        await service.step()
    assert list(searches.rates("a")) == list(range(3 * AT_ONCE))


async def test_a_sampler_that_repeats_itself_is_counted() -> None:
    searches = Searches({"a": wanted(0, 1, 2)})
    service = searches.service(the_same_point)
    await service.step()
    assert len(set(searches.rates().values())) == 3
    assert service.stats.repeated == 2 * MOST_REPEATS
    assert service.stats.at_random == 2


@pytest.mark.parametrize("work", [raises_for_seed_7, of_other_trials])
async def test_what_fails_gets_points_at_random_and_is_asked_again_later(
    work: Callable[[bytes], bytes],
) -> None:
    searches = Searches({"a": wanted(0, seed=7)})
    service = searches.service(work)
    assert await service.step() == 0.0
    first = searches.rates()
    assert list(first) == [0]
    assert (service.stats.refused, service.stats.at_random) == (1, 1)
    searches.requests = {"a": wanted(1, seed=7)}
    await service.step()
    assert (service.stats.refused, service.stats.at_random) == (1, 2)
    searches.time_s += BACKGROUND_BACKOFF_FIRST_S
    searches.requests = {"a": wanted(2, seed=7)}
    await service.step()
    assert (service.stats.refused, service.stats.at_random) == (2, 3)
    searches.time_s += BACKGROUND_BACKOFF_FIRST_S  # twice as long after the second failure
    searches.requests = {"a": wanted(3, seed=7)}
    await service.step()
    assert service.stats.refused == 2
    assert list(searches.rates()) == [3]


async def test_a_search_that_fails_does_not_disturb_others() -> None:
    searches = Searches({"bad": wanted(0, seed=7), "good": wanted(0)})
    service = searches.service(raises_for_seed_7)
    await service.step()
    await service.step()
    assert searches.rates("good") == {0: 0.0}
    assert len(searches.rates("bad")) == 1
    assert service.stats.at_random == 1


def pids(service: SuggestionService) -> list[int]:
    return list(getattr(service._pool, "_processes", None) or {})


@pytest.mark.slow
@pytest.mark.parametrize(("work", "count"), [(hang, "late"), (die, "crashes")])
async def test_a_process_that_hangs_or_dies_is_replaced(
    work: Callable[[bytes], bytes], count: str
) -> None:
    searches = Searches({"a": wanted(0)})
    service = searches.service(work, own_process, deadline_s=0.2 if work is hang else 60.0)
    try:
        await service.step()
        assert list(searches.rates()) == [0]
        assert getattr(service.stats, count) == 1
        assert service._pool is None
    finally:
        service.close()


@pytest.mark.slow
async def test_a_real_process_answers_and_ends_when_no_one_asks() -> None:
    searches = Searches({"a": wanted(0)})
    service = searches.service(points_in_order, own_process)
    try:
        assert service._pool is None  # clusters without searches pay nothing
        await service.step()
        (pid,) = pids(service)
        assert os.getpriority(os.PRIO_PROCESS, pid) >= 10
        searches.requests = {}
        searches.time_s += SUGGESTION_IDLE_S - 1
        await service.step()
        assert pids(service) == [pid]
        searches.time_s += 1
        await service.step()
        assert service._pool is None
    finally:
        service.close()


async def test_a_stop_ends_the_process_at_once() -> None:
    searches = Searches({"a": wanted(0)})
    service = searches.service(hang, own_process)
    running = asyncio.create_task(service.run())
    while service._pool is None:
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert service._pool is None
    assert searches.found == {}
