# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A generative service behind a router: answers stream, and a dead replica ends only its own."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from http.client import HTTPException

from e2e.stack import Json, Stack, eventually, served_template, share

KIND = "inferencedeployments.ullage.dev"
NEVER = {"256": -100}
"""The token that ends an answer is not drawn."""


def _service(namespace: str) -> Json:
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": "writer", "namespace": namespace},
        "spec": {
            "replicas": 2,
            "slo": {"latencyMs": 20_000, "percentile": 95, "metric": "ttft"},
            "batching": {
                "sizes": [1],
                "inFlight": 4,
                "generative": {"cacheLimitPercent": 90},
                "router": {"cpu": "50m", "memory": "512Mi"},
                "limits": {"queueMemory": "64Mi"},
            },
            "template": served_template("generative.serve", "/health", PLACES="4"),
            "gpu": share(20, 30),
        },
    }


def _stream(url: str, tokens: int) -> tuple[int, str]:
    """Tokens of an answer, and how it ended: ``whole``, or the last that was read of it."""
    body = {"prompt": "abc", "max_tokens": tokens, "stream": True, "logit_bias": NEVER}
    asked = urllib.request.Request(url, json.dumps(body).encode())
    seen = b""
    try:
        with urllib.request.urlopen(asked, timeout=120) as response:
            for line in response:
                seen += line
    except (urllib.error.URLError, HTTPException, OSError) as error:
        return seen.count(b'"finish_reason": null'), f"{error!r} {seen[-200:]!r}"
    ended = "whole" if seen.endswith(b"data: [DONE]\n\n") else f"{seen[-200:]!r}"
    return seen.count(b'"finish_reason": null'), ended


def _figure(stack: Stack, namespace: str, metric: str) -> float:
    """A gauge of the service's router."""
    (router,) = stack.list("pods", namespace, "ullage.dev/router")
    with urllib.request.urlopen(
        f"http://{router['status']['podIP']}:9464/metrics", timeout=60
    ) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{metric} "))


def test_answers_stream_and_a_dead_replica_ends_only_its_own(stack: Stack, namespace: str) -> None:
    stack.apply(_service(namespace))

    def ready() -> bool:
        status = stack.status(KIND, "writer", namespace)
        conditions = {one["type"]: one["status"] for one in status.get("conditions", [])}
        return status.get("readyReplicas", 0) == 2 and conditions.get("RouterReady") == "True"

    eventually(ready, within_s=180, what="the router and 2 replicas are ready")
    service = stack.get("service", "writer", namespace)
    assert service is not None
    url = f"http://{service['spec']['clusterIP']}:8080/v1/completions"
    eventually(lambda: _stream(url, 3) == (3, "whole"), within_s=60, what="an answer streams")
    eventually(
        lambda: _figure(stack, namespace, "ullage_replicas_up") == 2,
        within_s=30,
        what="the router gives requests to both replicas",
    )

    answers: list[tuple[int, str]] = []
    killed = threading.Event()

    def client() -> None:
        """Asks again, however soon an answer ends, until a replica is killed."""
        while True:
            answers.append(_stream(url, 900))
            if killed.is_set():
                break

    clients = [threading.Thread(target=client, daemon=True) for _ in range(4)]
    for thread in clients:
        thread.start()
    eventually(
        lambda: _figure(stack, namespace, "ullage_requests_in_flight") == 4,
        within_s=30,
        what="four answers run",
    )
    victim = stack.pods(namespace, "writer")[0]["metadata"]["name"]
    kill = ("delete", "pod", victim, "--namespace", namespace, "--grace-period=0", "--force")
    stack.cluster.kubectl(*kill)
    killed.set()
    for thread in clients:
        thread.join(timeout=600)
    assert len(answers) >= 4
    whole = [tokens for tokens, ended in answers if ended == "whole"]
    assert whole, answers
    assert whole == [900] * len(whole)
    assert all('"error":' in ended for _, ended in answers if ended != "whole"), answers
    eventually(lambda: _stream(url, 3) == (3, "whole"), within_s=60, what="an answer streams")
