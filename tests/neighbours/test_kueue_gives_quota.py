# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pods of ours in a queue of Kueue wait for its quota, however long, and hold nothing meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.stack import Json, Stack, busy_template, eventually, share, training_job
from neighbours.controllers import KUEUE, controller, remove_webhooks
from neighbours.kueue import (
    GATE,
    GROUP,
    GROUP_SIZE,
    QUEUE,
    applied,
    cluster_queue,
    flavor,
    local_queue,
)
from ullage.api.labels import GATE as OUR_GATE
from ullage.api.labels import SLOT_RESOURCE

TEAM = "team"
LONGER_THAN_ANY_LIMIT_S = 75
"""Schedule and start of a pod are given up after 60 s, a reservation after 30 s."""


@pytest.fixture
def queues(stack: Stack, namespace: str, tmp_path: Path) -> Iterator[Stack]:
    """Kueue with quota for one slot; the flavor sends pods to nodes with emulated devices."""
    try:
        with controller(stack.cluster, KUEUE, tmp_path):
            nodes = flavor("emulated", {"ullage.dev/accelerator": "emulated"})
            for body in (nodes, quota(1), local_queue(TEAM, namespace)):
                eventually(
                    lambda body=body: applied(stack, body), within_s=60, what="webhooks answer"
                )
            yield stack
            # pods in a queue go with Kueue's help only
            stack.cluster.kubectl(
                "delete", "trainingjobs.ullage.dev", "--all", "--namespace", namespace
            )
            for pod in stack.pods(namespace):  # of a group they stay until others replace them
                done = stack.cluster.kubectl(
                    "patch", "pod", pod["metadata"]["name"], "--namespace", namespace,
                    "--type", "merge", "--patch", '{"metadata": {"finalizers": null}}',
                    check=False,
                )  # fmt: skip
                assert done.returncode == 0 or "NotFound" in done.stderr, done.stderr
            stack.cluster.kubectl(
                "delete", "pods", "--all", "--namespace", namespace, "--timeout=600s"
            )
            stack.cluster.kubectl(
                "delete", "localqueues.kueue.x-k8s.io", "--all", "--namespace", namespace
            )
            stack.cluster.kubectl("delete", "clusterqueues.kueue.x-k8s.io", TEAM)
    finally:
        remove_webhooks(stack.cluster, KUEUE)


def quota(slots: int) -> Json:
    return cluster_queue(TEAM, "emulated", {"cpu": 8, "memory": "8Gi", SLOT_RESOURCE: slots})


def queued(
    name: str, namespace: str, seconds: float = 3600, group: int = 0, **spec: object
) -> Json:
    """A TrainingJob whose template names the queue; of ``group`` pods that Kueue admits at once."""
    template = busy_template(seconds)
    template["metadata"] = {"labels": {QUEUE: TEAM}}
    if group:
        template["metadata"]["labels"][GROUP] = name
        template["metadata"]["annotations"] = {GROUP_SIZE: str(group)}
    return training_job(name, namespace, template, gpu=share(20), **spec)


def slices_of(stack: Stack, namespace: str, owner: str) -> list[Json]:
    """Slices that nodes are to hold, or hold, for pods of a job."""
    return [
        one
        for node in stack.list("gpunodes.ullage.dev")
        for one in (*node["spec"].get("slices", []), *node.get("status", {}).get("slices", []))
        if one.get("podNamespace") == namespace and one["podName"].startswith(f"{owner}-")
    ]


def test_a_job_waits_for_quota_longer_than_any_time_limit_and_starts_when_it_is_free(
    queues: Stack, namespace: str
) -> None:
    queues.apply(queued("first", namespace))
    queues.job_reaches("first", namespace, "Running")
    queues.apply(queued("second", namespace, seconds=3))
    decision = queues.job_waits_for("second", namespace, "WaitingForGate")
    assert GATE in decision["message"]
    (before,) = queues.pods(namespace, "second")
    gates = {gate["name"] for gate in before["spec"]["schedulingGates"]}
    assert gates >= {OUR_GATE, GATE}
    until = time.monotonic() + LONGER_THAN_ANY_LIMIT_S
    while time.monotonic() < until:
        assert slices_of(queues, namespace, "second") == []
        time.sleep(5)
    (after,) = queues.pods(namespace, "second")
    assert after["metadata"]["uid"] == before["metadata"]["uid"], "it was not made again"
    status = queues.job("second", namespace)
    assert (status["phase"], status["decision"]["reason"]) == ("Pending", "WaitingForGate")
    assert status.get("restarts", 0) == 0
    waiting = [one for one in queues.events(namespace, "second") if one["reason"] != "Created"]
    assert {(one["type"], one["reason"]) for one in waiting} <= {("Normal", "WaitingForGate")}
    queues.delete("trainingjob.ullage.dev", "first", namespace)
    queues.job_reaches("second", namespace, "Succeeded", within_s=120)
    (done,) = queues.pods(namespace, "second")
    assert done["spec"]["nodeSelector"] == {"ullage.dev/accelerator": "emulated"}, "of the flavor"


def test_a_gang_that_kueue_admits_in_part_holds_nothing(queues: Stack, namespace: str) -> None:
    queues.apply(queued("gang", namespace, seconds=3, replicas=2))
    held = eventually(
        lambda: found if len(found := _held(queues, namespace)) == 1 else None,
        within_s=60,
        what="Kueue admits one of two",
    )
    eventually(
        lambda: _message(queues, namespace).startswith(f"{held[0]} waits"),
        within_s=30,
        what="the message names the one that is held",
    )
    time.sleep(10)
    assert slices_of(queues, namespace, "gang") == []
    queues.apply(quota(2))
    queues.job_reaches("gang", namespace, "Succeeded", within_s=120)


def test_a_gang_that_is_a_group_of_kueue_is_admitted_at_once(queues: Stack, namespace: str) -> None:
    queues.apply(queued("gang", namespace, group=2, replicas=2))
    eventually(
        lambda: "of 2 members" in _message(queues, namespace), within_s=60, what="both are held"
    )
    queues.apply(quota(2))
    queues.job_reaches("gang", namespace, "Running", within_s=120)


def _held(stack: Stack, namespace: str) -> list[str]:
    """Members that Kueue still holds."""
    return [
        pod["metadata"]["name"]
        for pod in stack.pods(namespace, "gang")
        if GATE in {gate["name"] for gate in pod["spec"].get("schedulingGates", [])}
    ]


def _message(stack: Stack, namespace: str) -> str:
    decision = stack.job("gang", namespace).get("decision") or {}
    waits = decision.get("reason") == "WaitingForGate"
    return str(decision.get("message", "")) if waits else ""


def test_while_kueue_is_down_a_job_says_who_refuses_its_pods_and_starts_when_it_is_back(
    stack: Stack, namespace: str, tmp_path: Path
) -> None:
    try:
        with controller(stack.cluster, KUEUE, tmp_path):
            eventually(
                lambda: applied(stack, flavor("any", {})), within_s=60, what="webhooks answer"
            )
        # as Kueue is installed by default, no pod can be made in the whole cluster
        stack.apply(training_job("plain", namespace, busy_template(3)))
        decision = stack.job_waits_for("plain", namespace, "CreateRefused")
        assert "mpod.kb.io" in decision["message"]
        with controller(stack.cluster, KUEUE, tmp_path):
            stack.job_reaches("plain", namespace, "Succeeded", within_s=180)
    finally:
        remove_webhooks(stack.cluster, KUEUE)
