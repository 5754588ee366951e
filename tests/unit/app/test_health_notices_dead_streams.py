# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Health fails where the process cannot do its work, and says why."""

from dataclasses import replace

from ullage.app.http import HealthView, health_problems, readiness_problems

WELL = HealthView(
    loop_lag_s=0.01,
    leading=True,
    cycle_age_s=10.0,
    max_cycle_age_s=90.0,
    stream_ages_s={"pods": 20.0, "nodes": 40.0},
    synced={"pods": True, "nodes": True},
)


def test_a_working_leader_is_healthy_and_ready() -> None:
    assert health_problems(WELL) == []
    assert readiness_problems(WELL) == []


def test_a_silent_stream_is_named() -> None:
    problems = health_problems(replace(WELL, stream_ages_s={"pods": 400.0, "nodes": 1.0}))
    assert problems == ["stream pods is silent for 400 s"]


def test_a_leader_that_does_not_decide_is_unhealthy_but_a_standby_is_not() -> None:
    stuck = replace(WELL, cycle_age_s=500.0)
    assert "no decision completed" in health_problems(stuck)[0]
    assert health_problems(replace(stuck, leading=False)) == []


def test_a_blocked_loop_and_a_failed_shell_are_reported() -> None:
    assert health_problems(replace(WELL, loop_lag_s=9.0, failure="kopf ended")) == [
        "event loop lags 9.0 s",
        "kopf ended",
    ]


def test_an_unlisted_stream_is_not_ready() -> None:
    assert readiness_problems(replace(WELL, synced={"pods": False})) == ["pods is not synced"]
