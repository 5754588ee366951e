# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs that are short of devices of the only type are served by weight, as the program says."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from ullage.engines.allocation import lp
from ullage.engines.allocation.model import JobView, Problem, ThroughputTable, TypeView
from ullage.engines.allocation.policies import max_min


def a_problem(seed: int, jobs: int) -> Problem:
    chance = random.Random(seed)
    return Problem(
        jobs=tuple(
            JobView(
                name=f"job-{number}",
                gang=chance.choice((1, 1, 0.5, 2, 4)),
                weight=chance.choice((1.0, 2.5)),
            )
            for number in range(jobs)
        ),
        types=(TypeView(name="a", devices=8),),
        throughputs=ThroughputTable(
            rates=np.array([[chance.choice((1.0, 0.3, 20.0))] for _ in range(jobs)])
        ),
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_answer_is_that_of_the_program(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = a_problem(seed, 60)
    with monkeypatch.context() as patch:
        patch.setattr(max_min, "_short_of_one_type", lambda problem: None)
        solved = max_min.solve(problem)
    answer = max_min.solve(problem)
    assert answer.fractions == pytest.approx(solved.fractions, abs=1e-6)
    assert answer.objective == pytest.approx(solved.objective)
    assert answer.capacity_prices == pytest.approx(solved.capacity_prices, abs=1e-6)
    assert answer.time_prices == pytest.approx(solved.time_prices, abs=1e-6)
    assert answer.effective == pytest.approx(solved.effective, rel=1e-5)
    assert (answer.jobs, answer.types) == (solved.jobs, solved.types)


def test_no_program_is_solved_for_it_and_one_is_where_time_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    solved: list[int] = []
    real = lp.raise_floors

    def counted(*args: object, **kwargs: object) -> lp.Solved:
        solved.append(1)
        return real(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(max_min, "raise_floors", counted)
    max_min.solve(a_problem(1, 60))
    assert not solved
    max_min.solve(a_problem(1, 3))
    assert len(solved) == 1
    problem = a_problem(1, 60)
    max_min.solve(replace(problem, types=(TypeView(name="a", devices=3),)))  # some gang is larger
    assert len(solved) == 2
