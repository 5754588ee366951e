# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The space that hyper-parameters are searched in, and its points at random or on a grid.

Trial n of a seed has the same point on every call, so nothing needs to be stored for a restart.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np

MOST_PARAMETERS: Final = 64
MOST_OPTIONS: Final = 1_000
MOST_POINTS: Final = 100_000
"""Maximum number of points of a grid."""
MOST_INTEGER: Final = 2**53
"""Largest whole number that is exact in JSON."""
_NUMBER: Final = re.compile(r"-?[0-9]{1,17}(\.[0-9]{1,30})?([eE][-+]?[0-9]{1,3})?")
_WHOLE: Final = re.compile(r"-?[0-9]{1,16}")
Value = float | int | str | bool
Point = Mapping[str, Value]


class SpaceProblem(StrEnum):
    """Reason to reject a search space."""

    NO_PARAMETERS = "NoParameters"
    TOO_MANY_PARAMETERS = "TooManyParameters"
    NOT_FINITE = "BoundNotFinite"
    EMPTY_RANGE = "RangeEmpty"
    LOG_NOT_POSITIVE = "LogarithmNotPositive"
    NO_OPTIONS = "NoOptions"
    TOO_MANY_OPTIONS = "TooManyOptions"
    REPEATED_OPTION = "OptionRepeated"
    TOO_MANY_POINTS = "GridTooLarge"
    NO_SUCH_POINT = "PointNotInGrid"


