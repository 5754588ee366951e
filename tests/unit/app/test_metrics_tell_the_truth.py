# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics are read from the live objects; nothing is counted twice, no pod is a label."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest
from structlog.testing import capture_logs

from ullage.metrics.collector import OperatorCollector, OperatorFigures, StreamFigures
from ullage.metrics.histograms import decision_seconds, observed_slowdown, predicted_slowdown
from ullage.metrics.sharing import ModelFigures, SharingFigures


def _figures() -> OperatorFigures:
    seconds = decision_seconds()
    for value in (0.004, 0.3, 7.0):
        seconds.observe(value)
    return OperatorFigures(
        is_leader=True,
        epoch=4,
        loop_lag_s=0.001,
        streams=StreamFigures(
            age_s={"pods": 3.0},
            objects={"pods": 12},
            synced={"pods": True},
            relists={"pods": 1},
            errors={"pods": 2},
        ),
        decision_seconds=seconds,
        timeouts=1,
        crashes=0,
        pokes=Counter({"pods": 5}),
        skipped=Counter(),
        failed=Counter({"SolverTimeout": 2}),
        decision_age_s=12.0,
        actions=Counter({"CreatePod": 3}),
        writes={("create", "Pod", "ok"): 3},
        queue_depth=2,
        fenced=0,
        assumed=1,
        assume_expired=0,
        projection_errors={},
        foreign_pods=3,
        workloads={("TrainingJob", "Running"): 2},
        waiting={"NoCapacity": 1},
        requeues={"RoomComing": 2},
        sharing=_sharing(),
        task_failures={"pools": 2},
        set_aside={"workloads": 1},
        faults={"workloads": 3},
    )


def _sharing() -> SharingFigures:
    slowdowns = predicted_slowdown()
    for value in (1.0, 1.5, 9.0):
        slowdowns.labels("a").observe(value)
    return SharingFigures(
        decisions={("admitted", "Placed", "G1"): 4, ("refused", "PredictedSLOBreach", ""): 2},
        predicted=slowdowns,
        observed=observed_slowdown(),
        coverage={"G1": 0.925},
        error={"slowdown": 0.08},
        violations={"neighbours": 3},
        probation_seconds=42.0,
        unusable={"Share": 1},
        profiles=5,
        models=ModelFigures(rung={"a": 3}, rows={"a": 200}, version={"a": 7}, failing={"a": True}),
        lessons={"done": 9, "late": 1},
        learning_seconds=12.5,
    )


def _text(gather: Callable[[], OperatorFigures] = _figures) -> str:
    registry = CollectorRegistry(auto_describe=False)
    with capture_logs():
        registry.register(OperatorCollector(gather))
        return generate_latest(registry).decode()


def test_every_figure_is_told() -> None:
    text = _text()
    assert "_created" not in text
    for line in (
        "ullage_leader 1.0",
        'ullage_set_aside{kind="workloads"} 1.0',
        'ullage_decision_faults_total{kind="workloads"} 3.0',
        'ullage_task_failures_total{task="pools"} 2.0',
        "ullage_lease_epoch 4.0",
        "ullage_foreign_pods 3.0",
        'ullage_reflector_objects{kind="pods"} 12.0',
        'ullage_reflector_synced{kind="pods"} 1.0',
        'ullage_cycles_failed_total{error="SolverTimeout"} 2.0',
        "ullage_decision_age_seconds 12.0",
        'ullage_decision_seconds_bucket{le="0.5"} 2.0',
        'ullage_decision_seconds_bucket{le="+Inf"} 3.0',
        "ullage_decision_seconds_count 3.0",
        "ullage_decision_timeouts_total 1.0",
        'ullage_writes_total{kind="Pod",result="ok",verb="create"} 3.0',
        'ullage_workloads{kind="TrainingJob",phase="Running"} 2.0',
        'ullage_workloads_waiting{reason="NoCapacity"} 1.0',
        'ullage_workloads_requeued{waits_for="RoomComing"} 2.0',
        'ullage_admission_decisions_total{decision="admitted",group="G1",reason="Placed"} 4.0',
        'ullage_predicted_slowdown_ratio_bucket{accelerator="a",le="1.6"} 2.0',
        'ullage_predicted_slowdown_ratio_sum{accelerator="a"} 11.5',
        'ullage_prediction_coverage_ratio{group="G1"} 0.925',
        'ullage_profile_prediction_error_ratio{field="slowdown"} 0.08',
        'ullage_slo_violations_total{cause="neighbours"} 3.0',
        "ullage_probation_seconds_total 42.0",
        'ullage_model_rung{accelerator="a"} 3.0',
        'ullage_model_failing{accelerator="a"} 1.0',
        'ullage_lessons_total{result="late"} 1.0',
        'ullage_observations_unusable{reason="Share"} 1.0',
    ):
        assert line in text


def test_a_section_that_cannot_be_told_costs_itself_alone() -> None:
    text = _text(lambda: replace(_figures(), pools=None))  # type: ignore[arg-type]
    assert "ullage_leader 1.0" in text
    assert 'ullage_workloads{kind="TrainingJob",phase="Running"} 2.0' in text
    assert "ullage_pool_" not in text
    assert 'ullage_metrics_failures_total{section="pools"} ' in text


def test_a_scrape_never_raises() -> None:
    def gather() -> OperatorFigures:
        raise OverflowError("date value out of range")

    assert 'ullage_metrics_failures_total{section="figures"} ' in _text(gather)
