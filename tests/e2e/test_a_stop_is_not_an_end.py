# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A program that saves and ends with exit code 0 on SIGTERM is stopped, however it is stopped."""

from __future__ import annotations

import json

from e2e.stack import Stack, busy_template, eventually, share, training_job

SAVES = """
import signal, sys, time

def save(*_):
    print("saved", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    time.sleep(1)
"""


def test_a_job_that_is_deleted_evicted_and_suspended_goes_on_each_time(
    stack: Stack, namespace: str
) -> None:
    template = busy_template(container={"command": ["python3", "-c", SAVES]})
    work, saves = {"steps": 100_000}, {"graceSeconds": 5}
    job = training_job("saves", namespace, template, gpu=share(20), checkpoint=saves, work=work)
    stack.apply(job)
    first = _started_after(stack, namespace)
    stack.delete("pod", "saves-0", namespace)
    second = _started_after(stack, namespace, first)
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "saves-0", "namespace": namespace},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/saves-0/eviction"  # as kubectl drain sends it
    stack.cluster.kubectl("create", "--raw", path, "--filename", "-", stdin=json.dumps(eviction))
    third = _started_after(stack, namespace, first, second)
    stack.patch("trainingjob.ullage.dev", "saves", namespace, {"spec": {"suspend": True}})
    status = stack.job_reaches("saves", namespace, "Suspended")
    assert not status.get("completionTime")
    assert status.get("restarts", 0) == 0
    assert status.get("progress", {}).get("percent", 0) == 0
    stack.patch("trainingjob.ullage.dev", "saves", namespace, {"spec": {"suspend": False}})
    _started_after(stack, namespace, first, second, third)


def _started_after(stack: Stack, namespace: str, *before: str) -> str:
    """Wait for another pod whose program listens to SIGTERM; its uid."""

    def look() -> str:
        phase = stack.job("saves", namespace).get("phase")
        assert phase not in ("Succeeded", "Failed"), "the job goes on"
        for pod in stack.pods(namespace, "saves"):
            uid = str(pod["metadata"]["uid"])
            running = pod["status"].get("phase") == "Running"
            if uid not in before and running and "ready" in stack.logs("saves-0", namespace):
                return uid
        return ""

    return eventually(look, within_s=90, what="the program of the next start listens")
