# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A service behind a router: batched, and nothing lost when replicas die, roll, sleep or wake."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from demo.images import image_name
from e2e.stack import Json, Stack, eventually, share

KIND = "inferencedeployments.ullage.dev"
ROW = {"name": "pixels", "datatype": "FP64", "shape": [1, 64], "data": [8.0] * 64}
BODY = json.dumps({"inputs": [ROW]}).encode()


def _service(namespace: str, replicas: int = 2, hidden: str = "64", **spec: Any) -> Json:
    values = {"PORT": "8080", "HIDDEN": hidden, "TRAIN_STEPS": "20", "OPENBLAS_NUM_THREADS": "1"}
    container = {
        "name": "server",
        "image": image_name("examples"),
        "imagePullPolicy": "Never",
        "command": ["python", "-m", "digits.batched"],
        "env": [{"name": name, "value": value} for name, value in values.items()],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {
            "httpGet": {"path": "/v2/health/ready", "port": "http"},
            "periodSeconds": 1,
        },
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
    }
    router = {"cpu": "50m", "memory": "512Mi"}
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": "reader", "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "slo": {"latencyMs": 2000, "percentile": 99},
            "batching": {"router": router, "holdSeconds": 120, "limits": {"queueMemory": "64Mi"}},
            "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 15}},
            "gpu": share(20, 30),
            **spec,
        },
    }


def _status(stack: Stack, namespace: str) -> Json:
    return stack.status(KIND, "reader", namespace)


def _condition(stack: Stack, namespace: str, type_: str) -> Json:
    conditions = _status(stack, namespace).get("conditions", [])
    return next((one for one in conditions if one["type"] == type_), {})


def _serves(stack: Stack, namespace: str, replicas: int) -> str:
    """The URL of inference, once the router and so many replicas are ready."""

    def look() -> bool:
        ready = _status(stack, namespace).get("readyReplicas", 0) == replicas
        return ready and _condition(stack, namespace, "RouterReady").get("status") == "True"

    try:
        eventually(look, within_s=180, what=f"the router and {replicas} replicas are ready")
    except AssertionError as error:
        raise AssertionError(f"{error}; {_status(stack, namespace)}") from None
    url = _url(stack, namespace)
    eventually(lambda: not _ask(url), within_s=60, what=f"{url} answers")
    return url


def _url(stack: Stack, namespace: str) -> str:
    service = stack.get("service", "reader", namespace)
    assert service is not None
    return f"http://{service['spec']['clusterIP']}:8080/v2/models/digits/infer"


def _lives(url: str) -> bool:
    """Whether the router answers, with or without replicas."""
    live = f"{url.split('/v2/')[0]}/v2/health/live"
    try:
        with urllib.request.urlopen(live, timeout=5) as response:
            return bool(response.status == HTTPStatus.OK)
    except OSError:
        return False


def _ask(url: str, timeout_s: float = 150.0) -> str:
    """What is wrong with the answer; empty = nothing."""
    asked = urllib.request.Request(url, BODY, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=timeout_s) as response:
            outputs = json.loads(response.read())["outputs"]
            return "" if len(outputs[0]["data"]) == 1 else f"{outputs}"
    except (urllib.error.URLError, OSError, ValueError, KeyError) as error:
        return repr(error)


class Load:
    """Eight clients, each asking again as soon as it is answered."""

    def __init__(self, url: str) -> None:
        self.answered = 0
        self.errors: list[str] = []
        self._url, self._done = url, threading.Event()
        self._clients = [threading.Thread(target=self._run, daemon=True) for _ in range(8)]
        for client in self._clients:
            client.start()

    def _run(self) -> None:
        while not self._done.is_set():
            problem = _ask(self._url)
            if problem:
                self.errors.append(problem)
            else:
                self.answered += 1
            time.sleep(0.01)

    def more(self, count: int) -> None:
        """Wait until so many more are answered."""
        until = self.answered + count
        eventually(lambda: self.answered >= until, within_s=120, what=f"{count} more answers")

    def finish(self) -> None:
        self._done.set()
        for client in self._clients:
            client.join(timeout=160)


@contextmanager
def _loaded(url: str) -> Iterator[Load]:
    load = Load(url)
    try:
        load.more(20)
        yield load
    finally:
        load.finish()


def _routers(stack: Stack, namespace: str) -> list[Json]:
    return stack.list("pods", namespace, "ullage.dev/router")


def _replicas(stack: Stack, namespace: str) -> list[str]:
    pods = stack.pods(namespace, "reader")
    return [one["metadata"]["name"] for one in pods if "deletionTimestamp" not in one["metadata"]]


