# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The estimator's points lie in the space, follow from the history alone, and get better."""

from __future__ import annotations

import math
import os
import pickle
import statistics
import subprocess
import sys

import pytest

from ullage.app.suggestion_worker import Suggested, suggest_in_worker
from ullage.app.tpe import STARTUP_TRIALS
from ullage.engines.tuning.search_space import (
    ChoiceParameter,
    FloatRange,
    IntRange,
    Point,
    SearchSpace,
    Value,
    random_point,
)
from ullage.engines.tuning.suggestions import (
    ObservedTrial,
    Suggestion,
    SuggestionRequest,
    TrialOutcome,
)

SPACE = SearchSpace(
    parameters={
        "rate": FloatRange(low=1e-5, high=1.0, log=True),
        "layers": IntRange(low=1, high=8),
        "width": IntRange(low=16, high=4096, log=True),
        "optimizer": ChoiceParameter(options=("sgd", "adam", "lamb")),
        "flag": ChoiceParameter(options=(1, True, 1.0, "1")),
        "fixed": FloatRange(low=0.5, high=0.5),
    }
)


def number(value: Value) -> float:
    assert isinstance(value, (int, float))
    return float(value)


def loss(point: Point) -> float:
    """Least at a rate of 0.003, with 4 layers and adam."""
    return (
        abs(math.log10(number(point["rate"])) + 2.5)
        + abs(number(point["layers"]) - 4) / 4
        + (point["optimizer"] != "adam")
    )


def ended(trial: int, point: Point, value: float) -> ObservedTrial:
    return ObservedTrial(
        trial=trial, point=point, outcome=TrialOutcome.COMPLETE, epoch=9, value=value
    )


def history(count: int, seed: int = 5) -> tuple[ObservedTrial, ...]:
    points = [random_point(SPACE, seed, at) for at in range(count)]
    return tuple(ended(at, point, loss(point)) for at, point in enumerate(points))


def ask(
    observed: tuple[ObservedTrial, ...], count: int = 1, *, maximise: bool = False, seed: int = 1
) -> tuple[Suggestion, ...]:
    begin = 1 + max((one.trial for one in observed), default=-1)
    request = SuggestionRequest(
        space=SPACE,
        seed=seed,
        trials=tuple(range(begin, begin + count)),
        observed=observed,
        maximise=maximise,
    )
    answer: Suggested = pickle.loads(suggest_in_worker(pickle.dumps(request)))
    return answer.suggestions


def test_points_lie_in_the_space_and_have_its_types() -> None:
    for one in ask(history(STARTUP_TRIALS), 8):
        assert 1e-5 <= number(one.point["rate"]) <= 1
        assert one.point["layers"] in range(1, 9)
        assert one.point["width"] in range(16, 4097)
        assert all(type(one.point[name]) is int for name in ("layers", "width"))
        assert one.point["optimizer"] in {"sgd", "adam", "lamb"}
        assert (type(one.point["flag"]), one.point["flag"]) in [
            (int, 1),
            (bool, True),
            (float, 1.0),
            (str, "1"),
        ]
        assert one.point["fixed"] == 0.5
        assert list(one.point) == list(SPACE.parameters)


def test_before_enough_trials_have_ended_points_are_drawn_evenly() -> None:
    (found,) = ask(history(STARTUP_TRIALS - 1), seed=3)
    assert found.point == random_point(SPACE, 3, STARTUP_TRIALS - 1)


def test_points_are_better_than_chance_in_the_direction_that_is_asked_for() -> None:
    seen = history(40)
    chance = statistics.median(one.value or 0.0 for one in seen)
    least = statistics.median(loss(one.point) for one in ask(seen, 12))
    most = statistics.median(loss(one.point) for one in ask(seen, 12, maximise=True))
    assert least < chance / 1.5
    assert most > chance * 1.2


def test_the_order_in_which_trials_ended_changes_nothing() -> None:
    seen = history(20)
    assert ask(seen, 3) == ask(tuple(reversed(seen)), 3)


def test_points_of_one_question_are_those_of_single_questions() -> None:
    seen = history(20)
    together = ask(seen, 3)
    single: list[Suggestion] = []
    for _ in range(3):
        (found,) = ask(seen)
        single.append(found)
        seen = (*seen, ObservedTrial(trial=found.trial, point=found.point))
    assert tuple(single) == together


def test_neither_who_leads_nor_who_decides_holds_the_library() -> None:
    """It is loaded by the process that draws points, and by no other."""
    script = (
        "import sys, ullage.app.main, ullage.app.operator, ullage.app.solver\n"
        "assert 'optuna' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_another_process_suggests_the_same_and_opens_no_database() -> None:
    request = SuggestionRequest(
        space=SPACE, seed=1, trials=(20, 21), observed=history(20), maximise=False
    )
    script = (
        "import sys, pickle, ullage.app.suggestions\n"
        "assert 'optuna' not in sys.modules\n"
        "from ullage.app.suggestion_worker import suggest_in_worker\n"
        "sys.stdout.buffer.write(suggest_in_worker(sys.stdin.buffer.read()))\n"
        "assert 'optuna' in sys.modules\n"
        "assert not {'sqlalchemy', 'alembic'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=pickle.dumps(request),
        capture_output=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    answer: Suggested = pickle.loads(done.stdout)
    assert answer.suggestions == ask(history(20), 2)
    assert done.stderr == b""


@pytest.mark.parametrize(
    "change",
    [
        {"rate": 2.0},
        {"rate": math.nan},
        {"rate": "0.1"},
        {"rate": True},
        {"layers": 3.0},
        {"layers": 10**30},
        {"optimizer": "none of them"},
        {"flag": 2},
    ],
    ids=str,
)
def test_a_point_from_outside_the_space_teaches_nothing(change: dict[str, Value]) -> None:
    seen = history(20)
    forged = ended(20, {**seen[0].point, **change}, -1e300)
    number_after = ask((*seen, forged))
    (plain,) = ask((*seen, ObservedTrial(trial=20, point={}, outcome=TrialOutcome.FAILED)))
    assert number_after == (plain,)


def test_a_trial_that_lacks_a_parameter_teaches_nothing() -> None:
    seen = history(20)
    short = ended(20, {"rate": 0.1}, -1e300)
    assert ask((*seen, short)) == ask(
        (*seen, ObservedTrial(trial=20, point={}, outcome=TrialOutcome.FAILED))
    )


def test_trials_that_were_stopped_teach_less_than_complete_ones() -> None:
    good = {**history(1)[0].point, "optimizer": "sgd", "rate": 1.0}
    stopped = tuple(
        ObservedTrial(
            trial=30 + at, point=good, outcome=TrialOutcome.STOPPED, epoch=1, value=-100.0
        )
        for at in range(10)
    )
    points = [one.point for one in ask((*history(30), *stopped), 8)]
    assert statistics.median(loss(one) for one in points) < loss(good)


def test_extreme_values_are_borne() -> None:
    seen = history(20)
    wild = (ended(20, seen[0].point, 1.7e308), ended(21, seen[1].point, -1.7e308))
    assert len(ask((*seen, *wild), 4)) == 4
