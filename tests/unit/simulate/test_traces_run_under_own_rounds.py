# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Traces under the operator's rounds: worked examples by hand, and the published trace."""

from __future__ import annotations

import pytest

from ullage.engines.allocation.model import PairRow, PriceMissingError
from ullage.engines.allocation.round_records import RoundSettings
from ullage_simulate.events import TraceSettings, run
from ullage_simulate.failures import FailureLaw
from ullage_simulate.outcome import PolicyOutcome
from ullage_simulate.policies import POLICIES
from ullage_simulate.readers import published
from ullage_simulate.speeds import built_in
from ullage_simulate.synthetic import generate
from ullage_simulate.trace import Fleet, JobTraceError, TraceJob, fitted, in_order
from ullage_simulate.work import Costs

FLEET = Fleet(devices={"v100": 8, "p100": 16, "k80": 24})


def _job(name: str, steps: int, *, gang: int = 1, at: float = 0.0, **speeds: float) -> TraceJob:
    return TraceJob(
        name=name, gang=gang, steps=steps, arrival_s=at, speeds=speeds, kind=f"kind {name}"
    )


def _run(
    *jobs: TraceJob, policy: str = "las", settings: TraceSettings | None = None, **devices: int
) -> PolicyOutcome:
    fleet = Fleet(devices=devices)
    return run(fitted(in_order("test", jobs), fleet), fleet, POLICIES[policy], settings)


def _jct(found: PolicyOutcome) -> dict[str, float]:
    return {job.name: job.jct_s for job in found.jobs}


def test_a_lone_job_takes_its_work_and_its_start() -> None:
    found = _run(_job("a", 1000, t=2.0), settings=TraceSettings(costs=Costs(restart_s=30.0)), t=1)
    assert _jct(found)["a"] == pytest.approx(530.0)
    assert found.stops == 0
    assert found.utilisation == pytest.approx(1.0)


def test_two_equal_jobs_share_one_device_evenly() -> None:
    rounds = TraceSettings(rounds=RoundSettings(round_s=100.0))
    found = _run(_job("a", 7200, t=1.0), _job("b", 7200, t=1.0), settings=rounds, t=1)
    assert found.makespan_s == pytest.approx(14400.0)
    assert min(_jct(found).values()) > 14000.0
    assert found.stops > 50
    assert found.rho(100) == pytest.approx(1.0, rel=0.02)


def test_each_job_runs_where_it_is_quicker() -> None:
    found = _run(_job("a", 1000, t=10.0, u=1.0), _job("b", 1000, t=1.0, u=10.0), t=1, u=1)
    assert _jct(found) == pytest.approx({"a": 100.0, "b": 100.0})


def test_a_newcomer_does_not_wait_for_the_end_of_a_round() -> None:
    found = _run(_job("a", 10_000, t=1.0), _job("b", 100, at=10.0, t=1.0), t=2)
    assert _jct(found)["b"] == pytest.approx(100.0)


def test_decisions_can_be_gathered() -> None:
    jobs = (_job("a", 10_000, t=1.0), _job("b", 100, at=10.0, t=1.0))
    found = _run(*jobs, settings=TraceSettings(gap_s=60.0), t=2)
    assert _jct(found)["b"] == pytest.approx(150.0)


def test_in_a_queue_the_first_type_is_taken_and_small_ones_pass() -> None:
    jobs = (
        _job("a", 100, t=1.0, u=10.0),
        _job("b", 100, gang=2, t=1.0, u=1.0),
        _job("c", 10, t=1.0, u=1.0),
        _job("d", 10, t=1.0, u=1.0),
    )
    found = _run(*jobs, policy="fifo", t=2, u=1)
    assert _jct(found) == pytest.approx({"a": 100.0, "b": 200.0, "c": 10.0, "d": 10.0})


def test_in_the_operators_queue_the_fastest_type_is_taken() -> None:
    jobs = (
        _job("a", 100, t=1.0, u=10.0),
        _job("b", 100, gang=2, t=1.0, u=1.0),
        _job("c", 10, t=1.0, u=1.0),
    )
    found = _run(*jobs, policy="fifo-fastest", t=2, u=1)
    assert _jct(found) == pytest.approx({"a": 10.0, "b": 100.0, "c": 20.0})


def test_in_a_strict_queue_no_one_overtakes() -> None:
    jobs = (
        _job("a", 100, t=1.0, u=10.0),
        _job("b", 100, gang=2, t=1.0, u=1.0),
        _job("c", 10, t=1.0, u=1.0),
    )
    found = _run(*jobs, policy="fifo-strict", t=2, u=1)
    assert _jct(found) == pytest.approx({"a": 100.0, "b": 200.0, "c": 110.0})
    assert found.makespan_s == pytest.approx(200.0)


def test_two_side_by_side_run_at_the_speeds_of_the_table_until_one_is_left() -> None:
    jobs = (_job("a", 800, t=1.0), _job("b", 1600, t=1.0))
    row = PairRow(left="kind a", right="kind b", gang=1, left_rates=(0.8,), right_rates=(0.8,))
    found = _run(*jobs, settings=TraceSettings(pairs=(row,)), t=1)
    assert _jct(found) == pytest.approx({"a": 1000.0, "b": 1800.0})
    assert sum(job.device_s for job in found.jobs) == pytest.approx(1800.0)


