# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A service behind a router, and a closed-loop load on it, for end-to-end tests."""

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

from bench import wake
from e2e.stack import Json, Stack, eventually, served_template, share

KIND = "inferencedeployments.ullage.dev"
ROW = {"name": "pixels", "datatype": "FP64", "shape": [1, 64], "data": [8.0] * 64}
BODY = json.dumps({"inputs": [ROW]}).encode()


def service(namespace: str, replicas: int = 2, hidden: str = "64", **spec: Any) -> Json:
    """The service; ``hidden`` makes requests take longer."""
    router = {"cpu": "50m", "memory": "512Mi"}
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": "reader", "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "slo": {"latencyMs": 2000, "percentile": 99},
            "batching": {"router": router, "holdSeconds": 600, "limits": {"queueMemory": "64Mi"}},
            "template": served_template(
                "digits.batched", "/v2/health/ready", HIDDEN=hidden, TRAIN_STEPS="20"
            ),
            "gpu": share(20, 30),
            **spec,
        },
    }


def status_of(stack: Stack, namespace: str) -> Json:
    """The service's status."""
    return stack.status(KIND, "reader", namespace)


def condition_of(stack: Stack, namespace: str, type_: str) -> Json:
    """One of its conditions; empty where it has none."""
    conditions = status_of(stack, namespace).get("conditions", [])
    return next((one for one in conditions if one["type"] == type_), {})


def serves(stack: Stack, namespace: str, replicas: int) -> str:
    """The URL of inference, once the router and so many replicas are ready."""

    def look() -> bool:
        ready = status_of(stack, namespace).get("readyReplicas", 0) == replicas
        return ready and condition_of(stack, namespace, "RouterReady").get("status") == "True"

    try:
        eventually(look, within_s=180, what=f"the router and {replicas} replicas are ready")
    except AssertionError as error:
        raise AssertionError(f"{error}; {status_of(stack, namespace)}") from None
    url = url_of(stack, namespace)
    eventually(lambda: not ask(url), within_s=60, what=f"{url} answers")
    return url


def url_of(stack: Stack, namespace: str) -> str:
    """Where it answers inference."""
    there = stack.get("service", "reader", namespace)
    assert there is not None
    return f"http://{there['spec']['clusterIP']}:8080/v2/models/digits/infer"


def lives(url: str) -> bool:
    """Whether the router answers, with or without replicas."""
    live = f"{url.split('/v2/')[0]}/v2/health/live"
    try:
        with urllib.request.urlopen(live, timeout=5) as response:
            return bool(response.status == HTTPStatus.OK)
    except OSError:
        return False


def ask(url: str, timeout_s: float = 600.0) -> str:
    """What is wrong with the answer; empty = nothing."""
    asked = urllib.request.Request(url, BODY, wake.HEADERS)
    try:
        with urllib.request.urlopen(asked, timeout=timeout_s) as response:
            outputs = json.loads(response.read())["outputs"]
            return "" if len(outputs[0]["data"]) == 1 else f"{outputs}"
    except (urllib.error.URLError, OSError, ValueError, KeyError) as error:
        return repr(error)


class Load:
    """Eight clients, each asking again as soon as it is answered."""

    def __init__(self, url: str, timeout_s: float = 600.0) -> None:
        self.answered = 0
        self.errors: list[str] = []
        self._url, self._timeout_s, self._done = url, timeout_s, threading.Event()
        self._clients = [threading.Thread(target=self._run, daemon=True) for _ in range(8)]
        for client in self._clients:
            client.start()

    def _run(self) -> None:
        while not self._done.is_set():
            problem = ask(self._url, self._timeout_s)
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
            client.join(timeout=600)


@contextmanager
def loaded(url: str, timeout_s: float = 600.0) -> Iterator[Load]:
    """Eight clients ask while this lasts."""
    load = Load(url, timeout_s)
    try:
        load.more(20)
        yield load
    finally:
        load.finish()


def routers(stack: Stack, namespace: str) -> list[Json]:
    """Pods of its router."""
    return stack.list("pods", namespace, "ullage.dev/router")


def replicas_of(stack: Stack, namespace: str) -> list[str]:
    """Names of replicas that stay."""
    pods = stack.pods(namespace, "reader")
    return [one["metadata"]["name"] for one in pods if "deletionTimestamp" not in one["metadata"]]


def metrics_of(stack: Stack, namespace: str) -> str:
    """What the only router tells."""
    (router,) = routers(stack, namespace)
    url = f"http://{router['status']['podIP']}:9464/metrics"
    with urllib.request.urlopen(url, timeout=60) as response:
        page: str = response.read().decode()
    return page


def figure(page: str, name: str) -> float:
    """Sum of a metric's samples."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))
