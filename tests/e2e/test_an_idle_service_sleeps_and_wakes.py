# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A service without requests gives its device back; the next requests wait and are all answered."""

from __future__ import annotations

import random
import time

from bench import wake
from e2e.stack import Json, Stack, eventually

QUICK_S = 10
SOON_S = 15.0
"""Far longer than a decision takes, far shorter than any other look of the operator."""


def _status(stack: Stack, namespace: str) -> Json:
    return stack.status(wake.KIND, wake.NAME, namespace)


def _spec(stack: Stack, namespace: str) -> Json:
    found = stack.get(wake.KIND, wake.NAME, namespace)
    assert found is not None
    spec: Json = found["spec"]
    return spec


def _reasons(stack: Stack, namespace: str) -> list[str]:
    return [one["reason"] for one in stack.events(namespace, wake.NAME)]


def _serves(stack: Stack, namespace: str) -> str:
    """The URL of the service, once it answers."""
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


def test_an_idle_service_sleeps_and_its_first_requests_wake_it(
    stack: Stack, namespace: str
) -> None:
    stack.apply(wake.service(namespace, QUICK_S))
    url = _serves(stack, namespace)
    _sleeps(stack, namespace)
    slept = _status(stack, namespace)
    assert slept["scaling"]["reason"] == "ScaledToZero"
    assert slept["scaling"]["history"]["asleepSince"]
    assert "ScaledToZero" in _reasons(stack, namespace)
    stack.books_balance()
    assert stack.holdings(namespace)["slices"] == [], "its device is free"
    started_s = wake.alone_s(stack.cluster, namespace, limited=True)
    found = wake.wake(url)
    assert found.lost == ()
    print(f"wake ratio {found.first_s / started_s:.2f}: {found.first_s:.1f} of {started_s:.1f} s")
    assert "Woken" in _reasons(stack, namespace)
    eventually(
        lambda: _status(stack, namespace).get("readyReplicas") == 1,
        within_s=60,
        what="the replica is counted",
    )


def test_the_operator_asks_for_a_replica_soon_after_the_request(
    stack: Stack, namespace: str
) -> None:
    stack.apply(wake.service(namespace, QUICK_S))
    url = _serves(stack, namespace)
    _sleeps(stack, namespace)
    time.sleep(10)  # the operator has found nothing new for a while
    assert _spec(stack, namespace)["replicas"] == 0
    began = time.monotonic()
    assert wake.ask(url, 0.5), "no replica could answer so soon; its client leaves"
    eventually(
        lambda: _spec(stack, namespace)["replicas"] == 1,
        within_s=SOON_S,
        every_s=0.1,
        what="a replica is asked for",
    )
    print(f"a replica was asked for after {time.monotonic() - began:.1f} s")


def test_no_request_is_lost_around_the_moment_of_sleep(stack: Stack, namespace: str) -> None:
    """Requests that come as the last replica goes are answered by it, or by the next one."""
    stack.apply(wake.service(namespace, QUICK_S))
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


def test_a_restart_of_operator_or_router_wakes_nothing_and_loses_nothing(
    stack: Stack, namespace: str
) -> None:
    stack.apply(wake.service(namespace, QUICK_S))
    url = _serves(stack, namespace)
    _sleeps(stack, namespace)
    (router,) = stack.list("pods", namespace, "ullage.dev/router")
    stack.delete("pod", router["metadata"]["name"], namespace, "--wait=false")
    stack.delete("pod", stack.leader(), "ullage-system", "--wait=false")
    eventually(
        lambda: any(
            one["metadata"]["name"] != router["metadata"]["name"]
            and one["status"].get("containerStatuses", [{}])[0].get("ready")
            for one in stack.list("pods", namespace, "ullage.dev/router")
        ),
        within_s=120,
        what="another router is ready",
    )
    time.sleep(20)
    assert _spec(stack, namespace)["replicas"] == 0
    assert wake.wake(url).lost == ()
