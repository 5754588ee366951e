# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters of a TuningJob: ranges, ranges with steps, and what is none."""

from __future__ import annotations

import pytest

from builders_raw import raw_tuning_job
from ullage.api.readers import WireError
from ullage.cluster.projection.tuning import project_tuning_job
from ullage.engines.tuning.search_space import ChoiceParameter, FloatRange, IntRange


def parameter(type_: str, **said: object) -> object:
    space = [{"name": "x", "type": type_, **said}]
    (read,) = project_tuning_job(raw_tuning_job(searchSpace=space)).terms.space.parameters.values()
    return read


def test_a_range_is_read_as_it_is_written() -> None:
    assert parameter("Int", min=16, max=128) == IntRange(low=16, high=128)
    assert parameter("Float", min="1e-4", max="0.1", log=True) == FloatRange(
        low=1e-4, high=0.1, log=True
    )


@pytest.mark.parametrize(
    ("type_", "said", "options"),
    [
        ("Int", {"min": 1, "max": 10, "step": 4}, (1, 5, 9)),
        ("Int", {"min": 1, "max": 9, "step": 4}, (1, 5, 9)),
        ("Int", {"min": 100_000, "max": 100_002, "step": 1}, (100_000, 100_001, 100_002)),
        ("Int", {"min": 7, "max": 7, "step": 5}, (7,)),
        ("Float", {"min": "0.1", "max": "0.3", "step": "0.1"}, (0.1, 0.2, 0.3)),
        ("Float", {"min": "-0.5", "max": "0.5", "step": "0.5"}, (-0.5, 0.0, 0.5)),
    ],
)
def test_a_range_with_steps_has_just_these_values(
    type_: str, said: dict[str, object], options: tuple[float, ...]
) -> None:
    assert parameter(type_, **said) == ChoiceParameter(options=options)


@pytest.mark.parametrize(
    ("type_", "said", "says"),
    [
        ("Int", {"min": 5, "max": 4, "step": 1}, "above its max: .*x: min '5', max '4', step '1'"),
        ("Int", {"min": 1, "max": 10**6, "step": 1}, "step 1 makes more than 1000 values .x"),
        ("Int", {"min": 1, "max": 9, "step": 0}, "step of a parameter must be above 0"),
        ("Float", {"min": "1", "max": "9", "step": "1", "log": True}, "min above 0 and no step"),
        ("Float", {"min": "0", "max": "9", "log": True}, "min above 0 and no step"),
        ("Int", {"min": 1}, "needs min and max"),
        ("Int", {"min": 1, "max": True}, "max: expected a whole number"),
        ("Int", {"min": 1, "max": "2.5"}, "must be whole numbers .*max '2.5'"),
        ("Int", {"min": 1, "max": 2**61}, "max: has more than 15 digits"),
        ("Float", {"min": "x", "max": "1"}, "must be numbers; .*min 'x'"),
        ("Float", {"min": "1" * 40, "max": "1"}, "min: '1+' must have at most 36 characters"),
        ("Float", {"min": "-1e999", "max": "1"}, "from -inf to 1.0 is not finite .x"),
        ("Int", {"min": 1, "max": 2, "values": ["a"]}, "has no values"),
        ("Categorical", {"values": ["a"], "log": True}, "neither min, max, step nor log"),
        ("Categorical", {"values": ["a", "a"]}, "an option of a choice is there twice .x"),
        ("Categorical", {"values": ["a" * 33]}, "must have at most 32 characters"),
    ],
)
def test_what_is_no_range_is_refused(type_: str, said: dict[str, object], says: str) -> None:
    with pytest.raises(WireError, match=rf"spec\.searchSpace\[0\].*{says}"):
        parameter(type_, **said)
