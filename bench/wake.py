# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How long a service that sleeps takes to answer its first request, on the local cluster.

``python -m bench.wake``. The baseline is a plain pod of the same container, from its creation to
its first answer, with as much of a core as the replica's share of the device is; the wake, the
answer to a request that finds no replica. The router's Deployment and the example's image are there
already in both. A plain pod with all of the core is measured, too: it shows what the share itself
costs an emulated device. Figures go into ``autoscale.json``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench import report
from bench.cluster_objects import Json, get
from bench.local import installed
from demo.cluster import Cluster, EmulatedDevice
from demo.images import image_name
from demo.progress import CommandFailed

NAMESPACE: Final = "wake"
NAME: Final = "sleeper"
KIND: Final = "inferencedeployments.ullage.dev"
OF_A_CORE: Final = 60
"""Percent of a core that the device is."""
DEVICES: Final = {"node-1": [EmulatedDevice(core=0, percent=OF_A_CORE)]}
SHARE: Final = 30
"""Percent of the device that a replica has."""
PORT: Final = 8080
IDLE_S: Final = 10
HOLD_S: Final = 300
AT_ONCE: Final = 8
"""Requests that find the service asleep."""
LOOK_S: Final = 0.1
LIMIT_S: Final = 300.0
PATH: Final = "/v2/models/digits/infer"
ROW: Final = {"name": "pixels", "datatype": "FP64", "shape": [1, 64], "data": [8.0] * 64}
BODY: Final = json.dumps({"inputs": [ROW]}).encode()
HEADERS: Final = {"Content-Type": "application/json", "x-deadline-ms": "60000"}
"""A request that a busy machine keeps waiting beyond its deadline is refused, as it should be."""
BARS: Final[report.Bars] = {
    "wake_ratio": lambda found: found <= 1.3,
    "lost": lambda found: found == 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """One wake: how long the first request took, and the requests that were lost."""

    first_s: float
    lost: tuple[str, ...]


def container() -> Json:
    """The digits server as a user writes it."""
    values = {
        "PORT": str(PORT),
        "HIDDEN": "64",
        "TRAIN_STEPS": "20",
        "OPENBLAS_NUM_THREADS": "1",
    }
    return {
        "name": "server",
        "image": image_name("examples"),
        "imagePullPolicy": "Never",
        "command": ["python", "-m", "digits.batched"],
        "env": [{"name": name, "value": value} for name, value in values.items()],
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {
            "httpGet": {"path": "/v2/health/ready", "port": "http"},
            "periodSeconds": 1,
            "timeoutSeconds": 10,
        },
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
    }


def service(namespace: str, idle_s: int = IDLE_S) -> Json:
    """The service that may sleep."""
    pod = {"containers": [container()], "terminationGracePeriodSeconds": 15}
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "slo": {"latencyMs": 2000, "percentile": 99},
            "batching": {
                "router": {"cpu": "50m", "memory": "512Mi"},
                "holdSeconds": HOLD_S,
                "limits": {"queueMemory": "64Mi"},
            },
            "scaling": {
                "minReplicas": 0,
                "maxReplicas": 2,
                "policy": "SLO",
                "idleSeconds": idle_s,
            },
            "template": {"spec": pod},
            "gpu": {"mode": "Fractional", "share": {"minPercent": SHARE, "maxPercent": SHARE}},
        },
    }


def alone_s(cluster: Cluster, namespace: str, *, limited: bool) -> float:
    """Seconds from the creation of a plain pod of the container to its first answer.

    Args:
        cluster: Where.
        namespace: Where.
        limited: Whether it has no more of a core than the replica.
    """
    one = container()
    if limited:
        one["resources"]["limits"] = {"cpu": f"{OF_A_CORE * SHARE // 10}m"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "alone", "namespace": namespace},
        "spec": {"containers": [one], "terminationGracePeriodSeconds": 1},
    }
    began = time.monotonic()
    cluster.kubectl("apply", "--filename", "-", stdin=json.dumps(pod))

    def answered() -> bool:
        address = get(cluster, "pod", "alone", namespace).get("status", {}).get("podIP")
        return bool(address) and not ask(f"http://{address}:{PORT}{PATH}", 1.0)

    within(answered, "the plain pod answers")
    took = time.monotonic() - began
    cluster.kubectl("delete", "pod", "alone", "--namespace", namespace, "--wait")
    return took


