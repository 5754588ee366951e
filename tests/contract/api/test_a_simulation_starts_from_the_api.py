# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``simulate --from-cluster`` on objects as an API server gives them: new ones without a status,
shares, services beside, nodes that no agent has reported on yet.
"""

from __future__ import annotations

from typing import Any

import pytest

from builders_nodes import a_device
from builders_raw import (
    raw_device_profile,
    raw_gpu_node,
    raw_job,
    raw_node,
    raw_policy,
    raw_profile,
    raw_service,
)
from fakes.apiserver import FakeApiServer
from ullage import ports
from ullage.cli.look import snapshot_of
from ullage.cluster.values.streams import STREAMS
from ullage.kube.client import K8sCluster
from ullage_simulate.comparison import ComparisonRequest, PolicyComparison, compare
from ullage_simulate.from_cluster import fleet_of
from ullage_simulate.trace import JobTraceError

RUNNING = {
    "phase": "Running",
    "progress": {"steps": 400, "total": 1000},
    "placement": [
        {
            "podUID": "uid-train-0", "container": "main", "index": 0, "pod": "train-0",
            "node": "node-1", "gpu": "GPU-0", "percent": 100, "memoryMiB": 1024, "epoch": 7,
        }
    ],
}  # fmt: skip


def _serving(gpu: str, percent: int) -> dict[str, Any]:
    """Status of a service with a replica on a device."""
    placed = {
        "podUID": "uid-serve-0", "container": "server", "index": 0, "pod": "serve-0",
        "node": "node-1", "gpu": gpu, "percent": percent, "memoryMiB": 512, "epoch": 7,
    }  # fmt: skip
    return {"replicas": 1, "readyReplicas": 1, "placement": [placed]}


def _fill(api: FakeApiServer, *, served_percent: int) -> None:
    """Two nodes, one of them new; jobs that run, wait, are new and are over; a service."""
    devices = [a_device(f"GPU-{at}") for at in range(2)]
    share = {"mode": "Fractional", "count": 1, "share": {"minPercent": 30}}
    bare = raw_job("bare")
    del bare["status"]
    new_node = raw_gpu_node("node-2")
    del new_node["status"]
    checkpoint = {"signal": "SIGTERM"}
    objects = [
        (ports.NODE, raw_node("node-1")),
        (ports.NODE, raw_node("node-2")),
        (ports.GPU_NODE, raw_gpu_node("node-1", devices=devices)),
        (ports.GPU_NODE, new_node),
        (ports.TRAINING_JOB, raw_job("runs", status=RUNNING, work={"steps": 1000})),
        (ports.TRAINING_JOB, raw_job("shares", gpu=share, checkpoint=checkpoint)),
        (ports.TRAINING_JOB, bare),
        (ports.TRAINING_JOB, raw_job("over", status={"phase": "Succeeded"})),
        (ports.TRAINING_JOB, raw_job("rests", suspend=True)),
        (ports.TRAINING_JOB, raw_job("broken", gpu={"mode": "Exclusive", "count": "many"})),
        (
            ports.INFERENCE_DEPLOYMENT,
            raw_service("serve", status=_serving("GPU-1", served_percent)),
        ),
        (ports.INFERENCE_DEPLOYMENT, raw_service("fresh")),
        (ports.WORKLOAD_PROFILE, raw_profile("resnet")),
        (ports.DEVICE_PROFILE, raw_device_profile(devices[0].model, pricePerHour="2.50")),
        (ports.SCHEDULING_POLICY, raw_policy("default", objective="MaxMinFairness")),
    ]
    for kind, body in objects:
        api.put(kind, body)


async def _compared(cluster: K8sCluster, mode: str) -> PolicyComparison:
    snapshot = await snapshot_of(cluster, STREAMS)
    asked = ComparisonRequest(
        snapshot=snapshot, policies=("las", "min-cost"), mode=mode, round_s=60.0
    )
    return compare(asked, lambda *_: lambda _: None)


@pytest.mark.parametrize("mode", ["fast", "decide"])
async def test_jobs_as_they_are_run_to_their_end(
    api: FakeApiServer, cluster: K8sCluster, mode: str
) -> None:
    _fill(api, served_percent=20)
    found = await _compared(cluster, mode)
    assert {job.name for job in found.trace.jobs} == {
        "default/runs", "default/shares", "default/bare"
    }  # fmt: skip
    assert sum(found.fleet.devices.values()) == 2
    assert list(found.fleet.prices.values()) == [2.5]
    steps = {job.name: job.steps for job in found.trace.jobs}
    assert steps["default/runs"] == 600
    for outcome in found.outcomes:
        assert len(outcome.jobs) == 3
        assert outcome.dollars > 0
    notes = " ".join(found.trace.notes)
    assert "1 jobs ask for a part of a device" in notes
    assert "have no known speed at all" in notes
    assert "1 jobs cannot be read and are left out" in notes
    assert "1 services have replicas that do not run" in notes


async def test_a_device_that_mostly_serves_is_left_to_its_service(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    _fill(api, served_percent=80)
    found = await _compared(cluster, "fast")
    assert sum(found.fleet.devices.values()) == 1
    assert "1 devices serve and are left to their services." in found.trace.notes


async def test_a_cluster_that_no_one_has_reported_on_says_so(
    api: FakeApiServer, cluster: K8sCluster
) -> None:
    node = raw_gpu_node("node-2")
    del node["status"]
    api.put(ports.GPU_NODE, node)
    snapshot = await snapshot_of(cluster, STREAMS)
    with pytest.raises(JobTraceError, match="no healthy device"):
        fleet_of(snapshot, {})