def test_a_job_without_a_checkpoint_is_never_stopped() -> None:
    stubborn = TraceJob(
        name="s", gang=1, steps=5000, arrival_s=0.0, speeds={"t": 1.0}, checkpointable=False
    )
    found = _run(stubborn, _job("b", 5000, at=1.0, t=1.0), t=1)
    assert {job.name: job.stops for job in found.jobs}["s"] == 0
    assert _jct(found)["s"] == pytest.approx(5000.0)


def test_work_since_the_last_checkpoint_is_lost_with_a_device() -> None:
    law = FailureLaw(mtbf_h=2.0, repair_s=600.0)
    costs = Costs(restart_s=60.0, every_s=900.0)
    jobs = [_job(str(number), 20_000, t=1.0) for number in range(3)]
    found = _run(*jobs, settings=TraceSettings(seed=4, failures=law, costs=costs), t=4)
    assert found.failures > 3
    assert 0 < found.lost_device_s <= found.failures * 900.0
    # Every start costs, every lost second is worked again; a device in repair may add waiting.
    for job in found.jobs:
        assert job.jct_s >= 20_000 + job.lost_device_s + 60.0 * (1 + job.failures) - 1e-6
    again = _run(*jobs, settings=TraceSettings(seed=4, failures=law, costs=costs), t=4)
    assert again == found
    other = _run(*jobs, settings=TraceSettings(seed=5, failures=law, costs=costs), t=4)
    assert other != found


def test_a_plain_queue_survives_failures_too() -> None:
    law = FailureLaw(mtbf_h=1.0, repair_s=600.0)
    jobs = [_job(str(number), 5000, gang=2, t=1.0) for number in range(4)]
    settings = TraceSettings(seed=1, failures=law, costs=Costs(every_s=300.0))
    found = _run(*jobs, policy="fifo", settings=settings, t=4)
    assert len(found.jobs) == 4
    assert found.failures > 0


def test_stops_without_a_signal_lose_what_is_unsaved() -> None:
    costs = Costs(restart_s=10.0, every_s=500.0, saves_on_stop=False)
    jobs = (_job("a", 5000, t=1.0), _job("b", 5000, t=1.0))
    found = _run(*jobs, settings=TraceSettings(costs=costs), t=1)
    assert found.stops > 0
    assert 0 < found.lost_device_s <= found.stops * 500.0


def test_a_goal_of_cost_needs_prices() -> None:
    with pytest.raises(PriceMissingError, match="u"):
        _run(_job("a", 100, t=1.0, u=2.0), policy="min-cost", t=1, u=1)
    fleet = Fleet(devices={"t": 1, "u": 1}, prices={"t": 1.0, "u": 4.0})
    trace = in_order("test", [_job("a", 3600, t=1.0, u=2.0)])
    found = run(fitted(trace, fleet), fleet, POLICIES["min-cost"])
    assert found.held_s == pytest.approx({"t": 3600.0, "u": 0.0})
    assert found.dollars == pytest.approx(1.0)


def test_what_fits_nowhere_is_left_out_and_told() -> None:
    fleet = Fleet(devices={"t": 2})
    trace = fitted(in_order("test", [_job("huge", 1, gang=3, t=1.0), _job("a", 1, t=1.0)]), fleet)
    assert [job.name for job in trace.jobs] == ["a"]
    assert "1 jobs fit no type" in trace.notes[0]
    with pytest.raises(JobTraceError, match="no job is left"):
        fitted(in_order("test", [_job("huge", 1, gang=3, t=1.0)]), fleet)
    with pytest.raises(JobTraceError, match="speeds on z"):
        fitted(trace, Fleet(devices={"z": 1}))


@pytest.mark.slow
def test_the_published_trace_is_done_sooner_than_in_a_queue_even_with_restarts() -> None:
    trace = fitted(published(), FLEET)
    plain = run(trace, FLEET, POLICIES["fifo"])
    free = run(trace, FLEET, POLICIES["las"])
    dear = run(trace, FLEET, POLICIES["las"], TraceSettings(costs=Costs(restart_s=120.0)))
    assert plain.mean_jct_s / free.mean_jct_s >= 1.3
    assert plain.mean_jct_s / dear.mean_jct_s >= 1.3
    assert free.mean_jct_s < dear.mean_jct_s < 1.2 * free.mean_jct_s
    assert dear.stops < 10 * len(trace.jobs)
    assert len(dear.jobs) == 96


@pytest.mark.parametrize("policy", ["isolated", "agnostic-las", "makespan", "sjf", "fifo-aware"])
def test_every_policy_ends_a_synthetic_trace(policy: str) -> None:
    fleet = Fleet(devices={"v100": 2, "k80": 8})
    trace = fitted(generate(12, 600.0, built_in(), seed=2, scale=0.05), fleet)
    heard: list[int] = []
    found = run(trace, fleet, POLICIES[policy], tell=heard.append)
    assert heard == list(range(1, len(trace.jobs) + 1))
    assert all(job.end_s > job.start_s >= job.arrival_s for job in found.jobs)
    assert all(moment.busy[0] <= 2 and moment.busy[1] <= 8 for moment in found.moments)
    assert sum(job.device_s for job in found.jobs) == pytest.approx(sum(found.held_s.values()))
