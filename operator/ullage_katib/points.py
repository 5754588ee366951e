# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Selection of the points of a service's answer that become trials.

An invalid point is left out with its reason; the others are unaffected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ullage.api.readers import quoted
from ullage.engines.tuning.search_space import Point, SearchSpace, as_text, value_of
from ullage.scheduling.tuning.search import Texts

LONGEST_TEXT: Final = 36
"""Maximum characters of a value in ``spec.suggestions``."""
Assignments = Sequence[tuple[str, str]]
"""Names and values of a point as sent by a service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedPoints:
    """The points of an answer.

    Attributes:
        new: Points that become trials, in the order of the answer.
        repeated: Number of points suggested before.
        refused: Reasons of points outside of the space.
    """

    new: tuple[Texts, ...]
    repeated: int = 0
    refused: tuple[str, ...] = ()


def sort_points(
    answer: Iterable[Assignments],
    space: SearchSpace,
    known: Iterable[Point],
    *,
    allow_repeats: bool = False,
) -> SortedPoints:
    """Separate points that become trials from the others.

    Args:
        answer: Points as sent by a service.
        space: Space of the search.
        known: Points that were suggested before.
        allow_repeats: Let a point that was suggested before become a trial once more.
    """
    seen = {_key(point) for point in known}
    new: list[Texts] = []
    refused: list[str] = []
    repeated = 0
    for assignments in answer:
        problem = _problem(assignments, space)
        if problem:
            refused.append(problem)
            continue
        key = _key(point_of(assignments, space))
        if key in seen and not allow_repeats:
            repeated += 1
            continue
        seen.add(key)
        new.append(_texts(assignments, space))
    return SortedPoints(new=tuple(new), repeated=repeated, refused=tuple(refused))


def point_of(assignments: Assignments, space: SearchSpace) -> Point:
    """The values of a point, as far as the space has them."""
    values = {name: value_of(space.parameters[name], text) for name, text in assignments}
    return {name: value for name, value in values.items() if value is not None}


def _problem(assignments: Assignments, space: SearchSpace) -> str:
    """Reason why a point is outside of the space; "" = it is inside."""
    names = [name for name, _ in assignments]
    unknown = sorted(set(names) - space.parameters.keys())
    missing = sorted(space.parameters.keys() - set(names))
    if unknown:
        return f"the search space has no parameter {quoted(unknown[0])}"
    if missing:
        return f"a point lacks parameter {quoted(missing[0])}"
    if len(names) > len(space.parameters):
        return "a point has a parameter twice"
    for name, text in assignments:
        if value_of(space.parameters[name], text) is None:
            return f"{name}: {quoted(text)} is not in the search space"
    return ""


def _texts(assignments: Assignments, space: SearchSpace) -> Texts:
    """A point unchanged, except for numbers that are too long."""
    values = point_of(assignments, space)
    return tuple(
        (name, text if len(text) <= LONGEST_TEXT else as_text(values[name]))
        for name, text in sorted(assignments)
    )


def _key(point: Point) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(point.items()))
