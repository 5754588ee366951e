# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Twenty small trainings on two emulated devices: more are resident than their peaks would let."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.stack import RUNNING_PHASES, Json, Stack, eventually

EXAMPLE = Path("examples/12-lanes.yaml")
PROFILES = Path("examples/profiles.yaml")
SHARERS = 8
"""Containers that a device takes (the chart's maxSharers)."""
RESIDENT, LATE = 2 * SHARERS, 4
LASTING_STEPS, STEPS = 1_000_000, 200
"""Of those that are resident until they are deleted, and of those that come when they are gone."""


@pytest.fixture
def summed(stack: Stack) -> Iterator[None]:
    """Shares follow from one sum, so that it is known which lanes there are."""
    policy = {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": "default"},
        "spec": {"risk": {"predictor": "UtilisationSum"}},
    }
    try:
        stack.apply(policy)
        yield
    finally:
        stack.cluster.kubectl(
            "delete", "schedulingpolicies.ullage.dev", "default", "--ignore-not-found"
        )


def _documents(path: Path, namespace: str) -> list[Json]:
    found = list(yaml.safe_load_all(path.read_text()))
    for one in found:
        one["metadata"]["namespace"] = namespace
    return found


def _jobs(namespace: str, numbers: range, steps: int) -> list[Json]:
    """The example with so many steps, under names that the test knows."""
    (job,) = _documents(EXAMPLE, namespace)
    prefix = job["metadata"].pop("generateName")
    job["spec"]["work"]["steps"] = steps
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["env"] = [one for one in container["env"] if one["name"] != "STEPS"]
    container["env"].append({"name": "STEPS", "value": str(steps)})
    return [
        job | {"metadata": job["metadata"] | {"name": f"{prefix}{number:02}"}} for number in numbers
    ]


def _slices(stack: Stack, namespace: str, part: str) -> list[Json]:
    return [
        one
        for node in stack.list("gpunodes.ullage.dev")
        for one in node.get(part, {}).get("slices", [])
        if part == "status" or one["podNamespace"] == namespace
    ]


def _resident(stack: Stack, namespace: str) -> int:
    """Jobs of the namespace that run on a device now."""
    uids = {pod["metadata"]["uid"] for pod in stack.pods(namespace)}
    return sum(
        one["podUID"] in uids and one["phase"] in RUNNING_PHASES
        for one in _slices(stack, namespace, "status")
    )


def _packed(stack: Stack, job: Json) -> int:
    """Jobs that the devices would hold if each kept its peak for itself."""
    lane = job["spec"]["gpu"]["lane"]
    keeps, step = lane["persistent"].removesuffix("Mi"), lane["ephemeral"].removesuffix("Gi")
    peak_mib = int(keeps) + 1024 * int(step)
    devices = [
        device for node in stack.list("gpunodes.ullage.dev") for device in node["status"]["devices"]
    ]
    assert len(devices) == 2
    return sum(device["memoryMiB"] // peak_mib for device in devices)


def test_twenty_small_trainings_share_two_devices(
    stack: Stack, namespace: str, summed: None
) -> None:
    jobs = _jobs(namespace, range(RESIDENT), LASTING_STEPS)
    late = _jobs(namespace, range(RESIDENT, RESIDENT + LATE), STEPS)
    stack.apply(*_documents(PROFILES, namespace), *jobs)
    most = 0

    def held() -> bool:
        nonlocal most
        most = max(most, _resident(stack, namespace))
        return most == RESIDENT

    eventually(held, within_s=240, what=f"{RESIDENT} trainings resident at once")
    assert most > 2 * _packed(stack, jobs[0])
    lanes = defaultdict(set)
    for one in _slices(stack, namespace, "spec"):
        lanes[one["gpu"]].add((one["lane"], one["percent"]))
    assert all(len(found) == 1 for found in lanes.values()), "one lane a device, one share"
    stack.books_balance()

    stack.apply(*late)
    for job in late:
        stack.job_waits_for(job["metadata"]["name"], namespace, "NoCapacity")
    _all_is_well(stack, namespace, jobs)
    for job in jobs:
        stack.delete("trainingjobs.ullage.dev", job["metadata"]["name"], namespace, "--wait=false")
    for job in late:
        stack.job_reaches(job["metadata"]["name"], namespace, "Succeeded", within_s=240)
    _all_is_well(stack, namespace, late)


def _all_is_well(stack: Stack, namespace: str, jobs: list[Json]) -> None:
    """No container died, and no job used more memory than it said."""
    for pod in stack.pods(namespace):
        for container in pod["status"].get("containerStatuses", []):
            ended = container["state"].get("terminated", {})
            assert ended.get("reason") != "OOMKilled"
            assert container["restartCount"] == 0
    for job in jobs:
        reasons = {one["reason"] for one in stack.events(namespace, f"{job['metadata']['name']}-0")}
        assert "MemoryContractExceeded" not in reasons
