# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The replay twin over a toy world whose figures can be worked out by hand."""

from __future__ import annotations

import pytest

from bench.twin_data import JobClass, World
from bench.twin_rules import Admitting, Exclusive, Halves, Uncontrolled, perfect
from bench.twin_world import Job, Rule, Tally, Twin

HOUR_S = 3600.0


def workload_class(name: str, use: float) -> JobClass:
    return JobClass(
        name=name, family=name, acts_as=name, batch=1.0, step_s=0.1, utilisation=use,
        half_slowdown=1.5, allowed=2.0,
    )  # fmt: skip


SMALL, LARGE = workload_class("small", 0.4), workload_class("large", 1.5)
WORLD = World(
    "toy",
    (SMALL, LARGE),
    {
        ("small", "small"): (1.25, 1.25),
        ("small", "large"): (3.0, 1.1),
        ("large", "small"): (1.1, 3.0),
    },
)


def played(rule: Rule, kinds: list[JobClass], *, gpus: int = 2, seed: int = 1) -> Tally:
    jobs = [(0.0, Job(number, kinds[number % len(kinds)], 1200.0)) for number in range(200)]
    return Twin(WORLD, rule, gpus=gpus, arrivals=jobs, seed=seed).run(4 * HOUR_S)


WINDOWS = 2 * 4 * 720


def test_a_device_of_its_own_gives_one() -> None:
    tally = played(Exclusive(WORLD), [SMALL, LARGE])
    assert tally.goodput / WINDOWS == pytest.approx(1.0, rel=0.01)
    assert (tally.violations, tally.shared_windows) == (0, 0)


def test_a_good_pair_gives_what_its_row_says() -> None:
    tally = played(Uncontrolled(WORLD), [SMALL])
    assert tally.goodput / WINDOWS == pytest.approx(2 / 1.25, rel=0.01)
    assert tally.violations == 0
    assert tally.windows == pytest.approx(2 * WINDOWS, rel=0.01)


def test_windows_above_the_objective_earn_nothing() -> None:
    mixed = {pair: both for pair, both in WORLD.pairs.items() if pair[0] != pair[1]}
    tally = played(Uncontrolled(World("toy", (SMALL, LARGE), mixed)), [SMALL, LARGE])
    together = tally.shared_windows
    assert tally.violations == pytest.approx(together / 2, rel=0.01)
    alone = tally.windows - together
    assert tally.goodput == pytest.approx(alone + together / 2 / 1.1, rel=0.01)


def test_halves_know_no_contention() -> None:
    tally = played(Halves(WORLD), [SMALL, LARGE])
    assert tally.goodput / WINDOWS == pytest.approx(2 / 1.5, rel=0.01)


def test_a_pair_without_a_row_is_never_put_together() -> None:
    tally = played(Uncontrolled(WORLD), [LARGE])
    assert tally.shared_windows == 0
    assert tally.goodput / WINDOWS == pytest.approx(1.0, rel=0.01)


def test_the_guard_evicts_the_newest_after_two_bad_windows_of_three() -> None:
    tally = played(Uncontrolled(WORLD, guarded=True), [SMALL, LARGE])
    assert tally.evictions > 0
    assert tally.violations <= 2 * tally.evictions + 2


def test_perfect_knowledge_shares_what_is_good_and_nothing_else() -> None:
    tally = played(perfect(WORLD), [SMALL, LARGE])
    assert tally.violations == 0
    assert tally.shared_admissions > 0


def test_the_utilisation_sum_refuses_what_is_too_large_together() -> None:
    tally = played(Admitting(WORLD), [LARGE])
    assert tally.shared_windows == 0
    assert played(Admitting(WORLD), [SMALL]).shared_windows > 0


def test_the_same_seed_gives_the_same_figures_and_another_does_not() -> None:
    first, again, other = (
        played(Uncontrolled(WORLD), [SMALL, LARGE], seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_a_queue_that_runs_empty_says_so() -> None:
    jobs = [(0.0, Job(0, SMALL, 60.0))]
    with pytest.raises(RuntimeError, match="queue ran empty"):
        Twin(WORLD, Exclusive(WORLD), gpus=1, arrivals=jobs, seed=1).run(HOUR_S)
