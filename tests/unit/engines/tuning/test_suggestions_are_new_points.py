# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A sampler that repeats itself is asked a few times more, and no space holds a search up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.engines.tuning.search_space import (
    ChoiceParameter,
    FloatRange,
    IntRange,
    Parameter,
    Point,
    SearchSpace,
)
from ullage.engines.tuning.suggestions import (
    MOST_RANDOM,
    MOST_REPEATS,
    ObservedTrial,
    Sampler,
    SuggestionRequest,
    TrialOutcome,
    at_random,
    observed_values,
    size,
    suggest,
)

LETTERS = SearchSpace(parameters={"letter": ChoiceParameter(options=tuple("abcd"))})
WIDE = SearchSpace(parameters={"rate": FloatRange(low=0.0, high=1.0)})


def observed(*letters: str) -> tuple[ObservedTrial, ...]:
    return tuple(ObservedTrial(trial=at, point={"letter": one}) for at, one in enumerate(letters))


def scripted(draws: Sequence[str]) -> tuple[Sampler, list[int]]:
    """A sampler that draws these letters, and the attempts that it was asked for."""
    left: Iterator[str] = iter(draws)
    attempts: list[int] = []

    def draw(request: SuggestionRequest, trial: int, attempt: int) -> Point:
        attempts.append(attempt)
        return {"letter": next(left)}

    return draw, attempts


def test_a_new_point_is_taken_as_it_is() -> None:
    sampler, attempts = scripted("c")
    request = SuggestionRequest(space=LETTERS, seed=1, trials=(2,), observed=observed("a", "b"))
    (found,) = suggest(request, sampler)
    assert (found.trial, found.point, found.repeats) == (2, {"letter": "c"}, 0)
    assert attempts == [0]


def test_a_point_of_another_trial_is_drawn_again() -> None:
    sampler, attempts = scripted("abd")
    request = SuggestionRequest(space=LETTERS, seed=1, trials=(2,), observed=observed("a", "b"))
    (found,) = suggest(request, sampler)
    assert (found.point, found.repeats, found.at_random) == ({"letter": "d"}, 2, False)
    assert attempts == [0, 1, 2]


def test_a_sampler_that_repeats_itself_is_asked_a_few_times_and_then_chance_decides() -> None:
    def stuck(request: SuggestionRequest, trial: int, attempt: int) -> Point:
        return {"rate": 0.5}

    request = SuggestionRequest(space=WIDE, seed=3, trials=tuple(range(20)))
    found = suggest(request, stuck)
    assert found[0].repeats == 0
    assert all((one.repeats, one.at_random) == (MOST_REPEATS, True) for one in found[1:])
    assert len({one.point["rate"] for one in found}) == 20


def test_points_of_a_request_are_drawn_in_the_knowledge_of_those_before() -> None:
    seen: list[tuple[int, ...]] = []

    def draw(request: SuggestionRequest, trial: int, attempt: int) -> Point:
        seen.append(tuple(one.trial for one in request.observed))
        return {"letter": "abcd"[trial]}

    suggest(SuggestionRequest(space=LETTERS, seed=0, trials=(3, 1), observed=observed("a")), draw)
    assert seen == [(0,), (0, 1)]


def test_a_space_whose_points_are_used_up_gives_them_again() -> None:
    sampler, attempts = scripted("a" * 10)
    request = SuggestionRequest(space=LETTERS, seed=1, trials=(4,), observed=observed(*"abcd"))
    (found,) = suggest(request, sampler)
    assert (found.point, found.repeated, found.repeats) == ({"letter": "a"}, True, 1)
    assert attempts == [0]


def test_draws_are_bounded_where_few_points_are_left() -> None:
    space = SearchSpace(parameters={"many": ChoiceParameter(options=tuple(range(1000)))})
    used = tuple(ObservedTrial(trial=at, point={"many": at}) for at in range(999))
    asked: list[int] = []

    def stuck(request: SuggestionRequest, trial: int, attempt: int) -> Point:
        asked.append(attempt)
        return {"many": 7}

    request = SuggestionRequest(space=space, seed=0, trials=(999,), observed=used)
    (found,) = suggest(request, stuck)
    assert asked == list(range(MOST_REPEATS))
    assert found.repeats <= MOST_REPEATS + MOST_RANDOM
    assert found.at_random


def test_one_and_true_are_two_options() -> None:
    space = SearchSpace(parameters={"flag": ChoiceParameter(options=(1, True, 1.0))})
    points = [{"flag": one} for one in (1, True, 1.0)]

    def draw(request: SuggestionRequest, trial: int, attempt: int) -> Point:
        return points[trial]

    found = suggest(SuggestionRequest(space=space, seed=0, trials=(0, 1, 2)), draw)
    assert not any(one.repeated for one in found)
    assert size(space) == 3


@pytest.mark.parametrize(
    ("parameters", "points"),
    [
        ({"a": FloatRange(low=0.0, high=1.0)}, None),
        ({"a": FloatRange(low=1.0, high=1.0)}, 1),
        ({"a": IntRange(low=-2, high=2), "b": ChoiceParameter(options=("x", "y"))}, 10),
        ({"a": IntRange(low=1, high=3), "b": FloatRange(low=0.0, high=1.0)}, None),
    ],
)
def test_spaces_know_how_many_points_they_have(
    parameters: dict[str, Parameter], points: int | None
) -> None:
    assert size(SearchSpace(parameters=parameters)) == points


@pytest.mark.parametrize(
    ("seed", "trials"), [(-1, (0,)), (0, (-1,)), (0, (1, 1)), (0, (0,))], ids=str
)
def test_a_request_that_makes_no_sense_is_refused(seed: int, trials: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="each of them one"):
        SuggestionRequest(space=LETTERS, seed=seed, trials=trials, observed=observed("a"))


def test_a_trial_is_complete_with_a_metric_alone() -> None:
    with pytest.raises(ValueError, match="has no metric"):
        ObservedTrial(trial=0, point={}, outcome=TrialOutcome.COMPLETE)


def test_trials_teach_when_they_ended_with_a_metric() -> None:
    outcomes = [
        (TrialOutcome.COMPLETE, 0.1),
        (TrialOutcome.STOPPED, 0.2),
        (TrialOutcome.STOPPED, None),
        (TrialOutcome.RUNNING, 0.3),
        (TrialOutcome.FAILED, None),
    ]
    seen = [
        ObservedTrial(trial=at, point={}, outcome=outcome, value=value)
        for at, (outcome, value) in enumerate(outcomes)
    ]
    assert observed_values(seen) == 2


@given(st.integers(0, 2**31 - 1), st.permutations(range(6)))
def test_points_do_not_depend_on_the_order_of_the_question(seed: int, order: list[int]) -> None:
    plain = suggest(SuggestionRequest(space=WIDE, seed=seed, trials=tuple(range(6))), at_random)
    asked = suggest(SuggestionRequest(space=WIDE, seed=seed, trials=tuple(order)), at_random)
    assert asked == plain
