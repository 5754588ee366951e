# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings and metrics of the operator.

Metrics are read from the real collectors over one example of everything, in the words a Prometheus
sees.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

from docs.generate.facts import MetricFact, Setting, attribute_texts, meaning_of, metric_facts
from ullage.app.settings import SECTIONS, Settings, variables
from ullage.cluster.records.pool import CapacityType, PoolRecord, PoolStatus
from ullage.metrics.collector import (
    OperatorCollector,
    OperatorFigures,
    SectionGuard,
    StreamFigures,
)
from ullage.metrics.cost import CostFigures
from ullage.metrics.devices import DeviceFigures
from ullage.metrics.histograms import (
    decision_seconds,
    division_seconds,
    observed_slowdown,
    predicted_slowdown,
)
from ullage.metrics.pools import PoolFigures
from ullage.metrics.sharing import ModelFigures, SharingFigures
from ullage.metrics.spending import SpendFigures
from ullage.metrics.tiers import TierFigures
from ullage.metrics.turns import TurnFigures

SOURCE: Final = "operator/ullage/app/settings.py"
WORDS: Final = {str: "text", int: "whole number", float: "number"}
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


def operator_settings(root: Path) -> list[Setting]:
    """Every setting of the operator, in the order of its code.

    Raises:
        FactsMissing: a field has no docstring.
    """
    texts = attribute_texts(root / SOURCE)
    rows: list[Setting] = []
    for variable, (section, field, kind) in variables().items():
        owner = SECTIONS[section] if section else Settings
        levels = LOG_LEVELS if field == "log_level" else ()
        rows.append(
            Setting(
                variable=variable,
                kind="one of" if levels else WORDS[kind],
                choices=levels,
                default=str(getattr(owner(), field)),
                meaning=meaning_of(texts, owner.__name__, field),
            )
        )
    return rows


def operator_metrics() -> list[MetricFact]:
    """Every metric of the operator."""
    registry = CollectorRegistry(auto_describe=False)
    guard = SectionGuard()
    guard.failures["cost"] = 1
    registry.register(OperatorCollector(_example, guard))
    return metric_facts(generate_latest(registry).decode())


def _example() -> OperatorFigures:
    """One of everything, so that every family shows its labels."""
    stream = StreamFigures(name="pods", age_s=0.0, objects=0, relists=0, drift=0, errors=0)
    return OperatorFigures(
        leading=True,
        epoch=1,
        loop_lag_s=0.0,
        streams=[stream],
        decision_seconds=decision_seconds(),
        timeouts=0,
        crashes=0,
        pokes=Counter(pods=1),
        skipped=Counter({"not-leading": 1}),
        failed=Counter(SolverTimeout=1),
        decision_age_s=0.0,
        actions=Counter(CreatePod=1),
        writes={("create", "Pod", "ok"): 1},
        queue_depth=0,
        fenced=0,
        assumed=0,
        assume_expired=0,
        projection_errors={"pods": 1},
        task_failures={"pools": 1},
        set_aside={"workloads": 1},
        faults={"workloads": 1},
        foreign_pods=0,
        workloads={("TrainingJob", "Running"): 1},
        waiting={"NoCapacity": 1},
        requeues={"Capacity": 1},
        sharing=_sharing_example(),
        cost=CostFigures(
            dollars={"research": 1.0},
            evictions={"research": 1.0},
            lost_seconds={"research": 1.0},
            per_hour={"research": 1.0},
            savings={"research": 0.5},
        ),
        tiers=TierFigures(stages={2: 1}, most_lag=1, lost_steps=2),
        spend=SpendFigures(
            cost_per_work={"research": 1.0}, switches={"Spot": 1}, deadlines={"yes": 1}
        ),
        turns=TurnFigures(
            allocation={("emulated", "research"): 1.0},
            received={("emulated", "research"): 1.0},
            deficit={("emulated", "research"): 1.0},
            preemptions={"turn": 1},
            divisions=division_seconds(),
        ),
        pools=_pools_example(),
        devices=DeviceFigures(errors={("emulated", "Estimated"): 0.1}, regrets={"emulated": 1.0}),
    )


def _pools_example() -> PoolFigures:
    pool = PoolRecord(
        name="spot-a",
        instance_type="p3.2xlarge",
        zone="us-east-1a",
        capacity_type=CapacityType.SPOT,
        accelerator="tesla-v100-sxm2-16gb",
        status=PoolStatus(price=1.0, hazard_per_hour=0.1, nodes=1),
    )
    return PoolFigures(pools=(pool,), answers={"read": 1})


def _sharing_example() -> SharingFigures:
    predicted, observed = predicted_slowdown(), observed_slowdown()
    for slowdown in (predicted, observed):
        slowdown.labels("emulated")
    return SharingFigures(
        decisions={("admitted", "Placed", "G1"): 1},
        predicted=predicted,
        observed=observed,
        coverage={"G1": 0.9},
        error=0.1,
        violations={"neighbours": 1},
        probation_seconds=0.0,
        unusable={"Share": 1},
        profiles=1,
        models={"emulated": ModelFigures(rung=3, rows=1, version=1, failing=False)},
        lessons={"done": 1},
        learning_seconds=0.0,
    )