def _metrics(stack: Stack, namespace: str) -> str:
    (router,) = _routers(stack, namespace)
    url = f"http://{router['status']['podIP']}:9464/metrics"
    with urllib.request.urlopen(url, timeout=10) as response:
        page: str = response.read().decode()
    return page


def _figure(page: str, name: str) -> float:
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))


def test_requests_are_answered_in_batches_and_nothing_is_lost(stack: Stack, namespace: str) -> None:
    stack.apply(_service(namespace))
    url = _serves(stack, namespace, 2)
    assert _status(stack, namespace)["endpoint"].endswith(":8080")
    (router,) = _routers(stack, namespace)
    assert router["spec"]["automountServiceAccountToken"] is False
    why = stack.cluster.kubectl("get", KIND, "reader", "--namespace", namespace, "-o", "yaml")
    assert "RouterReady" in why.stdout
    with _loaded(url) as load:
        load.more(600)
        # a replica is killed: its requests run elsewhere
        victim = _replicas(stack, namespace)[0]
        kill = ("delete", "pod", victim, "--namespace", namespace, "--grace-period=0", "--force")
        stack.cluster.kubectl(*kill)
        load.more(200)
        _serves(stack, namespace, 2)
        # a rolling update of the replicas
        before = set(_replicas(stack, namespace))
        stack.apply(_service(namespace, hidden="32"))
        eventually(
            lambda: before.isdisjoint(_replicas(stack, namespace)),
            within_s=240,
            what="all replicas are new ones",
        )
        load.more(100)
        # the router itself rolls
        changed = _service(namespace, hidden="32")
        changed["spec"]["batching"]["sizes"] = [1, 2, 4]
        stack.apply(changed)
        name = router["metadata"]["name"]
        eventually(
            lambda: name not in {one["metadata"]["name"] for one in _routers(stack, namespace)},
            within_s=180,
            what="the router is a new one",
        )
        load.more(100)
    assert load.errors == []
    page = _metrics(stack, namespace)
    requests = _figure(page, "ullage_batch_size_sum")
    assert requests > _figure(page, "ullage_batch_size_count"), "some batches held several"
    stack.books_balance()


def test_a_router_holds_requests_until_the_first_replica_is_ready(
    stack: Stack, namespace: str
) -> None:
    stack.apply(_service(namespace, replicas=0))
    eventually(
        lambda: _condition(stack, namespace, "RouterReady").get("status") == "True",
        within_s=120,
        what="the router is ready without replicas",
    )
    url = _url(stack, namespace)
    # a ready pod behind a Service is reached a moment later, once its node's proxy knows it
    eventually(lambda: _lives(url), within_s=60, what=f"the Service reaches the router at {url}")
    found: list[str] = []
    client = threading.Thread(target=lambda: found.append(_ask(url)))
    client.start()

    def waits() -> bool:
        assert found == [], "the request is held, not answered"
        return _figure(_metrics(stack, namespace), "ullage_queue_length") == 1

    eventually(waits, within_s=30, what="the request waits")
    stack.cluster.kubectl("scale", KIND, "reader", "--namespace", namespace, "--replicas", "1")
    client.join(timeout=150)
    assert found == [""]
    assert _figure(_metrics(stack, namespace), "ullage_wake_seconds_count") == 1


def test_a_router_comes_and_goes_without_a_gap(stack: Stack, namespace: str) -> None:
    direct = _service(namespace, replicas=1)
    batching = direct["spec"].pop("batching")
    stack.apply(direct)
    eventually(
        lambda: _status(stack, namespace).get("readyReplicas") == 1,
        within_s=180,
        what="the replica is ready",
    )
    url = _url(stack, namespace)
    eventually(lambda: not _ask(url), within_s=60, what=f"{url} answers")
    with _loaded(url) as load:
        routed = _service(namespace, replicas=1)
        routed["spec"]["batching"] = batching
        stack.apply(routed)
        _serves(stack, namespace, 1)
        load.more(100)
        remove = json.dumps([{"op": "remove", "path": "/spec/batching"}])
        patch = ("patch", KIND, "reader", "--namespace", namespace, "--type", "json")
        stack.cluster.kubectl(*patch, "--patch", remove)
        eventually(
            lambda: not _routers(stack, namespace),
            within_s=120,
            what="the router has gone",
        )
        load.more(100)
    assert load.errors == []
    assert stack.get("service", "reader-replicas", namespace) is None
