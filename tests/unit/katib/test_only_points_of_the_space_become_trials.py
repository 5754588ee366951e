# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever a service says, what is written is a trial that the operator takes, once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builders_raw import raw_tuning_job
from fakes.katib_search import SPACE
from ullage.cluster.projection.tuning import project_tuning_job
from ullage_katib.points import sort_points
from ullage_katib.search import read_search, suggestions_patch

EXTERNAL = {"ref": "External", "maxEpochs": 9}
JOB = raw_tuning_job(algorithm=EXTERNAL, searchSpace=SPACE, trials=100)
TERMS = project_tuning_job(JOB).terms
NUMBERS = st.one_of(
    st.floats(width=64).map(repr),
    st.integers().map(str),
    st.sampled_from(
        ["0.1", "0.30000000000000004", "1e-3", "16", "0.35", "1" * 40, "0." + "0" * 40]
    ),
)
VALUES = st.one_of(NUMBERS, st.sampled_from(["relu", "tanh"]), st.text(max_size=40))
NAMES = st.sampled_from([*TERMS.space.parameters, "depth", ""])
LIKELY = st.fixed_dictionaries(
    {
        "lr": st.floats(1e-4, 0.1).map(repr),
        "width": st.sampled_from(["16", "32", "256"]),
        "drop": st.sampled_from(["0.0", "0.1", "0.30000000000000004", "0.3"]),
        "momentum": st.sampled_from(["0.05", "0.95"]),
        "act": st.sampled_from(["relu", "tanh"]),
    }
).map(lambda point: list(point.items()))
CHANGED = st.tuples(LIKELY, st.sampled_from([*TERMS.space.parameters]), VALUES).map(
    lambda one: list({**dict(one[0]), one[1]: one[2]}.items())
)
"""One value is anything."""
POINTS = st.one_of(LIKELY, CHANGED, st.lists(st.tuples(NAMES, VALUES), max_size=8))


@given(st.lists(POINTS, max_size=8))
def test_what_is_new_is_taken_by_the_operator(answer: list[list[tuple[str, str]]]) -> None:
    found = sort_points(answer, TERMS.space, ())
    assert len(found.new) + found.repeated + len(found.refused) == len(answer)
    suggestions = [{"trial": at, "parameters": dict(point)} for at, point in enumerate(found.new)]
    stated = project_tuning_job(
        raw_tuning_job(algorithm=EXTERNAL, searchSpace=SPACE, trials=100, suggestions=suggestions)
    ).terms.stated
    assert [one.refused for one in stated] == [""] * len(stated)
    assert all(len(text) <= 36 for point in found.new for _, text in point)
    points = [tuple(sorted(one.point.items())) for one in stated]
    assert len(set(points)) == len(points)
    again = sort_points(answer, TERMS.space, [one.point for one in stated])
    assert again.new == ()


@given(st.lists(LIKELY, min_size=1, max_size=8))
def test_repeats_are_told_by_value_and_taken_only_on_request(
    answer: list[list[tuple[str, str]]],
) -> None:
    twice = sort_points([*answer, *answer], TERMS.space, ())
    assert twice.repeated >= len(answer)
    assert twice.new == sort_points(answer, TERMS.space, ()).new
    allowed = sort_points([*answer, *answer], TERMS.space, (), allow_repeats=True)
    assert len(allowed.new) == 2 * len(answer)


def test_texts_stay_as_they_were_said_where_they_fit() -> None:
    said = [("act", "relu"), ("drop", "0.30000000000000004"), ("lr", "1e-03")]
    said += [("momentum", "0.05"), ("width", "16")]
    (point,) = sort_points([said], TERMS.space, ()).new
    assert dict(point) == dict(said)
    long = [*said[:2], ("lr", "0.001" + "0" * 25 + "1"), *said[3:]]
    (point,) = sort_points([long], TERMS.space, ()).new
    assert dict(point)["lr"] == "0.001" + "0" * 25 + "1"
    longer = [*said[:2], ("lr", "0." + "0" * 3 + "1" * 27 + "e-0"), *said[3:]]
    assert len(longer[2][1]) == 35
    longer[2] = ("lr", "0.000111111111111111111111111111e+000")
    (point,) = sort_points([longer], TERMS.space, ()).new
    assert dict(point)["lr"] == "0.00011111111111111112"


def test_numbers_of_removed_trials_come_last() -> None:
    parameters = {"lr": "0.01", "width": "16"}
    job = raw_tuning_job(
        algorithm=EXTERNAL,
        trials=9,
        suggestions=[{"trial": at, "parameters": parameters} for at in (0, 2, 997)],
    )
    search = read_search(job)
    steps = suggestions_patch(search, [(("lr", "0.02"),)] * 4)
    added = [one["value"] for one in steps if one["path"] == "/spec/suggestions/-"]
    assert [one["trial"] for one in added if isinstance(one, dict)] == [998, 999, 1, 3]
