# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The published simulator's figures on its trace of 96 jobs: 8 V100, 16 P100, 24 K80."""

from __future__ import annotations

from statistics import fmean

import pytest

from bench.gavel_rules import GavelPolicy, Outcome, run_trace
from ullage_simulate.trace import TraceJob
from unit.engines.allocation.instances import trace

DEVICES = {"v100": 8, "p100": 16, "k80": 24}
WITHIN = 0.03
SEEDS = range(8)


def _run(policy: GavelPolicy, seed: int = 0) -> Outcome:
    return run_trace(trace(), DEVICES, policy, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "makespan_h", "mean_jct_h"),
    [
        (GavelPolicy.FIFO_PERF, 20.09, 5.42),
        (GavelPolicy.MAX_MIN_FAIRNESS_PERF, 17.76, 4.06),
        (GavelPolicy.FINISH_TIME_FAIRNESS_PERF, 18.05, 4.17),
        (GavelPolicy.WATER_FILLING_PERF, 17.94, 3.99),
        (GavelPolicy.MIN_TOTAL_DURATION_PERF, 17.09, None),
    ],
)
def test_the_figures_are_those_of_the_published_simulator(
    policy: GavelPolicy, makespan_h: float, mean_jct_h: float | None
) -> None:
    found = _run(policy)
    assert len(found.jct_s) == 96
    assert found.makespan_s / 3600 == pytest.approx(makespan_h, rel=WITHIN)
    if mean_jct_h is not None:
        assert found.mean_jct_s / 3600 == pytest.approx(mean_jct_h, rel=WITHIN)


@pytest.mark.slow
def test_knowing_the_types_pays_as_published() -> None:
    aware = _run(GavelPolicy.MAX_MIN_FAIRNESS_PERF)
    blind = [_run(GavelPolicy.MAX_MIN_FAIRNESS, seed) for seed in SEEDS]
    assert fmean(one.mean_jct_s for one in blind) / aware.mean_jct_s >= 1.25
    quick = _run(GavelPolicy.MIN_TOTAL_DURATION_PERF)
    slow = [_run(GavelPolicy.MIN_TOTAL_DURATION, seed) for seed in SEEDS]
    assert fmean(one.makespan_s for one in slow) / quick.makespan_s >= 1.15


def test_a_run_repeats_itself() -> None:
    policy = GavelPolicy.MAX_MIN_FAIRNESS
    assert _run(policy, 3) == _run(policy, 3)
    assert _run(policy, 3) != _run(policy, 4)


def test_a_gang_that_fits_nowhere_is_named() -> None:
    job = TraceJob(name="huge", gang=32, steps=1, arrival_s=0.0, speeds=dict.fromkeys(DEVICES, 1.0))
    with pytest.raises(ValueError, match="huge"):
        run_trace([job], DEVICES, GavelPolicy.FIFO_PERF)
