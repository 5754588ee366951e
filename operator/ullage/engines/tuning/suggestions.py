# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Points of trials: inputs of a sampler, and the limit of its repetitions.

A suggestion is a function of the request alone, so a restarted operator suggests the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

from ullage.engines.tuning.search_space import (
    ChoiceParameter,
    IntRange,
    Point,
    SearchSpace,
    Value,
    random_point,
)

MOST_REPEATS: Final = 4
"""Draws of a sampler for one trial; after them the point is random."""
MOST_RANDOM: Final = 8
"""Random draws for one trial; after them a duplicate is accepted."""
_ANOTHER: Final = 2**32
"""Trial n is drawn again as trial n + 2^32, an unused number."""


class TrialOutcome(StrEnum):
    """End of a trial with a known point."""

    RUNNING = "Running"
    COMPLETE = "Complete"
    STOPPED = "Stopped"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedTrial:
    """A trial with a point: its metric at its last epoch that has one.

    Raises:
        ValueError: it is complete and has no metric.
    """

    trial: int
    point: Point
    outcome: TrialOutcome = TrialOutcome.RUNNING
    epoch: int = 0
    value: float | None = None

    def __post_init__(self) -> None:
        if self.outcome is TrialOutcome.COMPLETE and self.value is None:
            raise ValueError(f"trial {self.trial} is complete and has no metric")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestionRequest:
    """Trials that need a point, and the known results of the others.

    Raises:
        ValueError: a trial appears twice, or a seed is negative.
    """

    space: SearchSpace
    seed: int
    trials: tuple[int, ...]
    observed: tuple[ObservedTrial, ...] = ()
    maximise: bool = True

    def __post_init__(self) -> None:
        numbers = [*self.trials, *(trial.trial for trial in self.observed)]
        if len(set(numbers)) < len(numbers) or min((self.seed, *numbers)) < 0:
            raise ValueError("trials have numbers from 0 on, each of them one, and seeds too")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """The point of a trial; ``repeats`` of the points drawn for it were those of other trials.

    ``at_random`` = the sampler found no new point, ``repeated`` = this one is not new either.
    """

    trial: int
    point: Point
    repeats: int = 0
    at_random: bool = False
    repeated: bool = False


class Sampler(Protocol):
    """Draws one point."""

    def __call__(self, request: SuggestionRequest, trial: int, attempt: int) -> Point:
        """The point of a trial at this attempt, from 0 on; another attempt may give another."""
        ...


def at_random(request: SuggestionRequest, trial: int, attempt: int) -> Point:
    """A uniform draw; see :func:`random_point`."""
    return random_point(request.space, request.seed, trial + attempt * _ANOTHER)


def suggest(request: SuggestionRequest, sampler: Sampler) -> tuple[Suggestion, ...]:
    """Points for the trials of a request, each drawn with the points before it known.

    A duplicate is drawn again, by the sampler at most ``MOST_REPEATS`` and at random at most
    ``MOST_RANDOM`` times; when a space has no unused points, duplicates remain.

    Args:
        request: The request.
        sampler: The sampler.
    """
    suggestions: list[Suggestion] = []
    for trial in sorted(request.trials):
        suggestion = _suggestion(request, sampler, trial)
        suggestions.append(suggestion)
        running = ObservedTrial(trial=trial, point=suggestion.point)
        rest = tuple(other for other in request.trials if other > trial)
        request = replace(request, trials=rest, observed=(*request.observed, running))
    return tuple(suggestions)


def _suggestion(request: SuggestionRequest, sampler: Sampler, trial: int) -> Suggestion:
    used = {_key(observation.point) for observation in request.observed}
    draws = [(sampler, at) for at in range(MOST_REPEATS)]
    draws += [(at_random, at) for at in range(1, MOST_RANDOM + 1)]
    if size(request.space) is not None and len(used) >= (size(request.space) or 0):
        draws = draws[:1]
    point: Point = {}
    for repeats, (draw, attempt) in enumerate(draws):
        point = draw(request, trial, attempt)
        if _key(point) not in used:
            return Suggestion(
                trial=trial, point=point, repeats=repeats, at_random=repeats >= MOST_REPEATS
            )
    return Suggestion(
        trial=trial,
        point=point,
        repeats=len(draws),
        at_random=len(draws) > MOST_REPEATS,
        repeated=True,
    )


def _key(point: Point) -> tuple[tuple[str, type, Value], ...]:
    """Key of equal points: 1, 1.0 and true are three options."""
    return tuple((name, type(value), value) for name, value in sorted(point.items()))


def size(space: SearchSpace) -> int | None:
    """Number of points of a space; ``None`` where a range of it is continuous."""
    points = 1
    for parameter in space.parameters.values():
        if isinstance(parameter, ChoiceParameter):
            points *= len(parameter.options)
        elif isinstance(parameter, IntRange):
            points *= parameter.high - parameter.low + 1
        elif parameter.low < parameter.high:
            return None
    return points


def observed_values(observed: Sequence[ObservedTrial]) -> int:
    """Number of informative trials: they ended, and have a metric."""
    taught = (TrialOutcome.COMPLETE, TrialOutcome.STOPPED)
    return sum(
        observation.outcome in taught and observation.value is not None for observation in observed
    )
