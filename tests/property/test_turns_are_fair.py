# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""On random clusters no one who is promised time starves, and no one is stopped who must not be."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from builders import WorkloadBuilder, a_job
from fakes.toy_rounds import FAST, SLOW, Turns, a_turn_policy, rates
from fakes.toy_stress import StressRun

ROUND_S = 30
ROUNDS = 30


def _jobs(weather: random.Random) -> list[WorkloadBuilder]:
    """Gangs of one and two, most of which can checkpoint."""
    jobs = []
    for at in range(weather.randint(3, 6)):
        job = a_job(f"j{at}").with_(
            workload_class=weather.choice("ab"), weight=weather.randint(1, 3)
        )
        if weather.random() < 0.85:
            job = job.checkpointed()
        jobs.append(job.gang(weather.choice((1, 1, 2))))
    return jobs


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_whoever_is_promised_time_gets_some_and_only_those_who_can_save_their_work_leave(
    seed: int,
) -> None:
    weather = random.Random(seed)
    turns = Turns.of(
        {"n1": FAST, "n2": SLOW},
        rates("a", 4, weather.choice((1, 2, 4))),
        rates("b", weather.choice((2, 5)), 2),
        policy=a_turn_policy(round_seconds=ROUND_S),
        devices=2,
    )
    jobs = _jobs(weather)
    for job in jobs:
        turns.add(job)
        turns.run(weather.choice((0, 10, 45)))
    turns.run(ROUNDS * ROUND_S)
    stubborn = [job.build() for job in jobs if not job.build().checkpoint]
    for one in stubborn:
        assert turns.counts[f"evicted {one.ref.name}"] == 0
    for job in jobs:
        name = job.build().ref.name
        had = sum(turns.had_s[name, kind] for kind in (FAST, SLOW))
        if turns.fraction(name) and not stubborn:
            assert had > 0, f"seed {seed}: {name} starves"
        assert job.build().status.restarts == 0
    if len(jobs) >= 4:
        assert len(turns.holding()) >= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "objective"),
    [
        (0, "MaxMinFairness"),
        (1, "SJF"),
        (2, "FinishTimeFairness"),
        (3, "MaxThroughput"),
        (4, "Makespan"),
    ],
)
def test_nothing_is_overcommitted_or_half_started_while_turns_change_under_stress(
    seed: int, objective: str
) -> None:
    stress = StressRun(seed)
    shape = stress.toy.shape
    shape.policy = replace(shape.policy, objective=objective, uid="uid-policy", round_seconds=20)
    stress.run(200)
    for _ in range(60):
        stress.toy.move()
        stress.cycle()
        stress.toy.now += 3
