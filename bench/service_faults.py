# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What becomes of requests to a service behind a router while its processes and nodes fail.

``python -m bench.service_faults --minutes 30 --seed 1`` (root). Requests come at random times at .7
of what the replicas serve, whatever becomes of earlier ones, and no client asks again. Each is
answered in full, answered by an error, cut off with the process or machine that held it, or lost:
no word within the client's patience. A killed process may cut off what it held, and a machine
without power takes what it held with it without a word; nothing else may lose a request.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import aiohttp

from bench.api_client import ApiClient, NotAnswered
from bench.cluster_objects import Json, get
from bench.faults_inject import NODES, Fault, Faults, kill, length_and_seed, processes
from bench.hostile_objects import collection
from bench.local import installed
from bench.progress import Progress
from bench.report import Bars, Figure, counted, judge, write
from bench.wake import KIND, NAME, url_of, within
from demo.cluster import EmulatedDevice, LocalCluster
from demo.images import image_name
from demo.progress import CommandFailed
from ullage.api.labels import LABEL_OWNER, LABEL_ROUTER

NAMESPACE: Final = "service-faults"
DEVICES: Final = {
    "node-1": [EmulatedDevice(core=0, percent=60)],
    "node-2": [EmulatedDevice(core=1, percent=60)],
}
REPLICAS, FIRST = 3, 2
"""On two devices; the third joins one once their latency alone is measured. Two serve the load."""
BATCH_S, ROW_S, MOST_ROWS = 0.04, 0.01, 8
LOAD: Final = 0.7
"""Of what two replicas serve; the third covers for the one that a fault takes."""
PER_S: Final = LOAD * 2 * MOST_ROWS / (BATCH_S + ROW_S * MOST_ROWS)
PATIENCE_S: Final = 45.0
"""Of a client; the router holds a request for 30 s where there is no replica."""
FAULT_S: Final = (10.0, 25.0)
OUTAGE_S: Final = 60.0
"""A machine is away for so long."""
SHORT_S: Final = 5.0
"""So soon after the death of a process what it held is cut off."""
AFTER_S: Final = OUTAGE_S + 6 * SHORT_S
"""So soon after the power went connections to the machine are cut off; it starts slowly."""
POWER_EVERY: Final = 12
"""One fault in so many takes a whole machine."""
SERVER: Final = f"""
import time
import numpy as np
from ullage_run.serving import serve
def read(inputs):
    rows = inputs["pixels"]
    time.sleep({BATCH_S} + {ROW_S} * len(rows))
    return {{"digit": np.zeros(len(rows), dtype=np.int64)}}
serve(read, name="digits", port=8080)
"""
ROW: Final = {"name": "pixels", "datatype": "FP64", "shape": [1, 64], "data": [8.0] * 64}
BODY: Final = json.dumps({"inputs": [ROW]}).encode()
BARS: Final[Bars] = {
    "lost_unexplained": lambda count: count == 0,
    "cut_unexplained": lambda count: count == 0,
}


class End(StrEnum):
    """What became of a request."""

    ANSWERED = "answered"
    ERROR = "error"
    """Answered that it cannot be served; the client may ask again."""
    CUT = "cut"
    """The connection broke, or could not be had: known at once."""
    LOST = "lost"
    """No word within the client's patience."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request; seconds after the load began."""

    due_s: float
    ended_s: float
    end: End
    said: str = ""