def fall_asleep(cluster: Cluster, namespace: str) -> None:
    """Wait until the service has no replica and no pod of one."""

    def sleeps() -> bool:
        if get(cluster, KIND, NAME, namespace)["spec"]["replicas"]:
            return False
        found = get(cluster, "pods", "", namespace, "--selector", f"ullage.dev/owner={NAME}")
        return not found["items"]

    within(sleeps, "the service sleeps")


def wake(url: str) -> Wake:
    """Ask a service that sleeps, with several requests in the same moment."""
    took: list[float] = []
    problems: list[str] = []

    def client() -> None:
        began = time.monotonic()
        problem = ask(url, float(HOLD_S))
        took.append(time.monotonic() - began)
        problems.extend([problem] if problem else [])

    clients = [threading.Thread(target=client) for _ in range(AT_ONCE)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    return Wake(first_s=min(took), lost=tuple(problems))


def url_of(cluster: Cluster, namespace: str) -> str:
    """Where clients ask the service."""
    address = get(cluster, "service", NAME, namespace)["spec"]["clusterIP"]
    return f"http://{address}:{PORT}{PATH}"


def ask(url: str, timeout_s: float) -> str:
    """What is wrong with the answer; empty = nothing."""
    asked = urllib.request.Request(url, BODY, HEADERS)
    try:
        with urllib.request.urlopen(asked, timeout=timeout_s) as response:
            outputs = json.loads(response.read())["outputs"]
            return "" if len(outputs[0]["data"]) == 1 else f"{outputs}"
    except (urllib.error.URLError, OSError, ValueError, KeyError) as error:
        return repr(error)


def within(true: Callable[[], bool], what: str) -> None:
    """Wait for something that must come true.

    Raises:
        CommandFailed: it does not.
    """
    end = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() > end:
            raise CommandFailed(f"not within {LIMIT_S:.0f} s: {what}")
        time.sleep(LOOK_S)


def measure(rounds: int) -> tuple[list[float], list[float], list[Wake]]:
    """Start plain pods, with the replica's part of a core and with all, and wake the service."""
    with installed("wake", DEVICES, logs=("operator", "node")) as (local, steps):
        local.kubectl("create", "namespace", NAMESPACE)
        local.kubectl("apply", "--filename", "-", stdin=json.dumps(service(NAMESPACE)))
        within(
            lambda: get(local, KIND, NAME, NAMESPACE).get("status", {}).get("readyReplicas") == 1,
            "a replica is ready",
        )
        url = url_of(local, NAMESPACE)
        within(lambda: not ask(url, 5.0), f"{url} answers")
        alone, unlimited, wakes = list[float](), list[float](), list[Wake]()
        for number in range(rounds):
            with steps.step(f"sleep and wake {number + 1} of {rounds}"):
                fall_asleep(local, NAMESPACE)
                alone.append(alone_s(local, NAMESPACE, limited=True))
                unlimited.append(alone_s(local, NAMESPACE, limited=False))
                wakes.append(wake(url))
    return alone, unlimited, wakes


def main() -> int:
    """Measure, print one table, add the figures to build/bench/autoscale.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    alone, unlimited, wakes = measure(parser.parse_args().rounds)
    start_s = statistics.median(alone)
    wake_s = statistics.median(one.first_s for one in wakes)
    lost = [problem for one in wakes for problem in one.lost]
    for problem in lost:
        print(f"lost: {problem}", file=sys.stderr)
    figures: dict[str, report.Figure] = {
        "wake_ratio": round(wake_s / start_s, 3),
        "wake_s": round(wake_s, 2),
        "start_s": round(start_s, 2),
        "start_unlimited_s": round(statistics.median(unlimited), 2),
        "wakes": len(wakes),
        "lost": len(lost),
    }
    rows = [
        report.Row(
            what="first answer of a service that slept, seconds (median)",
            ours=f"{wake_s:.2f}",
            baseline=f"{start_s:.2f}",
            limit="1.3 x a plain pod",
        ),
        report.Row(
            what="start of a plain pod with all of the core, seconds (median)",
            ours="",
            baseline=f"{statistics.median(unlimited):.2f}",
        ),
        report.Row(what="requests lost", ours=str(len(lost)), limit="0"),
    ]
    report.write("autoscale", report.figures_before("autoscale") | figures, rows)
    return report.judge(figures, BARS)


if __name__ == "__main__":
    sys.exit(main())
