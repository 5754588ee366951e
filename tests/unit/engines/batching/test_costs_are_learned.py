# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from ullage.engines.batching.batch_time import BatchCosts
from ullage.engines.batching.cost_fit import WARM_UP, CostFit

PRIOR = BatchCosts(fixed_s=0.01, factors={1: 1.0, 4: 2.0})
TRUE = BatchCosts(fixed_s=0.004, factors={1: 1.2, 4: 1.5})


def taught(batches: int) -> CostFit:
    rng = np.random.default_rng(3)
    fit = CostFit(prior=PRIOR)
    for _ in range(batches):
        size, longest = int(rng.choice([1, 4])), float(rng.uniform(0.05, 0.5))
        fit.add(size, longest, TRUE.batch_s(size, longest) * float(rng.uniform(0.98, 1.02)))
    return fit


def test_costs_come_near_the_true_ones() -> None:
    found = taught(800).costs()
    assert found.fixed_s == pytest.approx(TRUE.fixed_s, abs=0.002)
    assert found.factors == pytest.approx(dict(TRUE.factors), rel=0.02)


def test_first_batches_teach_nothing() -> None:
    assert taught(WARM_UP).costs() == PRIOR


def test_a_size_that_never_ran_keeps_its_cost() -> None:
    fit = CostFit(prior=PRIOR)
    for _ in range(100):
        fit.add(1, 0.1, 0.15)
    assert fit.costs().factors[4] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("size", "longest", "batch"),
    [(3, 1, 1), (1, 0, 1), (1, -1, 1), (1, 1, float("nan")), (1, float("inf"), 1)],
)
def test_wild_batches_are_left_out(size: int, longest: float, batch: float) -> None:
    fit = CostFit(prior=PRIOR)
    for _ in range(WARM_UP + 1):
        fit.add(size, longest, batch)
    assert fit.seen == 0


@pytest.mark.parametrize(
    ("fixed_s", "factors"),
    [(-1.0, {1: 1.0}), (0.0, {1: 0.0}), (0.0, {2: 1.0}), (float("nan"), {1: 1.0})],
)
def test_wild_costs_are_refused(fixed_s: float, factors: dict[int, float]) -> None:
    with pytest.raises(ValueError):
        BatchCosts(fixed_s=fixed_s, factors=factors)


def test_a_known_fixed_cost_is_kept_where_nothing_tells_it_from_the_slope() -> None:
    prior = BatchCosts(fixed_s=0.004, factors={1: 1.0, 8: 1.7})
    fit = CostFit(prior=prior, fixed_known=True)
    for _ in range(200):
        fit.add(8, 0.1, 0.004 + 3.0 * 0.1)
    assert fit.costs().fixed_s == pytest.approx(0.004)
    assert fit.costs().factors[8] == pytest.approx(3.0, rel=0.01)


def test_a_heavy_prior_outweighs_the_first_batches() -> None:
    prior = BatchCosts(fixed_s=0.0, factors={1: 1.0, 8: 1.7})
    light, heavy = CostFit(prior=prior), CostFit(prior=prior, prior_batches=20)
    for fit in (light, heavy):
        for _ in range(7):
            fit.add(8, 0.1, 1.0)
    assert heavy.costs().factors[8] < 3
    assert light.costs().batch_s(8, 0.1) == pytest.approx(1.0, rel=0.1)