@dataclass(slots=True)
class ServiceFaults:
    """Faults of a service's processes and of what they run on; when each came."""

    api: ApiClient
    local: LocalCluster
    dice: random.Random
    done: list[tuple[float, str]] = field(default_factory=list)
    _others: Faults = field(init=False)
    _turn: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._others = Faults(self.api, self.local, NAMESPACE, self.dice)

    def all(self) -> Mapping[str, Fault]:
        """By name; each says what it did, nothing where there was nothing to harm."""
        return {
            "replica killed": lambda: self._kill(LABEL_OWNER),
            "replica deleted": lambda: self._delete(LABEL_OWNER),
            "router killed": lambda: self._kill(LABEL_ROUTER),
            "router deleted": lambda: self._delete(LABEL_ROUTER),
            "agent killed": lambda: self._others.inject("agent"),
            "operator killed": lambda: self._others.inject("operator"),
            "kubelet restarted": lambda: self._others.inject("kubelet"),
        }

    def inject(self, began: float) -> str:
        """One fault, each kind as often; every :data:`POWER_EVERY` th takes a machine."""
        if len(self.done) % POWER_EVERY == POWER_EVERY - 1:
            name = "machine lost"
            self.done.append((time.monotonic() - began, name))
            what = self._power_cut()
        else:
            if not self._turn:
                self._turn = list(self.all())
                self.dice.shuffle(self._turn)
            name = self._turn.pop()
            what = self.all()[name]()
            self.done.append((time.monotonic() - began, name))
        return f"{name}: {what or 'nothing to harm'}"

    def may_cut(self, at_s: float) -> bool:
        """Whether a request that was cut off then was held by something that just died."""
        for when, name in self.done:
            long_s = AFTER_S if name == "machine lost" else SHORT_S
            if name.startswith(("router", "machine")) and when - 1.0 <= at_s <= when + long_s:
                return True
        return False

    def may_lose(self, one: Request) -> bool:
        """Whether a machine lost its power while it may have held a request."""
        return any(
            name == "machine lost" and one.due_s - 1.0 <= when <= one.ended_s
            for when, name in self.done
        )

    def _pods(self, label: str) -> list[Json]:
        selector = f"?labelSelector={label}={NAME}"
        return [
            pod
            for pod in self.api.list(collection("pods", NAMESPACE) + selector)
            if pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def _one_pod(self, label: str) -> str:
        pods = self._pods(label)
        return str(self.dice.choice(pods)["metadata"]["name"]) if pods else ""

    def _kill(self, label: str) -> str:
        name = self._one_pod(label)
        for pid in processes(f"HOSTNAME={name}") if name else ():
            kill(pid)
        return name

    def _delete(self, label: str) -> str:
        name = self._one_pod(label)
        if name:
            self.api.delete(f"{collection('pods', NAMESPACE)}/{name}")
        return name

    def _power_cut(self) -> str:
        node = self.dice.choice(NODES)
        self.local.control("stop", "node", node)
        try:
            time.sleep(OUTAGE_S)
        finally:
            self.local.control("start", "node", node)
        return f"{node} for {OUTAGE_S:.0f} s"


def service() -> Json:
    """Three replicas that batch, behind two routers."""
    container = {
        "name": "server",
        "image": image_name("examples"),
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", SERVER],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {
            "httpGet": {"path": "/v2/health/ready", "port": "http"},
            "periodSeconds": 1,
        },
        "resources": {"requests": {"cpu": "50m", "memory": "96Mi"}},
    }
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "replicas": REPLICAS,
            "slo": {"latencyMs": 2000, "percentile": 99},
            "batching": {
                "sizes": [1, 2, 4, MOST_ROWS],
                "router": {"replicas": 2, "cpu": "50m", "memory": "512Mi"},
                "limits": {"queueMemory": "64Mi"},
            },
            "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 15}},
            "gpu": {"mode": "Fractional", "share": {"minPercent": 20, "maxPercent": 30}},
        },
    }


