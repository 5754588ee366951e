# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A service that scales by its objective, and an open-loop load on it, for end-to-end tests.

The server answers one request at a time and sleeps for each, so that how long one takes does not
depend on how busy the machine of the test is: always as long, or as long as its share makes it.
"""

from __future__ import annotations

import asyncio
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random

from bench import mixed_load
from bench.mixed_record import Request
from demo.images import image_name
from e2e.stack import PATIENT, Json, Stack, eventually, share

SERVICE_S = 0.1
BY_SHARE = "BY_SHARE"
"""Environment of a server whose requests take longer with less of a device."""
SLOW_NODE = "SLOW_NODE"
"""Environment of a server whose requests take longer on a node: its name."""
SLOWER = 3
SERVER = f"""
import http.server, os, signal, threading, time
from ullage_run import requests
one = threading.Lock()
seconds = {SERVICE_S}
if "{BY_SHARE}" in os.environ:
    seconds *= 100 / int(os.environ["ULLAGE_PERCENT"])
if "{SLOW_NODE}" in os.environ and os.environ["{SLOW_NODE}"] == os.environ["NODE"]:
    seconds *= {SLOWER}
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.reply(requests.metrics_text().encode() if self.path == "/metrics" else b"well")
    def do_POST(self):
        began = time.monotonic()
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with one:
            time.sleep(seconds)
        requests.observe(time.monotonic() - began)
        self.reply(b"done")
    def reply(self, body):
        self.send_response(200)
        self.send_header("Content-Type", requests.CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True
    def log_message(self, *_):
        pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
server = Server(("", 8080), Answer)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
"""
KIND = "inferencedeployments.ullage.dev"
NAME = "scaled"
LIGHT_PER_S, HEAVY_PER_S = 1.0, 14.0
"""One replica serves ten a second; fourteen need at least two."""
MOST = 3
LONGEST_S = 900.0
ANSWER_S = 60.0
"""After that a client takes its request for lost."""


def scaled_service(namespace: str, policy: str, gpu: Json | None = None) -> Json:
    """The service; a part of a device unless said otherwise."""
    container = {
        "name": "server",
        "image": image_name("examples"),
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", SERVER],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {
            "httpGet": {"path": "/healthz", "port": 8080},
            "periodSeconds": 1,
            **PATIENT,
        },
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
    }
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "template": {"spec": {"containers": [container]}},
            "gpu": gpu or share(20, 30),
            "slo": {"latencyMs": 1000, "percentile": 95},
            "scaling": {"minReplicas": 1, "maxReplicas": MOST, "policy": policy},
        },
    }


def resizable_service(namespace: str, least: int, most: int, latency_ms: int) -> Json:
    """The same with requests that take 1 / share; its share may follow the objective."""
    body = scaled_service(namespace, "SLO", share(least, most, memory={"limit": "256Mi"}))
    spec = body["spec"]
    spec["template"]["spec"]["containers"][0]["env"] = [{"name": BY_SHARE, "value": "yes"}]
    spec["slo"]["latencyMs"] = latency_ms
    spec["sharing"] = {"resizable": "Restart"}
    return body


class Offer(threading.Thread):
    """An open-loop load, until it is told to end."""

    def __init__(self, url: str, per_s: float) -> None:
        super().__init__(daemon=True)
        self._url, self._per_s = url, per_s
        self._over = threading.Event()
        self.made: list[Request] = []

    def run(self) -> None:
        asyncio.run(self._offered())

    def finish(self) -> None:
        self._over.set()
        self.join(timeout=120)

    async def _offered(self) -> None:
        draw, at, due_s = Random(1), 0.0, []
        while at < LONGEST_S:
            at += draw.expovariate(self._per_s)
            due_s.append(at)
        began = asyncio.get_running_loop().time()
        load = asyncio.create_task(mixed_load.offer(self._url, due_s, began, self.made, ANSWER_S))
        while not self._over.is_set() and not load.done():
            await asyncio.sleep(0.2)
        load.cancel()
        with suppress(asyncio.CancelledError):
            await load


@contextmanager
def offered(url: str, per_s: float) -> Iterator[Offer]:
    """Requests come while this lasts."""
    load = Offer(url, per_s)
    load.start()
    try:
        yield load
    finally:
        load.finish()


def status_of(stack: Stack, namespace: str) -> Json:
    """The service's status."""
    return stack.status(KIND, NAME, namespace)


def replicas_of(stack: Stack, namespace: str) -> int:
    """Replicas that are asked for."""
    found = stack.get(KIND, NAME, namespace)
    assert found is not None
    return int(found["spec"]["replicas"])


def until(
    stack: Stack, namespace: str, what: str, within_s: float, reached: Callable[[Json], object]
) -> Json:
    """The service's object once a condition on it holds; what it said last where it never does."""

    def look() -> Json | None:
        found = stack.get(KIND, NAME, namespace)
        return found if found is not None and reached(found) else None

    try:
        return eventually(look, within_s=within_s, every_s=2.0, what=what)
    except AssertionError as error:
        raise AssertionError(f"{error}; {status_of(stack, namespace)}") from None


def url_of(stack: Stack, namespace: str) -> str:
    """Where the service answers, once it does."""
    service = stack.get("service", NAME, namespace)
    assert service is not None
    url = f"http://{service['spec']['clusterIP']}:8080"

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{url}/healthz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    eventually(answers, within_s=60, what=f"{url} answers")
    return url
