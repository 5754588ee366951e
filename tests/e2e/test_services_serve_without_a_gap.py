# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Inference deployments: placed like jobs, scaled, and updated without a dropped request."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

from demo.images import image_name
from e2e.stack import PATIENT, Json, Stack, eventually, share

ANSWER_S = 60
"""After that a client takes its request for dropped."""
SERVER = """
import http.server, signal, sys, threading
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = sys.argv[1].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("", 8080), Answer)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
"""


def _service(name: str, namespace: str, version: str = "one", **spec: Any) -> Json:
    container = {
        "name": "server",
        "image": image_name("examples"),
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", SERVER, version],
        "ports": [{"containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1} | PATIENT,
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
    }
    container |= spec.pop("container", {})
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "template": {"spec": {"containers": [container]}},
            "gpu": share(30, 40),
            **spec,
        },
    }


def _status(stack: Stack, name: str, namespace: str) -> Json:
    return stack.status("inferencedeployments.ullage.dev", name, namespace)


def _ready(stack: Stack, name: str, namespace: str, replicas: int) -> Json:
    def look() -> Json | None:
        seen = _status(stack, name, namespace)
        return seen if seen.get("readyReplicas", 0) == replicas else None

    try:
        return eventually(look, within_s=120, what=f"{replicas} ready replicas of {name}")
    except AssertionError as error:
        raise AssertionError(f"{error}; {_status(stack, name, namespace)}") from None


def _address(stack: Stack, name: str, namespace: str) -> str:
    """Where the service answers; a moment passes until every node's proxy knows a new endpoint."""
    service = stack.get("service", name, namespace)
    assert service is not None
    url = f"http://{service['spec']['clusterIP']}:8080/"
    eventually(lambda: _get(url), within_s=30, what=f"{url} answers")
    return url


def _get(url: str) -> str:
    """What the service answers; empty when it does not."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            answer: str = response.read().decode()
    except OSError:
        return ""
    return answer


class Load(threading.Thread):
    """Asks every 20 ms, each time on a new connection, and keeps what failed."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.answers: list[str] = []
        self.errors: list[str] = []
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.is_set():
            try:
                with urllib.request.urlopen(self.url, timeout=ANSWER_S) as response:
                    self.answers.append(response.read().decode())
            except (urllib.error.URLError, OSError) as error:
                self.errors.append(repr(error))
            time.sleep(0.02)

    def finish(self) -> None:
        self._done.set()
        self.join(timeout=2 * ANSWER_S)


def test_a_service_answers_and_scales(stack: Stack, namespace: str) -> None:
    stack.apply(_service("web", namespace, scaling={"minReplicas": 1, "maxReplicas": 2}))
    status = _ready(stack, "web", namespace, 1)
    assert status["phase"] == "Ready"
    assert status["endpoint"]
    url = _address(stack, "web", namespace)
    eventually(lambda: _get(url) == "one", within_s=30, what="the replica's own answer")
    scale = ["scale", "inferencedeployments.ullage.dev", "web", "--namespace", namespace]
    stack.cluster.kubectl(*scale, "--replicas", "2")
    assert len(_ready(stack, "web", namespace, 2)["placement"]) == 2
    refused = stack.cluster.kubectl(*scale, "--replicas", "3", check=False)
    assert refused.returncode != 0
    assert "maxReplicas" in refused.stderr
    stack.books_balance()


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_rolling_update_drops_no_request(stack: Stack, namespace: str, replicas: int) -> None:
    stack.apply(_service("web", namespace, "one", replicas=replicas))
    _ready(stack, "web", namespace, replicas)
    load = Load(_address(stack, "web", namespace))
    load.start()
    eventually(lambda: "one" in load.answers, within_s=30, what="the old version answers")
    stack.apply(_service("web", namespace, "two", replicas=replicas))

    def updated() -> bool:
        return load.answers[-20:] == ["two"] * 20 and not [
            pod for pod in stack.pods(namespace) if "deletionTimestamp" in pod["metadata"]
        ]

    try:
        eventually(updated, within_s=120, what="only the new version answers")
    finally:
        load.finish()
    assert load.errors == []
    assert "one" in load.answers
    stack.books_balance()


def test_an_update_without_room_to_surge_waits_and_says_so(stack: Stack, namespace: str) -> None:
    stack.apply(_service("big", namespace, "one", gpu=share(80)))
    _ready(stack, "big", namespace, 1)
    stack.apply(_service("full", namespace, "one", gpu=share(80)))
    _ready(stack, "full", namespace, 1)
    stack.apply(_service("big", namespace, "two", gpu=share(80)))

    def told() -> bool:
        decision = _status(stack, "big", namespace).get("decision", {})
        return decision.get("reason") == "NoRoomToSurge"

    eventually(told, within_s=60, what="NoRoomToSurge")
    assert _status(stack, "big", namespace)["readyReplicas"] == 1
    stack.delete("inferencedeployment.ullage.dev", "full", namespace)

    url = _address(stack, "big", namespace)
    eventually(lambda: _get(url) == "two", within_s=120, what="the update went on")


def test_a_service_without_a_port_is_told_so(stack: Stack, namespace: str) -> None:
    stack.apply(_service("mute", namespace, container={"ports": [], "readinessProbe": None}))

    def told() -> bool:
        decision = _status(stack, "mute", namespace).get("decision", {})
        return decision.get("reason") == "NoPort"

    eventually(told, within_s=30, what="NoPort")
