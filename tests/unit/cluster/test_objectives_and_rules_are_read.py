# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from builders import a_device
from builders_raw import raw_gpu_node, raw_job, raw_policy, raw_service
from ullage.api.observations import LatencyObjective, Observation
from ullage.api.schedulingpolicy import RiskSettings
from ullage.api.sharing import OfferedLoad, SharingRules
from ullage.cluster.codecs.objects import Sharer
from ullage.cluster.projection.node import project_gpu_node
from ullage.cluster.projection.policy import project_policy
from ullage.cluster.projection.workload import project_workload
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord


def service(**spec: Any) -> WorkloadRecord:
    return project_workload(WorkloadKind.INFERENCE_DEPLOYMENT, raw_service(**spec), None, Sharer())[
        0
    ]


def job(**spec: Any) -> WorkloadRecord:
    return project_workload(WorkloadKind.TRAINING_JOB, raw_job(**spec), None, Sharer())[0]


def test_a_latency_objective_and_a_load_are_read() -> None:
    record = service(
        slo={"latencyMs": 40, "percentile": "99.9", "metric": "m", "windowSeconds": 7},
        load={"requestsPerSecond": "12.5", "cv2": "2"},
        sharing={"allow": False, "resizable": "Restart", "onViolation": "Alert"},
    )
    assert record.slo == LatencyObjective(
        latency_ms=40, percentile="99.9", metric="m", window_seconds=7
    )
    assert record.load == OfferedLoad(requests_per_s=12.5, cv2=2.0)
    assert record.sharing == SharingRules(allow=False, resizable=True, freeze_neighbours=False)
    assert record.max_slowdown is None


def test_what_is_not_said_has_its_default() -> None:
    record = service()
    assert (record.slo, record.load, record.sharing) == (None, None, SharingRules())


def test_a_job_may_name_a_speed_instead_of_a_slowdown() -> None:
    record = job(slo={"minThroughput": "12.5"})
    assert (record.min_throughput, record.max_slowdown) == (12.5, None)
    assert record.slo is None


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"slo": {"latencyMs": 40, "percentile": "200"}}, "is no percentile"),
        ({"slo": {"latencyMs": "40"}}, "latencyMs: expected a whole number"),
        ({"load": {"requestsPerSecond": "many"}}, "load.requestsPerSecond: 'many' is no decimal"),
        ({"load": {"requestsPerSecond": "2", "cv2": "-1"}}, "cv2: '-1' is no decimal number"),
        ({"slo": {"minThroughput": "nan"}}, "slo.latencyMs: missing"),
    ],
)
def test_an_unreadable_objective_says_where_and_what(spec: dict[str, Any], says: str) -> None:
    assert says in service(**spec).invalid


def test_the_risk_budget_has_defaults_and_is_read() -> None:
    assert project_policy(raw_policy())[1].risk == RiskSettings()
    said = {
        "predictor": "UtilisationSum",
        "epsPercent": 2,
        "confidencePercent": 90,
        "minCombinedPercent": 110,
        "probationSecondsPerClass": 0,
    }
    assert project_policy(raw_policy(risk=said))[1].risk == RiskSettings(
        predictor="UtilisationSum",
        eps_percent=2,
        confidence_percent=90,
        min_combined_percent=110,
        probation_seconds_per_class=0,
    )


def test_garbage_among_observations_costs_only_itself() -> None:
    good = Observation(
        id="b",
        workload_class="k",
        namespace="n",
        accelerator="emulated",
        percent=40,
        step_micros=9,
        at_s=1,
    )
    raw = raw_gpu_node(devices=[a_device()])
    raw["status"]["observations"] = [
        good.to_wire(),
        good.to_wire() | {"id": "a"},
        {"id": "c", "class": "k"},
        good.to_wire() | {"id": "d", "stepMicros": "soon"},
    ]
    record = project_gpu_node(raw, 100.0, {})
    assert [one.id for one in record.observations] == ["b", "a"]
    assert record.observations[0] == good
    assert record.unreadable_observations == 2
    assert record.devices == (a_device(),)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"objective": "Makespan", "delayCostPerHour": "1"},
            "cost.delayCostPerHour: cost.delayCostPerHour chooses the size by cost",
        ),
        (
            {"objective": "CostPerWork", "delayCostPerHour": "1"},
            "set its bounds in spec.elasticity",
        ),
    ],
)
def test_a_price_of_delay_that_chooses_nothing_makes_a_job_invalid(
    spec: dict[str, str], said: str
) -> None:
    assert said in job(cost=spec, work={"steps": 5}).invalid
