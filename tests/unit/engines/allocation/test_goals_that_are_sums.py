# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Goals that are sums serve the oldest, the shortest, or whoever gains most from what is scarce."""

from __future__ import annotations

import numpy as np
import pytest

from ullage.engines.allocation.model import JobView, PairRow, Problem, ThroughputTable, TypeView
from ullage.engines.allocation.policies import Objective, allocate


def served(objective: Objective, *jobs: JobView, rates: list[list[float]]) -> dict[str, float]:
    """Time of each job on the quick type, of which there is one device; the slow one is shared."""
    types = (TypeView(name="quick", devices=1), TypeView(name="slow", devices=1))
    speeds = ThroughputTable(rates=np.array(rates))
    found = allocate(objective, Problem(jobs=jobs, types=types, throughputs=speeds))
    return {job.name: found.of(job.name)["quick"] for job in jobs}


ALIKE = [[4.0, 1.0]] * 3


def test_the_oldest_has_the_best_device() -> None:
    jobs = (JobView(name=name, age_s=age) for name, age in (("a", 5.0), ("b", 50.0), ("c", 1.0)))
    assert served(Objective.FIFO, *jobs, rates=ALIKE) == pytest.approx({"a": 0, "b": 1, "c": 0})


def test_the_job_with_the_least_time_left_has_the_best_device() -> None:
    """What counts is time at its best speed, not steps."""
    jobs = (JobView(name="few", steps_left=10.0), JobView(name="fast", steps_left=100.0))
    found = served(Objective.SJF, *jobs, rates=[[1.0, 0.5], [100.0, 50.0]])
    assert found == pytest.approx({"few": 0, "fast": 1})


def test_who_gains_most_has_the_best_device() -> None:
    """Speeds count in units of each job's best: a model of small steps is worth no more."""
    jobs = (JobView(name="steady"), JobView(name="gains"))
    found = served(Objective.MAX_THROUGHPUT, *jobs, rates=[[1000.0, 900.0], [1.0, 0.1]])
    assert found == pytest.approx({"steady": 0, "gains": 1})


def test_both_of_a_pair_count() -> None:
    """Side by side each does three quarters of what it does alone."""
    jobs = (JobView(name="a"), JobView(name="b"))
    row = PairRow(left="a", right="b", gang=1, left_rates=(3.0,), right_rates=(6.0,))
    problem = Problem(
        jobs=jobs,
        types=(TypeView(name="t", devices=1),),
        throughputs=ThroughputTable(rates=np.array([[4.0], [8.0]]), pairs=(row,)),
    )
    found = allocate(Objective.MAX_THROUGHPUT, problem)
    assert found.objective == pytest.approx(1.5)
    assert [(one.left, one.right, one.fraction) for one in found.pairs] == [
        ("a", "b", pytest.approx(1.0))
    ]
