# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What tables, scripts and plots show of a simulation follows from its jobs."""

from __future__ import annotations

import pytest

from ullage_simulate.outcome import JobOutcome, PolicyOutcome, UsageSample, in_devices


def _ended(name: str, arrival_s: float, end_s: float, **more: object) -> JobOutcome:
    made: dict[str, object] = {
        "kind": "",
        "gang": 1,
        "start_s": arrival_s,
        "isolated_s": 1800.0,
        "device_s": 0.0,
    }
    return JobOutcome(name=name, arrival_s=arrival_s, end_s=end_s, **(made | more))  # type: ignore[arg-type]


def test_times_are_hours_and_counts_are_sums_over_the_jobs() -> None:
    outcome = PolicyOutcome(
        policy="some",
        devices={"fast": 1, "slow": 3},
        jobs=(
            _ended("first", 0.0, 3600.0, lost_device_s=900.0, stops=1, failures=2),
            _ended("second", 3600.0, 14_400.0, lost_device_s=900.0, stops=3, failures=1),
        ),
        held_s={"fast": 14_400.0, "slow": 28_800.0},
        dollars=5.0,
        decisions=7,
        solves=4,
    )
    assert outcome.figures() == pytest.approx(
        {
            "jobs": 2,
            "mean_jct_h": 2.0,
            "p50_jct_h": 2.0,
            "p99_jct_h": 2.98,
            "makespan_h": 4.0,
            "utilisation": 0.75,
            "rho_p50": 4.0,
            "rho_max": 6.0,
            "stops": 4,
            "failures": 3,
            "lost_device_h": 0.5,
            "device_h": 12.0,
            "dollars": 5.0,
            "decisions": 7,
            "solves": 4,
        }
    )


def test_a_run_without_jobs_has_figures_of_nothing() -> None:
    figures = PolicyOutcome(policy="some", devices={"fast": 2}, jobs=()).figures()
    assert set(figures.values()) == {0}


def test_a_job_that_takes_no_time_alone_says_nothing_of_fairness() -> None:
    jobs = (_ended("empty", 0.0, 50.0, isolated_s=0.0), _ended("work", 0.0, 3600.0))
    outcome = PolicyOutcome(policy="some", devices={"fast": 2}, jobs=jobs)
    assert (outcome.rho(0), outcome.rho(100)) == (2.0, 2.0)


def test_parts_are_counted_in_devices() -> None:
    outcome = in_devices(
        PolicyOutcome(
            policy="some",
            devices={"fast": 40},
            jobs=(_ended("a", 0.0, 10.0, gang=5, device_s=50.0, lost_device_s=20.0),),
            moments=(UsageSample(at_s=0.0, busy=(5, 10), waiting=3),),
            held_s={"fast": 50.0},
            dollars=2.0,
        ),
        10,
    )
    (job,) = outcome.jobs
    assert (job.gang, job.device_s, job.lost_device_s) == (0.5, 5.0, 2.0)
    assert outcome.devices == {"fast": 4}
    assert outcome.held_s == {"fast": 5.0}
    assert outcome.moments == (UsageSample(at_s=0.0, busy=(0.5, 1.0), waiting=3),)
    assert outcome.dollars == 2.0
