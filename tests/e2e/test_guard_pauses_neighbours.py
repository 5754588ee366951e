# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Interference on a real node: the neighbour is frozen by the kernel, told of it, and goes on.

Slices of an emulated device cannot take more than their quota from one another, so interference is
injected: the neighbour sends packets, and the victim waits while they come. Waiting costs it no
CPU time, so its reference stays what it is; a frozen neighbour sends nothing.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.install import NAMESPACE
from e2e.stack import Json, Stack, busy_template, eventually, share, training_job

CGROUP = Path("/sys/fs/cgroup")
PORT = "9999"
NODE = "node-1"
VICTIM = """
import signal, socket, sys, time
import ullage_run
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
inbox.bind(("0.0.0.0", int(sys.argv[1])))
inbox.setblocking(False)
heard = 0.0
while True:
    sum(i * i for i in range(20000))
    try:
        while inbox.recv(16):
            heard = time.monotonic()
    except BlockingIOError:
        pass
    if time.monotonic() - heard < 0.2:
        time.sleep(0.15)
    ullage_run.step()
"""
WELL_PORT = 8080
NEIGHBOUR = f"""
import http.server, signal, socket, sys, threading, time
class Well(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
well = http.server.HTTPServer(("", {WELL_PORT}), Well)
threading.Thread(target=well.serve_forever, daemon=True).start()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
time.sleep(float(sys.argv[3]))
while True:
    out.sendto(b"noise", (sys.argv[1], int(sys.argv[2])))
    time.sleep(0.02)
"""
WARM_UP_SECONDS = 12.0
"""The guard looks away while a container warms up, and needs a reference of its step time."""


def _template(program: str, *words: str, **more: Json) -> Json:
    command = ["python3", "-c", program, *words]
    template = busy_template(container={"command": command, **more})
    template["spec"]["nodeSelector"] = {"kubernetes.io/hostname": NODE}
    return template


@dataclass(frozen=True, slots=True)
class Pair:
    """A job with an objective, and the one that disturbs it."""

    namespace: str
    victim_uid: str
    neighbour_uid: str
    freezers: list[Path]


POLICY = {
    "apiVersion": "ullage.dev/v1alpha1",
    "kind": "SchedulingPolicy",
    "metadata": {"name": "default"},
    "spec": {"risk": {"predictor": "UtilisationSum"}},
}


@pytest.fixture
def no_trials(stack: Stack) -> Iterator[None]:
    """Strangers join as if they were known, so that the guard alone deals with them."""
    stack.apply(POLICY)
    yield
    stack.cluster.kubectl("delete", "schedulingpolicies.ullage.dev", "default")


@pytest.fixture
def pair(stack: Stack, namespace: str, no_trials: None) -> Pair:
    """Both run; the neighbour begins to disturb once the victim is known."""
    return _start(stack, namespace)


def _start(stack: Stack, namespace: str, **more: Json) -> Pair:
    job = training_job(
        "victim", namespace, _template(VICTIM, PORT), gpu=share(50), slo={"maxSlowdown": "4"}
    )
    stack.apply(job)
    stack.job_reaches("victim", namespace, "Running")
    (victim,) = stack.pods(namespace, "victim")
    words = (victim["status"]["podIP"], PORT, str(WARM_UP_SECONDS))
    noise = _template(NEIGHBOUR, *words, **more)
    stack.apply(training_job("noise", namespace, noise, gpu=share(20)))
    stack.job_reaches("noise", namespace, "Running")
    (pod,) = stack.pods(namespace, "noise")
    uid = pod["metadata"]["uid"]
    return Pair(namespace, victim["metadata"]["uid"], uid, _freezers(uid))


def _freezers(pod_uid: str) -> list[Path]:
    """The files in which the kernel says whether containers of a pod stand still."""
    found: list[Path] = []
    for uid in {pod_uid, pod_uid.replace("-", "_")}:
        found += (CGROUP / "freezer").glob(f"**/*pod{uid}*/*/freezer.state")
        if (CGROUP / "cgroup.controllers").exists():
            found += CGROUP.glob(f"**/*pod{uid}*/*/cgroup.events")
    assert found, "no control group of the pod"
    return found


