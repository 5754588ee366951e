# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Training on every device that a service leaves: a replica more takes one back, and it returns."""

from __future__ import annotations

from e2e.served import (
    HEAVY_PER_S,
    LIGHT_PER_S,
    offered,
    scaled_service,
    status_of,
    until,
    url_of,
)
from e2e.stack import Json, Stack, eventually, share, training_job

MOST_OF_IT = 60
"""Percent of a device that only one workload can have of it."""


def _devices(stack: Stack) -> int:
    return sum(len(node["status"].get("devices", [])) for node in stack.list("gpunodes.ullage.dev"))


def _running(stack: Stack, namespace: str) -> set[str]:
    jobs = stack.list("trainingjobs.ullage.dev", namespace)
    return {
        one["metadata"]["name"] for one in jobs if one.get("status", {}).get("phase") == "Running"
    }


def test_a_replica_takes_a_device_back_and_training_returns(stack: Stack, namespace: str) -> None:
    stack.apply(scaled_service(namespace, "SLO", gpu=share(MOST_OF_IT)))
    until(
        stack,
        namespace,
        "a ready replica",
        120,
        lambda it: it.get("status", {}).get("readyReplicas") == 1,
    )
    url = url_of(stack, namespace)
    names = {f"fills-{number}" for number in range(_devices(stack) - 1)}
    for name in sorted(names):
        stack.apply(
            training_job(name, namespace, gpu=share(MOST_OF_IT), checkpoint={"graceSeconds": 5})
        )
    eventually(
        lambda: _running(stack, namespace) == names,
        within_s=180,
        what="training runs on every device that the service leaves",
    )

    def taken_back() -> Json | None:
        events = [event for name in names for event in stack.events(namespace, name)]
        return next((one for one in events if one["reason"] == "Preempted"), None)

    with offered(url, HEAVY_PER_S):
        event = eventually(taken_back, within_s=240, what="training makes way for a replica")
        assert "whose load needs the devices back" in event["message"]
        until(
            stack,
            namespace,
            "two ready replicas",
            240,
            lambda it: it.get("status", {}).get("readyReplicas", 0) >= 2,
        )
        assert status_of(stack, namespace)["scaling"]["chosen"]["replicas"] >= 2
        assert len(_running(stack, namespace)) < len(names)
    with offered(url, LIGHT_PER_S):
        until(stack, namespace, "one replica again", 420, lambda it: it["spec"]["replicas"] == 1)
        eventually(
            lambda: _running(stack, namespace) == names,
            within_s=420,
            what="all training runs again",
        )
    stack.books_balance()