async def offer(url: str, due_s: Sequence[float], into: list[Request]) -> None:
    """Send each request when it is due; return when the last one has ended."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    connections = aiohttp.TCPConnector(limit=0, keepalive_timeout=5.0)
    patience = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with (
        aiohttp.ClientSession(connector=connections, timeout=patience) as session,
        asyncio.TaskGroup() as tasks,
    ):
        for due in due_s:
            await asyncio.sleep(max(0.0, began + due - loop.time()))
            tasks.create_task(_one(session, url, due, began, into))


async def _one(
    session: aiohttp.ClientSession, url: str, due: float, began: float, into: list[Request]
) -> None:
    end, said = End.ANSWERED, ""
    try:
        async with session.post(url, data=BODY, headers={"Content-Type": "application/json"}) as it:
            text = await it.text()
            if it.status != 200:
                said_by = it.headers.get("Server", "?")
                end, said = End.ERROR, f"{it.status} {text[:120]} ({said_by})"
    except TimeoutError:
        end = End.LOST
    except (aiohttp.ClientError, OSError) as error:
        end, said = End.CUT, repr(error)[:160]
    ended = asyncio.get_running_loop().time() - began
    into.append(Request(due_s=due, ended_s=ended, end=end, said=said))


def play(
    harm: ServiceFaults, url: str, minutes: float, said: Callable[[str], None]
) -> list[Request]:
    """Load and faults side by side, until the time is over."""
    dice, at, due_s = random.Random("arrivals"), 0.0, []
    while at < 60 * minutes:
        at += dice.expovariate(PER_S)
        due_s.append(at)
    made: list[Request] = []
    began, over = time.monotonic(), threading.Event()

    def harms() -> None:
        while not over.wait(harm.dice.uniform(*FAULT_S)):
            try:
                counts = Counter(one.end.value for one in made)
                said(f"{time.monotonic() - began:.0f} s: {harm.inject(began)}; {dict(counts)}")
            except (NotAnswered, CommandFailed) as error:
                said(f"not done: {error}")

    thread = threading.Thread(target=harms, name="faults", daemon=True)
    thread.start()
    try:
        asyncio.run(offer(url, due_s, made))
    finally:
        over.set()
        thread.join()
    return made


def figures_of(made: Sequence[Request], harm: ServiceFaults) -> dict[str, Figure]:
    """Counts of requests and faults; what no fault explains apart."""
    counts = Counter(one.end for one in made)
    cut = [one for one in made if one.end is End.CUT]
    lost = [one for one in made if one.end is End.LOST]
    return {
        "requests": len(made),
        "per_s": round(PER_S, 1),
        **{end.value: counts[end] for end in End},
        "cut_unexplained": sum(not harm.may_cut(one.ended_s) for one in cut),
        "lost_unexplained": sum(not harm.may_lose(one) for one in lost),
        "slower_than_2_s": sum(
            one.end is End.ANSWERED and one.ended_s - one.due_s > 2.0 for one in made
        ),
        "faults": len(harm.done),
        **{f"fault {name}": count for name, count in Counter(at[1] for at in harm.done).items()},
    }


def run(local: LocalCluster, minutes: float, seed: int, said: Callable[[str], None]) -> int:
    """Play on a cluster with Ullage, and write the figures; returns the exit code."""
    local.kubectl("create", "namespace", NAMESPACE)
    local.kubectl("apply", "--filename", "-", stdin=json.dumps(service()))

    def serves() -> bool:
        status = get(local, KIND, NAME, NAMESPACE).get("status", {})
        return bool(status.get("readyReplicas", 0) >= FIRST)

    within(serves, f"{FIRST} replicas are ready")
    url, began = url_of(local, NAMESPACE), time.monotonic()
    harm = ServiceFaults(
        ApiClient(local.kubeconfig), local, random.Random(f"service-faults-{seed}")
    )
    made = play(harm, url, minutes, said)
    figures: dict[str, Figure] = {
        "seed": seed,
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    figures |= figures_of(made, harm)
    for text, count in Counter(one.said for one in made if one.said).most_common(8):
        said(f"{count} x {text}")
    write("service-faults", figures, counted(figures, BARS))
    return judge(figures, BARS)


def main() -> int:
    """Play, print one table, write ``service-faults.json``."""
    options = length_and_seed(__doc__, minutes=30.0)
    logs = ("operator", "node")
    with (
        installed("service-faults", DEVICES, NotAnswered, logs=logs) as (local, _),
        Progress() as progress,
    ):
        return run(local, options.minutes, options.seed, progress.say)


if __name__ == "__main__":
    sys.exit(main())
