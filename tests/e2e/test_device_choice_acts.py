# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Jobs get the type and number that are recommended to them on real nodes, or are told why not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from demo.cluster import EmulatedDevice
from e2e.conftest import DEVICES
from e2e.stack import Json, Stack, busy_template, eventually, training_job, whole_device

DEAR, CHEAP = "choice-dear", "choice-cheap"
TYPES = {
    "node-1": [EmulatedDevice(core=0, percent=20, model=DEAR) for _ in range(3)],
    "node-2": [EmulatedDevice(core=1, percent=20, model=CHEAP) for _ in range(3)],
}
PRICES = {DEAR: "4", CHEAP: "0.6"}
RATES = {DEAR: 3.0, CHEAP: 1.0}
STEPS = 36_000
"""Ten hours and 6.00 on the cheap type, a third of the time and 13.33 on the dear one."""
BOTH = [DEAR, CHEAP]


@pytest.fixture
def choice(stack: Stack, namespace: str) -> Iterator[str]:
    """Two types with prices and a class with speeds; as before afterwards."""
    stack.offer(TYPES)
    try:
        stack.apply(_profile(namespace), *(_priced(kind) for kind in PRICES))
        yield namespace
    finally:
        stack.cluster.kubectl("delete", "trainingjobs.ullage.dev", "--all", "-n", namespace)
        stack.cluster.kubectl(
            "delete", "schedulingpolicies.ullage.dev", "default", "--ignore-not-found"
        )
        stack.offer(DEVICES)
        stack.cluster.kubectl("delete", "deviceprofiles.ullage.dev", *PRICES, "--ignore-not-found")


def _priced(kind: str) -> Json:
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "DeviceProfile",
        "metadata": {"name": kind},
        "spec": {"memory": "8Gi", "pricePerHour": PRICES[kind]},
    }


def _profile(namespace: str) -> Json:
    solo = [
        {"device": kind, "share": 100, "stepsPerSecond": rate, "peakMemoryBytes": 2**30}
        for kind, rate in RATES.items()
    ]
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "WorkloadProfile",
        "metadata": {"name": "chooses", "namespace": namespace},
        "spec": {"class": "chooses", "solo": solo},
    }


def _job(
    name: str, namespace: str, cost: Json, workload_class: str = "chooses", **spec: Any
) -> Json:
    template = busy_template()
    template["metadata"] = {"labels": {"ullage.dev/class": workload_class}}
    checkpoint = {"signal": "SIGTERM", "graceSeconds": 2}
    work = {"steps": STEPS}
    return training_job(
        name, namespace, template,
        gpu=whole_device(), checkpoint=checkpoint, work=work, cost=cost, **spec,
    )  # fmt: skip


def _verdict(stack: Stack, name: str, namespace: str) -> tuple[str, str, str]:
    """Status, reason and message of ``AsRecommended``; empty while it is not there."""
    conditions = stack.job(name, namespace).get("conditions", [])
    found = next((one for one in conditions if one["type"] == "AsRecommended"), {})
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def _has(stack: Stack, name: str, namespace: str, said: str, verdict: tuple[str, str]) -> None:
    """Wait until a job has these devices, with this verdict on them."""
    eventually(
        lambda: (found := _verdict(stack, name, namespace))[:2] == verdict and said in found[2],
        within_s=90,
        what=f"{name} {said}: {verdict}; now {_verdict(stack, name, namespace)}",
    )


def test_what_is_recommended_is_what_jobs_get(stack: Stack, choice: str) -> None:
    stack.apply(
        _job("listed", choice, {"objective": "CostPerWork"}, accelerators=BOTH),
        _job("capped", choice, {"maxCost": "8"}),
        _job("too-dear", choice, {"maxCost": "5"}),
        _job("elastic", choice, {"objective": "CostPerWork"},
             elasticity={"minReplicas": 1, "maxReplicas": 3}),
        _job("wide", choice, {"objective": "Makespan"}, replicas=4),
        _job("unknown", choice, {"maxCost": "8"}, "never-ran", accelerators=[DEAR]),
    )  # fmt: skip
    as_wanted = ("True", "Recommended")
    for name in ("listed", "capped", "elastic"):
        _has(stack, name, choice, f"has 1 x {CHEAP}", as_wanted)
    stack.job_waits_for("too-dear", choice, "OverCost")
    stack.job_waits_for("wide", choice, "GangTooLarge")
    _has(stack, "unknown", choice, f"has 1 x {DEAR}", ("False", "NoEstimate"))
    stack.books_balance()
