# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Traces under the operator's rounds: worked examples by hand, and the published trace."""

from __future__ import annotations

import pytest

from ullage.engines.allocation import waterfill
from ullage.engines.allocation.policies import max_min
from ullage.engines.allocation.round_records import RoundSettings
from ullage.simulate.gavel import TraceJob
from ullage.simulate.gavel_rounds import run_in_order, run_rounds
from unit.engines.allocation.instances import trace

DEVICES = {"v100": 8, "p100": 16, "k80": 24}


def _job(name: str, steps: int, *, gang: int = 1, at: float = 0.0, **speeds: float) -> TraceJob:
    return TraceJob(name=name, gang=gang, steps=steps, arrival_s=at, speeds=speeds)


def test_a_lone_job_takes_its_work_and_its_start() -> None:
    found, stops = run_rounds([_job("a", 1000, t=2.0)], {"t": 1}, max_min.solve, restart_s=30.0)
    assert found.jct_s["a"] == pytest.approx(530.0)
    assert stops == 0


def test_two_equal_jobs_share_one_device_evenly() -> None:
    jobs = [_job("a", 7200, t=1.0), _job("b", 7200, t=1.0)]
    found, stops = run_rounds(jobs, {"t": 1}, max_min.solve, settings=RoundSettings(round_s=100.0))
    assert found.makespan_s == pytest.approx(14400.0)
    assert min(found.jct_s.values()) > 14000.0
    assert stops > 50


def test_each_job_runs_where_it_is_quicker() -> None:
    jobs = [_job("a", 1000, t=10.0, u=1.0), _job("b", 1000, t=1.0, u=10.0)]
    found, _ = run_rounds(jobs, {"t": 1, "u": 1}, max_min.solve)
    assert found.jct_s == pytest.approx({"a": 100.0, "b": 100.0})


def test_a_newcomer_does_not_wait_for_the_end_of_a_round() -> None:
    jobs = [_job("a", 10_000, t=1.0), _job("b", 100, at=10.0, t=1.0)]
    found, _ = run_rounds(jobs, {"t": 2}, max_min.solve)
    assert found.jct_s["b"] == pytest.approx(100.0)


def test_by_arrival_the_first_type_is_taken_and_nobody_overtakes() -> None:
    jobs = [
        _job("a", 100, t=1.0, u=10.0),
        _job("b", 100, gang=2, t=1.0, u=1.0),
        _job("c", 10, t=1.0, u=1.0),
    ]
    found = run_in_order(jobs, {"t": 2, "u": 1})
    assert found.jct_s == pytest.approx({"a": 100.0, "b": 200.0, "c": 110.0})
    assert found.makespan_s == pytest.approx(200.0)


def test_the_published_trace_is_done_sooner_than_by_arrival_even_with_restarts() -> None:
    plain = run_in_order(trace(), DEVICES)
    free, _ = run_rounds(trace(), DEVICES, waterfill.solve)
    dear, stops = run_rounds(trace(), DEVICES, waterfill.solve, restart_s=120.0)
    assert plain.mean_jct_s / free.mean_jct_s >= 1.3
    assert plain.mean_jct_s / dear.mean_jct_s >= 1.3
    assert free.mean_jct_s < dear.mean_jct_s < 1.2 * free.mean_jct_s
    assert stops < 10 * len(trace())
    assert set(dear.jct_s) == {job.name for job in trace()}


def test_what_fits_nowhere_is_named() -> None:
    with pytest.raises(ValueError, match="huge"):
        run_rounds([_job("huge", 1, gang=3, t=1.0)], {"t": 2}, max_min.solve)