def _is_frozen(pair: Pair) -> bool:
    """What the kernel says of any container of the neighbour; one that is gone is not frozen."""
    texts = [file.read_text().splitlines() for file in pair.freezers if file.exists()]
    return any({"FROZEN", "frozen 1"} & set(lines) for lines in texts)


def _moved(stack: Stack, pair: Pair) -> bool:
    """Whether the neighbour was taken off the victim's device: its pod is gone or another."""
    return pair.neighbour_uid not in {
        pod["metadata"]["uid"] for pod in stack.pods(pair.namespace, "noise")
    }


def _slice(stack: Stack, pod_uid: str) -> Json:
    node = stack.get("gpunodes.ullage.dev", NODE) or {}
    slices = node.get("status", {}).get("slices", [])
    return next((one for one in slices if one["podUID"] == pod_uid), {})


def _reasons(stack: Stack, namespace: str, pod: str) -> set[str]:
    return {event["reason"] for event in stack.events(namespace, pod)}


def _until_frozen(pair: Pair) -> None:
    eventually(lambda: _is_frozen(pair), within_s=120, what="it is frozen", every_s=0.02)


def test_a_disturbing_neighbour_is_paused_named_and_moved(stack: Stack, pair: Pair) -> None:
    _until_frozen(pair)
    told = {"BestEffortPaused", "Interfering"}
    eventually(
        lambda: told <= _reasons(stack, pair.namespace, "noise-0"), within_s=30, what="Events"
    )
    eventually(lambda: _moved(stack, pair), within_s=60, what="it leaves the victim's device")
    assert not _is_frozen(pair)
    victim = stack.pods(pair.namespace, "victim")
    assert [pod["metadata"]["uid"] for pod in victim] == [pair.victim_uid]
    assert _restarts(stack, pair.namespace, "victim") == [0]
    stack.books_balance()


def test_an_agent_that_dies_leaves_no_one_frozen(stack: Stack, pair: Pair) -> None:
    _until_frozen(pair)
    for process in _agents(stack):
        os.kill(process, signal.SIGKILL)
    eventually(lambda: not _is_frozen(pair), within_s=30, what="it runs again", every_s=0.05)
    stack.cluster.kubectl(
        "rollout", "status", "daemonset/ullage-node", "--namespace", NAMESPACE, "--timeout=600s"
    )
    stack.books_balance()


def test_a_stranger_that_disturbs_fails_its_trial(stack: Stack, namespace: str) -> None:
    pair = _start(stack, namespace)
    eventually(lambda: _moved(stack, pair), within_s=100, what="the trial is taken back")
    stack.tells(namespace, "noise", "ProbationRolledBack")
    victim = stack.pods(namespace, "victim")
    assert [pod["metadata"]["uid"] for pod in victim] == [pair.victim_uid]
    stack.books_balance()


def test_a_probe_never_kills_whoever_is_paused(
    stack: Stack, namespace: str, no_trials: None
) -> None:
    # a command would have to start in a small part of a core: on a busy machine that takes seconds
    asked = {"httpGet": {"path": "/", "port": WELL_PORT}, "timeoutSeconds": 3}
    lives = asked | {"periodSeconds": 3, "failureThreshold": 2}
    starts = asked | {"periodSeconds": 1, "failureThreshold": 300}
    pair = _start(stack, namespace, livenessProbe=lives, startupProbe=starts)
    _until_frozen(pair)
    eventually(lambda: not _is_frozen(pair), within_s=30, what="it runs again", every_s=0.02)
    time.sleep(7)  # kubelet would have killed it by now
    assert not any(_restarts(stack, namespace, "noise"))


def _restarts(stack: Stack, namespace: str, owner: str) -> list[int]:
    return [
        status["restartCount"]
        for pod in stack.pods(namespace, owner)
        for status in pod["status"].get("containerStatuses", ())
    ]


def _agents(stack: Stack) -> list[int]:
    """Processes of the cluster that are node agents and not guards."""
    found = []
    for process in stack.cluster.processes_of_pods():
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if any(word.endswith(b"/ullage-node") for word in words) and b"guard" not in words:
            found.append(process)
    assert found, "no agent runs"
    return found
