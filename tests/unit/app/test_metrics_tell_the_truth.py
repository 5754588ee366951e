# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics are read from the live objects; nothing is counted twice, no pod is a label."""

from collections import Counter

from prometheus_client import CollectorRegistry, generate_latest

from ullage.adapters.metrics import Buckets, OperatorCollector, OperatorFigures, StreamFigures


def _figures() -> OperatorFigures:
    seconds = Buckets()
    for value in (0.004, 0.3, 7.0):
        seconds.observe(value)
    return OperatorFigures(
        leading=True,
        epoch=4,
        loop_lag_s=0.001,
        streams=[StreamFigures(name="pods", age_s=3.0, objects=12, relists=1, drift=0, errors=2)],
        decision_seconds=seconds.cumulative(),
        decision_seconds_sum=seconds.sum,
        timeouts=1,
        crashes=0,
        pokes=Counter({"pods": 5}),
        skipped=Counter(),
        actions=Counter({"CreatePod": 3}),
        writes={("create", "Pod", "ok"): 3},
        queue_depth=2,
        fenced=0,
        assumed=1,
        assume_expired=0,
        projection_errors={},
        workloads={("TrainingJob", "Running"): 2},
        waiting={"NoCapacity": 1},
    )


def _text() -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(OperatorCollector(_figures))
    return generate_latest(registry).decode()


def test_every_figure_is_told() -> None:
    text = _text()
    for line in (
        "ullage_leader 1.0",
        "ullage_lease_epoch 4.0",
        'ullage_reflector_objects{kind="pods"} 12.0',
        'ullage_decision_seconds_bucket{le="0.5"} 2.0',
        'ullage_decision_seconds_bucket{le="+Inf"} 3.0',
        "ullage_decision_seconds_count 3.0",
        "ullage_decision_timeouts_total 1.0",
        'ullage_writes_total{kind="Pod",result="ok",verb="create"} 3.0',
        'ullage_workloads{kind="TrainingJob",phase="Running"} 2.0',
        'ullage_workloads_waiting{reason="NoCapacity"} 1.0',
    ):
        assert line in text
