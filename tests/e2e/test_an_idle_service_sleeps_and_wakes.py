# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A service without requests gives its device back; the next requests wait and are all answered."""

from __future__ import annotations

import random
import time

from bench import wake
from demo.install import NAMESPACE
from e2e.stack import Json, Stack, eventually, training_job

QUICK_S = 10
NEVER_S = 3600
"""Time enough to look at a state in which it must not fall asleep."""


def _status(stack: Stack, namespace: str) -> Json:
    return stack.status(wake.KIND, wake.NAME, namespace)


def _spec(stack: Stack, namespace: str) -> Json:
    found = stack.get(wake.KIND, wake.NAME, namespace)
    assert found is not None
    spec: Json = found["spec"]
    return spec


def _may_sleep_after(stack: Stack, namespace: str, idle_s: int) -> None:
    change = {"spec": {"scaling": {"idleSeconds": idle_s}}}
    stack.patch(wake.KIND, wake.NAME, namespace, change)


def _serves(stack: Stack, namespace: str) -> str:
    """The URL of a new service that answers; from then on it may sleep."""
    stack.apply(wake.service(namespace, NEVER_S))
    try:
        eventually(
            lambda: _status(stack, namespace).get("readyReplicas") == 1,
            within_s=180,
            what="a replica is ready",
        )
    except AssertionError as error:
        raise AssertionError(f"{error}; {_status(stack, namespace)}") from None
    url = wake.url_of(stack.cluster, namespace)
    eventually(lambda: not wake.ask(url, 5.0), within_s=60, what=f"{url} answers")
    _may_sleep_after(stack, namespace, QUICK_S)
    return url


def _sleeps(stack: Stack, namespace: str) -> None:
    try:
        eventually(
            lambda: (
                _spec(stack, namespace)["replicas"] == 0 and not stack.pods(namespace, wake.NAME)
            ),
            within_s=240,
            what="it has no replica",
        )
    except AssertionError as error:
        raise AssertionError(f"{error}; {_status(stack, namespace)}") from None


def _restart_router_and_leader(stack: Stack, namespace: str) -> None:
    """Others take over, and have looked at the service when this returns."""
    (router,) = stack.list("pods", namespace, "ullage.dev/router")
    leader = stack.leader()
    stack.delete("pod", router["metadata"]["name"], namespace, "--wait=false")
    stack.delete("pod", leader, NAMESPACE, "--wait=false")
    eventually(
        lambda: any(
            one["metadata"]["name"] != router["metadata"]["name"]
            and one["status"].get("containerStatuses", [{}])[0].get("ready")
            for one in stack.list("pods", namespace, "ullage.dev/router")
        ),
        within_s=120,
        what="another router is ready",
    )
    eventually(lambda: stack.leader() not in ("", leader), within_s=60, what="another leads")
    waits = training_job("looks", namespace, accelerators=["no-such-device"])
    stack.apply(waits)
    stack.job_waits_for("looks", namespace, "UnknownAccelerator")


def test_an_idle_service_sleeps_through_restarts_and_its_first_requests_wake_it(
    stack: Stack, namespace: str
) -> None:
    url = _serves(stack, namespace)
    _sleeps(stack, namespace)
    # the status is written after the number of replicas
    eventually(
        lambda: _status(stack, namespace)["scaling"]["reason"] == "ScaledToZero",
        within_s=60,
        what="its status says that it sleeps",
    )
    assert _status(stack, namespace)["scaling"]["history"]["asleepSince"]
    stack.tells(namespace, wake.NAME, "ScaledToZero")
    stack.books_balance()
    assert stack.holdings(namespace)["slices"] == [], "its device is free"
    _restart_router_and_leader(stack, namespace)
    assert _spec(stack, namespace)["replicas"] == 0
    _may_sleep_after(stack, namespace, NEVER_S)
    assert wake.wake(url).lost == ()
    stack.tells(namespace, wake.NAME, "Woken")
    eventually(
        lambda: _status(stack, namespace).get("readyReplicas") == 1,
        within_s=60,
        what="the replica is counted",
    )


def test_no_request_is_lost_around_the_moment_of_sleep(stack: Stack, namespace: str) -> None:
    """Requests that come as the last replica goes are answered by it, or by the next one."""
    url = _serves(stack, namespace)
    draw = random.Random(1)
    for _ in range(2):
        eventually(
            lambda: _status(stack, namespace).get("scaling", {}).get("reason") == "ScaledToZero",
            within_s=300,
            every_s=0.2,
            what="it falls asleep",
        )
        time.sleep(draw.uniform(0.0, 3.0))
        assert wake.wake(url).lost == ()
