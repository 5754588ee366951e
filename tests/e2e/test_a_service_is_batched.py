# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A service behind a router: batched, and nothing lost when replicas die, roll, sleep or wake."""

from __future__ import annotations

import json
import threading

from e2e.routed import (
    KIND,
    ask,
    condition_of,
    figure,
    lives,
    loaded,
    metrics_of,
    replicas_of,
    routers,
    serves,
    service,
    status_of,
    url_of,
)
from e2e.stack import Stack, eventually


def test_requests_are_answered_in_batches_and_nothing_is_lost(stack: Stack, namespace: str) -> None:
    stack.apply(service(namespace))
    url = serves(stack, namespace, 2)
    assert status_of(stack, namespace)["endpoint"].endswith(":8080")
    (router,) = routers(stack, namespace)
    assert router["spec"]["automountServiceAccountToken"] is False
    why = stack.cluster.kubectl("get", KIND, "reader", "--namespace", namespace, "-o", "yaml")
    assert "RouterReady" in why.stdout
    with loaded(url) as load:
        load.more(600)
        # a replica is killed: its requests run elsewhere
        victim = replicas_of(stack, namespace)[0]
        kill = ("delete", "pod", victim, "--namespace", namespace, "--grace-period=0", "--force")
        stack.cluster.kubectl(*kill)
        load.more(200)
        serves(stack, namespace, 2)
        # a rolling update of the replicas
        before = set(replicas_of(stack, namespace))
        stack.apply(service(namespace, hidden="32"))
        eventually(
            lambda: before.isdisjoint(replicas_of(stack, namespace)),
            within_s=240,
            what="all replicas are new ones",
        )
        load.more(100)
        # the router itself rolls
        changed = service(namespace, hidden="32")
        changed["spec"]["batching"]["sizes"] = [1, 2, 4]
        stack.apply(changed)
        name = router["metadata"]["name"]
        eventually(
            lambda: name not in {one["metadata"]["name"] for one in routers(stack, namespace)},
            within_s=180,
            what="the router is a new one",
        )
        load.more(100)
    assert load.errors == []
    page = metrics_of(stack, namespace)
    requests = figure(page, "ullage_batch_size_sum")
    assert requests > figure(page, "ullage_batch_size_count"), "some batches held several"
    stack.books_balance()


def test_a_router_holds_requests_until_the_first_replica_is_ready(
    stack: Stack, namespace: str
) -> None:
    stack.apply(service(namespace, replicas=0))
    eventually(
        lambda: condition_of(stack, namespace, "RouterReady").get("status") == "True",
        within_s=120,
        what="the router is ready without replicas",
    )
    url = url_of(stack, namespace)
    # a ready pod behind a Service is reached a moment later, once its node's proxy knows it
    eventually(lambda: lives(url), within_s=60, what=f"the Service reaches the router at {url}")
    found: list[str] = []
    client = threading.Thread(target=lambda: found.append(ask(url)))
    client.start()

    def waits() -> bool:
        assert found == [], "the request is held, not answered"
        return figure(metrics_of(stack, namespace), "ullage_queue_length") == 1

    eventually(waits, within_s=30, what="the request waits")
    stack.cluster.kubectl("scale", KIND, "reader", "--namespace", namespace, "--replicas", "1")
    client.join(timeout=600)
    assert found == [""]
    eventually(
        lambda: figure(metrics_of(stack, namespace), "ullage_wake_seconds_count") == 1,
        within_s=30,
        what="the wake is counted",
    )


def test_a_router_comes_and_goes_without_a_gap(stack: Stack, namespace: str) -> None:
    direct = service(namespace, replicas=1)
    batching = direct["spec"].pop("batching")
    stack.apply(direct)
    eventually(
        lambda: status_of(stack, namespace).get("readyReplicas") == 1,
        within_s=180,
        what="the replica is ready",
    )
    url = url_of(stack, namespace)
    eventually(lambda: not ask(url), within_s=60, what=f"{url} answers")
    with loaded(url) as load:
        routed = service(namespace, replicas=1)
        routed["spec"]["batching"] = batching
        stack.apply(routed)
        serves(stack, namespace, 1)
        load.more(100)
        remove = json.dumps([{"op": "remove", "path": "/spec/batching"}])
        patch = ("patch", KIND, "reader", "--namespace", namespace, "--type", "json")
        stack.cluster.kubectl(*patch, "--patch", remove)
        eventually(
            lambda: not routers(stack, namespace),
            within_s=120,
            what="the router has gone",
        )
        load.more(100)
    assert load.errors == []
    eventually(
        lambda: stack.get("service", "reader-replicas", namespace) is None,
        within_s=60,
        what="the router's way to the replicas has gone",
    )