class SearchSpaceError(ValueError):
    """An invalid search space; ``problem`` is the reason, the text has the figures."""

    def __init__(self, problem: SpaceProblem, text: str) -> None:
        super().__init__(text)
        self.problem = problem


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatRange:
    """A number from ``low`` to ``high``; uniform in its logarithm with ``log``.

    Raises:
        SearchSpaceError: a bound is not finite, the range is empty, or its logarithm is undefined.
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        _check(self.low, self.high, log=self.log)

    def points(self, per_range: int) -> int:
        """Number of grid values; one where the bounds are equal."""
        return 1 if self.low == self.high else per_range

    def at(self, part: float) -> float:
        """The value at a fraction of the range, 0 to 1."""
        return min(self.high, max(self.low, _between(self.low, self.high, part, log=self.log)))

    def drawn(self, part: float) -> float:
        """The value of a uniform draw, 0 to 1."""
        return self.at(part)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntRange:
    """A whole number from ``low`` to ``high``, inclusive; uniform in its logarithm with ``log``.

    Raises:
        SearchSpaceError: a bound is too large, the range is empty, or its logarithm is undefined.
    """

    low: int
    high: int
    log: bool = False

    def __post_init__(self) -> None:
        if max(abs(self.low), abs(self.high)) > MOST_INTEGER:
            raise SearchSpaceError(
                SpaceProblem.NOT_FINITE,
                f"a bound is beyond {MOST_INTEGER}: {self.low}, {self.high}",
            )
        _check(self.low, self.high, log=self.log)

    def points(self, per_range: int) -> int:
        """Number of grid values, at most the number of values."""
        return min(per_range, self.high - self.low + 1)

    def at(self, part: float) -> int:
        """The nearest value at a fraction of the range, 0 to 1."""
        value = _between(self.low, self.high, part, log=self.log)
        return min(self.high, max(self.low, round(value)))

    def drawn(self, part: float) -> int:
        """The value of a uniform draw, 0 to 1: whole numbers have equal widths."""
        value = _between(self.low - 0.5, self.high + 0.5, part, log=self.log)
        return min(self.high, max(self.low, round(value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceParameter:
    """One of the options, all equally likely.

    Raises:
        SearchSpaceError: there is no option, a duplicate, or too many.
    """

    options: tuple[Value, ...]
    _by_text: Mapping[str, Value] = field(init=False, repr=False, compare=False)
    _steps: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.options:
            raise SearchSpaceError(SpaceProblem.NO_OPTIONS, "a choice has at least one option")
        if len(self.options) > MOST_OPTIONS:
            raise SearchSpaceError(
                SpaceProblem.TOO_MANY_OPTIONS,
                f"a choice has {len(self.options)} options: {MOST_OPTIONS} at most",
            )
        if len({(type(option), option) for option in self.options}) < len(self.options):
            raise SearchSpaceError(
                SpaceProblem.REPEATED_OPTION, "an option of a choice is there twice"
            )
        by_text = {as_text(option): option for option in reversed(self.options)}
        object.__setattr__(self, "_by_text", by_text)
        floats = sorted(option for option in self.options if isinstance(option, float))
        object.__setattr__(self, "_steps", tuple(floats))

    def called(self, text: str) -> Value | None:
        """The option of a text; ``None`` = none.

        A number also matches a step, since another program's arithmetic may differ in the last
        digits.
        """
        exact = self._by_text.get(text)
        if exact is not None or not self._steps or not _NUMBER.fullmatch(text):
            return exact
        number = float(text)
        at = bisect_left(self._steps, number)
        nearest = min(self._steps[max(0, at - 1) : at + 1], key=lambda step: abs(step - number))
        return nearest if math.isclose(nearest, number, rel_tol=1e-9) else None

    def points(self, per_range: int) -> int:
        """Number of grid values: all options."""
        del per_range
        return len(self.options)

    def at(self, part: float) -> Value:
        """The option at a fraction of their order, 0 to 1."""
        return self.options[round(part * (len(self.options) - 1))]

    def drawn(self, part: float) -> Value:
        """The option of a uniform draw, 0 to 1."""
        return self.options[min(len(self.options) - 1, int(part * len(self.options)))]


Parameter = FloatRange | IntRange | ChoiceParameter


def _check(low: float, high: float, *, log: bool) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and math.isfinite(high - low)):
        raise SearchSpaceError(SpaceProblem.NOT_FINITE, f"from {low} to {high} is not finite")
    if low > high:
        raise SearchSpaceError(SpaceProblem.EMPTY_RANGE, f"there is nothing from {low} to {high}")
    if log and low <= 0:
        raise SearchSpaceError(
            SpaceProblem.LOG_NOT_POSITIVE, f"a logarithmic range begins above 0, not at {low}"
        )


def _between(low: float, high: float, part: float, *, log: bool) -> float:
    """The number at a fraction of a range; its ends are exact."""
    if part in {0.0, 1.0}:
        return high if part else low
    if log:
        return math.exp(_between(math.log(low), math.log(high), part, log=False))
    return low + part * (high - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """Parameters by name, in their order.

    Raises:
        SearchSpaceError: there is no parameter, or there are too many.
    """

    parameters: Mapping[str, Parameter]

    def __post_init__(self) -> None:
        if not self.parameters:
            raise SearchSpaceError(SpaceProblem.NO_PARAMETERS, "there is no parameter to search")
        if len(self.parameters) > MOST_PARAMETERS:
            raise SearchSpaceError(
                SpaceProblem.TOO_MANY_PARAMETERS,
                f"there are {len(self.parameters)} parameters: {MOST_PARAMETERS} at most",
            )


def as_text(value: Value) -> str:
    """A value of a parameter, as passed to a trial."""
    return repr(value) if isinstance(value, float) else str(value)


def value_of(parameter: Parameter, text: str) -> Value | None:
    """The value of a text; ``None`` = not a value of the parameter."""
    if isinstance(parameter, ChoiceParameter):
        return parameter.called(text)
    if not _NUMBER.fullmatch(text):
        return None
    if isinstance(parameter, IntRange) and not _WHOLE.fullmatch(text):
        return None
    value = float(text) if isinstance(parameter, FloatRange) else int(text)
    return value if parameter.low <= value <= parameter.high else None


def random_point(space: SearchSpace, seed: int, trial: int) -> Point:
    """The point of a trial, drawn uniformly.

    Args:
        space: The space.
        seed: Seed of the whole search, 0 or more.
        trial: Number of the trial, 0 or more; any order of calls gives the same points.

    Raises:
        ValueError: seed or trial is negative.
    """
    parts = np.random.default_rng((seed, trial)).random(len(space.parameters))
    return {
        name: parameter.drawn(part)
        for (name, parameter), part in zip(space.parameters.items(), parts.tolist(), strict=True)
    }


def grid_size(space: SearchSpace, per_range: int) -> int:
    """Points of the grid.

    Args:
        space: The space.
        per_range: Values of each range, bounds included; a range of 1 is its low end.

    Raises:
        SearchSpaceError: there are too many points, or less than one value per range.
    """
    return math.prod(_counts(space, per_range))


def grid_point(space: SearchSpace, per_range: int, trial: int) -> Point:
    """The point of a trial on the grid; the last parameter changes fastest.

    Args:
        space: The space.
        per_range: Values of each range, bounds included.
        trial: From 0 to the size of the grid, exclusive.

    Raises:
        SearchSpaceError: there are too many points, or this one is not among them.
    """
    counts = _counts(space, per_range)
    size = math.prod(counts)
    if not 0 <= trial < size:
        raise SearchSpaceError(
            SpaceProblem.NO_SUCH_POINT, f"the grid has {size} points, no point {trial}"
        )
    places = np.unravel_index(trial, counts)
    return {
        name: parameter.at(int(place) / max(1, count - 1))
        for (name, parameter), place, count in zip(
            space.parameters.items(), places, counts, strict=True
        )
    }


def _counts(space: SearchSpace, per_range: int) -> Sequence[int]:
    if per_range < 1:
        raise SearchSpaceError(
            SpaceProblem.EMPTY_RANGE, f"a grid has at least 1 value a range, not {per_range}"
        )
    counts = [parameter.points(per_range) for parameter in space.parameters.values()]
    size = math.prod(counts)
    if size > MOST_POINTS:
        raise SearchSpaceError(
            SpaceProblem.TOO_MANY_POINTS, f"the grid has {size} points: {MOST_POINTS} at most"
        )
    return counts
