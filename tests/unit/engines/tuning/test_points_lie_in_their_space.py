# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Points lie in their space, come back after a restart, and a space without points is refused."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ullage.engines.tuning.search_space import (
    MOST_INTEGER,
    ChoiceParameter,
    FloatRange,
    IntRange,
    Parameter,
    Point,
    SearchSpace,
    SearchSpaceError,
    SpaceProblem,
    as_text,
    grid_point,
    grid_size,
    random_point,
    value_of,
)

SPACE = SearchSpace(
    parameters={
        "rate": FloatRange(low=1e-5, high=1e-1, log=True),
        "layers": IntRange(low=1, high=3),
        "activation": ChoiceParameter(options=("relu", "gelu")),
    }
)


def grid(space: SearchSpace, per_range: int) -> list[Point]:
    return [grid_point(space, per_range, at) for at in range(grid_size(space, per_range))]


def test_a_grid_takes_bounds_every_option_and_no_point_twice() -> None:
    found = grid(SPACE, 5)
    assert len(found) == 5 * 3 * 2 == len({tuple(one.items()) for one in found})
    assert sorted({one["rate"] for one in found}) == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2, 1e-1])
    assert {one["layers"] for one in found} == {1, 2, 3}
    assert [one["activation"] for one in found[:2]] == ["relu", "gelu"]


def test_a_grid_of_one_value_a_range_takes_the_low_end() -> None:
    space = SearchSpace(parameters={"x": FloatRange(low=2.0, high=4.0)})
    assert grid(space, 1) == [{"x": 2.0}]


def test_draws_are_even() -> None:
    drawn = [random_point(SPACE, 7, trial) for trial in range(3000)]
    assert Counter(one["layers"] for one in drawn).keys() == {1, 2, 3}
    for count in Counter(one["layers"] for one in drawn).values():
        assert 850 < count < 1150
    small = sum(float(one["rate"]) < 1e-3 for one in drawn)
    assert 1350 < small < 1650


def test_a_trial_has_the_same_point_after_a_restart() -> None:
    first = [random_point(SPACE, 7, trial) for trial in range(10)]
    assert [random_point(SPACE, 7, trial) for trial in reversed(range(10))] == first[::-1]
    assert first != [random_point(SPACE, 8, trial) for trial in range(10)]
    assert len({one["rate"] for one in first}) == 10


@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_no_draw_leaves_its_range(one: float, other: float, log: bool, trial: int) -> None:
    low, high = min(one, other), max(one, other)
    assume(math.isfinite(high - low) and (low > 0 or not log))
    space = SearchSpace(parameters={"x": FloatRange(low=low, high=high, log=log)})
    assert low <= float(random_point(space, 0, trial)["x"]) <= high
    assert all(low <= float(point["x"]) <= high for point in grid(space, 4))


@given(
    st.integers(1, MOST_INTEGER), st.integers(1, MOST_INTEGER), st.booleans(), st.integers(0, 99)
)
def test_no_whole_number_leaves_its_range(one: int, other: int, log: bool, trial: int) -> None:
    low, high = min(one, other), max(one, other)
    space = SearchSpace(parameters={"x": IntRange(low=low, high=high, log=log)})
    assert low <= random_point(space, 0, trial)["x"] <= high  # type: ignore[operator]
    found = [point["x"] for point in grid(space, 3)]
    assert (found[0], found[-1]) == (low, low if high == low else high)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: SearchSpace(parameters={}), SpaceProblem.NO_PARAMETERS),
        (
            lambda: SearchSpace(parameters={str(at): IntRange(low=0, high=1) for at in range(65)}),
            SpaceProblem.TOO_MANY_PARAMETERS,
        ),
        (lambda: FloatRange(low=math.nan, high=1.0), SpaceProblem.NOT_FINITE),
        (lambda: FloatRange(low=0.0, high=math.inf), SpaceProblem.NOT_FINITE),
        (lambda: FloatRange(low=-1.7e308, high=1.7e308), SpaceProblem.NOT_FINITE),
        (lambda: IntRange(low=0, high=10**400), SpaceProblem.NOT_FINITE),
        (lambda: FloatRange(low=1.0, high=0.0), SpaceProblem.EMPTY_RANGE),
        (lambda: IntRange(low=5, high=4), SpaceProblem.EMPTY_RANGE),
        (lambda: FloatRange(low=0.0, high=1.0, log=True), SpaceProblem.LOG_NOT_POSITIVE),
        (lambda: ChoiceParameter(options=()), SpaceProblem.NO_OPTIONS),
        (lambda: ChoiceParameter(options=("a", "a")), SpaceProblem.REPEATED_OPTION),
        (lambda: ChoiceParameter(options=tuple(range(1001))), SpaceProblem.TOO_MANY_OPTIONS),
        (lambda: grid_size(SPACE, 0), SpaceProblem.EMPTY_RANGE),
        (lambda: grid_size(SPACE, 10**6), SpaceProblem.TOO_MANY_POINTS),
        (lambda: grid_point(SPACE, 2, 8), SpaceProblem.NO_SUCH_POINT),
        (lambda: grid_point(SPACE, 2, -1), SpaceProblem.NO_SUCH_POINT),
    ],
)
def test_what_has_no_points_is_refused_with_its_reason(make: object, problem: SpaceProblem) -> None:
    with pytest.raises(SearchSpaceError) as caught:
        make()  # type: ignore[operator]
    assert caught.value.problem is problem


