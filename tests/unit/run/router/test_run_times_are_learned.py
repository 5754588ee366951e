# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Histograms come from requests that ran alone, costs of batches from the others."""

from __future__ import annotations

import numpy as np
import pytest

from ullage.engines.batching.chooser import BatchRules
from ullage.engines.batching.histogram import TimeHistogram
from ullage_router.run_times import RunTimes, expected_longest_s, first_costs, key_of

SIZES = (1, 2, 4, 8)


def times(fixed_s: float = 0.0) -> RunTimes:
    return RunTimes(rules=BatchRules(sizes=SIZES), prior=first_costs(SIZES, fixed_s))


async def test_nothing_is_known_before_fifty_requests_ran_alone() -> None:
    known = times()
    for _ in range(49):
        known.add(["chat/3"], 0.01)
    await known.learn(())
    assert not known.knows("chat/3")
    assert known.predicted_s(["chat/3"]) is None
    assert known.worst_s(["chat/3"]) is None
    assert known.rate_per_s() == 0
    for _ in range(20):
        known.add(["chat/3"], 0.01)
    await known.learn(())
    assert known.predicted_s(["chat/3"]) == pytest.approx(0.01, rel=0.01)


async def test_a_size_that_was_not_seen_has_the_times_of_its_application() -> None:
    known = times()
    for _ in range(60):
        known.add([key_of("chat", 100)], 0.01)
        known.add([key_of("chat", 1000)], 0.05)
    await known.learn(())
    assert known.predicted_s([key_of("chat", 100)]) == pytest.approx(0.01, rel=0.01)
    assert known.predicted_s([key_of("chat", 1000)]) == pytest.approx(0.05, rel=0.01)
    assert known.knows(key_of("chat", 5))
    assert not known.knows(key_of("other", 5))


async def test_the_cost_of_a_batch_is_learned_against_its_expected_longest_member() -> None:
    rng = np.random.default_rng(1)
    known = times(fixed_s=0.004)
    real = {2: 1.5, 4: 2.5, 8: 4.0}
    for _ in range(400):
        known.add(["a/1"], 0.004 + float(rng.lognormal(-4, 0.5)))
    await known.learn(())
    for _ in range(400):
        for size, factor in real.items():
            longest = float(rng.lognormal(-4, 0.5, size).max())
            known.add(["a/1"] * size, 0.004 + factor * longest)
    await known.learn(())
    for size, factor in real.items():
        assert known.chooser.costs.factors[size] == pytest.approx(factor, rel=0.1)
    assert known.chooser.costs.fixed_s == pytest.approx(0.004, abs=0.002)


async def test_the_first_odd_batch_changes_little() -> None:
    known = times()
    for _ in range(100):
        known.add(["a/1"], 0.01)
    await known.learn(())
    for _ in range(20):
        known.add(["a/1"], 0.01)
    known.add(["a/1"] * 2, 0.1)
    await known.learn(())
    assert known.chooser.costs.factors[2] < 2


async def test_wild_names_and_times_take_bounded_memory_and_teach_nothing() -> None:
    known = times()
    for at in range(500):
        known.add([key_of(f"app{at}", 2**at)], 0.01)
    for wild in (float("nan"), float("inf"), -1.0, 0.0):
        known.add(["a/1"], wild)
        known.add(["a/1"] * 2, wild)
    await known.learn(())
    assert len(known._windows) <= 64


def test_the_expected_longest_of_a_mixture_is_that_of_drawn_ones() -> None:
    rng = np.random.default_rng(2)
    short, long = rng.lognormal(-4, 0.4, 20_000), rng.lognormal(-3, 0.6, 20_000)
    parts = {"s": TimeHistogram.of(short), "l": TimeHistogram.of(long)}
    drawn = np.maximum(
        rng.choice(short, (50_000, 3)).max(axis=1), rng.choice(long, (50_000, 2)).max(axis=1)
    ).mean()
    assert expected_longest_s(parts, [("l", 2), ("s", 3)]) == pytest.approx(drawn, rel=0.03)
