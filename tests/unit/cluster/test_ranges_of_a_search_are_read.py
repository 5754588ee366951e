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
        ("Int", {"min": 5, "max": 4, "step": 1}, "min: 5 is above max, 4"),
        ("Int", {"min": 1, "max": 10**6, "step": 1}, "step: makes more than"),
        ("Int", {"min": 1, "max": 9, "step": 0}, "step: must be above 0"),
        ("Float", {"min": "1", "max": "9", "step": "1", "log": True}, "step: must be above 0"),
        ("Int", {"min": 1}, "max: missing"),
        ("Int", {"min": 1, "max": True}, "max: expected a whole number"),
        ("Int", {"min": 1, "max": "2.5"}, "max: .* is no whole number"),
        ("Int", {"min": 1, "max": 2**61}, "max: has more than 15 digits"),
        ("Float", {"min": "x", "max": "1"}, "min: .* is no number"),
        ("Int", {"min": 1, "max": 2, "values": ["a"]}, "belongs to type Categorical"),
    ],
)
def test_what_is_no_range_is_told(type_: str, said: dict[str, object], says: str) -> None:
    with pytest.raises(WireError, match=says):
        parameter(type_, **said)