def test_true_and_one_are_different_options() -> None:
    space = SearchSpace(parameters={"x": ChoiceParameter(options=(True, 1, 1.0))})
    assert [type(point["x"]) for point in grid(space, 1)] == [bool, int, float]


@pytest.mark.parametrize(
    ("parameter", "said", "value"),
    [
        (FloatRange(low=0.0, high=1.0), "0.5", 0.5),
        (FloatRange(low=0.0, high=1.0), "1e-4", 1e-4),
        (FloatRange(low=0.0, high=1.0), "1.5", None),
        (FloatRange(low=0.0, high=1.0), "nan", None),
        (FloatRange(low=0.0, high=1.0), "0_1", None),
        (FloatRange(low=0.0, high=1.0), "", None),
        (IntRange(low=-2, high=9), "-2", -2),
        (IntRange(low=-2, high=9), "3.0", None),
        (IntRange(low=-2, high=9), "10", None),
        (IntRange(low=-2, high=9), "9" * 400, None),
        (ChoiceParameter(options=("a", 1, True, 0.25)), "True", True),
        (ChoiceParameter(options=("a", 1, True, 0.25)), "0.25", 0.25),
        (ChoiceParameter(options=("a", 1, True, 0.25)), "b", None),
        (ChoiceParameter(options=(0.1, 0.2, 0.3)), "0.30000000000000004", 0.3),
        (ChoiceParameter(options=(0.1, 0.2, 0.3)), "0.3001", None),
        (ChoiceParameter(options=("0.3",)), "0.30000000000000004", None),
    ],
)
def test_texts_are_values_of_their_parameter_or_none(
    parameter: Parameter, said: str, value: object
) -> None:
    found = value_of(parameter, said)
    assert (type(found), found) == (type(value), value)


def test_a_text_is_not_compared_with_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's list has thousands of values, and a range with steps a thousand."""
    choice = ChoiceParameter(options=tuple(at / 1000 for at in range(1000)))
    texts = [as_text(one) for one in choice.options]
    written: list[object] = []
    monkeypatch.setattr("ullage.engines.tuning.search_space.as_text", written.append)
    assert [value_of(choice, one) for one in texts] == list(choice.options)
    assert value_of(choice, "0.9990000000000001") == 0.999
    assert value_of(choice, "0.99901") is None
    assert not written


@given(st.integers(0, 2**31), st.integers(0, 1000))
def test_points_read_back_from_their_texts(seed: int, trial: int) -> None:
    space = SearchSpace(
        parameters={
            "rate": FloatRange(low=1e-12, high=1e12, log=True),
            "part": FloatRange(low=-1.0, high=1.0),
            "count": IntRange(low=-(2**53), high=2**53),
        }
    )
    for name, value in random_point(space, seed, trial).items():
        assert value_of(space.parameters[name], as_text(value)) == value
