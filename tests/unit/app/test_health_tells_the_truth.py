# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Ready means that the work is done now; unhealthy means that a restart may mend it."""

from dataclasses import replace

import pytest

from ullage.app.health import HealthView, health_problems, readiness_problems

WELL = HealthView(
    loop_lag_s=0.01,
    is_leader=True,
    decision_age_s=10.0,
    cycle_age_s=5.0,
    max_age_s=90.0,
)


def test_a_working_leader_is_healthy_and_ready() -> None:
    assert health_problems(WELL) == []
    assert readiness_problems(WELL) == []


@pytest.mark.parametrize(
    ("change", "unready", "unhealthy"),
    [
        pytest.param(
            {"behind": {"pods": "failing for 75 s: Unavailable: refused", "nodes": "not listed"}},
            [
                "nodes is not synced: not listed",
                "pods is not synced: failing for 75 s: Unavailable: refused",
            ],
            [],
            id="the API server is away",
        ),
        pytest.param(
            {"decision_age_s": 400.0, "obstacle": "not-synced"},
            ["no decision completed for 400 s: not-synced"],
            [],
            id="cycles are skipped",
        ),
        pytest.param(
            {"decision_age_s": 400.0, "obstacle": "SolverTimeout: no decision within 5 s"},
            ["no decision completed for 400 s: SolverTimeout: no decision within 5 s"],
            [],
            id="the solver fails, whose process is replaced each time",
        ),
        pytest.param(
            {"is_leader": False, "decision_age_s": 400.0, "cycle_age_s": 400.0},
            [],
            [],
            id="a standby decides nothing",
        ),
        pytest.param(
            {"cycles_failing_s": 59.0, "obstacle": "KeyError: 'x'"}, [], [], id="a short fault"
        ),
        pytest.param(
            {"cycles_failing_s": 61.0, "obstacle": "KeyError: 'x'"},
            ["decisions fail for 61 s: KeyError: 'x'"],
            ["decisions fail for 61 s: KeyError: 'x'"],
            id="cycles raise",
        ),
        pytest.param(
            {"cycle_age_s": 91.0},
            ["no decision was tried for 91 s"],
            ["no decision was tried for 91 s"],
            id="the loop is stuck",
        ),
        pytest.param(
            {"loop_lag_s": 9.0},
            ["event loop lags 9.0 s"],
            ["event loop lags 9.0 s"],
            id="the event loop is blocked",
        ),
        pytest.param(
            {"stuck": {"pods": "neither hears nor fails for 170 s"}},
            ["stream pods: neither hears nor fails for 170 s"],
            ["stream pods: neither hears nor fails for 170 s"],
            id="a stream is frozen without an error",
        ),
        pytest.param(
            {"failing_tasks": {"prices": "OverflowError: date value out of range"}},
            ["task prices fails: OverflowError: date value out of range"],
            ["task prices fails: OverflowError: date value out of range"],
            id="a task in the background fails",
        ),
    ],
)
def test_each_fault_is_told_by_the_probe_it_belongs_to(
    change: dict[str, object], unready: list[str], unhealthy: list[str]
) -> None:
    view = replace(WELL, **change)  # type: ignore[arg-type]
    assert readiness_problems(view) == unready
    assert health_problems(view) == unhealthy
